//! The kernels that are built, as listed in `csrc/abi/instances.txt`, which the build compiles from.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

/// The table itself.
const INSTANCES: &str = include_str!("../../instances.txt");

/// Computation of a stage's kernel; the numbers match `enum cusync_operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A matrix product.
    Gemm = 0,
    /// Two matrix products with a common epilogue for their tiles.
    GatedGemm = 1,
    /// A convolution.
    Conv2d = 2,
    /// Whole-sequence attention.
    Attention = 3,
    /// A row normalization.
    Norm = 4,
    /// Attention of the next token of each sequence.
    Attend = 5,
    /// A pool over images.
    Pool = 6,
    /// A normalization of groups of channels.
    GroupNorm = 7,
    /// A matrix product, or two with a common epilogue, of rows that it normalizes first.
    InputNorm = 8,
    /// A convolution in groups of channels.
    GroupedConv = 9,
    /// A mixture of experts.
    Experts = 10,
}

/// An element-wise function: of the sums of a product, of a gate, or of normalized values. Specs call it an epilogue, or
/// the activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename = "Activation")]
pub enum Activation {
    /// None.
    #[serde(rename = "None")]
    Identity,
    /// GELU, tanh form.
    #[serde(rename = "Gelu")]
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// x sigmoid(x), also called swish.
    Silu,
    /// GELU by its definition, x Phi(x), with the distribution function of a normal variable.
    GeluErf,
    /// x sigmoid(1.702 x).
    QuickGelu,
    /// max(x, 0)^2.
    SquaredRelu,
    /// min(max(x, 0), 6).
    Relu6,
    /// x min(max(x + 3, 0), 6) / 6.
    HardSwish,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// tanh(x).
    Tanh,
    /// x times a constant.
    Scale(f32),
    /// min(max(x, low), high).
    Clamp(f32, f32),
}

impl Activation {
    /// Activations without parameters, by their numbers in the C ABI.
    pub const ALL: [Activation; 11] = [
        Activation::Identity,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Silu,
        Activation::GeluErf,
        Activation::QuickGelu,
        Activation::SquaredRelu,
        Activation::Relu6,
        Activation::HardSwish,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// The activation as a comment suffix.
    pub(crate) fn suffix(self) -> String {
        if self == Activation::Identity { String::new() } else { format!(", {self}") }
    }

    /// Its number in the C ABI; `None` if it has parameters, which kernels do not take.
    pub fn number(self) -> Option<u32> {
        Activation::ALL.iter().position(|other| *other == self).map(|number| number as u32)
    }
}

/// Its name in labels.
impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activation::Identity => "no activation",
            Activation::GeluTanh => "gelu",
            Activation::Relu => "relu",
            Activation::Silu => "silu",
            Activation::GeluErf => "gelu (erf)",
            Activation::QuickGelu => "quick gelu",
            Activation::SquaredRelu => "squared relu",
            Activation::Relu6 => "relu6",
            Activation::HardSwish => "hard swish",
            Activation::Sigmoid => "sigmoid",
            Activation::Tanh => "tanh",
            Activation::Scale(factor) => return write!(f, "scale {factor:?}"),
            Activation::Clamp(low, high) => return write!(f, "clamp {low:?} to {high:?}"),
        })
    }
}

/// Operations on the sums of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// Applied to each sum and its bias.
    pub activation: Activation,
    /// Whether the residual is added before the activation: `act(sum + bias + residual)` instead of `act(sum + bias) +
    /// residual`.
    pub residual_first: bool,
}

impl From<Activation> for Epilogue {
    fn from(activation: Activation) -> Self {
        Epilogue { activation, residual_first: false }
    }
}

impl Epilogue {
    /// The epilogue as a comment suffix.
    pub(crate) fn suffix(self) -> String {
        let order = if self.residual_first { " of the sum with the residual" } else { "" };
        format!("{}{order}", self.activation.suffix())
    }
}

/// The operations that one kernel shape runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operations(u32);

impl Operations {
    /// Matrix products.
    pub fn products() -> Operations {
        [Operation::Gemm, Operation::GatedGemm].into_iter().collect()
    }

