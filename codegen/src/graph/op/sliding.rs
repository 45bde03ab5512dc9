//! A window that slides over NHWC images: which input pixels an output pixel reads. Shared by convolutions, grouped
//! ones and pools.

use std::ops::Range;

use super::Stated;
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::graph::Axis;
use crate::graph::fit::Fit;
use crate::spec::Expr;

/// Images, and a window that slides over them. Pairs are (rows, columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    /// Images of the batch.
    pub images: u32,
    /// Pixels of an input image: H, W.
    pub input: (u32, u32),
    /// Pixels of an output image: P, Q.
    pub output: (u32, u32),
    /// Pixels of the window, the taps of a filter: R, S.
    pub filter: (u32, u32),
    /// Input pixels between neighboring output pixels.
    pub stride: (u32, u32),
    /// Padding pixels around an image: zeros, or ignored.
    pub padding: (u32, u32),
    /// Input pixels from one pixel of the window to the next.
    pub dilation: (u32, u32),
}

/// How tiles cut images: into whole rows of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Rows of an output image per tile; divides its height.
    pub rows: u32,
    /// Images per tile; more than one only if the tile has all their rows.
    pub images: u32,
    /// Rows of the MMA tile per row of pixels.
    pub pitch: u32,
}

/// The shape of a window as stated.
pub(super) struct StatedWindow<'a> {
    pub(super) filter: (u32, u32),
    /// Where it is stated, and its name there.
    pub(super) span: Span,
    pub(super) noun: &'static str,
    pub(super) stride: &'a Option<Spanned<(Expr, Expr)>>,
    /// The default stride.
    pub(super) usual_stride: (u32, u32),
    pub(super) padding: &'a Option<Spanned<(Expr, Expr)>>,
    pub(super) dilation: &'a Option<Spanned<(Expr, Expr)>>,
}

/// A stated pair of numbers, each at least `least`.
pub(super) fn pair(
    stated: &Stated<'_>,
    given: &Option<Spanned<(Expr, Expr)>>,
    usual: (u32, u32),
    (least, noun): (u32, &str),
) -> Result<(u32, u32), Diagnostic> {
    let Some(given) = given else { return Ok(usual) };
    let number = |expr: &Expr| -> Result<u32, Diagnostic> {
        let value = stated.dims.constant(expr)?;
        u32::try_from(value).ok().filter(|v| (least..=1 << 16).contains(v)).ok_or_else(|| {
            Diagnostic::new("size-range", format!("{noun} is {value}"))
                .at(expr.span, format!("evaluates to {value}"))
                .help(format!("{noun} is at least {least} and at most 65536"))
        })
    };
    Ok((number(&given.value.0)?, number(&given.value.1)?))
}

impl Sliding {
    /// Pixels of all input images, saturated to 32 bits.
    pub(super) fn all_inputs(&self) -> u32 {
        self.images.saturating_mul(self.input.0).saturating_mul(self.input.1)
    }

    /// The window over the stage's first operand, after checking the input images against the output images.
    pub(super) fn lower(
        stated: &Stated<'_>,
        (images, height, width): (u32, u32, u32),
        (p, q): (u32, u32),
        window: &StatedWindow<'_>,
    ) -> Result<Sliding, Diagnostic> {
        let StatedWindow { filter: (r, s), span, noun, .. } = *window;
        let (input, name) = (&stated.stage.reads[0].1, &stated.stage.name.value);
        let stride = pair(stated, window.stride, window.usual_stride, (1, "a stride"))?;
        let padding = pair(stated, window.padding, (0, 0), (0, "a padding"))?;
        let dilation = pair(stated, window.dilation, (1, 1), (1, "a dilation"))?;
        let fault = |message: String, at: Span, label: String, also: String, help: &str| {
            let diagnostic = Diagnostic::new("shape-mismatch", message).at(at, label);
            Err(diagnostic.also(input.span, also).help(help))
        };
        // Windows and paddings are bounded so that sums stay within 32 bits.
        let along = |length: u32, filter: u32, (stride, padding, dilation): (u32, u32, u32)| {
            (u64::from(length) + 2 * u64::from(padding))
                .checked_sub(u64::from(dilation) * u64::from(filter - 1) + 1)
                .map(|rest| rest / u64::from(stride) + 1)
        };
        let rows = along(height, r, (stride.0, padding.0, dilation.0));
        let cols = along(width, s, (stride.1, padding.1, dilation.1));
        let dilated = dilation != (1, 1);
        let (Some(rows), Some(cols)) = (rows, cols) else {
            return fault(
                format!("the {noun} of `{name}` is larger than its padded images"),
                span,
                format!("{r} x {s} taps{}", steps_apart(dilation)),
                format!("{height} x {width} pixels, {} and {} of padding a side", padding.0, padding.1),
                &format!("use a smaller {noun} or more padding"),
            );
        };
        if (u64::from(p), u64::from(q)) != (rows, cols) {
            return fault(
                format!("the output images of `{name}` have {rows} x {cols} pixels"),
                stated.stage.out.span,
                format!("{p} x {q} here"),
                format!(
                    "{height} x {width} pixels, {r} x {s} taps{}, stride {} x {}, padding {} x {}",
                    steps_apart(dilation),
                    stride.0,
                    stride.1,
                    padding.0,
                    padding.1
                ),
                &format!(
                    "an axis of `n` pixels comes out with (n + 2*padding - {}) / stride + 1, rounded down",
                    if dilated { format!("dilation*({noun} - 1) - 1") } else { noun.into() }
                ),
            );
        }
        let (input, output, filter) = ((height, width), (p, q), (r, s));
        Ok(Sliding { images, input, output, filter, stride, padding, dilation })
    }

