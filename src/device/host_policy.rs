//! The policy code of `csrc/include/cusync`, compiled for the host, behind safe types.

use cusync_gen::check::Plan;
use cusync_gen::emit::desc::{EdgeDesc, OrderDesc};
use cusync_gen::graph::{Axis, StageId};
use cusync_gen::sync::Tile;

use crate::ffi;

/// An edge of a plan, with the tables that its C descriptor points into.
#[derive(Clone, Debug)]
pub struct HostEdge(EdgeDesc);

fn axis(a: Axis) -> ffi::cusync_axis {
    ffi::cusync_axis { m: a.m, n: a.n, k: a.k, offset: a.offset, extent: a.extent }
}

/// A slot and the posts that one epoch makes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWait {
    /// Index into the pipeline's semaphores.
    pub slot: u32,
    /// Posts an epoch.
    pub posts: u32,
}

impl HostEdge {
    /// Edge number `edge` of a plan.
    ///
    /// # Panics
    /// The plan has no such edge.
    pub fn new(plan: &Plan, edge: usize) -> Self {
        HostEdge(EdgeDesc::of(plan, edge))
    }

    /// The policy's descriptor; its pointers are into `self`.
    fn policy(&self) -> ffi::cusync_policy {
        let p = &self.0.policy;
        let (table, table_posts) = match &p.table {
            Some((table, posts)) => (table.as_ptr(), posts.as_ptr()),
            None => (std::ptr::null(), std::ptr::null()),
        };
        ffi::cusync_policy {
            grid_m: p.grid.0,
            grid_n: p.grid.1,
            block_m: p.block.0,
            block_n: p.block.1,
            stride_n: p.stride_n,
            slots_n: p.slots_n,
            slot_base: p.slot_base,
            slot_count: p.slot_count,
            table,
            table_posts,
        }
    }

    fn raw(&self) -> ffi::cusync_edge {
        let e = &self.0;
        ffi::cusync_edge {
            policy: self.policy(),
            id: e.id,
            operand: e.operand as u32,
            wait_at: e.wait_at as u32,
            tile_rows: e.tile.0,
            tile_cols: e.tile.1,
            tensor_rows: e.tensor.0,
            tensor_cols: e.tensor.1,
            k_blocks: e.k_blocks,
            rows: axis(e.rows),
            cols: axis(e.cols),
        }
    }

    /// The slot that a producer tile posts.
    ///
    /// # Panics
    /// The tile is outside the producer's grid.
    pub fn slot_of(&self, tile: Tile) -> u32 {
        let grid = self.0.policy.grid;
        assert!(tile.m < grid.0 && tile.n < grid.1, "tile outside the producer's grid");
        let policy = self.policy();
        // SAFETY: the descriptor and its tables outlive the call; the tile is inside the grid, hence the table.
        unsafe { ffi::cusync_host_slot_of(&policy, tile.m, tile.n) }
    }

    /// Fills `out` with what must have been posted before a consumer tile loads k-block `k` of the k-blocks `ks` that it
    /// loads.
    ///
    /// # Panics
    /// `k` is not one of `ks`, or these are not k-blocks of the consumer.
    pub fn waits(&self, tile: Tile, k: u32, ks: &std::ops::Range<u32>, out: &mut Vec<SlotWait>) {
        const INLINE: usize = 64;
        assert!(ks.contains(&k) && ks.end <= self.0.k_blocks, "k-block outside the consumer's loop");
        let edge = self.raw();
        let call = |slots: &mut [u32], posts: &mut [u32]| {
            // SAFETY: descriptor and tables outlive the call; both buffers hold `slots.len()` entries. Footprints
            // are clipped to the tensor, so that no tile outside the producer's grid is looked up.
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
pub struct HostOrder(OrderDesc);

impl HostOrder {
    /// The order of a plan's stage.
    ///
    /// # Panics
    /// The plan has no such stage.
    pub fn new(plan: &Plan, stage: StageId) -> Self {
        HostOrder(OrderDesc::of(plan, stage))
    }

    /// Tile number `i` of the order.
    ///
    /// # Panics
    /// `i` is past the last tile.
    pub fn tile_at(&self, i: u32) -> Tile {
        let order = &self.0;
        let has_table = !order.table.is_empty();
        let tiles = if has_table { order.table.len() as u32 } else { order.grid.0 * order.grid.1 };
        assert!(i < tiles, "tile number past the end of its order");
        let raw = ffi::cusync_order {
            kind: order.kind as u32,
            grid_m: order.grid.0,
            grid_n: order.grid.1,
            group: order.group,
            table: if has_table { order.table.as_ptr() } else { std::ptr::null() },
        };
        let mut tile = Tile { m: 0, n: 0 };
        // SAFETY: descriptor, table and outputs outlive the call; `i` is inside the grid and the table.
        unsafe { ffi::cusync_host_tile_at(&raw, i, &mut tile.m, &mut tile.n) };
        tile
    }
}
