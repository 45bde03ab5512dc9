//! `order` and `bounds`: orders are bijections onto grids, and indices are inside their arrays.

use super::scan::Scan;
use super::{from, grid_tiles, slice_name, tile_name};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::{
    Dependence, MAX_FOOTPRINT_TILES, MAX_K_BLOCKS, MAX_TILES, OperandKind, Partition, Stage, StageId,
};
use crate::sync::{Order, Policy};

/// Related arrays have the same length; otherwise nothing else can be evaluated.
pub(in crate::check) fn well_formed(c: &Candidate) -> Option<Refutation> {
    let refute = |subject, message: String| Some(Refutation::new(Obligation::Bounds, subject, message));
    let edges = c.graph.dependences.len();
    if c.edges.len() != edges {
        return refute(Subject::Pipeline, format!("{edges} edges, but {} policies", c.edges.len()));
    }
    if let Some(message) = outside(c) {
        return refute(Subject::Pipeline, message);
    }
    let shared = |s: &Stage| matches!(s.partition, Partition::Even { .. });
    if let Some(stage) = c.graph.stages.iter().position(shared).filter(|_| c.launch.shares().is_none()) {
        let name = &c.graph.stages[stage].name;
        let message = format!("`{name}` is cut into even shares, and only a decode kernel computes those");
        return refute(Subject::Stage(StageId(stage)), message);
    }
    for (edge, choice) in c.edges.iter().enumerate() {
        let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
        let fault = match &choice.policy {
            Policy::Table(table) if table.len() != producer.tiles() as usize => {
                format!("a table of {} slots for {} tiles", table.len(), producer.tiles())
            }
            Policy::Table(table) if table.iter().any(|s| *s >= producer.tiles()) => {
                format!("a table that names a slot beyond {}", producer.tiles() - 1)
            }
            Policy::Batched { rows: 0, .. } | Policy::Batched { cols: 0, .. } => {
                "batches of zero tiles".into()
            }
            Policy::Strided(0) => "a stride of zero".into(),
            _ => continue,
        };
        return refute(Subject::Edge(edge), format!("the policy of {} has {fault}", c.edge_name(edge)));
    }
    None
}

/// An index of the graph or of the launch order that is out of range.
fn outside(c: &Candidate) -> Option<String> {
    let (stages, tensors) = (c.graph.stages.len(), c.graph.tensors.len());
    let no_stage = |s: &StageId| s.0 >= stages;
    let no_tensor = |t: &crate::graph::TensorId| t.0 >= tensors;
    for stage in &c.graph.stages {
        if no_tensor(&stage.out) || stage.operands.iter().any(|o| no_tensor(&o.tensor)) {
            return Some(format!("`{}` names a tensor beyond the {tensors} that there are", stage.name));
        }
    }
    for tensor in &c.graph.tensors {
        if tensor.producer.as_ref().is_some_and(no_stage) || tensor.alias.as_ref().is_some_and(no_tensor) {
            return Some(format!("`{}` has a producer or an alias that there is not", tensor.name));
        }
        if let Some(stage) = tensor.producer.map(|s| &c.graph.stages[s.0])
            && !std::ptr::eq(&c.graph.tensors[stage.out.0], tensor)
        {
            let other = &c.graph.tensors[stage.out.0].name;
            return Some(format!(
                "`{}` is said to be written by `{}`, which writes `{other}`",
                tensor.name, stage.name
            ));
        }
    }
    for (id, stage) in c.graph.stages.iter().enumerate() {
        let out = &c.graph.tensors[stage.out.0];
        if out.producer != Some(StageId(id)) {
            return Some(format!("`{}` writes `{}`, which names another producer", stage.name, out.name));
        }
        if (stage.m, stage.n) != (out.rows, out.cols) {
            return Some(format!(
                "`{}` computes {} x {} elements, and `{}` is {} x {}",
                stage.name, stage.m, stage.n, out.name, out.rows, out.cols
            ));
        }
        if let Some(fault) = grid_fault(stage, (out.rows, out.cols)) {
            return Some(fault);
        }
    }
    for (edge, d) in c.graph.dependences.iter().enumerate() {
        if no_stage(&d.producer)
            || no_stage(&d.consumer)
            || d.operand >= c.graph.stages[d.consumer.0].operands.len()
        {
            return Some(format!("dependence {edge} names a stage or an operand that there is not"));
        }
        let (writer, reader) = (&c.graph.stages[d.producer.0], &c.graph.stages[d.consumer.0]);
        let same = |other: &Dependence| (other.consumer, other.operand) == (d.consumer, d.operand);
        if c.graph.dependences[..edge].iter().any(same) {
            let operand = d.operand;
            return Some(format!(
                "operand {operand} of `{}` is said to be written by two stages",
                reader.name
            ));
        }
        let tensor = &c.graph.tensors[reader.operands[d.operand].tensor.0];
        if (tensor.rows, tensor.cols) != (writer.m, writer.n) {
            return Some(format!(
                "`{}` is said to read `{}`, {} x {}, of `{}`, which writes {} x {}",
                reader.name, tensor.name, tensor.rows, tensor.cols, writer.name, writer.m, writer.n
            ));
        }
    }
    if let Some(d) = c.graph.dependences.iter().find(|d| c.graph.footprint_tiles(d) > MAX_FOOTPRINT_TILES) {
        let (reader, writer) = (&c.graph.stages[d.consumer.0].name, &c.graph.stages[d.producer.0].name);
        return Some(format!("the tiles of `{reader}` read too many tiles of `{writer}` to look at each"));
    }
    let kernel = c.launch.kernels().iter().find(|k| no_stage(&k.stage))?;
    Some(format!("stage {} is launched, and there are {stages}", kernel.stage.0))
}