    /// Whether the set contains the operation.
    pub fn contains(self, operation: Operation) -> bool {
        self.0 >> operation as u32 & 1 == 1
    }

    /// Whether the set contains all of `others`.
    pub fn contains_all(self, others: Operations) -> bool {
        self.0 & others.0 == others.0
    }

    /// The set as in the C ABI: bit `1 << o` for operation `o`.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Operations {
        Operations(operations.into_iter().fold(0, |set, o| set | 1 << o as u32))
    }
}

/// A kernel that the library builds for individual stages: the tiles that a spec's `tiles` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelShape {
    /// Kernel family: 80 or 90.
    pub arch: u32,
    /// MMA tile.
    pub tile: (u32, u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
    /// Operations that it runs.
    pub operations: Operations,
}

impl KernelShape {
    /// The kernels of an operation that are built for an architecture.
    pub fn built(arch: u32, operation: Operation) -> impl Iterator<Item = &'static KernelShape> {
        KERNELS.iter().filter(move |k| k.arch == arch && k.operations.contains(operation))
    }
}

/// A chain kernel of the `fused` executor: one tile shape for all stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainKernel {
    /// MMA tile of one CTA.
    pub tile: (u32, u32, u32),
    /// CTAs per cluster along M and N; a cluster is one worker.
    pub cluster: (u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
    /// Operations that it runs.
    pub operations: Operations,
}

/// Warpgroups of a convolution kernel that puts pixels on WGMMA's N side, up to 128 of them in a product; 0 for other
/// tiles (`kTurned` of `csrc/kernels/chain/sm90/config.cuh`).
pub fn turned_groups(tile: (u32, u32, u32)) -> u32 {
    if (tile.0, tile.1) == (256, 64) { 2 } else { 0 }
}

impl ChainKernel {
    /// Room for windows of a convolution kernel, in pixels of 64 channels: 64 for each filter block of its ring.
    pub fn window_pixels(&self) -> u32 {
        self.stages * 64
    }

    /// The chain kernels that run all of `operations`: for each shape, the one that runs the fewest others.
    pub fn running(operations: Operations) -> impl Iterator<Item = &'static ChainKernel> {
        let runs = move |k: &&ChainKernel| k.operations.contains_all(operations);
        let shape = |k: &ChainKernel| (k.tile, k.cluster);
        let leaner = move |k: &ChainKernel, other: &ChainKernel| {
            shape(k) == shape(other) && other.operations.contains_all(k.operations) && k != other
        };
        CHAIN_KERNELS
            .iter()
            .filter(runs)
            .filter(move |kernel| !CHAIN_KERNELS.iter().filter(runs).any(|k| leaner(k, kernel)))
    }
}

/// Single-stage kernels, built for both element types.
pub static KERNELS: LazyLock<Vec<KernelShape>> = LazyLock::new(|| {
    let shape =
        |i: Instance| KernelShape { arch: i.arch, tile: i.tile, stages: i.ring, operations: i.operations };
    family("gemm").map(shape).collect()
});

/// Chain kernels, all for sm_90a.
pub static CHAIN_KERNELS: LazyLock<Vec<ChainKernel>> = LazyLock::new(|| {
    let shape = |i: Instance| ChainKernel {
        tile: i.tile,
        cluster: i.cluster,
        stages: i.ring,
        operations: i.operations,
    };
    family("chain").map(shape).collect()
});

/// A decode kernel: it handles few tokens, and shares of any number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeKernel {
    /// Maximum number of tokens.
    pub width: u32,
    /// Operations that it runs.
    pub operations: Operations,
}

/// Decode kernels, all for sm_90a, by width.
pub static DECODE_KERNELS: LazyLock<Vec<DecodeKernel>> = LazyLock::new(|| {
    family("decode").map(|i| DecodeKernel { width: i.tile.1, operations: i.operations }).collect()
});

/// Operations with a kernel that has a launch to itself, all for sm_90a: it neither waits nor posts, and divides its stage
/// itself.
pub static ALONE: LazyLock<Operations> = LazyLock::new(|| {
    let all = family("alone").map(|i| i.operations.bits());
    Operations(all.fold(0, |set, operations| set | operations))
});

