//! Attention inputs that cannot be random bits: lengths, page numbers and rotary tables.

use std::sync::Arc;

use cusync_gen::graph::{Graph, OperandKind, PAGE, Stage, Tensor, TensorId};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Values;
use super::sequences::appended;
use crate::element::Bits;

/// Position p rotates pair i by `p * BASE^(-2i / D)`, as in published models.
const BASE: f64 = 10000.0;

/// Values of a tensor that cannot be random bits; `None` for all others.
pub(crate) fn values(graph: &Graph, tensor: TensorId, seed: u64) -> Option<Values> {
    let readers = || {
        graph.stages.iter().filter_map(|stage| {
            let operand = stage.operands.iter().find(|o| o.tensor == tensor)?;
            Some((stage, operand.kind))
        })
    };
    let (_, kind) = readers().next()?;
    let shape = &graph.tensors[tensor.0];
    let stream = seed ^ (tensor.0 as u64) << 48;
    match kind {
        OperandKind::Lengths => {
            // A product that rotates the tokens of a prompt reads the lengths too.
            let most = |stage: &Stage| Some(room(stage)?.saturating_sub(appended(stage)?.1));
            let most = readers().filter_map(|(stage, _)| most(stage)).min().unwrap_or(0);
            let mut rng = SmallRng::seed_from_u64(stream);
            let length = |_| rng.random_range(0..=most) as i32;
            Some(Values::Integers(Arc::new((0..shape.cols).map(length).collect())))
        }
        OperandKind::Pages => {
            let each = readers().map(|(stage, _)| own_pages(stage)).min()?;
            let pool = readers().filter_map(|(stage, _)| stage.op.cache()?.pages).min()?;
            Some(Values::Integers(Arc::new(dealt(pool, each, shape, stream))))
        }
        OperandKind::Rotary => {
            let table = turns(shape.rows as usize, shape.cols as usize);
            let mut bits = vec![0; table.len()];
            graph.element.round(&table, &mut bits);
            Some(Values::Bits(Arc::new(bits)))
        }
        _ => None,
    }
}

/// Tokens per sequence that a stage's cache has room for; a pool smaller than all tables is divided evenly
/// among sequences.
pub(crate) fn room(stage: &Stage) -> Option<u32> {
    let cache = stage.op.cache()?;
    let own = cache.pages.map(|_| own_pages(stage) * PAGE);
    Some(own.map_or(cache.capacity, |own| own.min(cache.capacity)))
}

/// Pages that each sequence of a stage with a paged cache has to itself.
fn own_pages(stage: &Stage) -> u32 {
    let Some((cache, (sequences, _))) = stage.op.cache().zip(appended(stage)) else { return 0 };
    (cache.pages.unwrap_or(0) / sequences.max(1)).min(cache.capacity.div_ceil(PAGE))
}

/// Reason why pages cannot be dealt so that no two sequences append to one; `None` if there are enough.
pub(crate) fn too_few_pages(graph: &Graph) -> Option<String> {
    graph.stages.iter().find_map(|stage| {
        let pool = stage.op.cache()?.pages?;
        let (sequences, tokens) = appended(stage)?;
        let each = tokens.div_ceil(PAGE);
        (own_pages(stage) < each).then(|| {
            let name = &stage.name;
            format!(
                "stage `{name}`: {sequences} sequences append to {each} page(s) of their own each, and the pool has {pool}\n  help: give the cache {} pages or more",
                sequences * each
            )
        })
    })
}

/// A page table in random order of a pool: `each` pages of a sequence's row are exclusive, and the rest are
/// outside the pool, so that their use is detected.
fn dealt(pool: u32, each: u32, table: &Tensor, seed: u64) -> Vec<i32> {
    let mut order: Vec<i32> = (0..pool as i32).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(seed));
    let page = |sequence: u32, at: u32| if at < each { order[(sequence * each + at) as usize] } else { -1 };
    (0..table.rows)
        .flat_map(|sequence| (0..table.cols).map(move |at| (sequence, at)))
        .map(|(s, at)| page(s, at))
        .collect()
}

