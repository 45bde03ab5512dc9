//! How tiles of dependent stages are synchronized: policies (producer tile -> semaphore slot), tile orders, the waits
//! of a k-block, and the same as the plain numbers that device code reads.
//!
//! Policies, orders and wait places have one type each and one notation, that of serde: specs, stated configurations,
//! the cache of tuned plans and records of measurements all use it. The arithmetic mirrors
//! `csrc/include/cusync/policy.hpp` and `order.hpp`, which the kernels use; the tests compare the two at every tile.
//!
//! ```
//! use cusync_gen::sync::{Policy, Tile};
//!
//! let slots = Policy::Batched { rows: 2, cols: 1 }.on((4, 3));
//! assert_eq!(slots.slot_of(Tile { m: 0, n: 0 }), slots.slot_of(Tile { m: 1, n: 0 }));
//! assert_eq!(slots.posts_of(slots.slot_of(Tile { m: 3, n: 2 })), 2);
//! ```

mod numbers;
mod order;
mod policy;

pub use numbers::SlotMap;
pub use order::Order;
pub use policy::{Policy, WaitAt};

use serde::{Deserialize, Serialize};

/// Tile coordinates in a stage's grid; written `(m, n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct Tile {
    /// Row of tiles.
    pub m: u32,
    /// Column of tiles.
    pub n: u32,
}

impl From<(u32, u32)> for Tile {
    fn from((m, n): (u32, u32)) -> Tile {
        Tile { m, n }
    }
}

impl From<Tile> for (u32, u32) {
    fn from(tile: Tile) -> (u32, u32) {
        (tile.m, tile.n)
    }
}
