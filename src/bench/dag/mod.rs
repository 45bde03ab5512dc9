//! Kernel-level scheduling measured: the suite, chains, random programs and tasks of different priorities.

mod random;
pub mod suite;

pub use random::{SpinProgram, SpinRecording};
