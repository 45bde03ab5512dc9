//! Whether everything is loaded that tiles are computed from: by each tile for itself, or by the CTAs of a cluster for
//! each other.

use cusync_gen::check::Event;
use cusync_gen::graph::{OperandKind, StageId};
use cusync_gen::sync::Tile;

use super::{Builder, in_time};
use crate::oracle::{Violation, shapes};

impl Builder<'_> {
    /// Whether a slice loads everything its tile needs from other stages, except what its cluster loads together.
    pub(super) fn all_loaded(
        &self,
        stage: StageId,
        tile: Tile,
        (begin, end): (u32, u32),
        finishes: bool,
        cluster: (u32, u32),
        loaded: &[(usize, u32)],
    ) -> bool {
        let graph = &self.c.graph;
        graph.stages[stage.0].operands.iter().enumerate().all(|(o, operand)| {
            if graph.tensors[operand.tensor.0].producer.is_none() {
                return true;
            }
            let ks = match (shapes::in_epilogue(operand.kind), finishes) {
                // A query block is kept from the first step on.
                (false, _) if operand.kind == OperandKind::Query => begin..end.min(begin + 1),
                (false, _) => begin..end,
                (true, true) => 0..1,
                (true, false) => 0..0,
            };
            // Data that the cluster loads together is checked over all its CTAs.
            let alone = self.sharers(operand.kind, tile, cluster).0 == 1;
            ks.into_iter().all(|k| {
                let areas = shapes::reads(graph, stage, o, tile, k);
                let nothing = areas.iter().all(|(rows, cols)| rows.is_empty() || cols.is_empty());
                !alone || nothing || loaded.contains(&(o, k))
            })
        })
    }

    /// The number of CTAs in the cluster that read the same part of an operand, and this CTA's index among them.
    fn sharers(&self, kind: OperandKind, tile: Tile, cluster: (u32, u32)) -> (u32, u32) {
        match kind {
            OperandKind::A => (cluster.1, tile.n % cluster.1),
            OperandKind::B | OperandKind::Up => (cluster.0, tile.m % cluster.0),
            _ => (1, 0),
        }
    }

    pub(super) fn shared_area(
        &self,
        stage: StageId,
        tile: Tile,
        operand: usize,
        k: u32,
        cluster: (u32, u32),
    ) -> shapes::Area {
        let kind = self.c.graph.stages[stage.0].operands[operand].kind;
        let area = shapes::reads(&self.c.graph, stage, operand, tile, k).pop().unwrap_or_default();
        shapes::share(kind, area, shapes::tile_size(&self.c.graph, stage), self.sharers(kind, tile, cluster))
    }

    /// Together, the CTAs of a cluster load what each of their tiles needs.
    pub(super) fn shared_loads(
        &mut self,
        stage: StageId,
        (m, n): (u32, u32),
        slice: u32,
        k: (u32, u32),
        cluster: (u32, u32),
    ) {
        let graph = &self.c.graph;
        let (gm, gn) = shapes::grid(graph, stage);
        let ctas = || {
            (0..cluster.0 * cluster.1)
                .map(|i| Tile { m: m * cluster.0 + i / cluster.1, n: n * cluster.1 + i % cluster.1 })
        };
        let mut loads = Vec::new();
        for tile in ctas() {
            let mut events = Vec::new();
            self.p.events(stage, tile, slice, &mut |event| events.push(event));
            let in_time = in_time(graph, stage, &events);
            for (event, _) in events.iter().zip(in_time).filter(|(_, in_time)| *in_time) {
                if let Event::Multicast { operand, k_block, .. } = event {
                    loads.push((tile, *operand, *k_block));
                }
            }
        }
        for (o, operand) in graph.stages[stage.0].operands.iter().enumerate() {
            if graph.tensors[operand.tensor.0].producer.is_none() || shapes::in_epilogue(operand.kind) {
                continue;
            }
            for tile in ctas().filter(|t| t.m < gm && t.n < gn) {
                if self.sharers(operand.kind, tile, cluster).0 == 1 {
                    continue;
                }
                for k_block in k.0..k.1 {
                    let areas = shapes::reads(graph, stage, o, tile, k_block);
                    let cells = areas.iter().map(|area| self.layout.cells(operand.tensor, area));
                    let mut missing: Vec<usize> =
                        cells.flat_map(|cells| self.layout.places(&cells)).collect();
                    let row =
                        |t: &Tile| if operand.kind == OperandKind::A { t.m == tile.m } else { t.n == tile.n };
                    for (by, _, _) in
                        loads.iter().filter(|(t, operand, at)| *operand == o && *at == k_block && row(t))
                    {
                        let (rows, cols) = self.shared_area(stage, *by, o, k_block, cluster);
                        // A cell that a share cuts in two is not completely inside it.
                        let inside = |r: &std::ops::Range<u32>, s: &std::ops::Range<u32>| {
                            r.start <= s.start && s.end <= r.end
                        };
                        let cells = self.layout.within(operand.tensor, &(rows, cols), inside);
                        missing.retain(|place| !cells.contains(place));
                    }
                    if !missing.is_empty() {
                        self.fault = Some(Violation::NeverLoaded);
                    }
                }
            }
        }
    }
}
