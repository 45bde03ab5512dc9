//! Mutations of shapes: waits derived for a different shape than the one read.

use cusync_gen::check::{Candidate, Event};
use cusync_gen::graph::{Footprint, Op, Operand, OperandKind, Partition, Sliding, StageId};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::mutate::{Kind, Mutant};
use super::recorded::Recorded;

pub(super) fn change(
    rng: &mut SmallRng,
    base: &Candidate,
    recorded: &Recorded,
    kind: Kind,
) -> Option<Mutant> {
    if base.launch.is_one_kernel() || !base.launch.has_semaphores() {
        return None;
    }
    match kind {
        Kind::ShrinkHalo => shrink_halo(rng, base),
        Kind::ShiftHalo => shift_halo(rng, base),
        Kind::ShiftHead => shift_head(rng, base),
        Kind::ForgetMask => forget_mask(base, recorded),
        Kind::LoseRows => lose_rows(rng, base),
        Kind::ShrinkFootprint => shrink_footprint(rng, base),
        Kind::SplitMidTile => split_mid_tile(rng, base),
        Kind::GrowConsumer => grow_consumer(rng, base, recorded),
        _ => None,
    }
}

/// A random operand that a stage produces and that matches `which`: its stage and its index.
fn operand(
    rng: &mut SmallRng,
    c: &Candidate,
    which: impl Fn(&Op, &Operand) -> bool,
) -> Option<(usize, usize)> {
    let fits = |(s, o): &(usize, usize)| which(&c.graph.stages[*s].op, &c.graph.stages[*s].operands[*o]);
    let produced = c.graph.dependences.iter().map(|d| (d.consumer.0, d.operand));
    let all: Vec<(usize, usize)> = produced.filter(fits).collect();
    all.choose(rng).copied()
}

/// The filter of a convolution, over its images.
fn filter(op: &Op) -> Option<Sliding> {
    match op {
        Op::Conv2d(conv) => Some(conv.sliding),
        Op::GroupedConv(conv) => Some(conv.sliding),
        _ => None,
    }
}

/// The boxes that a policy may wait for: the whole halo, and the box that follows a filter.
fn windows(operand: &mut Operand) -> impl Iterator<Item = &mut Footprint> {
    std::iter::once(&mut operand.footprint).chain(&mut operand.sliding)
}

/// A program in which only the waits come from another candidate.
fn waits_of(base: &Candidate, other: &Candidate) -> Option<Mutant> {
    Some(Mutant::changed(base.clone(), Recorded::new(other)))
}

/// The waits omit the halo; the loads include it.
fn shrink_halo(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let (stage, at) = operand(rng, base, |op, o| {
        let images = filter(op).is_some() && o.kind == OperandKind::A;
        (images || matches!(o.kind, OperandKind::Custom(_)))
            && (o.footprint.rows.offset < 0 || o.footprint.cols.offset < 0)
    })?;
    let mut narrow = base.clone();
    let (along_rows, along_cols, below) = (rng.random(), rng.random::<bool>(), rng.random());
    for window in windows(&mut narrow.graph.stages[stage].operands[at]) {
        for (axis, shrinks) in [(&mut window.rows, along_rows), (&mut window.cols, along_cols)] {
            if shrinks {
                // Only below, or on both sides.
                axis.extent += axis.offset * if below { 1 } else { 2 };
                axis.offset = if below { axis.offset } else { 0 };
            }
        }
    }
    waits_of(base, &narrow)
}

/// The waits are shifted up or down by a pixel, a row of pixels, or an image.
fn shift_halo(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let images = |op: &Op, o: &Operand| filter(op).is_some() && o.kind == OperandKind::A;
    let (stage, at) = operand(rng, base, images)?;
    let mut shifted = base.clone();
    let reader = &mut shifted.graph.stages[stage];
    let shape = filter(&reader.op)?;
    let (height, width) = (shape.input.0 as i32, shape.input.1 as i32);
    let by = *[1, width, height * width].choose(rng)? * if rng.random() { 1 } else { -1 };
    windows(&mut reader.operands[at]).for_each(|window| window.rows.offset += by);
    waits_of(base, &shifted)
}

/// The waits are for another head's queries, keys or values.
fn shift_head(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let (stage, at) = operand(rng, base, |op, _| matches!(op, Op::Attention(_)))?;
    let mut shifted = base.clone();
    let reader = &mut shifted.graph.stages[stage];
    let Op::Attention(shape) = &reader.op else { return None };
    let dim = shape.heads.dim as i32;
    let cols = &mut reader.operands[at].footprint.cols;
    match rng.random_range(0..4) {
        0 => cols.offset += dim,
        1 => cols.offset -= dim,
        // Every head waits for the first head, or every query head waits for its own keys and values.
        2 if cols.n > 0 => cols.n = 0,
        _ => cols.n += dim,
    }
    waits_of(base, &shifted)
}

