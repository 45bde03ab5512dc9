//! Artifacts that others rely on: packages, documents and kernels.

mod cmake_package;
mod documents;
mod gpu_absent;
mod kernels_compiled;
mod packages;
mod prebuilt;
