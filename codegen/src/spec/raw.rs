//! The structure of RON values, with fields kept as raw slices of the source.

use ron::value::RawValue;
use serde::{Deserialize, Deserializer};

/// Structures, and enums of structures, with raw fields: the required ones, then the optional ones.
macro_rules! raw {
    (struct $name:ident { $($required:ident)*; $($optional:ident)* }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name<'a> {
            $(#[serde(borrow)] pub(super) $required: &'a RawValue,)*
            $(#[serde(borrow, default)] pub(super) $optional: Option<&'a RawValue>,)*
        }
    };
    (enum $name:ident { $($variant:ident { $($required:ident)*; $($optional:ident)* })* }) => {
        $(raw!(struct $variant { $($required)*; $($optional)* });)*

        pub(super) enum $name<'a> {
            $($variant($variant<'a>),)*
        }

        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // In RON, the fields of a variant have no parentheses of their own.
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                enum $name<'a> {
                    $($variant {
                        $(#[serde(borrow)] $required: &'a RawValue,)*
                        $(#[serde(borrow, default)] $optional: Option<&'a RawValue>,)*
                    },)*
                }
                Ok(match $name::deserialize(deserializer)? {
                    $($name::$variant { $($required,)* $($optional,)* } => {
                        Self::$variant($variant { $($required,)* $($optional,)* })
                    })*
                })
            }
        }
    };
}

raw!(struct Pipeline { name dims stages; element devices tiles orders sync alias split_k });

raw!(enum Stage {
    Gemm { name a b out; layout input_norm all_reduce bias residual residual_at epilogue }
    RotatedGemm { name a b heads rotary out; layout bias kv_heads sequences lengths head_norm }
    GatedGemm { name a gate up out; layout activation input_norm }
    Conv2d { name input filter out; bias residual residual_at groups stride padding dilation epilogue }
    Attention { name qkv heads out; kv_heads causal window softcap scale sequences cache pages rotary head_norm expected }
    RmsNorm { name x gain out; epsilon one_plus_gain residual }
    LayerNorm { name x gain out; bias epsilon residual }
    GroupNorm { name input groups gain bias out; epsilon epilogue }
    Pool { name input kind out; window stride padding }
    Experts { name x router gate up down top_k out; activation normalize residual }
    Custom { name tile reads writes; grid k_blocks }
});

raw!(struct Cache { keys values; lengths });
raw!(struct InputNorm { gain; epsilon });
raw!(struct HeadNorm { query key epsilon; });
raw!(struct Read { tensor rows cols; });
raw!(struct Edge { from to; operand policy wait });

#[derive(Deserialize)]
pub(super) enum PoolKind {
    Max,
    Average,
}

/// How callers keep the weights of a product.
#[derive(Deserialize)]
pub(super) enum Layout {
    KN,
    NK,
}

#[derive(Deserialize)]
pub(super) enum ResidualAt {
    BeforeActivation,
    AfterActivation,
}
