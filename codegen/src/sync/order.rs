//! Tile orders.

use super::Tile;

/// The order in which a stage's tiles are started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Tile number `i` on a grid, `0 <= i < grid.0 * grid.1`; `None` past the end of a table.
    pub fn tile_at(&self, grid: (u32, u32), i: u32) -> Option<Tile> {
        let (gm, gn) = grid;
        Some(match self {
            Order::RowMajor => Tile { m: i / gn, n: i % gn },
            Order::ColumnMajor => Tile { m: i % gm, n: i / gm },
            Order::GroupedRows(group) => {
                let (g, j) = (i / (group * gn), i % (group * gn));
                let rows = (*group).min(gm - g * group);
                Tile { m: g * group + j % rows, n: j / rows }
            }
            Order::GroupedColumns(group) => {
                let (g, j) = (i / (group * gm), i % (group * gm));
                let cols = (*group).min(gn - g * group);
                Tile { m: j / cols, n: g * group + j % cols }
            }
            Order::Table(tiles) => *tiles.get(i as usize)?,
        })
    }
}
