//! Needs of a stage's items, in cluster tiles, grouped so that tiles with equal needs share them.

use std::ops::Range;

use crate::graph::{Dependence, Graph, StageId, When, producers_of, waits_differ};
use crate::sync::Tile;

/// Producer tiles that k-blocks `ks` of a tile read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    /// k-blocks; `k_blocks .. k_blocks + 1` stands for the epilogue.
    pub(super) ks: Range<u32>,
    /// Producer.
    pub(super) producer: StageId,
    /// Rows of the producer's cluster tiles.
    pub(super) rows: Range<u32>,
    /// Columns of the producer's cluster tiles.
    pub(super) cols: Range<u32>,
}

/// The needs of a stage.
pub(super) struct Needs {
    by: (bool, bool),
    classes_n: u32,
    /// The needs of each class of tiles, ascending in k within a dependence.
    pub(super) classes: Vec<Vec<Need>>,
}

impl Needs {
    /// The needs of `stage`, for cluster tiles of `cluster` tiles each.
    pub(super) fn for_stage(graph: &Graph, stage: StageId, cluster: (u32, u32)) -> Needs {
        let consumer = &graph.stages[stage.0];
        let edges: Vec<&Dependence> = graph.dependences.iter().filter(|d| d.consumer == stage).collect();
        let by = waits_differ(graph, stage);
        let grid = (consumer.grid.0.div_ceil(cluster.0), consumer.grid.1.div_ceil(cluster.1));
        let classes_m = if by.0 { grid.0 } else { 1 };
        let classes_n = if by.1 { grid.1 } else { 1 };
        let classes = (0..classes_m)
            .flat_map(|m| (0..classes_n).map(move |n| (m, n)))
            .map(|(m, n)| {
                edges.iter().flat_map(|d| along_k(graph, d, (m, n), cluster)).collect::<Vec<Need>>()
            })
            .collect();
        Needs { by, classes_n, classes }
    }

    /// The class of a cluster tile.
    pub(super) fn class_of(&self, m: u32, n: u32) -> usize {
        let row = if self.by.0 { m } else { 0 };
        let col = if self.by.1 { n } else { 0 };
        (row * self.classes_n + col) as usize
    }
}

/// The needs of one cluster tile through one dependence, merging k-blocks that read the same tiles.
fn along_k(graph: &Graph, dependence: &Dependence, at: (u32, u32), cluster: (u32, u32)) -> Vec<Need> {
    let consumer = &graph.stages[dependence.consumer.0];
    let kind = consumer.operands[dependence.operand].kind;
    let at_the_end = kind.when() == When::Epilogue;
    let mut needs: Vec<Need> = Vec::new();
    for k in 0..if at_the_end { 1 } else { consumer.k_blocks } {
        let Some((rows, cols)) = producers(graph, dependence, at, cluster, k) else { continue };
        let ks = if at_the_end { consumer.k_blocks..consumer.k_blocks + 1 } else { k..k + 1 };
        match needs.last_mut() {
            Some(last) if last.ks.end == ks.start && last.rows == rows && last.cols == cols => {
                last.ks.end = ks.end;
            }
            _ => needs.push(Need { ks, producer: dependence.producer, rows, cols }),
        }
    }
    needs
}

/// The bounding box of the producer's cluster tiles that the CTAs of one cluster tile read at k-block `k`.
fn producers(
    graph: &Graph,
    dependence: &Dependence,
    at: (u32, u32),
    cluster: (u32, u32),
    k: u32,
) -> Option<(Range<u32>, Range<u32>)> {
    let grid = graph.stages[dependence.consumer.0].grid;
    let mut found: Option<(Range<u32>, Range<u32>)> = None;
    for m in at.0 * cluster.0..((at.0 + 1) * cluster.0).min(grid.0) {
        for n in at.1 * cluster.1..((at.1 + 1) * cluster.1).min(grid.1) {
            let tiles = producers_of(graph, dependence, Tile { m, n }, k);
            if tiles.is_empty() {
                continue;
            }
            let rows = tiles.m.start / cluster.0..tiles.m.end.div_ceil(cluster.0);
            let cols = tiles.n.start / cluster.1..tiles.n.end.div_ceil(cluster.1);
            found = Some(match found {
                None => (rows, cols),
                Some((r, c)) => (
                    r.start.min(rows.start)..r.end.max(rows.end),
                    c.start.min(cols.start)..c.end.max(cols.end),
                ),
            });
        }
    }
    found
}
