//! Pools over NHWC images: each output pixel is the maximum or the mean of the input pixels under a window, channel by
//! channel. Max pooling ignores padding; average pooling does not support it.
//!
//! A tile is whole rows of pixels of one output image, or whole images, with all their channels and one k-block, so it
//! reads the input rows under its windows.

use std::ops::Range;

use super::sliding::{StatedWindow, pair};
use super::{At, Bound, Cost, MmaTile, Rules, Sliding, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::Diagnostic;
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::spec::PoolSpec;

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Whether pixels are averaged; otherwise the maximum is taken.
    pub mean: bool,
    /// The window over the images.
    pub sliding: Sliding,
}

/// Checks that input and output images agree, no window lies entirely in the padding, and average pooling has no
/// padding.
pub(super) fn lower(spec: &PoolSpec, stated: &Stated<'_>) -> Result<Pool, Diagnostic> {
    let input = &stated.stage.reads[0].1;
    let ([images, height, width, channels], [out_images, p, q, out_channels]) =
        (stated.axes(input)?, stated.axes(&stated.stage.out)?);
    if (out_images, out_channels) != (images, channels) {
        let name = &stated.stage.name.value;
        let message = format!("the output of `{name}` must have {images} images of {channels} channels");
        return Err(Diagnostic::new("shape-mismatch", message)
            .at(stated.stage.out.span, format!("{out_images} images of {out_channels} channels"))
            .also(input.span, format!("{images} images of {channels} channels"))
            .help("a pool keeps images and channels: (B, H, W, C) becomes (B, P, Q, C)"));
    }
    let filter = pair(stated, &spec.window, (height, width), (1, "a window"))?;
    let window = StatedWindow {
        filter,
        span: spec.window.as_ref().map_or(input.span, |window| window.span),
        noun: "window",
        stride: &spec.stride,
        usual_stride: filter,
        padding: &spec.padding,
        dilation: &None,
    };
    let sliding = Sliding::lower(stated, (images, height, width), (p, q), &window)?;
    if let Some(padding) = &spec.padding {
        let fault = |message: &str, help: &str| {
            let (rows, cols) = sliding.padding;
            let label = format!("{rows} and {cols} pixels a side, the window is {} x {}", filter.0, filter.1);
            Err(Diagnostic::new("pool-padding", message).at(padding.span, label).help(help))
        };
        if sliding.padding.0 >= filter.0 || sliding.padding.1 >= filter.1 {
            return fault(
                "a window may lie in the padding alone",
                "state less padding than the window is long",
            );
        }
        if spec.mean && sliding.padding != (0, 0) {
            return fault(
                "a mean has no padding",
                "leave the padding out, or take the greatest: `kind: Max`",
            );
        }
    }
    Ok(Pool { mean: spec.mean, sliding })
}

impl Pool {
    fn taps(&self) -> u32 {
        self.sliding.filter.0 * self.sliding.filter.1
    }
}

impl Rules for Pool {
    fn name(&self) -> &'static str {
        "Pool"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Pool)
    }

    fn label(&self) -> String {
        let (r, s) = self.sliding.filter;
        let kind = if self.mean { "average" } else { "max" };
        format!("{r} x {s} {kind} pool, {}", self.sliding.steps())
    }

    fn noun(&self) -> &'static str {
        "pool"
    }

    fn tiles(&self, n: u32) -> Tiles {
        let meaning = "(pixels of whole rows or images, channels, pixels of the window)";
        let list = self.sliding.whole_rows().map(|m| (m, n, self.taps())).collect();
        Tiles::Own { list, meaning, of_kernel: false }
    }

    fn takes(&self, tile: MmaTile, n: u32) -> bool {
        (tile.1, tile.2) == (n, self.taps()) && self.sliding.window(tile.0).is_some()
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its window")
    }

    fn operand_shape(&self, kind: OperandKind, (_, n, _): (u32, u32, u32)) -> Option<(u32, u32)> {
        (kind == OperandKind::A).then_some((self.sliding.all_inputs(), n))
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        let window = self.sliding.window(tile.0).filter(|_| kind == OperandKind::A)?;
        let cols = Axis { extent: i32::try_from(tile.1).ok()?, ..Axis::default() };
        Some((Footprint { rows: self.sliding.rows_under(&window)?, cols }, None))
    }

    fn reads_by(&self, _: &Operand) -> (bool, bool) {
        (true, false)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        if let Some(window) = self.sliding.window(at.stage.mma_tile.0) {
            self.sliding.pixels_in(&window, at.tile.0, &mut |rows| f(rows, 0..at.shape.1));
        }
    }

    fn rows_loaded(&self, rows: u32) -> f64 {
        self.sliding.inputs_of(rows).map_or(0.0, |pixels| pixels as f64)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 0.0, bound: Bound::Bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(input: (u32, u32), filter: (u32, u32), stride: (u32, u32), padding: (u32, u32)) -> Pool {
        let out = |x: u32, f: u32, s: u32, p: u32| (x + 2 * p - f) / s + 1;
        let output =
            (out(input.0, filter.0, stride.0, padding.0), out(input.1, filter.1, stride.1, padding.1));
        let dilation = (1, 1);
        Pool { mean: false, sliding: Sliding { images: 3, input, output, filter, stride, padding, dilation } }
    }

    #[test]
    fn tiles_are_whole_rows_or_images_and_their_footprints_hold_every_pixel_under_them() {
        for pool in [
            pool((8, 6), (2, 2), (2, 2), (0, 0)),
            pool((12, 10), (3, 3), (2, 2), (1, 1)),
            pool((9, 7), (3, 2), (1, 2), (2, 0)),
            pool((7, 7), (7, 7), (7, 7), (0, 0)),
        ] {
            let Tiles::Own { list, .. } = pool.tiles(16) else { panic!("tiles of its own") };
            assert!(list.len() > 1 && list.is_sorted(), "{list:?}");
            let Sliding { images, input, output: (p, q), stride, padding, filter, .. } = pool.sliding;
            for tile in list {
                assert!(pool.takes(tile, 16) && !pool.takes(tile, 8));
                let (footprint, _) = pool.footprint(OperandKind::A, tile).expect("small");
                for pixel in 0..images * p * q {
                    let waited = footprint.rows.range(u32::MAX, pixel / tile.0, 0, 0);
                    let (image, h, w) = (pixel / (p * q), pixel / q % p, pixel % q);
                    for (r, s) in (0..filter.0).flat_map(|r| (0..filter.1).map(move |s| (r, s))) {
                        let at = |x: u32, stride: u32, tap: u32, padding: u32, length: u32| {
                            (x * stride + tap).checked_sub(padding).filter(|x| *x < length)
                        };
                        let h = at(h, stride.0, r, padding.0, input.0);
                        let Some((h, w)) = h.zip(at(w, stride.1, s, padding.1, input.1)) else { continue };
                        let row = (image * input.0 + h) * input.1 + w;
                        assert!(waited.contains(&row), "{pool:?} {tile:?}: {row} is not in {waited:?}");
                    }
                }
            }
        }
        assert_eq!(pool((8, 6), (2, 2), (2, 2), (0, 0)).sliding.window(5), None, "neither rows nor images");
    }
}
