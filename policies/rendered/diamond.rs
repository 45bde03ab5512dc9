// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `diamond`, inputs 17bf6f9382a98ce5. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `diamond`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "diamond";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x17bf6f9382a98ce5;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 16;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("M", 512),
    ("H", 1024),
    ("I", 2048),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 1024, an input.
    X,
    /// 1024 x 2048, an input.
    Wl,
    /// 512 x 2048, written by `left`.
    L,
    /// 1024 x 1024, an input.
    Wr,
    /// 512 x 1024, written by `right`.
    R,
    /// 2048 x 1024, an input.
    Wj,
    /// 512 x 1024, written by `join`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 7] = [
    Tensor::X,
    Tensor::Wl,
    Tensor::L,
    Tensor::Wr,
    Tensor::R,
    Tensor::Wj,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::Wl => "Wl",
            Tensor::L => "L",
            Tensor::Wr => "Wr",
            Tensor::R => "R",
            Tensor::Wj => "Wj",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (512, 1024),
            Tensor::Wl => (1024, 2048),
            Tensor::L => (512, 2048),
            Tensor::Wr => (1024, 1024),
            Tensor::R => (512, 1024),
            Tensor::Wj => (2048, 1024),
            Tensor::Z => (512, 1024),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::Wl => None,
            Tensor::L => Some(Stage::left),
            Tensor::Wr => None,
            Tensor::R => Some(Stage::right),
            Tensor::Wj => None,
            Tensor::Z => Some(Stage::join),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `L` = gemm, gelu of `X`, `Wl`; tiles started groups of 4 rows.
    left = 0,
    /// `R` = gemm of `X`, `Wr`; tiles started groups of 4 rows.
    right = 1,
    /// `Z` = gemm of `L`, `Wj`, `R`; tiles started groups of 4 rows.
    join = 2,
}

/// All stages.
pub const STAGES: [Stage; 3] = [
    Stage::left,
    Stage::right,
    Stage::join,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::left => "left",
            Stage::right => "right",
            Stage::join => "join",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::left => Tensor::L,
            Stage::right => Tensor::R,
            Stage::join => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::left => (512, 2048, 1024),
            Stage::right => (512, 1024, 1024),
            Stage::join => (512, 1024, 2048),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::left => (64, 128),
            Stage::right => (64, 128),
            Stage::join => (64, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::left => (8, 16),
            Stage::right => (8, 8),
            Stage::join => (8, 8),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::left => 16,
            Stage::right => 16,
            Stage::join => 32,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `left` -> `join`, operand a (`L`), policy Row.
    left_to_join,
    /// `right` -> `join`, operand residual (`R`), policy Row.
    right_to_join,
}

/// All edges.
pub const EDGES: [Edge; 2] = [
    Edge::left_to_join,
    Edge::right_to_join,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::left_to_join => 0,
            Edge::right_to_join => 1,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::left_to_join => (Stage::left, Stage::join),
            Edge::right_to_join => (Stage::right, Stage::join),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::left_to_join => Tensor::L,
            Edge::right_to_join => Tensor::R,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::left_to_join => (0, 8),
            Edge::right_to_join => (8, 8),
        }
    }
}
