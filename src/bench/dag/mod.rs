//! Kernel-level scheduling measured: the suite, chains, random programs and tasks of different priorities.

pub mod suite;
