//! Convolutions over NHWC images as implicit GEMMs: which input pixels lie under which output pixels.
//!
//! Images are matrices, one row a pixel: input pixel (image, h, w) is row `(image * H + h) * W + w`. M counts output
//! pixels, N output channels, and k the filter: `k = (r * S + s) * C + c`.

use std::ops::Range;

use super::{Activation, At, Bound, Constant, Cost, MmaTile, Rules, Stated, Tiles, gemm};
use crate::device::Operation;
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::graph::fit::Fit;
use crate::graph::{Axis, Footprint, Operand, OperandKind, Stage};
use crate::spec::{ConvSpec, Expr, TensorUse};
use crate::sync::Policy;

/// Tiles of pixels and channels, and the depth of a k-block: what the `cpu` executor cuts a convolution into. There are no
/// kernels of it yet.
const TILES: &[MmaTile] = &[(64, 128, 64), (64, 256, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64)];

/// The shape of a convolution. Pairs are (rows, columns) of images and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Activation of the epilogue.
    pub activation: Activation,
    /// Images of the batch.
    pub images: u32,
    /// Pixels of an input image: H, W.
    pub input: (u32, u32),
    /// Input channels, C.
    pub channels: u32,
    /// Pixels of an output image: P, Q.
    pub output: (u32, u32),
    /// Filter taps: R, S.
    pub filter: (u32, u32),
    /// Input pixels between neighbouring output pixels.
    pub stride: (u32, u32),
    /// Pixels of zeros around an image.
    pub padding: (u32, u32),
}

impl Conv {
    /// Calls `f` with the filter taps (r, s) that the elements `ks` of k belong to, and their channels.
    pub fn taps(&self, ks: Range<u32>, f: &mut dyn FnMut((u32, u32), Range<u32>)) {
        let mut at = ks.start;
        while at < ks.end {
            let (tap, channel) = (at / self.channels, at % self.channels);
            let end = ks.end.min(at - channel + self.channels);
            f((tap / self.filter.1, tap % self.filter.1), channel..channel + end - at);
            at = end;
        }
    }

    /// Calls `f` with the input pixels under tap (r, s) of the output pixels `pixels`, ascending: one range for each
    /// output row, or for several whose input pixels adjoin. Pixels of the padding are nobody's. With a stride along
    /// columns a range holds the pixels between, too.
    pub fn pixels_under(&self, pixels: Range<u32>, tap: (u32, u32), f: &mut dyn FnMut(Range<u32>)) {
        let mut open: Option<Range<u32>> = None;
        for line in self.lines(&pixels) {
            let Some(under) = self.line_under(line, &pixels, tap) else { continue };
            match &mut open {
                Some(range) if range.end == under.start => range.end = under.end,
                _ => open.replace(under).into_iter().for_each(&mut *f),
            }
        }
        open.into_iter().for_each(f);
    }

    /// From the first to the last of them.
    fn bounds_under(&self, pixels: Range<u32>, tap: (u32, u32)) -> Option<Range<u32>> {
        let first = self.lines(&pixels).find_map(|line| self.line_under(line, &pixels, tap))?;
        let last = self.lines(&pixels).rev().find_map(|line| self.line_under(line, &pixels, tap))?;
        Some(first.start..last.end)
    }

    /// Rows of output images, counted over the batch, that some pixels are of.
    fn lines(&self, pixels: &Range<u32>) -> Range<u32> {
        pixels.start / self.output.1..pixels.end.div_ceil(self.output.1)
    }

    /// The input pixels under a tap of those of `pixels` that are in row `line`.
    fn line_under(&self, line: u32, pixels: &Range<u32>, tap: (u32, u32)) -> Option<Range<u32>> {
        let rows = inside(self.input.0, self.output.0, self.stride.0, self.padding.0, tap.0);
        let columns = inside(self.input.1, self.output.1, self.stride.1, self.padding.1, tap.1);
        let (image, p) = (line / self.output.0, line % self.output.0);
        let begin = line * self.output.1;
        let first = columns.start.max(pixels.start.saturating_sub(begin));
        let last = columns.end.min(pixels.end - begin);
        if !rows.contains(&p) || first >= last {
            return None;
        }
        let h = p * self.stride.0 + tap.0 - self.padding.0;
        let w = |q: u32| q * self.stride.1 + tap.1 - self.padding.1;
        let base = (image * self.input.0 + h) * self.input.1;
        Some(base + w(first)..base + w(last - 1) + 1)
    }

