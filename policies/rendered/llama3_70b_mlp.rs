// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `llama3_70b_mlp`, inputs 5b2ddd76a70f4c24. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `llama3_70b_mlp`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "llama3_70b_mlp";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x5b2ddd76a70f4c24;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 2;
/// Element type of every tensor.
pub const ELEMENT: &str = "bf16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("M", 512),
    ("H", 8192),
    ("I", 3584),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 8192, an input.
    X,
    /// 8192 x 3584, an input.
    Wg,
    /// 8192 x 3584, an input.
    Wu,
    /// 512 x 3584, written by `gate_up`.
    Y,
    /// 3584 x 8192, an input.
    W2,
    /// 512 x 8192, written by `down`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 6] = [
    Tensor::X,
    Tensor::Wg,
    Tensor::Wu,
    Tensor::Y,
    Tensor::W2,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::Wg => "Wg",
            Tensor::Wu => "Wu",
            Tensor::Y => "Y",
            Tensor::W2 => "W2",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (512, 8192),
            Tensor::Wg => (8192, 3584),
            Tensor::Wu => (8192, 3584),
            Tensor::Y => (512, 3584),
            Tensor::W2 => (3584, 8192),
            Tensor::Z => (512, 8192),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::Wg => None,
            Tensor::Wu => None,
            Tensor::Y => Some(Stage::gate_up),
            Tensor::W2 => None,
            Tensor::Z => Some(Stage::down),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `Y` = gated gemm of `X`, `Wg`, `Wu`; tiles started column-major.
    gate_up = 0,
    /// `Z` = gemm of `Y`, `W2`; tiles started column-major.
    down = 1,
}

/// All stages.
pub const STAGES: [Stage; 2] = [
    Stage::gate_up,
    Stage::down,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::gate_up => "gate_up",
            Stage::down => "down",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::gate_up => Tensor::Y,
            Stage::down => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::gate_up => (512, 3584, 8192),
            Stage::down => (512, 8192, 3584),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::gate_up => (256, 64),
            Stage::down => (256, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::gate_up => (2, 56),
            Stage::down => (2, 64),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::gate_up => 128,
            Stage::down => 56,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `gate_up` -> `down`, operand a (`Y`), policy Row.
    gate_up_to_down,
}

/// All edges.
pub const EDGES: [Edge; 1] = [
    Edge::gate_up_to_down,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::gate_up_to_down => 0,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::gate_up_to_down => (Stage::gate_up, Stage::down),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::gate_up_to_down => Tensor::Y,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::gate_up_to_down => (0, 2),
        }
    }
}
