//! Layers in one kernel: norms, products that normalize their rows, and the rows that workers have.

use super::{among, edge, layer, planned, slots, waiting, without};
use crate::changed::only;
use cusync_gen::check::{Obligation, judge};
use cusync_gen::graph::{OperandKind, StageId};
use cusync_gen::schedule::decode::is_in_pairs;

#[test]
fn layers_with_norms_are_proved_and_a_row_unawaited_is_refuted() {
    let (norms, readers) = ([0, 4], [1, 5]);
    for norm in ["RmsNorm", "LayerNorm"] {
        // Fewer rows than workers, and rows that end in half a column tile.
        for (batch, width) in [(1, 2048), (5, 2080), (32, 1024)] {
            let c = planned(&layer(batch, norm, width));
            assert_eq!(judge(&c).refutations, [], "{norm} {batch} {width}");
            for (norm, reader) in norms.into_iter().zip(readers) {
                let stage = &c.graph.stages[norm];
                let slots = &c.slot_maps()[edge(&c, reader, OperandKind::A)];
                assert_eq!((stage.grid, stage.k_blocks, slots.slot_count), ((batch, 1), 1, 1));
                assert_eq!(slots.posts_of(0), batch);
                // Each row belongs to one worker.
                let lists = &c.launch.shares().expect("a decode plan").work;
                let rows = lists.sequence.iter().filter(|item| item.stage == StageId(norm)).count();
                assert_eq!((rows as u32, reader), (batch, norm + 1));
            }
        }
    }
    let c = planned(&layer(5, "RmsNorm", 2048));
    let (of_row, of_norm) = (edge(&c, 4, OperandKind::A), edge(&c, 5, OperandKind::A));
    // Drop the wait for one of a row's 32 column tiles, for all rows and for one.
    for everywhere in [true, false] {
        let early = without(&c, |stage, tile, edge, slot| {
            (stage, edge, slot) == (4, of_row, 9) && (everywhere || tile.m == 2)
        });
        let reader = format!("second({}, 0)", if everywhere { 0 } else { 2 });
        only(&early, Obligation::Cover, &[&reader, "may read `H` before share"]);
    }
    let unawaited = without(&c, |stage, tile, edge, _| (stage, edge, tile.n) == (5, of_norm, 7));
    only(&unawaited, Obligation::Cover, &["share 7 of gate_up", "may read `N2` before second(0, 0)"]);
    among(&waiting(&c, (5, of_norm), |slot, value| (slot, value - 1)), Obligation::Count);
    let silent = slots(&c, |edge, tile, slot| (edge != of_norm || tile.m != 3).then_some(slot));
    among(&silent, Obligation::Count);
    // The plan assigns each row to a worker; a different assignment is refuted.
    let mut moved = c.clone();
    let work = &mut moved.launch.shares_mut().expect("a decode plan").work;
    let is_row = |item: &u32| work.sequence[*item as usize].stage == StageId(4);
    let from = work.lists.iter().position(|list| list.iter().any(is_row)).expect("somebody has a row");
    let place = work.lists[from].iter().position(is_row).expect("it is there");
    let item = work.lists[from].remove(place);
    work.lists[from + 1].push(item);
    among(&judge(&moved), Obligation::Bounds);
}

/// A product that normalizes its rows waits for all of them, as any product does.
#[test]
fn layers_whose_products_normalize_their_rows_are_proved() {
    let norm = |gain: &str| format!("input_norm: InputNorm(gain: {gain:?}, epsilon: 1e-5)");
    let source = |batch: u32| {
        format!(
            r#"Pipeline(name: "layer", dims: {{ "B": {batch}, "S": 1024, "E": 8192, "I": 1200 }}, stages: [
                Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,1536)", {}, out: "QKV(B,1536)"),
                Attention(name: "attend", qkv: "QKV(B,1536)", heads: 8, kv_heads: 2,
                    cache: Cache(keys: "K(B,2,S,128)", values: "V(B,2,S,128)", lengths: "n(B)"), out: "A(B,1024)"),
                Gemm(name: "project", a: "A(B,1024)", b: "Wo(1024,E)", residual: "X(B,E)", out: "H(B,E)"),
                GatedGemm(name: "gate_up", a: "H(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", {}, out: "Y(B,I)"),
                Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
            ])"#,
            norm("g1(E)"),
            norm("g2(E)")
        )
    };
    for batch in [1, 5, 32] {
        let c = planned(&source(batch));
        assert_eq!(judge(&c).refutations, [], "{batch}");
        // A worker of a pair has half of a row's squares.
        assert!((0..5).all(|s| !is_in_pairs(&c.graph, &c.graph.stages[s], c.device.sms)), "{batch}");
        let of_rows = edge(&c, 3, OperandKind::A);
        let early = without(&c, |stage, tile, edge, slot| (stage, edge, slot, tile.n) == (3, of_rows, 9, 7));
        only(&early, Obligation::Cover, &["share 7 of gate_up", "may read `H` before share"]);
    }
}
