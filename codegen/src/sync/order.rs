//! Tile orders.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Tile;
use crate::diagnostic::{Diagnostic, Span};

/// Largest group of an order: multiplied by the longest grid, it still fits the 32 bits that kernels use to count
/// tiles.
const MAX_GROUP: u32 = 1024;

/// The order in which a stage's tiles start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Row by row.
    RowMajor,
    /// Column by column.
    ColumnMajor,
    /// `0` rows at a time, column by column inside a group: rows complete early and B tiles are reused in L2.
    GroupedRows(u32),
    /// `0` columns at a time, row by row inside a group.
    GroupedColumns(u32),
    /// Stated tile by tile.
    Table(Vec<Tile>),
}

impl Order {
    /// Rejects groups that fit no grid; `span` is where the order is stated.
    ///
    /// # Errors
    /// A group without tiles, or one too large to count.
    pub fn validate(&self, span: Span) -> Result<(), Diagnostic> {
        match self.group() {
            1..=MAX_GROUP => Ok(()),
            0 => Err(Diagnostic::new("zero", "a group has at least one row or column")
                .at(span, "zero")
                .help("state at least 1")),
            n => Err(Diagnostic::new("group-range", format!("a group of {n} rows or columns of tiles"))
                .at(span, "too large")
                .help(format!(
                    "a group has at most {MAX_GROUP}; `RowMajor` and `ColumnMajor` have no groups"
                ))),
        }
    }

    /// Rows or columns of a group; 1 for orders without groups.
    pub fn group(&self) -> u32 {
        match self {
            Order::GroupedRows(group) | Order::GroupedColumns(group) => *group,
            Order::RowMajor | Order::ColumnMajor | Order::Table(_) => 1,
        }
    }

    /// The tiles of a table as devices number them on a grid, row by row; `None` if a rule gives the order.
    pub fn table(&self, grid: (u32, u32)) -> Option<Vec<u32>> {
        match self {
            Order::Table(tiles) => Some(tiles.iter().map(|tile| tile.m * grid.1 + tile.n).collect()),
            Order::RowMajor | Order::ColumnMajor | Order::GroupedRows(_) | Order::GroupedColumns(_) => None,
        }
    }

    /// Rows or columns of a group on a grid: a group is never empty nor longer than the grid.
    pub fn group_on(&self, (gm, gn): (u32, u32)) -> u32 {
        match self {
            Order::GroupedRows(group) => (*group).clamp(1, gm.max(1)),
            Order::GroupedColumns(group) => (*group).clamp(1, gn.max(1)),
            Order::RowMajor | Order::ColumnMajor | Order::Table(_) => 1,
        }
    }

    /// Tile number `i` on a grid, `0 <= i < grid.0 * grid.1`; `None` past the end of a table.
    pub fn tile_at(&self, grid: (u32, u32), i: u32) -> Option<Tile> {
        let ((gm, gn), group) = (grid, self.group_on(grid));
        Some(match self {
            Order::RowMajor => Tile { m: i / gn, n: i % gn },
            Order::ColumnMajor => Tile { m: i % gm, n: i / gm },
            Order::GroupedRows(_) => {
                let (g, j) = (i / (group * gn), i % (group * gn));
                let rows = group.min(gm - g * group);
                Tile { m: g * group + j % rows, n: j / rows }
            }
            Order::GroupedColumns(_) => {
                let (g, j) = (i / (group * gm), i % (group * gm));
                let cols = group.min(gn - g * group);
                Tile { m: j / cols, n: g * group + j % cols }
            }
            Order::Table(tiles) => *tiles.get(i as usize)?,
        })
    }
}

impl fmt::Display for Order {
    /// In spec notation; a table is shown as a count, not as a list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Table(tiles) => write!(f, "Table of {} tiles", tiles.len()),
            rule => write!(f, "{rule:?}"),
        }
    }
}
