//! Kernel-level scheduling: serial code in, a schedule of concurrent kernels out.
//!
//! [`Program`] is serial code: kernels and copies in order, each with the bytes that it reads and writes. [`analyse`]
//! finds what must wait for what, [`schedule`] puts nodes on streams with the fewest waits and chooses, by a cost model,
//! how the program is run. Nothing here knows of a GPU's driver.

mod bits;
mod dependence;
mod distribute;
mod error;
mod matching;
mod program;
mod read;
mod shipped;
