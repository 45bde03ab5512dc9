// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `llama3_70b_attention`, inputs 34e2b1cddaebb151. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `llama3_70b_attention`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "llama3_70b_attention";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x34e2b1cddaebb151;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 32;
/// Element type of every tensor.
pub const ELEMENT: &str = "bf16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 5] = [
    ("S", 512),
    ("E", 8192),
    ("HQ", 8),
    ("HKV", 1),
    ("D", 128),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 8192, an input.
    X,
    /// 8192 x 1280, an input.
    Wqkv,
    /// 512 x 1280, written by `qkv`.
    QKV,
    /// 512 x 1024, written by `attend`.
    A,
    /// 1024 x 8192, an input.
    Wo,
    /// 512 x 8192, written by `project`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 6] = [
    Tensor::X,
    Tensor::Wqkv,
    Tensor::QKV,
    Tensor::A,
    Tensor::Wo,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::Wqkv => "Wqkv",
            Tensor::QKV => "QKV",
            Tensor::A => "A",
            Tensor::Wo => "Wo",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (512, 8192),
            Tensor::Wqkv => (8192, 1280),
            Tensor::QKV => (512, 1280),
            Tensor::A => (512, 1024),
            Tensor::Wo => (1024, 8192),
            Tensor::Z => (512, 8192),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::Wqkv => None,
            Tensor::QKV => Some(Stage::qkv),
            Tensor::A => Some(Stage::attend),
            Tensor::Wo => None,
            Tensor::Z => Some(Stage::project),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `QKV` = gemm of `X`, `Wqkv`; tiles started groups of 4 rows.
    qkv = 0,
    /// `A` = causal attention, 8 heads of 128 columns, 1 of keys and values, of `QKV`, `QKV`, `QKV`; tiles started groups of 4 rows.
    attend = 1,
    /// `Z` = gemm of `A`, `Wo`; tiles started column-major.
    project = 2,
}

/// All stages.
pub const STAGES: [Stage; 3] = [
    Stage::qkv,
    Stage::attend,
    Stage::project,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::qkv => "qkv",
            Stage::attend => "attend",
            Stage::project => "project",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::qkv => Tensor::QKV,
            Stage::attend => Tensor::A,
            Stage::project => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::qkv => (512, 1280, 8192),
            Stage::attend => (512, 1024, 512),
            Stage::project => (512, 8192, 1024),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::qkv => (64, 128),
            Stage::attend => (64, 128),
            Stage::project => (256, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::qkv => (8, 10),
            Stage::attend => (8, 8),
            Stage::project => (2, 64),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::qkv => 128,
            Stage::attend => 8,
            Stage::project => 16,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `qkv` -> `attend`, operand query (`QKV`), policy Row.
    qkv_to_attend_query,
    /// `qkv` -> `attend`, operand key (`QKV`), policy Row.
    qkv_to_attend_key,
    /// `qkv` -> `attend`, operand value (`QKV`), policy Row.
    qkv_to_attend_value,
    /// `attend` -> `project`, operand a (`A`), policy Row.
    attend_to_project,
}

/// All edges.
pub const EDGES: [Edge; 4] = [
    Edge::qkv_to_attend_query,
    Edge::qkv_to_attend_key,
    Edge::qkv_to_attend_value,
    Edge::attend_to_project,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::qkv_to_attend_query => 0,
            Edge::qkv_to_attend_key => 1,
            Edge::qkv_to_attend_value => 2,
            Edge::attend_to_project => 3,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::qkv_to_attend_query => (Stage::qkv, Stage::attend),
            Edge::qkv_to_attend_key => (Stage::qkv, Stage::attend),
            Edge::qkv_to_attend_value => (Stage::qkv, Stage::attend),
            Edge::attend_to_project => (Stage::attend, Stage::project),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::qkv_to_attend_query => Tensor::QKV,
            Edge::qkv_to_attend_key => Tensor::QKV,
            Edge::qkv_to_attend_value => Tensor::QKV,
            Edge::attend_to_project => Tensor::A,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::qkv_to_attend_query => (0, 8),
            Edge::qkv_to_attend_key => (8, 8),
            Edge::qkv_to_attend_value => (16, 8),
            Edge::attend_to_project => (24, 8),
        }
    }
}
