//! Inputs of attention that random bits would make nonsense of: lengths, page numbers and rotary tables.

use std::sync::Arc;

use cusync_gen::graph::{Graph, OperandKind, TensorId};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Values;
use crate::element::Bits;

/// Position p turns pair i by `p * BASE^(-2i / D)`, as published models have it.
const BASE: f64 = 10000.0;

/// The values of a tensor whose random bits would mean nothing; `None` for all others.
pub(crate) fn values(graph: &Graph, tensor: TensorId, seed: u64) -> Option<Values> {
    let (stage, kind) = graph.stages.iter().find_map(|stage| {
        let operand = stage.operands.iter().find(|o| o.tensor == tensor)?;
        Some((stage, operand.kind))
    })?;
    let shape = &graph.tensors[tensor.0];
    let stream = seed ^ (tensor.0 as u64) << 48;
    match kind {
        OperandKind::Lengths => {
            let capacity = stage.op.cache()?.capacity;
            let mut rng = SmallRng::seed_from_u64(stream);
            let length = |_| rng.random_range(0..capacity) as i32;
            Some(Values::Integers(Arc::new((0..shape.cols).map(length).collect())))
        }
        OperandKind::Pages => {
            let pages = dealt(stage.op.cache()?.pages?, shape.rows * shape.cols, stream);
            Some(Values::Integers(Arc::new(pages)))
        }
        OperandKind::Rotary => {
            let table = turns(shape.rows as usize, shape.cols as usize);
            let mut bits = vec![0; table.len()];
            graph.element.round(&table, &mut bits);
            Some(Values::Bits(Arc::new(bits)))
        }
        OperandKind::A
        | OperandKind::B
        | OperandKind::Up
        | OperandKind::Bias
        | OperandKind::Residual
        | OperandKind::Query
        | OperandKind::Key
        | OperandKind::Value
        | OperandKind::Gain
        | OperandKind::CachedKeys
        | OperandKind::CachedValues
        | OperandKind::Custom(_) => None,
    }
}

/// `count` pages of a pool in random order, none twice while there are enough.
fn dealt(pool: u32, count: u32, seed: u64) -> Vec<i32> {
    let mut order: Vec<i32> = (0..pool as i32).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(seed));
    order.iter().cycle().take(count as usize).copied().collect()
}

/// A row a position: cosines, then sines.
fn turns(positions: usize, columns: usize) -> Vec<f32> {
    let half = columns / 2;
    let angle = |p: usize, i: usize| p as f64 * BASE.powf(-(i as f64) / half as f64);
    let row = |p: usize| {
        let cosines = (0..half).map(move |i| angle(p, i).cos() as f32);
        cosines.chain((0..half).map(move |i| angle(p, i).sin() as f32))
    };
    (0..positions).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dealt_once_and_angles_start_at_none() {
        let mut pages = dealt(12, 10, 3);
        pages.sort_unstable();
        pages.dedup();
        assert!(pages.len() == 10 && pages.iter().all(|p| (0..12).contains(p)));
        let table = turns(3, 8);
        assert_eq!(&table[..8], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((table[16] - 2.0f32.cos()).abs() < 1e-6 && (table[20] - 2.0f32.sin()).abs() < 1e-6);
        assert!(
            (table[17] - (2.0f32 / 10.0).cos()).abs() < 1e-6,
            "the second of four pairs turns ten times slower"
        );
    }
}
