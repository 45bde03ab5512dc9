//! Policies: how the tiles of a producer share semaphore slots, and where consumers wait for them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Diagnostic, Span};

/// How the tiles of a producer share semaphore slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Policy {
    /// One slot per tile.
    Tile,
    /// One slot per row of tiles.
    Row,
    /// One slot for each block of `rows` x `cols` tiles.
    Batched {
        /// Rows of tiles per slot.
        rows: u32,
        /// Columns of tiles per slot.
        cols: u32,
    },
    /// Tiles of a row with equal columns modulo `0`, the number of slot columns, share a slot.
    Strided(u32),
    /// For images that a convolution reads: one slot per row of tiles (all channels), with waits that follow the
    /// filter's rows. Every other policy waits for the whole halo of a tile before its first k-block.
    ConvHalo,
    /// A user's own map, row-major over the grid: slots numbered from 0 without gaps.
    Table(Vec<u32>),
    /// One slot per `width` of an output's `columns` columns. Its producers are even shares of the columns, and each
    /// posts every slot that it has columns of. Only decode kernels have this policy and the next; nobody states them.
    #[serde(skip)]
    Columns {
        /// Columns per slot.
        width: u32,
        /// Columns of the output.
        columns: u32,
    },
    /// No slot: each element is read by the worker that wrote it.
    #[serde(skip)]
    Own,
}

/// Where a consumer's k-loop waits for an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum WaitAt {
    /// Before the first k-block with new slots in its footprint.
    #[default]
    PerKBlock,
    /// Before the first dependent load, for everything the tile reads.
    Start,
}

impl Policy {
    /// Rejects numbers that map tiles to slots on no grid; `span` is where the policy is stated.
    ///
    /// # Errors
    /// Slots without tiles, or a table with gaps in its slot numbers.
    pub fn validate(&self, span: Span) -> Result<(), Diagnostic> {
        let zero = |why| Err(Diagnostic::new("zero", why).at(span, "zero").help("state at least 1"));
        match self {
            Policy::Batched { rows: 0, .. } | Policy::Batched { cols: 0, .. } => {
                zero("a batch has at least one row and one column of tiles")
            }
            Policy::Strided(0) => zero("a stride is at least one tile"),
            Policy::Table(table) => {
                // Slots without gaps are fewer than entries; this also bounds the allocation for the table.
                let mut used = vec![false; table.len()];
                for &slot in table {
                    if let Some(used) = used.get_mut(slot as usize) {
                        *used = true;
                    }
                }
                let gap = used.iter().position(|used| !used).unwrap_or(table.len());
                let last = table.iter().max().copied().unwrap_or(0);
                if !table.is_empty() && gap == last as usize + 1 {
                    return Ok(());
                }
                let message = "the slots of a table are not numbered without gaps";
                Err(Diagnostic::new("table-gap", message)
                    .at(span, format!("no tile posts slot {gap}, the largest slot is {last}"))
                    .help("number the slots 0, 1, 2, ... without a gap, one entry a producer tile"))
            }
            Policy::Tile
            | Policy::Row
            | Policy::Batched { .. }
            | Policy::Strided(_)
            | Policy::ConvHalo
            | Policy::Columns { .. }
            | Policy::Own => Ok(()),
        }
    }
}

impl fmt::Display for Policy {
    /// In spec notation; a table is shown as a count, not as a list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Batched { rows, cols } => write!(f, "Batched(rows: {rows}, cols: {cols})"),
            Policy::Columns { width, columns } => write!(f, "Columns(width: {width}, columns: {columns})"),
            Policy::Table(table) => write!(f, "Table of {} tiles", table.len()),
            rule => write!(f, "{rule:?}"),
        }
    }
}
