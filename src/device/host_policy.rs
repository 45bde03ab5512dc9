//! The policy code of `csrc/include/cusync`, compiled for the host, behind safe types.

use cusync_gen::check::{EdgeNumbers, Plan};
use cusync_gen::graph::StageId;
use cusync_gen::sync::{Order, Tile};

use super::words;
use crate::ffi;

/// An edge of a plan, with the tables that its C descriptor points into.
#[derive(Clone, Debug)]
pub struct HostEdge(EdgeNumbers);

/// A slot and the posts it gets per epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWait {
    /// Index into the pipeline's semaphores.
    pub slot: u32,
    /// Posts per epoch.
    pub posts: u32,
}

impl HostEdge {
    /// Edge `edge` of a plan.
    ///
    /// # Panics
    /// The plan has no such edge.
    pub fn new(plan: &Plan, edge: usize) -> Self {
        HostEdge(plan.edges()[edge].numbers().clone())
    }

    /// The C descriptor; its pointers are into `self`.
    fn raw(&self) -> ffi::cusync_edge {
        let tables = self.0.policy.table.as_ref();
        words::edge(&self.0, tables.map(|(slots, posts)| (slots.as_ptr(), posts.as_ptr())))
    }

    /// Its first slot, and whether it has any.
    pub fn slots(&self) -> (u32, bool) {
        (self.0.policy.slot_base, self.0.policy.slot_count > 0)
    }

    /// The slots that a producer tile posts.
    ///
    /// # Panics
    /// The tile is outside the producer's grid.
    pub fn posted_by(&self, tile: Tile) -> std::ops::Range<u32> {
        let grid = self.0.policy.grid;
        assert!(tile.m < grid.0 && tile.n < grid.1, "tile outside the producer's grid");
        let (policy, mut slots) = (self.raw().policy, 0..0);
        // SAFETY: the descriptor, its tables and the range outlive the call; the tile is inside the grid, hence the table.
        unsafe { ffi::cusync_host_posted_by(&policy, tile.m, tile.n, &mut slots.start, &mut slots.end) };
        slots
    }

    /// Fills `out` with the posts that must precede loading k-block `k` of a consumer tile that loads
    /// k-blocks `ks`.
    ///
    /// # Panics
    /// `k` is not in `ks`, or these are not k-blocks of the consumer.
    pub fn waits(&self, tile: Tile, k: u32, ks: &std::ops::Range<u32>, out: &mut Vec<SlotWait>) {
        const INLINE: usize = 64;
        assert!(ks.contains(&k) && ks.end <= self.0.k_blocks, "k-block outside the consumer's loop");
        let edge = self.raw();
        let call = |slots: &mut [u32], posts: &mut [u32]| {
            // SAFETY: descriptor and tables outlive the call; both buffers hold `slots.len()` entries.
            // Footprints are clipped to the tensor, so no tile outside the producer's grid is looked up.
            unsafe {
                ffi::cusync_host_waits(
                    &edge,
                    tile.m,
                    tile.n,
                    k,
                    u32::from(k == ks.start),
                    ks.end,
                    slots.as_mut_ptr(),
                    posts.as_mut_ptr(),
                    slots.len().min(posts.len()) as u32,
                )
            }
        };
        let (mut slots, mut posts) = ([0; INLINE], [0; INLINE]);
        let count = call(&mut slots, &mut posts) as usize;
        out.clear();
        let pair = |(&slot, &posts): (&u32, &u32)| SlotWait { slot, posts };
        if count <= INLINE {
            out.extend(slots.iter().zip(&posts).take(count).map(pair));
        } else {
            let (mut slots, mut posts) = (vec![0; count], vec![0; count]);
            call(&mut slots, &mut posts);
            out.extend(slots.iter().zip(&posts).map(pair));
        }
    }
}

/// A stage's tile order, with the table that its C descriptor points into.
#[derive(Clone, Debug)]
pub struct HostOrder {
    order: Order,
    grid: (u32, u32),
    table: Option<Vec<u32>>,
}

impl HostOrder {
    /// The order of a plan's stage.
    ///
    /// # Panics
    /// The plan has no such stage.
    pub fn new(plan: &Plan, stage: StageId) -> Self {
        let (order, grid) = (plan.launch().order(stage).clone(), plan.graph().stages[stage.0].grid);
        HostOrder { table: order.table(grid), order, grid }
    }

    /// Tile `i` of the order.
    ///
    /// # Panics
    /// `i` is past the last tile.
    pub fn tile_at(&self, i: u32) -> Tile {
        let tiles = self.table.as_ref().map_or(self.grid.0 * self.grid.1, |table| table.len() as u32);
        assert!(i < tiles, "tile number past the end of its order");
        let raw = words::order(&self.order, self.grid, self.table.as_ref().map(|table| table.as_ptr()));
        let mut tile = Tile { m: 0, n: 0 };
        // SAFETY: descriptor, table and outputs outlive the call; `i` is inside the grid and the table.
        unsafe { ffi::cusync_host_tile_at(&raw, i, &mut tile.m, &mut tile.n) };
        tile
    }
}