    /// What the tiles of `tile_m` output pixels read of the input at k-blocks of `k` elements, as affine ranges: with the
    /// same rows at every k-block (the whole halo), and with rows that follow the filter. Both hold every pixel that is
    /// read; they are exact up to the steps of the filter's rows, and of strides that do not divide a tile.
    fn footprints(&self, tile_m: u32, k: u32) -> Option<(Footprint, Footprint)> {
        let pixels = self.images * self.output.0 * self.output.1;
        let length = self.filter.0 * self.filter.1 * self.channels;
        let blocks = length.div_ceil(k);
        let per_tile = {
            let (of, by) = (area(self.input), area(self.output));
            (u64::from(tile_m) * of + by / 2) / by
        };
        let per_tile = i64::try_from(per_tile).ok()?;
        // Rows move by W from one row of taps to the next, R times along the k-blocks.
        let travel = i64::from(self.input.1) * i64::from(self.filter.0) / i64::from(blocks);
        let mut whole = Fit::new(&[(per_tile, 0)]);
        let mut sliding = Fit::new(&[(per_tile, 0), (per_tile, travel), (per_tile, travel + 1)]);
        let mut columns = Fit::new(&[(0, 0), (0, i64::from(k))]);
        for block in 0..blocks {
            let ks = block * k..length.min((block + 1) * k);
            self.taps(ks.clone(), &mut |_, channels| columns.add(0, block, &channels));
            for m in 0..pixels.div_ceil(tile_m) {
                self.taps(ks.clone(), &mut |tap, _| {
                    if let Some(under) = self.bounds_under(m * tile_m..pixels.min((m + 1) * tile_m), tap) {
                        whole.add(m, block, &under);
                        sliding.add(m, block, &under);
                    }
                });
            }
        }
        let cols = along_m(columns.best()?);
        let rows = |fit: Fit| fit.best().map(along_m);
        Some((Footprint { rows: rows(whole)?, cols }, Footprint { rows: rows(sliding)?, cols }))
    }
}