/// One line of the table.
struct Instance {
    arch: u32,
    tile: (u32, u32, u32),
    ring: u32,
    cluster: (u32, u32),
    operations: Operations,
}

/// The lines of a family. Unreadable lines are skipped; a test reads them all.
fn family(name: &'static str) -> impl Iterator<Item = Instance> {
    lines().filter(move |line| line.split_whitespace().next() == Some(name)).filter_map(instance)
}

fn lines() -> impl Iterator<Item = &'static str> {
    INSTANCES.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

/// 128x256x64; -: no tile
fn sizes(text: &str) -> Option<Vec<u32>> {
    if text == "-" { Some(vec![0; 3]) } else { text.split('x').map(|size| size.parse().ok()).collect() }
}

fn instance(line: &str) -> Option<Instance> {
    let mut words = line.split_whitespace().skip(1);
    let arch = words.next()?.parse().ok()?;
    let tile = sizes(words.next()?)?;
    let ring = words.next()?;
    let cluster = sizes(words.next()?)?;
    let operation = |word: &str| match word {
        "gemm" => Some(Operation::Gemm),
        "gated_gemm" => Some(Operation::GatedGemm),
        "conv2d" => Some(Operation::Conv2d),
        "attention" => Some(Operation::Attention),
        "norm" => Some(Operation::Norm),
        "attend" => Some(Operation::Attend),
        "pool" => Some(Operation::Pool),
        "group_norm" => Some(Operation::GroupNorm),
        "input_norm" => Some(Operation::InputNorm),
        "grouped_conv" => Some(Operation::GroupedConv),
        "experts" => Some(Operation::Experts),
        _ => None,
    };
    let operations = words.map(operation).collect::<Option<Vec<_>>>()?;
    Some(Instance {
        arch,
        tile: (*tile.first()?, *tile.get(1)?, *tile.get(2)?),
        ring: if ring == "-" { 0 } else { ring.parse().ok()? },
        cluster: (*cluster.first()?, *cluster.get(1)?),
        operations: operations.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        for line in lines() {
            let read = instance(line).unwrap_or_else(|| panic!("csrc/abi/instances.txt: {line}"));
            assert!(read.operations.bits() != 0, "{line}");
        }
        let families = KERNELS.len() + CHAIN_KERNELS.len() + DECODE_KERNELS.len() + family("alone").count();
        assert_eq!(families, lines().count(), "a line is of none of the families");
        assert!(!KERNELS.is_empty() && !CHAIN_KERNELS.is_empty() && !DECODE_KERNELS.is_empty());
    }

    /// Kernels are searched in table order, so a more general one listed first would run products instead of the lean
    /// one.
    #[test]
    fn kernels_that_run_fewer_operations_stand_first() {
        for name in ["gemm", "chain", "decode", "alone"] {
            let all: Vec<Instance> = family(name).collect();
            for (at, later) in all.iter().enumerate() {
                for earlier in &all[..at] {
                    let shape = |i: &Instance| (i.arch, i.tile, i.ring, i.cluster);
                    let fewer = earlier.operations.contains_all(later.operations);
                    assert!(shape(earlier) != shape(later) || !fewer, "{name} {:?}", later.tile);
                }
            }
        }
    }

    #[test]
    fn no_kernel_is_listed_twice() {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shapes: Vec<String> = lines().map(words).collect();
        shapes.sort();
        let count = shapes.len();
        shapes.dedup();
        assert_eq!(shapes.len(), count);
    }

    #[test]
    fn a_shape_is_offered_once_by_the_kernel_that_runs_the_fewest_others() {
        let products = Operations::products();
        for kernel in ChainKernel::running(products) {
            let same = ChainKernel::running(products)
                .filter(|k| (k.tile, k.cluster) == (kernel.tile, kernel.cluster));
            assert_eq!(same.count(), 1, "{kernel:?}");
            assert_eq!(kernel.operations, products, "kernels of products alone keep their code");
        }
        let with: Operations = [Operation::Gemm, Operation::Norm].into_iter().collect();
        assert!(ChainKernel::running(with).count() > 0);
        assert!(ChainKernel::running(with).all(|k| k.operations.contains(Operation::Norm)));
    }
}
