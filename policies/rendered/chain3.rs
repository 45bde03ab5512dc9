// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `chain3`, inputs f2693629f0dacfbe. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `chain3`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "chain3";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0xf2693629f0dacfbe;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 20;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("M", 512),
    ("H", 2048),
    ("I", 1024),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 2048, an input.
    X,
    /// 2048 x 2048, an input.
    W0,
    /// 1 x 2048, an input.
    b0,
    /// 512 x 2048, written by `project`.
    P,
    /// 2048 x 1024, an input.
    W1,
    /// 1 x 1024, an input.
    b1,
    /// 512 x 1024, written by `up`.
    Y,
    /// 1024 x 2048, an input.
    W2,
    /// 512 x 2048, written by `down`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 9] = [
    Tensor::X,
    Tensor::W0,
    Tensor::b0,
    Tensor::P,
    Tensor::W1,
    Tensor::b1,
    Tensor::Y,
    Tensor::W2,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::W0 => "W0",
            Tensor::b0 => "b0",
            Tensor::P => "P",
            Tensor::W1 => "W1",
            Tensor::b1 => "b1",
            Tensor::Y => "Y",
            Tensor::W2 => "W2",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (512, 2048),
            Tensor::W0 => (2048, 2048),
            Tensor::b0 => (1, 2048),
            Tensor::P => (512, 2048),
            Tensor::W1 => (2048, 1024),
            Tensor::b1 => (1, 1024),
            Tensor::Y => (512, 1024),
            Tensor::W2 => (1024, 2048),
            Tensor::Z => (512, 2048),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::W0 => None,
            Tensor::b0 => None,
            Tensor::P => Some(Stage::project),
            Tensor::W1 => None,
            Tensor::b1 => None,
            Tensor::Y => Some(Stage::up),
            Tensor::W2 => None,
            Tensor::Z => Some(Stage::down),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `P` = gemm of `X`, `W0`, `b0`; tiles started groups of 2 rows.
    project = 0,
    /// `Y` = gemm, relu of `P`, `W1`, `b1`; tiles started groups of 2 rows.
    up = 1,
    /// `Z` = gemm of `Y`, `W2`, `X`; tiles started groups of 2 rows.
    down = 2,
}

/// All stages.
pub const STAGES: [Stage; 3] = [
    Stage::project,
    Stage::up,
    Stage::down,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::project => "project",
            Stage::up => "up",
            Stage::down => "down",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::project => Tensor::P,
            Stage::up => Tensor::Y,
            Stage::down => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::project => (512, 2048, 2048),
            Stage::up => (512, 1024, 2048),
            Stage::down => (512, 2048, 1024),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::project => (128, 128),
            Stage::up => (128, 128),
            Stage::down => (128, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::project => (4, 16),
            Stage::up => (4, 8),
            Stage::down => (4, 16),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::project => 32,
            Stage::up => 32,
            Stage::down => 16,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `project` -> `up`, operand a (`P`), policy Row.
    project_to_up,
    /// `up` -> `down`, operand a (`Y`), policy Batched(1 x 2).
    up_to_down,
}

/// All edges.
pub const EDGES: [Edge; 2] = [
    Edge::project_to_up,
    Edge::up_to_down,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::project_to_up => 0,
            Edge::up_to_down => 1,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::project_to_up => (Stage::project, Stage::up),
            Edge::up_to_down => (Stage::up, Stage::down),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::project_to_up => Tensor::P,
            Edge::up_to_down => Tensor::Y,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::project_to_up => (0, 4),
            Edge::up_to_down => (4, 16),
        }
    }
}
