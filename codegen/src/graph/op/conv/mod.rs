//! Convolutions over NHWC images as implicit GEMMs: which input pixels an output pixel reads.
//!
//! Images are matrices, one row per pixel: input pixel (image, h, w) is row `(image * H + h) * W + w`. M counts output
//! pixels, N output channels, and k the filter: `k = (r * S + s) * C + c`.

mod lower;
mod pixels;

use std::ops::{Deref, Range};

pub(in crate::graph::op) use lower::lower;

use super::{At, Bound, Cost, Epilogue, MmaTile, Rules, Sliding, Tiles, Window, gemm};
use crate::device::{ChainKernel, Operation};
use crate::graph::{Axis, Footprint, Operand, OperandKind, Stage};
use crate::obstacle::Obstacle;
use crate::sync::Policy;

/// Additional tiles (pixels, channels, k-block depth) that the `cpu` executor uses for convolutions, besides those of
/// the kernels.
const TILES: &[MmaTile] = &[(64, 256, 64), (128, 256, 64), (256, 128, 64)];

/// Slot counts of products with pixels on WGMMA's N side (`kProductSlots` of `csrc/kernels/conv2d/window.h`).
const PRODUCT_SLOTS: [u32; 4] = [56, 104, 120, 128];

/// Channels per window.
const CHANNELS: u32 = 64;

/// The shape of a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// Operations on its sums.
    pub epilogue: Epilogue,
    /// The filter over the images.
    pub sliding: Sliding,
    /// Input channels, C.
    pub channels: u32,
    /// How its tiles read images, once their size is known; see [`Conv::tiled`].
    pub window: Option<Window>,
}

impl Deref for Conv {
    type Target = Sliding;

    fn deref(&self) -> &Sliding {
        &self.sliding
    }
}

impl Rules for Conv {
    fn name(&self) -> &'static str {
        "Conv2d"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Conv2d)
    }

    fn label(&self) -> String {
        let (r, s) = self.sliding.filter;
        format!("{r} x {s} convolution, {}{}", self.sliding.steps(), self.epilogue.suffix())
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn noun(&self) -> &'static str {
        "convolution"
    }

    fn tiles(&self, _: u32) -> Tiles {
        let list = kernels().map(|kernel| kernel.tile).chain(TILES.iter().copied()).collect();
        Tiles::Own { list, meaning: "(pixels, channels, depth of a k-block)", of_kernel: true }
    }

    fn takes(&self, _: MmaTile, _: u32) -> bool {
        true
    }

    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        let pixels = self.window.map(|w| w.rows * w.images * self.output.1);
        (pixels.unwrap_or(tile.0), tile.1)
    }

    fn k_blocks(&self, k: u32, tile: MmaTile) -> u32 {
        let taps = self.filter.0 * self.filter.1;
        self.window.map_or_else(|| k.div_ceil(tile.2), |_| self.channels.div_ceil(CHANNELS) * taps)
    }

    fn taps_of_k_block(&self, tile: MmaTile) -> u32 {
        self.window.map_or_else(|| tile.2.div_ceil(self.channels.max(1)), |_| 1)
    }

    fn elements(&self, stage: &Stage, k_block: u32) -> Range<u32> {
        if self.window.is_none() {
            return At::along(k_block, stage.mma_tile.2, stage.k);
        }
        let taps = self.filter.0 * self.filter.1;
        let channels = At::along(k_block / taps, CHANNELS, self.channels);
        let tap = self.tap_of(k_block % taps) * self.channels;
        tap + channels.start..tap + channels.end
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::A => Some((self.all_inputs(), self.channels)),
            other => gemm::operand_shape(other, size),
        }
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        match (kind, self.window) {
            (OperandKind::A, Some(window)) => {
                // All rows of a window are loaded at once, so the sliding footprint is the window.
                self.window_footprint(&window).map(|whole| (whole, Some(whole)))
            }
            (OperandKind::A, None) => {
                self.footprints(tile.0, tile.2).map(|(whole, sliding)| (whole, Some(sliding)))
            }
            (OperandKind::B, Some(_)) => {
                let k = i32::try_from(self.filter.0 * self.filter.1 * self.channels).ok()?;
                let columns = gemm::footprint(kind, self.out_tile(tile), tile.2)?;
                Some((Footprint { rows: Axis { extent: k, ..Axis::default() }, ..columns }, None))
            }
            (other, _) => Some((gemm::footprint(other, self.out_tile(tile), tile.2)?, None)),
        }
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        gemm::reads_by(operand.kind)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        if at.operand.kind != OperandKind::A {
            return gemm::reads(at, f);
        }
        if let Some(window) = self.window {
            let channels = At::along(at.k / (self.filter.0 * self.filter.1), CHANNELS, self.channels);
            return self.pixels_in(&window, at.tile.0, &mut |rows| f(rows, channels.clone()));
        }
        let ks = at.stage.elements(at.k);
        let pixels = At::along(at.tile.0, at.stage.out_tile().0, at.stage.m);
        self.taps(ks, &mut |tap, channels| {
            self.pixels_under(pixels.clone(), tap, &mut |rows| f(rows, channels.clone()));
        });
    }

    fn reads_again(&self, operand: &Operand, k: u32) -> Range<u32> {
        // Taps of one class share a window; those of other classes read other pixels of the same rows.
        let taps = self.filter.0 * self.filter.1;
        let shared = operand.kind == OperandKind::A && self.window.is_some();
        if shared { k / taps * taps..(k / taps + 1) * taps } else { k..k + 1 }
    }

    fn has_halo(&self) -> bool {
        true
    }

    fn policy(&self, operand: &Operand, _: u32) -> Option<Policy> {
        operand.sliding.map(|_| Policy::ConvHalo)
    }

    fn unfit(&self, tile: MmaTile) -> Option<Obstacle> {
        self.window.is_none().then(|| self.without_window(tile))
    }

    fn rows_multiplied(&self, tile: MmaTile) -> u32 {
        self.window.and_then(|window| self.product(tile, &window)).unwrap_or(tile.0)
    }

    fn rows_loaded(&self, rows: u32) -> f64 {
        self.pixels_a_k_block().unwrap_or(rows.into())
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 1.0, bound: Bound::Kernel }
    }
}

/// The kernels that run convolutions.
fn kernels() -> impl Iterator<Item = &'static ChainKernel> {
    ChainKernel::running([Operation::Conv2d].into_iter().collect())
}