/// One row per position: cosines, then sines.
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
    use crate::inputs::sequences::Sequences;

    #[test]
    fn pages_are_dealt_once_and_angles_start_at_none() {
        let source = |pool: u32| {
            format!(
                r#"Pipeline(name: "p", dims: {{}}, stages: [Attention(name: "a", qkv: "QKV(4,192)", heads: "1",
                cache: Cache(keys: "K({pool},1,64,64)", values: "V({pool},1,64,64)", lengths: "n(4)"), pages: "P(4,3)", out: "A(4,64)")])"#
            )
        };
        let graph = |pool| {
            let resolved = cusync_gen::spec::parse(&source(pool), "test").and_then(|s| s.resolve(&[]));
            resolved.and_then(|r| r.graph(&[(1, 64, 192)])).expect("valid")
        };
        for pool in [4, 9, 12, 40] {
            let graph = graph(pool);
            let integers = |name: &str| {
                let at = graph.tensors.iter().position(|t| t.name == name).expect("it is there");
                let Some(Values::Integers(values)) = values(&graph, TensorId(at), 3) else {
                    panic!("integers")
                };
                values
            };
            let (lengths, pages) = (integers("n"), integers("P"));
            let stage = &graph.stages[0];
            let sequences = Sequences::new(stage, Some(&lengths), Some(&pages)).expect("it has a cache");
            assert_eq!(
                (sequences.left_out(), sequences.shared(), too_few_pages(&graph)),
                (vec![], None, None)
            );
        }
        // Lengths and a table that two stages read fit the smaller of their pools.
        let two = r#"Pipeline(name: "two", dims: {}, stages: [
            Attention(name: "a", qkv: "Q1(4,192)", heads: 1, pages: "P(4,3)", out: "A1(4,64)",
                cache: Cache(keys: "K1(40,1,64,64)", values: "V1(40,1,64,64)", lengths: "n(4)")),
            Attention(name: "b", qkv: "Q2(4,192)", heads: 1, pages: "P(4,3)", out: "A2(4,64)",
                cache: Cache(keys: "K2(5,1,64,64)", values: "V2(5,1,64,64)", lengths: "n(4)"))])"#;
        let resolved = cusync_gen::spec::parse(two, "test").and_then(|s| s.resolve(&[]));
        let two = resolved.and_then(|r| r.graph(&[(1, 64, 192); 2])).expect("valid");
        for seed in 0..20 {
            let integers = |name: &str| {
                let at = two.tensors.iter().position(|t| t.name == name).expect("it is there");
                let Some(Values::Integers(values)) = values(&two, TensorId(at), seed) else {
                    panic!("integers")
                };
                values
            };
            let (lengths, pages) = (integers("n"), integers("P"));
            for stage in &two.stages {
                let sequences = Sequences::new(stage, Some(&lengths), Some(&pages)).expect("it has a cache");
                assert_eq!((sequences.left_out(), sequences.shared()), (vec![], None), "{}", stage.name);
            }
        }
        // No sequence gets a page if not all can have one.
        let few = graph(3);
        let at = few.tensors.iter().position(|t| t.name == "P").expect("it is there");
        let Some(Values::Integers(pages)) = values(&few, TensorId(at), 1) else { panic!("integers") };
        assert_eq!(**pages, [-1; 12]);
        let why = too_few_pages(&few).expect("four sequences");
        assert!(why.contains("the pool has 3") && why.contains("4 pages or more"), "{why}");
        let table = turns(3, 8);
        assert_eq!(&table[..8], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((table[16] - 2.0f32.cos()).abs() < 1e-6 && (table[20] - 2.0f32.sin()).abs() < 1e-6);
        assert!(
            (table[17] - (2.0f32 / 10.0).cos()).abs() < 1e-6,
            "the second of four pairs turns ten times slower"
        );
    }
}
