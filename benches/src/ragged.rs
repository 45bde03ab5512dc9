//! Batches of sequences with different lengths, compared with even batches.

use std::sync::Arc;

use cusync_gen::check::Executor;
use cusync_gen::graph::{Graph, OperandKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Result;
use super::point::{Field, Point, VariantSpec};
use super::record::{LayerReport, Role};
use super::target::{EVEN_LENGTHS, RAGGED_LENGTHS};
use cusync::device::{Device, DeviceBuffer};
use cusync::runtime::verify::Reference;
use cusync::runtime::{InputSets, Options, Overrides};

/// Minimum number of sequences and tokens of a batch with different lengths.
const SEQUENCES: u32 = 8;
const LEAST: u32 = 64;

/// Tensors of lengths, with the number of sequences and the capacity in tokens of each.
fn lengths(graph: &Graph) -> impl Iterator<Item = (String, u32, u32)> {
    let lengths_of = |stage: &cusync_gen::graph::Stage| {
        let operand = stage.operand(OperandKind::Lengths)?;
        let tensor = &graph.tensors[operand.tensor.0];
        Some((tensor.name.clone(), tensor.cols, stage.op.cache()?.capacity))
    };
    graph.stages.iter().filter_map(lengths_of)
}

fn put(device: &Device, inputs: &mut InputSets, name: &str, values: &[i32]) -> Result<()> {
    inputs.put_integers(name, &Arc::new(DeviceBuffer::from_slice(device, values, name)?));
    Ok(())
}

/// `count` lengths of 64 to capacity - 1, and as many copies of their mean.
fn unlike(count: u32, capacity: u32, seed: u32) -> [Vec<i32>; 2] {
    let mut rng = SmallRng::seed_from_u64(seed.into());
    let ragged: Vec<i32> = (0..count).map(|_| rng.random_range(LEAST..capacity) as i32).collect();
    let mean = ragged.iter().sum::<i32>() / count.max(1) as i32;
    [ragged, vec![mean; count as usize]]
}

/// Adds the decode kernel on a batch of random lengths from 64 to the cache's capacity, and on a batch of
/// their mean.
pub(super) fn add(point: &Point<'_>, field: &mut Field, report: &mut LayerReport) -> Result<()> {
    let wanted = [RAGGED_LENGTHS, EVEN_LENGTHS].map(|name| format!("{name} graph"));
    if !wanted.iter().any(|name| point.args.wants(name)) {
        return Ok(());
    }
    let plan = match point.plan(Executor::Fused, Overrides { decode: true, ..Overrides::default() }) {
        Ok(plan) => plan,
        // Already reported for the decode kernel itself.
        Err(_) => return Ok(()),
    };
    let Some((name, count, capacity)) = lengths(plan.graph()).next() else { return Ok(()) };
    if count < SEQUENCES || capacity <= LEAST {
        return Ok(());
    }
    for (variant, values) in wanted.iter().zip(unlike(count, capacity, point.seed())) {
        let mut one = || {
            let mut inputs = field.inputs.clone();
            put(point.device, &mut inputs, &name, &values)?;
            let reference = Reference::new(&mut point.pipeline(&plan, &inputs, Options::default())?, 0)?;
            let usual = (
                std::mem::replace(&mut field.inputs, inputs),
                std::mem::replace(&mut field.reference, reference),
            );
            let added = point.add(field, VariantSpec::graph(variant, Role::Probe), &plan, Executor::Fused);
            (field.inputs, field.reference) = usual;
            added
        };
        let added = one();
        point.note(variant, added, report)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_batch_reads_as_much_as_the_ragged_one() {
        let [ragged, even] = unlike(32, 2049, 7);
        assert!(ragged.iter().all(|n| (64..2049).contains(n)) && ragged.iter().any(|n| *n != ragged[0]));
        let sum = |list: &[i32]| list.iter().sum::<i32>();
        assert!((sum(&ragged) - sum(&even)).abs() < 32 && even.len() == 32);
    }
}
