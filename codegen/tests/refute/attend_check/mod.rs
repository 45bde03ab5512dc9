//! Decode plans with attention: sound plans are proved, however heads are shared; plans that miss a head, the new
//! token, a part or a growing cache are refuted for the right reason.

mod blocks;
mod caches;
mod layers;
mod pairs;
mod refused;

use crate::changed::{each, posting};
use cusync_gen::check::{Candidate, Event, Obligation, Report};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Dependence, OperandKind, StageId};
use cusync_gen::spec;
use cusync_gen::sync::Tile;

const QKV: usize = 0;
const ATTEND: usize = 1;
const PROJECT: usize = 2;

fn source(batch: u32, (query, kv, dim): (u32, u32, u32), pages: &str) -> String {
    let (pool, rows) = if pages.is_empty() { ("B", "S") } else { ("96", "64") };
    format!(
        r#"Pipeline(name: "block",
            dims: {{ "B": {batch}, "S": 1024, "E": 2048, "HQ": {query}, "HKV": {kv}, "D": {dim} }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
            Attention(name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV",
                rotary: "cs(S,D)", {pages}
                cache: Cache(keys: "K({pool},HKV,{rows},D)", values: "V({pool},HKV,{rows},D)", lengths: "n(B)"),
                out: "A(B,HQ*D)"),
            Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", residual: "X(B,E)", out: "Z(B,E)"),
        ])"#
    )
}

fn planned(source: &str) -> Candidate {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[]));
    let resolved = resolved.unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)));
    choose::decode(&resolved, Profile::named("h200").expect("shipped")).expect("a decode plan")
}

/// Five sequences; heads of 128 columns; four query heads for each of two KV heads.
fn sound() -> Candidate {
    planned(&source(5, (8, 2, 128), ""))
}

/// Judges the plan with the slots that tiles post to replaced or dropped.
fn slots(c: &Candidate, change: impl Fn(usize, Tile, u32) -> Option<u32>) -> Report {
    posting(c, |edge, tile, posts| {
        posts.into_iter().filter_map(|(slot, amount)| Some((change(edge, tile, slot)?, amount))).collect()
    })
}

/// Judges the plan without some waits, named by stage, tile, edge and slot.
fn without(c: &Candidate, drop: impl Fn(usize, Tile, usize, u32) -> bool) -> Report {
    each(c, |stage, tile, event| match event {
        Event::Wait { edge, slot, .. } if drop(stage, tile, edge, slot) => None,
        other => Some(other),
    })
}

/// Judges the plan with the slot and the value of each wait of a stage for an edge changed.
fn waiting(c: &Candidate, (stage, edge): (usize, usize), change: impl Fn(u32, u32) -> (u32, u32)) -> Report {
    each(c, |s, _, event| match event {
        Event::Wait { edge: e, slot, value } if (s, e) == (stage, edge) => {
            let (slot, value) = change(slot, value);
            Some(Event::Wait { edge, slot, value })
        }
        other => Some(other),
    })
}

/// This obligation is refuted, perhaps among others; its text is returned.
#[track_caller]
fn among(report: &Report, obligation: Obligation) -> String {
    report.refutation(obligation).unwrap_or_else(|| panic!("{report:#?}")).to_string()
}

/// The edge for a stage's operand of this kind.
fn edge(c: &Candidate, stage: usize, kind: OperandKind) -> usize {
    let is = |d: &Dependence| {
        d.consumer == StageId(stage) && c.graph.stages[stage].operands[d.operand].kind == kind
    };
    c.graph.dependences.iter().position(is).expect("it reads that")
}

/// A layer in one kernel: norm, QKV, attention, projection, norm, MLP.
fn layer(batch: u32, norm: &str, width: u32) -> String {
    let bias = if norm == "LayerNorm" { r#"bias: "b(E)", "# } else { "" };
    format!(
        r#"Pipeline(name: "layer", dims: {{ "B": {batch}, "S": 1024, "E": {width}, "I": 1200 }}, stages: [
            {norm}(name: "first", x: "X(B,E)", gain: "g1(E)", {bias}out: "N1(B,E)", epsilon: 1e-5),
            Gemm(name: "qkv", a: "N1(B,E)", b: "Wqkv(E,1536)", out: "QKV(B,1536)"),
            Attention(name: "attend", qkv: "QKV(B,1536)", heads: 8, kv_heads: 2,
                cache: Cache(keys: "K(B,2,S,128)", values: "V(B,2,S,128)", lengths: "n(B)"), out: "A(B,1024)"),
            Gemm(name: "project", a: "A(B,1024)", b: "Wo(1024,E)", residual: "X(B,E)", out: "H(B,E)"),
            {norm}(name: "second", x: "H(B,E)", gain: "g2(E)", {bias}out: "N2(B,E)", epsilon: 1e-5),
            GatedGemm(name: "gate_up", a: "N2(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)"),
            Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
        ])"#
    )
}