/// The shape of a convolution, all of whose tensors agree with it.
pub(super) fn lower(spec: &ConvSpec, stated: &Stated<'_>) -> Result<Conv, Diagnostic> {
    let axes = |used: &TensorUse| -> Result<[u32; 4], Diagnostic> {
        let mut sizes = [0; 4];
        for (size, axis) in sizes.iter_mut().zip(&used.args) {
            *size = stated.dims.size(axis, "an axis")?;
        }
        Ok(sizes)
    };
    let (input, filter) = (&stated.stage.reads[0].1, &stated.stage.reads[1].1);
    let (
        [images, height, width, channels],
        [r, s, filter_channels, features],
        [out_images, p, q, out_channels],
    ) = (axes(input)?, axes(filter)?, axes(&stated.stage.out)?);
    let fault = |code, message: String, at: Span, label: String, also: (Span, String), help: &str| {
        Err(Diagnostic::new(code, message).at(at, label).also(also.0, also.1).help(help))
    };
    if filter_channels != channels {
        return fault(
            "shape-mismatch",
            format!(
                "the filter of `{}` has {filter_channels} input channels, its images {channels}",
                stated.stage.name.value
            ),
            filter.span,
            format!("{filter_channels} channels: the third axis"),
            (input.span, format!("{channels} channels: the last axis")),
            "a filter is (R, S, C, K), images are (B, H, W, C)",
        );
    }
    if (out_images, out_channels) != (images, features) {
        return fault(
            "shape-mismatch",
            format!(
                "the output of `{}` must have {images} images of {features} channels",
                stated.stage.name.value
            ),
            stated.stage.out.span,
            format!("{out_images} images of {out_channels} channels"),
            (filter.span, format!("{features} output channels: the last axis")),
            "the output is (B, P, Q, K): as many images as the input, as many channels as the filter's last axis",
        );
    }
    let pair = |given: &Option<Spanned<(Expr, Expr)>>, usual: u32, least: u32, what: &str| {
        let Some(given) = given else { return Ok((usual, usual)) };
        let number = |expr: &Expr| -> Result<u32, Diagnostic> {
            let value = stated.dims.constant(expr)?;
            u32::try_from(value).ok().filter(|v| (least..=1 << 16).contains(v)).ok_or_else(|| {
                Diagnostic::new("size-range", format!("{what} is {value}"))
                    .at(expr.span, format!("evaluates to {value}"))
                    .help(format!("{what} is at least {least} and at most 65536"))
            })
        };
        Ok((number(&given.value.0)?, number(&given.value.1)?))
    };
    let stride = pair(&spec.stride, 1, 1, "a stride")?;
    let padding = pair(&spec.padding, 0, 0, "a padding")?;
    // Filters and paddings are bounded, so that sums stay inside 32 bits.
    let along = |length: u32, filter: u32, stride: u32, padding: u32| {
        (u64::from(length) + 2 * u64::from(padding))
            .checked_sub(filter.into())
            .map(|rest| rest / u64::from(stride) + 1)
    };
    let (rows, cols) = (along(height, r, stride.0, padding.0), along(width, s, stride.1, padding.1));
    let (Some(rows), Some(cols)) = (rows, cols) else {
        return fault(
            "shape-mismatch",
            format!("the filter of `{}` is larger than its padded images", stated.stage.name.value),
            filter.span,
            format!("{r} x {s} taps"),
            (
                input.span,
                format!("{height} x {width} pixels, {} and {} of padding a side", padding.0, padding.1),
            ),
            "use a smaller filter or more padding",
        );
    };
    if (u64::from(p), u64::from(q)) != (rows, cols) {
        return fault(
            "shape-mismatch",
            format!("the output images of `{}` have {rows} x {cols} pixels", stated.stage.name.value),
            stated.stage.out.span,
            format!("{p} x {q} here"),
            (
                input.span,
                format!(
                    "{height} x {width} pixels, {r} x {s} taps, stride {} x {}, padding {} x {}",
                    stride.0, stride.1, padding.0, padding.1
                ),
            ),
            "an axis of `n` pixels comes out with (n + 2*padding - filter) / stride + 1, rounded down",
        );
    }
    stated.check_rows()?;
    check_epilogue(stated)?;
    Ok(Conv {
        activation: spec.activation,
        images,
        input: (height, width),
        channels,
        output: (p, q),
        filter: (r, s),
        stride,
        padding,
    })
}

/// Bias and residual of a convolution have the shapes of its GEMM.
fn check_epilogue(stated: &Stated<'_>) -> Result<(), Diagnostic> {
    let (m, n) = (stated.out().rows, stated.out().cols);
    for (i, read) in stated.reads.iter().enumerate().skip(2) {
        let tensor = stated.tensor(i);
        let rows = if read.kind == OperandKind::Bias { 1 } else { m };
        if (tensor.rows, tensor.cols) != (rows, n) {
            let message = format!("`{}` must be {rows} x {n}", tensor.name);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(stated.out.span, format!("{m} pixels of {n} channels"))
                .help("a bias has one element a channel, a residual the shape of the output"));
        }
    }
    Ok(())
}

