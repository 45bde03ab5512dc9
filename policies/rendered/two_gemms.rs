// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `two_gemms`, inputs 88892445b6e652ce. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `two_gemms`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "two_gemms";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x88892445b6e652ce;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 8;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("M", 512),
    ("N", 512),
    ("K", 512),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 512 x 512, an input.
    A,
    /// 512 x 512, an input.
    B,
    /// 512 x 512, written by `first`.
    C,
    /// 512 x 512, an input.
    D,
    /// 512 x 512, written by `second`.
    E,
}

/// All tensors.
pub const TENSORS: [Tensor; 5] = [
    Tensor::A,
    Tensor::B,
    Tensor::C,
    Tensor::D,
    Tensor::E,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::A => "A",
            Tensor::B => "B",
            Tensor::C => "C",
            Tensor::D => "D",
            Tensor::E => "E",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::A => (512, 512),
            Tensor::B => (512, 512),
            Tensor::C => (512, 512),
            Tensor::D => (512, 512),
            Tensor::E => (512, 512),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::A => None,
            Tensor::B => None,
            Tensor::C => Some(Stage::first),
            Tensor::D => None,
            Tensor::E => Some(Stage::second),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `C` = gemm of `A`, `B`; tiles started groups of 2 rows.
    first = 0,
    /// `E` = gemm of `C`, `D`; tiles started groups of 2 rows.
    second = 1,
}

/// All stages.
pub const STAGES: [Stage; 2] = [
    Stage::first,
    Stage::second,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::first => "first",
            Stage::second => "second",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::first => Tensor::C,
            Stage::second => Tensor::E,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::first => (512, 512, 512),
            Stage::second => (512, 512, 512),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::first => (64, 128),
            Stage::second => (64, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::first => (8, 4),
            Stage::second => (8, 4),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::first => 8,
            Stage::second => 8,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `first` -> `second`, operand a (`C`), policy Row.
    first_to_second,
}

/// All edges.
pub const EDGES: [Edge; 1] = [
    Edge::first_to_second,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::first_to_second => 0,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::first_to_second => (Stage::first, Stage::second),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::first_to_second => Tensor::C,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::first_to_second => (0, 8),
        }
    }
}
