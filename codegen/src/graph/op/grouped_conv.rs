//! Grouped convolutions over NHWC images: the output channels of a group are sums over the input channels of the same
//! group. With one channel per group they are called depthwise.
//!
//! The filter is a matrix of R S C/groups rows and K columns. A tile is whole rows of pixels of one output image, or
//! whole images, with all their channels and one k-block, so it reads the input rows under its filter, as a pool does.

use std::ops::Range;

use super::{At, Bound, Cost, Epilogue, MmaTile, Rules, Sliding, Tiles, gemm};
use crate::device::Operation;
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::obstacle::Obstacle;

/// Taps of a depthwise filter that its kernel holds in shared memory (`csrc/kernels/grouped_conv/sm90/alone.cu`).
const MOST_TAPS: u32 = 255;

/// A convolution of more than one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedConv {
    /// Operations on its sums.
    pub epilogue: Epilogue,
    /// The filter over the images.
    pub sliding: Sliding,
    /// Input channels of a group.
    pub channels: u32,
    /// Output channels of a group.
    pub features: u32,
}

impl GroupedConv {
    fn taps(&self) -> u32 {
        self.sliding.filter.0 * self.sliding.filter.1
    }

    /// Terms of a sum.
    fn terms(&self) -> u32 {
        self.taps() * self.channels
    }

    /// Channels of an input pixel, if an output pixel has `n`.
    fn inputs(&self, n: u32) -> u32 {
        n / self.features * self.channels
    }

    /// Elements of the input images, if an output pixel has `n` channels.
    pub(crate) fn image_elements(&self, n: u32) -> f64 {
        f64::from(self.sliding.all_inputs()) * f64::from(self.inputs(n))
    }
}

impl Rules for GroupedConv {
    fn name(&self) -> &'static str {
        "Conv2d of groups"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::GroupedConv)
    }

    fn label(&self) -> String {
        let (r, s) = self.sliding.filter;
        let groups = match (self.channels, self.features) {
            (1, 1) => "depthwise convolution".into(),
            (channels, features) => format!("convolution of groups of {channels} to {features} channels"),
        };
        format!("{r} x {s} {groups}, {}{}", self.sliding.steps(), self.epilogue.suffix())
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn noun(&self) -> &'static str {
        "grouped convolution"
    }

    fn tiles(&self, n: u32) -> Tiles {
        let meaning = "(pixels of whole rows or images, channels, terms of a sum)";
        let list = self.sliding.whole_rows().map(|pixels| (pixels, n, self.terms())).collect();
        Tiles::Own { list, meaning, of_kernel: false }
    }

    fn takes(&self, tile: MmaTile, n: u32) -> bool {
        (tile.1, tile.2) == (n, self.terms()) && self.sliding.window(tile.0).is_some()
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its filter")
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::A => Some((self.sliding.all_inputs(), self.inputs(size.1))),
            other => gemm::operand_shape(other, size),
        }
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        if kind != OperandKind::A {
            return Some((gemm::footprint(kind, (tile.0, tile.1), tile.2)?, None));
        }
        let window = self.sliding.window(tile.0)?;
        let cols = Axis { extent: i32::try_from(self.inputs(tile.1)).ok()?, ..Axis::default() };
        Some((Footprint { rows: self.sliding.rows_under(&window)?, cols }, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        gemm::reads_by(operand.kind)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        if at.operand.kind != OperandKind::A {
            return gemm::reads(at, f);
        }
        if let Some(window) = self.sliding.window(at.stage.mma_tile.0) {
            self.sliding.pixels_in(&window, at.tile.0, &mut |rows| f(rows, 0..at.shape.1));
        }
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        Some(Obstacle::new("is Conv2d of groups, whose kernel neither waits nor posts"))
    }

    fn unfit(&self, _: MmaTile) -> Option<Obstacle> {
        let depthwise = (self.channels, self.features) == (1, 1);
        let text = || format!("has {} taps, and its kernel holds {MOST_TAPS}", self.taps());
        (depthwise && self.taps() > MOST_TAPS).then(|| Obstacle::new(text()).numbers(self.taps(), MOST_TAPS))
    }

    fn rows_loaded(&self, rows: u32) -> f64 {
        self.sliding.inputs_of(rows).map_or(0.0, |pixels| pixels as f64)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 1.0, bound: Bound::Bytes }
    }
}
