//! Attention appends to caches: a token's rotated key and its value, as in QKV, in the token's row and nowhere else.

use cusync::runtime::Pipeline;
use cusync_gen::graph::{Element, Op, OperandKind, Stage};

/// Tokens per page.
const PAGE: usize = 64;

/// A pipeline's caches before a run.
#[derive(PartialEq)]
pub(crate) struct Caches {
    before: Vec<[Vec<u16>; 2]>,
}

const BOTH: [OperandKind; 2] = [OperandKind::CachedKeys, OperandKind::CachedValues];

fn bits(pipeline: &Pipeline, stage: &Stage, kind: OperandKind) -> Vec<u16> {
    let operand = stage.operand(kind).expect("an operand of this kind");
    let name = &pipeline.plan().graph().tensors[operand.tensor.0].name;
    let memory = pipeline.tensor(0, name).expect("a tensor");
    let mut bits = vec![0; memory.len()];
    memory.download(&mut bits).expect("the copy succeeds");
    bits
}

fn stages(pipeline: &Pipeline) -> impl Iterator<Item = &Stage> {
    pipeline.plan().graph().stages.iter().filter(|s| s.op.cache().is_some())
}

impl Caches {
    pub(crate) fn read(pipeline: &Pipeline) -> Caches {
        Caches { before: stages(pipeline).map(|s| BOTH.map(|kind| bits(pipeline, s, kind))).collect() }
    }

    /// Checks the caches after a run that started with `first` tokens per sequence. `pages`: one row per sequence.
    pub(crate) fn assert_appended(
        &self,
        label: &str,
        pipeline: &Pipeline,
        first: &[i32],
        pages: Option<&[i32]>,
    ) {
        assert!(!self.before.is_empty(), "{label}: there are no caches");
        for (stage, before) in stages(pipeline).zip(&self.before) {
            appended(&format!("{label}, {}", stage.name), pipeline, stage, before, first, pages);
        }
    }
}

fn appended(
    label: &str,
    pipeline: &Pipeline,
    stage: &Stage,
    before: &[Vec<u16>; 2],
    first: &[i32],
    pages: Option<&[i32]>,
) {
    let (heads, rotates, tokens) = match &stage.op {
        Op::Attend(a) => (a.heads, a.rotary, 1),
        Op::Attention(a) => (a.heads, a.rotary, a.tokens as usize),
        other => panic!("{label}: {other:?} has no cache"),
    };
    let cache = stage.op.cache().expect("it was asked for");
    let (dim, kv) = (heads.dim as usize, heads.kv as usize);
    let element = pipeline.plan().graph().element;
    let (widen, spacing): (fn(u16) -> f32, f32) = match element {
        Element::F16 => (|bits| half::f16::from_bits(bits).to_f32(), 2f32.powi(-11)),
        Element::Bf16 => (|bits| half::bf16::from_bits(bits).to_f32(), 2f32.powi(-8)),
    };
    let qkv = bits(pipeline, stage, OperandKind::Query);
    let table = rotates.then(|| bits(pipeline, stage, OperandKind::Rotary));
    let norm = heads.norm.map(|epsilon| (epsilon, bits(pipeline, stage, OperandKind::KeyGain)));
    let normalised = |key: &[f32]| -> Vec<f32> {
        let Some((epsilon, gain)) = &norm else { return key.to_vec() };
        let squares = key.iter().map(|x| x * x).sum::<f32>() / key.len() as f32;
        key.iter().zip(gain).map(|(x, gain)| x * widen(*gain) / (squares + epsilon).sqrt()).collect()
    };
    let mut after = BOTH.map(|kind| bits(pipeline, stage, kind));
    for (b, head, i) in (0..first.len() * kv * tokens).map(|i| (i / tokens / kv, i / tokens % kv, i % tokens))
    {
        let t = first[b] as usize + i;
        let page = pages.map_or(0, |pages| pages[b * (cache.capacity as usize / PAGE) + t / PAGE]);
        let row = cache.row(&heads, b as u32, page as u32, head as u32, t as u32) as usize * dim;
        let line = (b * tokens + i) * heads.columns() as usize;
        let column = |kind| line + heads.columns_of(kind, head as u32).start as usize;
        let key: Vec<f32> = qkv[column(OperandKind::Key)..][..dim].iter().map(|bits| widen(*bits)).collect();
        let (k, v) = (normalised(&key), &qkv[column(OperandKind::Value)..][..dim]);
        assert_eq!(after[1][row..row + dim], *v, "{label}: value {t} of head {head} of sequence {b}");
        for i in 0..dim / 2 {
            let (x, y) = (k[i], k[i + dim / 2]);
            let angle = |at: usize| table.as_ref().map(|table| widen(table[t * dim + at]));
            let (c, s) = (angle(i).unwrap_or(1.0), angle(i + dim / 2).unwrap_or(0.0));
            for (want, at) in [(x * c - y * s, i), (x * s + y * c, i + dim / 2)] {
                let have = widen(after[0][row + at]);
                let bound = 1.01 * spacing * want.abs() + 1e-6 * (x.abs() + y.abs());
                assert!(
                    (have - want).abs() <= bound,
                    "{label}: key {t} of sequence {b}, column {at}: {have} for {want}"
                );
            }
        }
        for (after, before) in after.iter_mut().zip(before) {
            after[row..row + dim].copy_from_slice(&before[row..row + dim]);
        }
    }
    assert!(after == *before, "{label}: another row of a cache has changed");
}