    /// Stride, padding, and dilation if there is any, as a label.
    pub(super) fn steps(&self) -> String {
        let Sliding { stride, padding, dilation, .. } = self;
        let (stride, padding) =
            (format!("{} x {}", stride.0, stride.1), format!("{} x {}", padding.0, padding.1));
        let dilated = match dilation {
            (1, 1) => String::new(),
            (rows, cols) => format!(", dilation {rows} x {cols}"),
        };
        format!("stride {stride}, padding {padding}{dilated}")
    }

    /// Input pixels from the first to the last that a window covers along each axis.
    fn reach(&self) -> (u32, u32) {
        let along = |filter: u32, dilation: u32| dilation * (filter - 1) + 1;
        (along(self.filter.0, self.dilation.0), along(self.filter.1, self.dilation.1))
    }

    /// Pixels of the tiles that are rows that divide an image, or whole images, ascending.
    pub(super) fn whole_rows(&self) -> impl Iterator<Item = u32> + use<> {
        let Sliding { output: (p, q), images, .. } = *self;
        let of_image = (1..=p).filter(move |rows| p.is_multiple_of(*rows)).map(move |rows| rows * q);
        let whole =
            std::iter::successors(Some(2), |images| Some(images * 2)).take_while(move |i| *i <= images);
        of_image.chain(whole.map(move |images| images * p * q))
    }

    /// The window of tiles with this many output pixels; `None` if they are neither rows that divide an image nor
    /// whole images.
    pub(super) fn window(&self, pixels: u32) -> Option<Window> {
        let (p, q) = self.output;
        let (rows, images) = (pixels / q, pixels / (p * q));
        match pixels {
            0 => None,
            _ if pixels.is_multiple_of(q) && p.is_multiple_of(rows) => {
                Some(Window { rows, images: 1, pitch: q })
            }
            _ if pixels.is_multiple_of(p * q) => Some(Window { rows: p, images, pitch: q }),
            _ => None,
        }
    }

    /// Pixels of the output.
    pub(super) fn pixels(&self) -> u32 {
        self.images * self.output.0 * self.output.1
    }

    /// Input pixels that correspond to this many output pixels at an equal ratio.
    pub(super) fn inputs_of(&self, pixels: u32) -> Option<i64> {
        let (inputs, outputs) = (area(self.input), area(self.output));
        i64::try_from((u64::from(pixels) * inputs + outputs / 2) / outputs).ok()
    }

    /// The input rows in the windows of tiles, as an affine range along M.
    pub(super) fn rows_under(&self, window: &Window) -> Option<Axis> {
        let tile = window.rows * window.images * self.output.1;
        let per_tile = i64::from(window.rows * window.images * self.stride.0) * i64::from(self.input.1);
        let mut rows = Fit::new(&[(per_tile, 0), (self.inputs_of(tile)?, 0)]);
        (0..self.pixels().div_ceil(tile))
            .for_each(|m| self.pixels_in(window, m, &mut |range| rows.add(m, 0, &range)));
        rows.best().map(along_m)
    }

