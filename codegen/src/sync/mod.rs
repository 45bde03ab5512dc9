//! Policies (producer tile -> semaphore slot) and tile orders, as values.
//!
//! The arithmetic mirrors `csrc/include/cusync/policy.hpp` and `order.hpp`, which kernels run; the tests compare
//! the two at every tile.

mod order;
mod policy;
mod waits;

pub use order::Order;
pub use policy::{Policy, SlotMap};
pub use waits::{TileBox, WaitWalk, each_wait, producers_of, wait_box};

/// Tile coordinates in a stage's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile {
    /// Row of tiles.
    pub m: u32,
    /// Column of tiles.
    pub n: u32,
}

/// Where in the consumer's k-loop an edge is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WaitAt {
    /// Before the first k-block whose footprint enters new slots.
    #[default]
    PerKBlock,
    /// Everything the tile will read, before its first dependent load.
    Start,
}
