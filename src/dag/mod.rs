//! Kernel-level scheduling: serial code in, a schedule of concurrent kernels out.
//!
//! [`Program`] is serial code: kernels and copies in order, each with the bytes that it reads and writes. It comes out of a
//! RON file ([`parse`]) or a recorder ([`Dag`]). [`analyse`] finds what must wait for what, [`all_concurrency`] and
//! [`limited`] put nodes on streams with the fewest waits, [`simulate`] predicts every way of running the result, and
//! [`schedule`] does all of it and chooses. Nothing here knows of a GPU's driver.

mod admit;
mod allocate;
mod bits;
mod costs;
mod dependence;
mod distribute;
mod error;
mod form;
mod limit;
mod matching;
mod program;
mod random;
mod read;
mod read_tiles;
mod record;
mod refine;
mod schedule;
mod shipped;
mod simulate;
mod tiles;
mod times;

pub mod run;

pub use admit::{Admission, Admit, MOST_SLOWDOWN};
pub use allocate::{Allocations, allocate};
pub use costs::{Costs, Demand};
pub use dependence::{Dependences, Edge, Hazards, analyse};
pub use distribute::{Distribution, Lane, Wait, all_concurrency, as_written};
pub use error::DagError;
pub use form::Form;
pub use limit::limited;
pub use program::{
    Access, Buffer, BufferId, Direction, Kernel, LaunchConfig, MAX_NODES, Mode, Node, NodeId, Program,
    StageRef, Work, Zone, ZoneId,
};
pub use random::RandomDag;
pub use read::{MAX_SOURCE, Rates, parse};
pub use record::{Argument, Dag, KernelInfo, Launched, Memory, read, update, write};
pub use refine::{
    MAX_TILES, MAX_WAITS, NodeSync, Refine, Refinement, Tile, TileBytes, Tiles, Unproved, refine,
};
pub use schedule::{Options, Prediction, Schedule, schedule};
pub use shipped::{SHIPPED, shipped};
pub use simulate::{GRACE_US, SURE_SHARE, Timeline, simulate};
pub use tiles::{TileEdge, tile_edges};
pub use times::Times;
