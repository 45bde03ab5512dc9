// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `vgg_layer`, inputs 89dd82638c8fc503. Do not edit: change the
// spec and run `cargo xtask render`.
//! Typed handle of the pipeline `vgg_layer`: its tensors, stages and edges by name, with their numbers.
#![allow(non_camel_case_types, non_upper_case_globals)]

/// The pipeline's name.
pub const NAME: &str = "vgg_layer";
/// Names the inputs that this file was rendered from.
pub const INPUTS: u64 = 0x89dd82638c8fc503;
/// Semaphore slots, 32-bit words.
pub const SLOT_COUNT: u32 = 75;
/// Element type of every tensor.
pub const ELEMENT: &str = "fp16";
/// Device profile that the plan was proved for.
pub const DEVICE: &str = "h200";
/// Executor that the plan was proved for.
pub const EXECUTOR: &str = "streams";

/// The dims that the plan was made with.
pub const DIMS: [(&str, u32); 3] = [
    ("B", 8),
    ("HW", 14),
    ("C", 256),
];

/// Tensors by name, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// 1568 x 256, an input.
    X0,
    /// 2304 x 256, an input.
    F1,
    /// 1568 x 256, written by `conv1`.
    X1,
    /// 2304 x 256, an input.
    F2,
    /// 1568 x 256, written by `conv2`.
    X2,
    /// 2304 x 256, an input.
    F3,
    /// 1568 x 256, written by `conv3`.
    X3,
    /// 2304 x 256, an input.
    F4,
    /// 1568 x 256, written by `conv4`.
    X4,
}

/// All tensors.
pub const TENSORS: [Tensor; 9] = [
    Tensor::X0,
    Tensor::F1,
    Tensor::X1,
    Tensor::F2,
    Tensor::X2,
    Tensor::F3,
    Tensor::X3,
    Tensor::F4,
    Tensor::X4,
];

impl Tensor {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Tensor::X0 => "X0",
            Tensor::F1 => "F1",
            Tensor::X1 => "X1",
            Tensor::F2 => "F2",
            Tensor::X2 => "X2",
            Tensor::F3 => "F3",
            Tensor::X3 => "X3",
            Tensor::F4 => "F4",
            Tensor::X4 => "X4",
        }
    }

    /// Rows and columns, row-major.
    pub const fn shape(self) -> (u32, u32) {
        match self {
            Tensor::X0 => (1568, 256),
            Tensor::F1 => (2304, 256),
            Tensor::X1 => (1568, 256),
            Tensor::F2 => (2304, 256),
            Tensor::X2 => (1568, 256),
            Tensor::F3 => (2304, 256),
            Tensor::X3 => (1568, 256),
            Tensor::F4 => (2304, 256),
            Tensor::X4 => (1568, 256),
        }
    }

    /// The stage that writes it; `None` for an input.
    pub const fn producer(self) -> Option<Stage> {
        match self {
            Tensor::X0 => None,
            Tensor::F1 => None,
            Tensor::X1 => Some(Stage::conv1),
            Tensor::F2 => None,
            Tensor::X2 => Some(Stage::conv2),
            Tensor::F3 => None,
            Tensor::X3 => Some(Stage::conv3),
            Tensor::F4 => None,
            Tensor::X4 => Some(Stage::conv4),
        }
    }
}

/// Stages, producers before consumers; the discriminant is the stage's index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `X1` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `X0`, `F1`; tiles started groups of 4 rows.
    conv1 = 0,
    /// `X2` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `X1`, `F2`; tiles started groups of 4 rows.
    conv2 = 1,
    /// `X3` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `X2`, `F3`; tiles started groups of 4 rows.
    conv3 = 2,
    /// `X4` = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of `X3`, `F4`; tiles started groups of 4 rows.
    conv4 = 3,
}

/// All stages.
pub const STAGES: [Stage; 4] = [
    Stage::conv1,
    Stage::conv2,
    Stage::conv3,
    Stage::conv4,
];

impl Stage {
    /// The name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::conv1 => "conv1",
            Stage::conv2 => "conv2",
            Stage::conv3 => "conv3",
            Stage::conv4 => "conv4",
        }
    }

    /// The tensor written.
    pub const fn output(self) -> Tensor {
        match self {
            Stage::conv1 => Tensor::X1,
            Stage::conv2 => Tensor::X2,
            Stage::conv3 => Tensor::X3,
            Stage::conv4 => Tensor::X4,
        }
    }

    /// Output rows and columns, and the length of the reduction.
    pub const fn shape(self) -> (u32, u32, u32) {
        match self {
            Stage::conv1 => (1568, 256, 2304),
            Stage::conv2 => (1568, 256, 2304),
            Stage::conv3 => (1568, 256, 2304),
            Stage::conv4 => (1568, 256, 2304),
        }
    }

    /// Output elements of one tile.
    pub const fn tile(self) -> (u32, u32) {
        match self {
            Stage::conv1 => (64, 128),
            Stage::conv2 => (64, 128),
            Stage::conv3 => (64, 128),
            Stage::conv4 => (64, 128),
        }
    }

    /// Tiles along M and N.
    pub const fn grid(self) -> (u32, u32) {
        match self {
            Stage::conv1 => (25, 2),
            Stage::conv2 => (25, 2),
            Stage::conv3 => (25, 2),
            Stage::conv4 => (25, 2),
        }
    }

    /// k-blocks of one tile.
    pub const fn k_blocks(self) -> u32 {
        match self {
            Stage::conv1 => 36,
            Stage::conv2 => 36,
            Stage::conv3 => 36,
            Stage::conv4 => 36,
        }
    }
}

/// Edges; the order is that of the plan, and of ids in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// `conv1` -> `conv2`, operand a (`X1`), policy Row.
    conv1_to_conv2,
    /// `conv2` -> `conv3`, operand a (`X2`), policy Row.
    conv2_to_conv3,
    /// `conv3` -> `conv4`, operand a (`X3`), policy Row.
    conv3_to_conv4,
}

/// All edges.
pub const EDGES: [Edge; 3] = [
    Edge::conv1_to_conv2,
    Edge::conv2_to_conv3,
    Edge::conv3_to_conv4,
];

impl Edge {
    /// Index of the edge in the plan.
    pub const fn id(self) -> u32 {
        match self {
            Edge::conv1_to_conv2 => 0,
            Edge::conv2_to_conv3 => 1,
            Edge::conv3_to_conv4 => 2,
        }
    }

    /// Producer and consumer.
    pub const fn ends(self) -> (Stage, Stage) {
        match self {
            Edge::conv1_to_conv2 => (Stage::conv1, Stage::conv2),
            Edge::conv2_to_conv3 => (Stage::conv2, Stage::conv3),
            Edge::conv3_to_conv4 => (Stage::conv3, Stage::conv4),
        }
    }

    /// The tensor that the producer writes and the consumer reads.
    pub const fn tensor(self) -> Tensor {
        match self {
            Edge::conv1_to_conv2 => Tensor::X1,
            Edge::conv2_to_conv3 => Tensor::X2,
            Edge::conv3_to_conv4 => Tensor::X3,
        }
    }

    /// First slot and number of slots in the semaphore array.
    pub const fn slots(self) -> (u32, u32) {
        match self {
            Edge::conv1_to_conv2 => (0, 25),
            Edge::conv2_to_conv3 => (25, 25),
            Edge::conv3_to_conv4 => (50, 25),
        }
    }
}
