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
pub mod run;
mod times;

pub use dependence::{Dependences, Edge, Hazards, analyse};
pub use distribute::{Distribution, Lane, Wait, all_concurrency};
pub use error::DagError;
pub use program::{
    Access, Buffer, BufferId, Direction, Kernel, LaunchConfig, MAX_NODES, Mode, Node, NodeId, Program,
    StageRef, Work, Zone, ZoneId,
};
pub use times::Times;
