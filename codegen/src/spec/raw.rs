//! The structure of RON values, with fields kept as raw slices of the source.

use ron::value::RawValue;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pipeline<'a> {
    #[serde(borrow)]
    pub(super) name: &'a RawValue,
    #[serde(borrow)]
    pub(super) dims: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) element: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stages: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) tiles: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) orders: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) sync: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) depends: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) alias: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) split_k: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Stage<'a> {
    Gemm {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        a: &'a RawValue,
        #[serde(borrow)]
        b: &'a RawValue,
        #[serde(borrow, default)]
        bias: Option<&'a RawValue>,
        #[serde(borrow, default)]
        residual: Option<&'a RawValue>,
        #[serde(borrow, default)]
        residual_at: Option<&'a RawValue>,
        #[serde(borrow)]
        out: &'a RawValue,
        #[serde(borrow, default)]
        epilogue: Option<&'a RawValue>,
    },
    RotatedGemm {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        a: &'a RawValue,
        #[serde(borrow)]
        b: &'a RawValue,
        #[serde(borrow, default)]
        bias: Option<&'a RawValue>,
        #[serde(borrow)]
        heads: &'a RawValue,
        #[serde(borrow, default)]
        kv_heads: Option<&'a RawValue>,
        #[serde(borrow, default)]
        sequences: Option<&'a RawValue>,
        #[serde(borrow)]
        rotary: &'a RawValue,
        #[serde(borrow)]
        out: &'a RawValue,
    },
    GatedGemm {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        a: &'a RawValue,
        #[serde(borrow)]
        gate: &'a RawValue,
        #[serde(borrow)]
        up: &'a RawValue,
        #[serde(borrow)]
        out: &'a RawValue,
    },
    Conv2d {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        input: &'a RawValue,
        #[serde(borrow)]
        filter: &'a RawValue,
        #[serde(borrow, default)]
        bias: Option<&'a RawValue>,
        #[serde(borrow, default)]
        residual: Option<&'a RawValue>,
        #[serde(borrow, default)]
        residual_at: Option<&'a RawValue>,
        #[serde(borrow)]
        out: &'a RawValue,
        #[serde(borrow, default)]
        stride: Option<&'a RawValue>,
        #[serde(borrow, default)]
        padding: Option<&'a RawValue>,
        #[serde(borrow, default)]
        epilogue: Option<&'a RawValue>,
    },
    Attention {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        qkv: &'a RawValue,
        #[serde(borrow)]
        heads: &'a RawValue,
        #[serde(borrow, default)]
        kv_heads: Option<&'a RawValue>,
        #[serde(borrow, default)]
        causal: Option<&'a RawValue>,
        #[serde(borrow, default)]
        sequences: Option<&'a RawValue>,
        #[serde(borrow, default)]
        cache: Option<&'a RawValue>,
        #[serde(borrow, default)]
        pages: Option<&'a RawValue>,
        #[serde(borrow, default)]
        rotary: Option<&'a RawValue>,
        #[serde(borrow, default)]
        expected: Option<&'a RawValue>,
        #[serde(borrow)]
        out: &'a RawValue,
    },
    RmsNorm {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        x: &'a RawValue,
        #[serde(borrow)]
        gain: &'a RawValue,
        #[serde(borrow)]
        out: &'a RawValue,
        #[serde(borrow)]
        epsilon: &'a RawValue,
    },
    LayerNorm {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        x: &'a RawValue,
        #[serde(borrow)]
        gain: &'a RawValue,
        #[serde(borrow)]
        bias: &'a RawValue,
        #[serde(borrow)]
        out: &'a RawValue,
        #[serde(borrow)]
        epsilon: &'a RawValue,
    },
    Pool {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        input: &'a RawValue,
        #[serde(borrow)]
        kind: &'a RawValue,
        #[serde(borrow, default)]
        window: Option<&'a RawValue>,
        #[serde(borrow, default)]
        stride: Option<&'a RawValue>,
        #[serde(borrow, default)]
        padding: Option<&'a RawValue>,
        #[serde(borrow)]
        out: &'a RawValue,
    },
    Custom {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow, default)]
        grid: Option<&'a RawValue>,
        #[serde(borrow)]
        tile: &'a RawValue,
        #[serde(borrow, default)]
        k_blocks: Option<&'a RawValue>,
        #[serde(borrow, default)]
        reads: Option<&'a RawValue>,
        #[serde(borrow)]
        writes: &'a RawValue,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache<'a> {
    #[serde(borrow)]
    pub(super) keys: &'a RawValue,
    #[serde(borrow)]
    pub(super) values: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) lengths: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read<'a> {
    #[serde(borrow)]
    pub(super) tensor: &'a RawValue,
    #[serde(borrow)]
    pub(super) rows: &'a RawValue,
    #[serde(borrow)]
    pub(super) cols: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge<'a> {
    #[serde(borrow)]
    pub(super) from: &'a RawValue,
    #[serde(borrow)]
    pub(super) to: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) operand: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) policy: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) wait: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) depends: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dep<'a> {
    #[serde(borrow)]
    pub(super) tile: &'a RawValue,
    #[serde(borrow)]
    pub(super) on: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) forall: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) enum Element {
    F16,
    Bf16,
}

#[derive(Deserialize)]
pub(super) enum Epilogue {
    None,
    Gelu,
    Relu,
}

#[derive(Deserialize)]
pub(super) enum PoolKind {
    Max,
    Average,
}

#[derive(Deserialize)]
pub(super) enum ResidualAt {
    BeforeActivation,
    AfterActivation,
}
