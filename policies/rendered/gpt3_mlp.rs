// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `gpt3_mlp`, inputs 0a1470caba566862. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `gpt3_mlp`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "gpt3_mlp";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x0a1470caba566862;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 2;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("M", 512),
    ("H", 12288),
    ("I", 6144),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 12288, an input.
    X,
    /// 12288 x 6144, an input.
    W1,
    /// 512 x 6144, written by `up`.
    Y,
    /// 6144 x 12288, an input.
    W2,
    /// 512 x 12288, written by `down`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 5] = [
    Tensor::X,
    Tensor::W1,
    Tensor::Y,
    Tensor::W2,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::W1 => "W1",
            Tensor::Y => "Y",
            Tensor::W2 => "W2",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (512, 12288),
            Tensor::W1 => (12288, 6144),
            Tensor::Y => (512, 6144),
            Tensor::W2 => (6144, 12288),
            Tensor::Z => (512, 12288),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::W1 => None,
            Tensor::Y => Some(Stage::up),
            Tensor::W2 => None,
            Tensor::Z => Some(Stage::down),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `Y` = gemm, gelu of `X`, `W1`; tiles started column-major.
    up = 0,
    /// `Z` = gemm of `Y`, `W2`; tiles started column-major.
    down = 1,
}

/// All stages.
pub const STAGES: [Stage; 2] = [
    Stage::up,
    Stage::down,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::up => "up",
            Stage::down => "down",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::up => Tensor::Y,
            Stage::down => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::up => (512, 6144, 12288),
            Stage::down => (512, 12288, 6144),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::up => (256, 128),
            Stage::down => (128, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::up => (2, 48),
            Stage::down => (4, 96),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::up => 192,
            Stage::down => 96,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `up` -> `down`, operand a (`Y`), policy Row.
    up_to_down,
}

/// All edges.
pub const EDGES: [Edge; 1] = [
    Edge::up_to_down,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::up_to_down => 0,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::up_to_down => (Stage::up, Stage::down),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::up_to_down => Tensor::Y,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::up_to_down => (0, 2),
        }
    }
}
