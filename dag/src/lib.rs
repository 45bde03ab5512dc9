//! Kernel-level scheduling: serial code in, a schedule of concurrent kernels out.
//!
//! A [`Program`] is serial code: kernels and copies in order, each with the bytes that it reads and writes. It comes
//! from a RON file ([`parse`]) or a recorder ([`Recording`]). [`analyse`] finds the dependences, [`all_concurrency`]
//! and [`limited`] put nodes on streams with the fewest waits, [`simulate`] predicts every form of launching the
//! result, and [`schedule`] does all of it and chooses. Only a proved [`LaunchPlan`] or [`Refinement`] is launched.
//! This crate does not use a GPU driver.
//!
//! ```
//! use cusync_dag::{ScheduleOptions, parse, schedule};
//!
//! let text = r#"Dag(name: "two", buffers: { "x": 4096, "y": 4096, "z": 4096 }, nodes: [
//!     Kernel(name: "one", reads: "x", writes: "y", us: 20.0),
//!     Kernel(name: "other", reads: "x", writes: "z", us: 20.0),
//! ])"#;
//! let options = ScheduleOptions::default();
//! let found = schedule(&parse(text, &[], &options.device)?, &options)?;
//! // The kernels run concurrently.
//! assert!(found.predicted_us() < 40.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admit;
mod arena;
mod argument;
mod bits;
mod bundles;
mod demand;
mod dependence;
mod distribute;
mod emit;
mod error;
mod form;
mod history;
mod lifetimes;
mod limit;
mod lists;
mod matching;
mod network;
mod order;
mod plan;
mod program;
mod random;
mod read;
mod read_tiles;
mod record;
mod refine;
mod reuse;
mod schedule;
mod scratch;
mod shipped;
mod simulate;
mod steps;
mod times;
mod waits;

pub use admit::{Admission, Admit, MOST_SLOWDOWN};
pub use arena::{ALIGNMENT, Arena};
pub use argument::{Addressable, Argument, read, update, write};
pub use demand::Demand;
pub use dependence::{Dependences, Edges, Hazards, NodeDependence, analyse};
pub use distribute::{Distribution, Join, Lane, NodeWait, all_concurrency, as_written};
pub use emit::{cuda, dot};
pub use error::{DagError, Unproved};
pub use form::{Carrier, EdgeSource, Form, ProgrammaticEdges};
pub use history::Cta;
pub use limit::limited;
pub use plan::{GraphPlan, LaunchPlan, Launches, PlanEdge, ProvedPlan, StreamPlan};
pub use program::{
    Access, AccessMode, Buffer, BufferId, Direction, Evidence, Kernel, LaunchConfig, MAX_NODES, MAX_US, Node,
    NodeId, NodeWork, Program, Zone, ZoneId,
};
pub use random::RandomDag;
pub use read::{MAX_SOURCE, copy_us, estimate_us, parse};
pub use record::{Recorded, Recording};
pub use refine::{
    MAX_TILES, MAX_WAITS, NodeSync, ProvedRefinement, Refine, RefinedEdge, Refinement, TileAccesses,
    TileBytes, refine,
};
pub use schedule::{FormPrediction, KernelSchedule, ScheduleOptions, schedule};
pub use scratch::Workspaces;
pub use shipped::{SHIPPED, shipped};
pub use simulate::{GRACE_US, SURE_SHARE, Simulation, simulate};
pub use steps::{LaunchStep, Steps};
pub use times::Times;