/// The waits assume a causal mask; the loads do not.
fn forget_mask(base: &Candidate, recorded: &Recorded) -> Option<Mutant> {
    let mut causal = base.clone();
    let mut at = None;
    for (s, stage) in causal.graph.stages.iter_mut().enumerate() {
        if let Op::Attention(shape) = &mut stage.op
            && !shape.causal
        {
            (shape.causal, at) = (true, Some(s));
        }
    }
    let (at, waits) = (at?, Recorded::new(&causal));
    let mut program = recorded.clone();
    for (tile, short) in program.slices[at].iter_mut().zip(&waits.slices[at]) {
        for (slice, short) in tile.iter_mut().zip(short) {
            slice.events.retain(|e| !matches!(e, Event::Wait { .. }) || short.events.contains(e));
        }
    }
    Some(Mutant::changed(base.clone(), program))
}

/// Experts do not wait for the first or the last rows of a tile in x, in the scores or in the residual.
fn lose_rows(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let (stage, at) = operand(rng, base, |op, _| matches!(op, Op::Experts(_)))?;
    let mut fewer = base.clone();
    let rows = &mut fewer.graph.stages[stage].operands[at].footprint.rows;
    let lost = rng.random_range(1..=rows.extent);
    rows.extent -= lost;
    if rng.random() {
        rows.offset += lost;
    }
    waits_of(base, &fewer)
}

/// The graph itself declares less than the operation reads.
fn shrink_footprint(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let (stage, at) = operand(rng, base, |_, o| !matches!(o.kind, OperandKind::Custom(_)))?;
    let mut c = base.clone();
    let (by_rows, how) = (rng.random(), rng.random_range(0..3));
    for window in windows(&mut c.graph.stages[stage].operands[at]) {
        let axis = if by_rows { &mut window.rows } else { &mut window.cols };
        match how {
            0 if axis.extent > 1 => axis.extent /= 2,
            1 => axis.offset += 8,
            _ => axis.extent = 0,
        }
    }
    Some(Mutant::generated(c))
}

/// Slices begin inside producer tiles, and some skip their first wait.
fn split_mid_tile(rng: &mut SmallRng, base: &Candidate) -> Option<Mutant> {
    let mut c = base.clone();
    let StageId(at) = c.graph.dependences.choose(rng)?.consumer;
    let stage = &mut c.graph.stages[at];
    if stage.k_blocks < 2 {
        return None;
    }
    stage.split_k = rng.random_range(2..=stage.k_blocks);
    let mut program = Recorded::new(&c);
    if rng.random() {
        for slices in &mut program.slices[at] {
            for slice in slices.iter_mut().skip(1) {
                let first = slice.events.iter().position(|e| matches!(e, Event::Wait { .. }));
                first.map(|at| slice.events.remove(at));
            }
        }
    }
    Some(Mutant::changed(c, program))
}

/// The consumer's tile doubles in height but waits only for its upper half.
fn grow_consumer(rng: &mut SmallRng, base: &Candidate, recorded: &Recorded) -> Option<Mutant> {
    let mut c = base.clone();
    let StageId(at) = c.graph.dependences.choose(rng)?.consumer;
    let stage = &mut c.graph.stages[at];
    // Windowed tiles have the size that fits, some tiles are whole rows or images, and groups have one size.
    let fits = matches!(&stage.op, Op::Pool(_) | Op::GroupedConv(_) | Op::GroupNorm(_))
        || matches!(&stage.op, Op::Conv2d(conv) if conv.window.is_some());
    if stage.grid.0 < 2 || stage.op == Op::Custom || fits {
        return None;
    }
    stage.mma_tile.0 *= 2;
    let (rows, cols) = stage.out_tile();
    stage.partition = Partition::Tiles { rows: rows * 2, cols };
    stage.grid.0 = stage.grid.0.div_ceil(2);
    for operand in &mut stage.operands {
        if matches!(
            operand.kind,
            OperandKind::A | OperandKind::Residual | OperandKind::Query | OperandKind::Router
        ) {
            for Footprint { rows, .. } in windows(operand) {
                (rows.m, rows.extent) = (rows.m * 2, rows.extent * 2);
            }
        }
    }
    let (rows, cols) = (stage.grid.0 as usize, stage.grid.1 as usize);
    c.launch.kernel_mut(StageId(at))?.order = cusync_gen::sync::Order::RowMajor;
    // Its own tiles change, and so do the slots of its consumers.
    for (e, _) in c.graph.dependences.iter().enumerate().filter(|(_, d)| d.producer == StageId(at)) {
        c.edges[e].policy = cusync_gen::sync::Policy::Tile;
    }
    let mut program = Recorded::new(&c);
    for (m, n) in (0..rows).flat_map(|m| (0..cols).map(move |n| (m, n))) {
        let upper = &recorded.slices[at][2 * m * cols + n];
        for (slice, old) in program.slices[at][m * cols + n].iter_mut().zip(upper) {
            slice.events.retain(|e| !matches!(e, Event::Wait { .. }) || old.events.contains(e));
        }
    }
    Some(Mutant::changed(c, program))
}