impl Rules for Conv {
    fn name(&self) -> &'static str {
        "Conv2d"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Conv2d)
    }

    fn label(&self) -> String {
        let Conv { filter: (r, s), stride, padding, activation, .. } = self;
        let (stride, padding) =
            (format!("{} x {}", stride.0, stride.1), format!("{} x {}", padding.0, padding.1));
        format!("{r} x {s} convolution, stride {stride}, padding {padding}{}", activation.suffix())
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn noun(&self) -> &'static str {
        "convolution"
    }

    fn tiles(&self, _: u32) -> Tiles {
        Tiles::Own { list: TILES.to_vec(), meaning: "(pixels, channels, depth of a k-block)" }
    }

    fn takes(&self, _: MmaTile, _: u32) -> bool {
        true
    }

    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        (tile.0, tile.1)
    }

    fn unsplit(&self) -> Option<&'static str> {
        None
    }

    fn k_blocks_of(&self, stage: &Stage, _: u32) -> u32 {
        stage.k_blocks
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::A => Some((self.images * self.input.0 * self.input.1, self.channels)),
            other => gemm::operand_shape(other, size),
        }
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        match kind {
            OperandKind::A => self.footprints(tile.0, tile.2).map(|(whole, sliding)| (whole, Some(sliding))),
            other => Some((gemm::footprint(other, self.out_tile(tile), tile.2)?, None)),
        }
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        gemm::reads_by(operand.kind)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        if at.operand.kind != OperandKind::A {
            return gemm::reads(at, f);
        }
        let ks = At::along(at.k, at.stage.mma_tile.2, at.stage.k);
        let pixels = At::along(at.tile.0, at.stage.out_tile().0, at.stage.m);
        self.taps(ks, &mut |tap, channels| {
            self.pixels_under(pixels.clone(), tap, &mut |rows| f(rows, channels.clone()));
        });
    }

    fn constant(&self, _: OperandKind) -> Option<Constant> {
        None
    }

    fn has_halo(&self) -> bool {
        true
    }

    fn policy(&self, operand: &Operand, _: u32) -> Option<Policy> {
        operand.sliding.map(|_| Policy::ConvHalo)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 1.0, bound: Bound::Kernel }
    }
}

fn along_m((m, k, offset, extent): (i32, i32, i32, i32)) -> Axis {
    Axis { m, n: 0, k, offset, extent }
}

fn area((rows, cols): (u32, u32)) -> u64 {
    u64::from(rows) * u64::from(cols)
}