    /// Calls `f` with the input pixels in the window of the tile in row `m`, ascending: one range per image.
    pub(super) fn pixels_in(&self, window: &Window, m: u32, f: &mut dyn FnMut(Range<u32>)) {
        let tiles = self.output.0 / window.rows;
        let (first, row) = (m / tiles * window.images, i64::from(m % tiles * window.rows * self.stride.0));
        let begin = (row - i64::from(self.padding.0)).clamp(0, self.input.0.into()) as u32;
        let end =
            row + i64::from((window.rows - 1) * self.stride.0 + self.reach().0) - i64::from(self.padding.0);
        let end = end.clamp(begin.into(), self.input.0.into()) as u32;
        for image in first..self.images.min(first + window.images) {
            let line = |h: u32| (image * self.input.0 + h) * self.input.1;
            f(line(begin)..line(end));
        }
    }

    /// Calls `f` with the input pixels under tap (r, s) of the output pixels `pixels`, ascending: one range for each
    /// output row, or for several rows with adjacent input pixels. Padding pixels are skipped. With a stride along
    /// columns, a range includes the pixels in between.
    pub fn pixels_under(&self, pixels: Range<u32>, tap: (u32, u32), f: &mut dyn FnMut(Range<u32>)) {
        let mut open: Option<Range<u32>> = None;
        let inside = self.inside(tap);
        for line in self.lines(&pixels) {
            let Some(under) = self.line_under(line, &pixels, tap, &inside) else { continue };
            match &mut open {
                Some(range) if range.end == under.start => range.end = under.end,
                _ => open.replace(under).into_iter().for_each(&mut *f),
            }
        }
        open.into_iter().for_each(f);
    }

    /// The range from the first to the last of these pixels.
    pub(super) fn bounds_under(&self, pixels: Range<u32>, tap: (u32, u32)) -> Option<Range<u32>> {
        let inside = self.inside(tap);
        let under = |line| self.line_under(line, &pixels, tap, &inside);
        Some(self.lines(&pixels).find_map(under)?.start..self.lines(&pixels).rev().find_map(under)?.end)
    }

    /// Rows of output images, counted over the batch, that contain these pixels.
    fn lines(&self, pixels: &Range<u32>) -> Range<u32> {
        pixels.start / self.output.1..pixels.end.div_ceil(self.output.1)
    }

    /// The rows and columns of an output image for which the tap lies inside the input image.
    fn inside(&self, tap: (u32, u32)) -> (Range<u32>, Range<u32>) {
        let (r, s) = (tap.0 * self.dilation.0, tap.1 * self.dilation.1);
        let rows = inside(self.input.0, self.output.0, self.stride.0, self.padding.0, r);
        (rows, inside(self.input.1, self.output.1, self.stride.1, self.padding.1, s))
    }

    /// The input pixels under a tap for the `pixels` in row `line`; for `inside` see [`Sliding::inside`].
    fn line_under(
        &self,
        line: u32,
        pixels: &Range<u32>,
        tap: (u32, u32),
        (rows, columns): &(Range<u32>, Range<u32>),
    ) -> Option<Range<u32>> {
        let (image, p) = (line / self.output.0, line % self.output.0);
        let begin = line * self.output.1;
        let first = columns.start.max(pixels.start.saturating_sub(begin));
        let last = columns.end.min(pixels.end - begin);
        if !rows.contains(&p) || first >= last {
            return None;
        }
        let h = p * self.stride.0 + tap.0 * self.dilation.0 - self.padding.0;
        let w = |q: u32| q * self.stride.1 + tap.1 * self.dilation.1 - self.padding.1;
        let base = (image * self.input.0 + h) * self.input.1;
        Some(base + w(first)..base + w(last - 1) + 1)
    }
}

pub(super) fn along_m((m, k, offset, extent): (i32, i32, i32, i32)) -> Axis {
    Axis { m, n: 0, k, offset, extent }
}

/// The dilation of a filter's taps in a message.
fn steps_apart((rows, cols): (u32, u32)) -> String {
    if (rows, cols) == (1, 1) { String::new() } else { format!(" in steps of {rows} x {cols} pixels") }
}

fn area((rows, cols): (u32, u32)) -> u64 {
    u64::from(rows) * u64::from(cols)
}

/// The output positions, of `outputs` along an axis, with a tap, `tap` pixels from the first, inside the image and not
/// in the padding.
fn inside(inputs: u32, outputs: u32, stride: u32, padding: u32, tap: u32) -> Range<u32> {
    let begin = padding.saturating_sub(tap).div_ceil(stride);
    let end = (inputs + padding).checked_sub(tap + 1).map_or(0, |last| last / stride + 1);
    begin.min(outputs)..end.min(outputs)
}
