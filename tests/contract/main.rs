//! Artifacts that others rely on: packages, documents and kernels.

mod cmake_package;
mod custom_kernel;
mod documents;
mod gpu_absent;
mod kernels_compiled;
mod packages;
mod prebuilt;