/// A grid that does not exactly cover an output of this size, or that is too large to enumerate.
fn grid_fault(stage: &Stage, (rows, cols): (u32, u32)) -> Option<String> {
    let (partition, (gm, gn)) = (stage.partition, stage.grid);
    let empty = matches!(
        partition,
        Partition::Tiles { rows: 0, .. } | Partition::Tiles { cols: 0, .. } | Partition::Even { parts: 0 }
    );
    if empty || gm == 0 || gn == 0 || (gm, gn) != partition.grid((rows, cols)) {
        return Some(format!(
            "`{}` has a grid of {gm} x {gn} tiles of {partition}, and writes {rows} x {cols}",
            stage.name
        ));
    }
    let tiles = u64::from(gm) * u64::from(gn);
    let each = u64::from(stage.k_blocks.max(stage.split_k).max(1));
    (tiles > MAX_TILES || tiles.saturating_mul(each) > MAX_K_BLOCKS).then(|| {
        format!(
            "`{}` has {tiles} tiles of {} k-blocks in {} slices, too many to look at",
            stage.name, stage.k_blocks, stage.split_k
        )
    })
}

/// Each stage is launched once, and each order is a bijection onto its grid.
pub(super) fn order(c: &Candidate) -> Option<Refutation> {
    let kernels = c.launch.kernels();
    let again = |i: &usize| kernels[..*i].iter().any(|before| before.stage == kernels[*i].stage);
    if let Some(again) = (0..kernels.len()).find(again) {
        let stage = kernels[again].stage;
        let message = format!("`{}` is launched twice", c.graph.stages[stage.0].name);
        return Some(
            Refutation::new(Obligation::Order, Subject::Stage(stage), message)
                .fact("its tiles would be computed, and posted, once more")
                .help("launch each stage once a run"),
        );
    }
    c.graph.stages.iter().enumerate().find_map(|(i, stage)| {
        let order = &c.launch.kernel(StageId(i))?.order;
        let subject = Subject::Stage(StageId(i));
        let refute = |message: String| {
            Refutation::new(Obligation::Order, subject, message)
                .help("an order visits each tile of its grid exactly once")
        };
        if matches!(order, Order::GroupedRows(0) | Order::GroupedColumns(0)) {
            return Some(refute(format!("the order of `{}` has groups of zero", stage.name)));
        }
        let (gm, gn) = stage.grid;
        let mut at = vec![None; stage.tiles() as usize];
        for step in 0..stage.tiles() {
            let Some(tile) = order.tile_at(stage.grid, step) else {
                return Some(refute(format!(
                    "the order of `{}` ends after {step} of {} tiles",
                    stage.name,
                    stage.tiles()
                )));
            };
            if tile.m >= gm || tile.n >= gn {
                let name = tile_name(c, StageId(i), tile);
                return Some(refute(format!("step {step} is {name}, outside the grid of {gm} x {gn} tiles")));
            }
            if let Some(before) = at[(tile.m * gn + tile.n) as usize].replace(step) {
                let name = tile_name(c, StageId(i), tile);
                return Some(
                    refute(format!("{name} is started twice"))
                        .fact(format!("at steps {before} and {step} of the order {order:?}")),
                );
            }
        }
        None
    })
}

