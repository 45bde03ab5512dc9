//! What others rely on: the command, files, packages, documents and builds.

mod broken_driver;
mod cli_against;
mod cli_contract;
mod cli_output;
mod cli_tune;
mod cmake_package;
mod documents;
mod first_hour;
mod gpu_absent;
mod json_errors;
mod kernel_build;
mod kernels_compiled;
mod obstacles;
mod packages;
mod prebuilt;
mod timelines;