/// The output positions, `outputs` along an axis, whose input under a tap lies inside the image and not in the padding.
fn inside(inputs: u32, outputs: u32, stride: u32, padding: u32, tap: u32) -> Range<u32> {
    let begin = padding.saturating_sub(tap).div_ceil(stride);
    let end = (inputs + padding).checked_sub(tap + 1).map_or(0, |last| last / stride + 1);
    begin.min(outputs)..end.min(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conv(input: (u32, u32), filter: (u32, u32), stride: (u32, u32), padding: (u32, u32)) -> Conv {
        let out = |x: u32, f: u32, s: u32, p: u32| (x + 2 * p - f) / s + 1;
        Conv {
            activation: Activation::Relu,
            images: 3,
            input,
            channels: 24,
            output: (
                out(input.0, filter.0, stride.0, padding.0),
                out(input.1, filter.1, stride.1, padding.1),
            ),
            filter,
            stride,
            padding,
        }
    }

    /// Odd shapes, strides and paddings, padding wider than the filter among them.
    fn shapes() -> [Conv; 7] {
        [
            conv((7, 7), (3, 3), (1, 1), (1, 1)),
            conv((9, 5), (3, 3), (2, 2), (1, 1)),
            conv((8, 8), (1, 1), (1, 1), (0, 0)),
            conv((8, 8), (1, 1), (2, 2), (0, 0)),
            conv((6, 11), (5, 2), (1, 3), (0, 2)),
            conv((4, 4), (2, 3), (1, 1), (3, 3)),
            conv((10, 6), (7, 1), (2, 1), (3, 0)),
        ]
    }

    /// The input row under a tap of an output pixel, from the definition.
    fn under(c: &Conv, pixel: u32, (r, s): (u32, u32)) -> Option<u32> {
        let (q, p) = (pixel % c.output.1, pixel / c.output.1 % c.output.0);
        let image = pixel / c.output.1 / c.output.0;
        let h = i64::from(p * c.stride.0 + r) - i64::from(c.padding.0);
        let w = i64::from(q * c.stride.1 + s) - i64::from(c.padding.1);
        let inside = (0..i64::from(c.input.0)).contains(&h) && (0..i64::from(c.input.1)).contains(&w);
        inside.then(|| image * c.input.0 * c.input.1 + h as u32 * c.input.1 + w as u32)
    }

    #[test]
    fn ranges_hold_the_pixels_of_the_definition_and_no_others() {
        for c in shapes() {
            let pixels = c.images * c.output.0 * c.output.1;
            for tap in (0..c.filter.0).flat_map(|r| (0..c.filter.1).map(move |s| (r, s))) {
                for begin in 0..pixels {
                    for end in [begin + 1, (begin + 13).min(pixels), pixels] {
                        let expected: Vec<u32> = (begin..end).filter_map(|o| under(&c, o, tap)).collect();
                        let mut found: Vec<u32> = Vec::new();
                        c.pixels_under(begin..end, tap, &mut |range| found.extend(range));
                        assert!(found.is_sorted_by(|a, b| a < b), "{c:?} {tap:?}: {found:?}");
                        if c.stride.1 == 1 {
                            assert_eq!(found, expected, "{c:?} {tap:?} {begin}..{end}");
                        } else {
                            found.retain(|row| expected.contains(row));
                            assert_eq!(found, expected, "{c:?} {tap:?} {begin}..{end}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn affine_footprints_hold_every_pixel_and_every_channel() {
        for c in shapes() {
            let pixels = c.images * c.output.0 * c.output.1;
            let length = c.filter.0 * c.filter.1 * c.channels;
            for (tile, k) in [(16, 8), (64, 32), (7, 64)] {
                let (whole, sliding) = c.footprints(tile, k).expect("small");
                assert_eq!((whole.rows.k, whole.rows.m), (0, sliding.rows.m));
                assert!(sliding.rows.extent <= whole.rows.extent, "{c:?}");
                for (m, block) in
                    (0..pixels.div_ceil(tile)).flat_map(|m| (0..length.div_ceil(k)).map(move |b| (m, b)))
                {
                    for element in block * k..length.min((block + 1) * k) {
                        let (tap, channel) = (element / c.channels, element % c.channels);
                        let tap = (tap / c.filter.1, tap % c.filter.1);
                        for pixel in m * tile..pixels.min((m + 1) * tile) {
                            let Some(row) = under(&c, pixel, tap) else { continue };
                            for footprint in [whole, sliding] {
                                let rows = footprint.rows.range(u32::MAX, m, 0, block);
                                let cols = footprint.cols.range(c.channels, m, 0, block);
                                assert!(rows.contains(&row) && cols.contains(&channel), "{c:?} {m} {block}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_same_convolution_reads_a_row_more_on_either_side() {
        let c = Conv { channels: 64, images: 2, ..conv((56, 56), (3, 3), (1, 1), (1, 1)) };
        let (whole, sliding) = c.footprints(128, 64).expect("small");
        assert_eq!(whole.rows, Axis { m: 128, n: 0, k: 0, offset: -57, extent: 128 + 2 * 57 });
        assert_eq!(whole.cols, Axis { extent: 64, ..Axis::default() });
        // From one row of taps to the next the window moves by 54 or 57 of 56 pixels.
        assert!(sliding.rows.k >= 18 && sliding.rows.extent < 128 + 57, "{sliding:?}");
        let one = Conv { channels: 64, images: 2, ..conv((56, 56), (1, 1), (1, 1), (0, 0)) };
        let (whole, sliding) = one.footprints(128, 32).expect("small");
        assert_eq!(whole.rows, Axis { m: 128, extent: 128, ..Axis::default() });
        assert_eq!((whole.cols, whole), (Axis { k: 32, extent: 32, ..Axis::default() }, sliding));
    }
}
