// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `resnet_layer`, inputs 5284f56f63902195. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `resnet_layer`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "resnet_layer";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x5284f56f63902195;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 196;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("B", 8),
    ("HW", 56),
    ("C", 64),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 25088 x 64, an input.
    X,
    /// 576 x 64, an input.
    F1,
    /// 25088 x 64, written by `first`.
    Y,
    /// 576 x 64, an input.
    F2,
    /// 25088 x 64, written by `second`.
    Z,
}

/// All tensors.
pub const TENSORS: [Tensor; 5] = [
    Tensor::X,
    Tensor::F1,
    Tensor::Y,
    Tensor::F2,
    Tensor::Z,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X => "X",
            Tensor::F1 => "F1",
            Tensor::Y => "Y",
            Tensor::F2 => "F2",
            Tensor::Z => "Z",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X => (25088, 64),
            Tensor::F1 => (576, 64),
            Tensor::Y => (25088, 64),
            Tensor::F2 => (576, 64),
            Tensor::Z => (25088, 64),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X => None,
            Tensor::F1 => None,
            Tensor::Y => Some(Stage::first),
            Tensor::F2 => None,
            Tensor::Z => Some(Stage::second),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `Y` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `X`, `F1`; tiles started groups of 4 rows.
    first = 0,
    /// `Z` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `Y`, `F2`; tiles started groups of 4 rows.
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
            Stage::first => Tensor::Y,
            Stage::second => Tensor::Z,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::first => (25088, 64, 576),
            Stage::second => (25088, 64, 576),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::first => (128, 128),
            Stage::second => (128, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::first => (196, 1),
            Stage::second => (196, 1),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::first => 9,
            Stage::second => 9,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `first` -> `second`, operand a (`Y`), policy Row.
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
            Edge::first_to_second => Tensor::Y,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::first_to_second => (0, 196),
        }
    }
}