/// Slots are inside the edge's array; outputs and operands are inside their tensors.
pub(super) fn bounds(c: &Candidate, p: &dyn TileProgram, scan: &Scan) -> Option<Refutation> {
    let shapes = c.graph.stages.iter().enumerate().find_map(|(i, stage)| shape_fault(c, StageId(i), stage));
    if shapes.is_some() || !c.launch.has_semaphores() {
        return shapes;
    }
    let counts = c.slot_counts();
    let outside = |edge: usize, slot: u32, name: String, verb: &str| {
        Refutation::new(
            Obligation::Bounds,
            Subject::Edge(edge),
            format!("{name} {verb} slot {slot} of {}, which has {}", c.edge_name(edge), counts[edge]),
        )
    };
    for (edge, dependence) in c.graph.dependences.iter().enumerate().filter(|_| scan.posts_outside) {
        for tile in grid_tiles(&c.graph.stages[dependence.producer.0]) {
            let mut fault = None;
            p.posts(edge, tile, &mut |slot, _| {
                if slot >= counts[edge] {
                    fault = Some(outside(edge, slot, tile_name(c, dependence.producer, tile), "posts"));
                }
            });
            if fault.is_some() {
                return fault;
            }
        }
    }
    let begin = scan.outside?;
    for i in begin.0.0..c.graph.stages.len() {
        if !c.graph.dependences.iter().any(|d| d.consumer.0 == i) {
            continue;
        }
        for tile in from(begin, c, p, StageId(i)) {
            for slice in 0..p.slices(&c.graph, StageId(i), tile) {
                let mut fault = None;
                p.events(StageId(i), tile, slice, &mut |event| {
                    if let Event::Wait { edge, slot, .. } = event
                        && slot >= counts[edge]
                    {
                        let name = slice_name(c, p, StageId(i), tile, slice);
                        fault = Some(outside(edge, slot, name, "waits for"));
                    }
                });
                if fault.is_some() {
                    return fault;
                }
            }
        }
    }
    None
}

/// A stage that differs in size from its output, or a GEMM operand with another shape than the stage requires.
fn shape_fault(c: &Candidate, id: StageId, stage: &Stage) -> Option<Refutation> {
    let refute = |message: String| Some(Refutation::new(Obligation::Bounds, Subject::Stage(id), message));
    if let Some(fault) = kernel_shape_fault(stage) {
        return refute(fault);
    }
    stage.operands.iter().find_map(|operand| {
        let tensor = &c.graph.tensors[operand.tensor.0];
        let (rows, cols) = operand.shape(tensor);
        if operand.view.is_some_and(|view| !operand.kind.takes_views() || !view.fits(tensor)) {
            return refute(format!(
                "`{}` reads `{}`, {} x {}, as {rows} x {cols}",
                stage.name, tensor.name, tensor.rows, tensor.cols
            ));
        }
        // Multicast slices are boxes of the tensor.
        let sliced = operand.view.is_some() && operand.kind == OperandKind::A && c.launch.cluster().1 > 1;
        if sliced && tensor.producer.is_some() {
            return refute(format!(
                "`{}` reads `{}` as {rows} x {cols}, and the CTAs of a cluster load slices of it for each other",
                stage.name, tensor.name
            ));
        }
        let expected = stage.operand_shape(operand.kind)?;
        let longer = operand.kind == OperandKind::Rotary && rows > expected.0;
        if (longer || rows == expected.0) && cols == expected.1 {
            return None;
        }
        refute(format!(
            "`{}` reads {} x {} elements of `{}`, which is {rows} x {cols}",
            stage.name, expected.0, expected.1, tensor.name
        ))
    })
}

/// The output tile and k-blocks must follow from the operation and the MMA tile, except in a stage that states them.
fn kernel_shape_fault(stage: &Stage) -> Option<String> {
    if stage.op.is_custom() {
        return None;
    }
    let (m, n, k) = stage.mma_tile;
    if m == 0 || n == 0 || k == 0 {
        return Some(format!("`{}` has an MMA tile of {m} x {n} x {k}", stage.name));
    }
    let out_tile = stage.op.rules().out_tile(stage.mma_tile);
    let tiled = matches!(stage.partition, Partition::Tiles { .. });
    let k_blocks = stage.op.rules().k_blocks(stage.k, stage.mma_tile);
    if stage.op != stage.op.tiled(stage.mma_tile) {
        return Some(format!(
            "`{}` reads windows that are not those of its MMA tile {m} x {n} x {k}",
            stage.name
        ));
    }
    if tiled && stage.out_tile() != out_tile || stage.k_blocks != k_blocks {
        return Some(format!(
            "`{}` has output tiles of {:?} and {} k-blocks, and its MMA tile is {m} x {n} x {k}",
            stage.name,
            stage.out_tile(),
            stage.k_blocks
        ));
    }
    None
}
