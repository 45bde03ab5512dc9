//! Pixel geometry of convolutions: taps, windows, and their bounding boxes.

use std::ops::Range;

use super::{CHANNELS, Conv, PRODUCT_SLOTS, Window, kernels};
use crate::device::turned_groups;
use crate::graph::Footprint;
use crate::graph::fit::Fit;
use crate::graph::op::sliding::along_m;
use crate::graph::op::{At, MmaTile};
use crate::obstacle::Obstacle;

/// Room for windows, in pixels of a block of channels, in every convolution kernel that puts pixels on WGMMA's M side.
const WINDOW_PIXELS: u32 = 512;

/// Maximum pixels along an axis of a window, or images in it: the limit of a TMA copy. Kernels have the same limit for
/// taps and padding.
const WINDOW_AXIS: u32 = 255;

/// Maximum stride: the limit of a TMA copy.
const STRIDE: u32 = 8;

/// Maximum tiles per image: kernels count them in 16 bits (`row_tiles` of `csrc/kernels/conv2d/window.h`).
const TILES_OF_IMAGE: u32 = 0xffff;

/// Room for windows, in pixels of a block of channels, in the convolution kernel with this tile.
fn window_room(tile: MmaTile) -> Option<u32> {
    let kernel = kernels().find(|kernel| kernel.tile == tile)?;
    Some(if turned_groups(tile) > 0 { kernel.window_pixels() } else { WINDOW_PIXELS })
}

impl Conv {
    /// The convolution in tiles of this size, with windows unless no kernel has the tile or no window fits.
    pub fn tiled(&self, tile: MmaTile) -> Conv {
        Conv { window: window_room(tile).and_then(|room| self.fit(tile, room)), ..*self }
    }

    /// Why tiles of this size have no window.
    pub(super) fn without_window(&self, tile: MmaTile) -> Obstacle {
        if let Some(beyond) = self.beyond_kernels() {
            return beyond;
        }
        let (Some(room), Some((pitch, tail))) = (window_room(tile), self.pitch()) else {
            let (m, n, k) = tile;
            return Obstacle::new(format!(
                "has tiles of {m} x {n} x {k}, and no kernel for convolutions has"
            ));
        };
        let (loaded, room) = (1 + (self.filter.0 - 1) / self.stride.0, room / self.windows());
        let pixels = (u64::from(loaded) * u64::from(pitch) + u64::from(tail)).next_multiple_of(8);
        let height = u64::from(loaded) * u64::from(self.stride.0);
        let none = "reads images of which no window fits a kernel's tile";
        if height > u64::from(WINDOW_AXIS) {
            Obstacle::new(format!(
                "{none}: it is {height} pixels high, and a copy of the TMA brings {WINDOW_AXIS}"
            ))
            .numbers(height, WINDOW_AXIS)
        } else if pixels > u64::from(room) {
            Obstacle::new(format!(
                "{none}: a row of output reads {pixels} pixels, and there is room for {room}"
            ))
            .numbers(pixels, room)
        } else {
            let (columns, slots) = (self.output.1, tile.0);
            Obstacle::new(format!("{none}: a row of output has {columns} pixels, and a tile {slots}"))
                .numbers(columns, slots)
        }
    }

    /// Windows that a kernel must hold at once: it fills one while it multiplies the previous one, if an item has
    /// several.
    fn windows(&self) -> u32 {
        (self.channels.div_ceil(CHANNELS) * self.classes()).min(2)
    }

    /// Rows of the MMA tile that are multiplied for a window's pixels. With pixels on WGMMA's N side, this is the
    /// smallest size that the warpgroups can be given (`cut_slots` of `csrc/kernels/conv2d/window.h`). `None` if they
    /// do not fit.
    pub(super) fn product(&self, tile: MmaTile, window: &Window) -> Option<u32> {
        let Window { rows, images, pitch } = *window;
        let image = (rows + (self.filter.0 - 1) / self.stride.0) * pitch;
        let span = |images: u32, rows: u32| (images - 1) * image + (rows - 1) * pitch + self.output.1;
        let (all, groups) = (span(images, rows), turned_groups(tile));
        if groups == 0 {
            return (all <= tile.0).then_some(tile.0);
        }
        let of_rows = (images == 1 && rows.is_multiple_of(groups)).then(|| span(1, rows / groups));
        let of_images = images.is_multiple_of(groups).then(|| span(images / groups, rows));
        let least = [Some(all.div_ceil(groups)), of_rows, of_images].into_iter().flatten().min()?;
        PRODUCT_SLOTS.iter().find(|slots| least <= **slots).map(|slots| slots * groups)
    }

    /// Pixels in shared memory from one row of a window to the next, and zero pixels after the last row; `None` on
    /// overflow.
    fn pitch(&self) -> Option<(u32, u32)> {
        // With stride 1, the padding after a row of pixels is the padding before the next one.
        if self.stride.1 == 1 && self.padding.1 < self.filter.1 {
            Some((self.input.1.checked_add(self.padding.1)?, self.padding.1))
        } else {
            Some((self.output.1.checked_add((self.filter.1 - 1) / self.stride.1)?, 0))
        }
    }

    /// Why no kernel can load its windows, with any tile.
    pub(super) fn beyond_kernels(&self) -> Option<Obstacle> {
        let (stride, padding) = (self.stride.0.max(self.stride.1), self.padding.0.max(self.padding.1));
        let taps = u64::from(self.filter.0) * u64::from(self.filter.1);
        // On overflow, use the maximum.
        let row = self.pitch().map_or(u64::MAX, |(pitch, _)| u64::from(pitch) * u64::from(self.stride.1));
        let beyond = |text: String, have: u64, limit: u32| Some(Obstacle::new(text).numbers(have, limit));
        if self.dilation != (1, 1) {
            let (rows, cols) = self.dilation;
            let text = format!("has a dilation of {rows} x {cols}, and kernels read neighboring pixels");
            beyond(text, rows.max(cols).into(), 1)
        } else if stride > STRIDE {
            let text =
                format!("has a stride of {stride}, and a copy of the TMA steps {STRIDE} pixels at most");
            beyond(text, stride.into(), STRIDE)
        } else if taps > WINDOW_AXIS.into() {
            let text = format!("has {taps} taps, and kernels count {WINDOW_AXIS}");
            beyond(text, taps, WINDOW_AXIS)
        } else if padding > WINDOW_AXIS {
            let text = format!("has padding of {padding} pixels, and kernels count {WINDOW_AXIS}");
            beyond(text, padding.into(), WINDOW_AXIS)
        } else if row > WINDOW_AXIS.into() {
            let text = format!(
                "has rows of {row} pixels with their padding, and a copy of the TMA brings {WINDOW_AXIS}"
            );
            beyond(text, row, WINDOW_AXIS)
        } else {
            None
        }
    }

    /// The largest window with output pixels that fit into the rows of an MMA tile, and which itself fits twice into a
    /// room of this size.
    fn fit(&self, tile: MmaTile, room: u32) -> Option<Window> {
        if self.beyond_kernels().is_some() {
            return None;
        }
        let (r, p) = (self.filter.0, self.output.0);
        let (pitch, tail) = self.pitch()?;
        let room = room / self.windows();
        let fits = |rows: u32, images: u32| {
            let loaded = rows + (r - 1) / self.stride.0;
            let pixels = (images * loaded * pitch + tail).next_multiple_of(8);
            let fits = self.product(tile, &Window { rows, images, pitch }).is_some();
            loaded * self.stride.0 <= WINDOW_AXIS && fits && pixels <= room
        };
        let whole = |rows: &u32| p % rows == 0 && p / rows <= TILES_OF_IMAGE;
        let rows = (1..=p.min(tile.0)).rev().filter(whole).find(|rows| fits(*rows, 1))?;
        let most = if rows == p { self.images.min(tile.0).min(WINDOW_AXIS) } else { 1 };
        let images = (1..=most).rev().find(|images| fits(rows, *images))?;
        Some(Window { rows, images, pitch })
    }

    /// Number of tap classes, by row and column modulo the strides. Each class has a window of every stride-th pixel.
    pub(crate) fn classes(&self) -> u32 {
        self.stride.0.min(self.filter.0) * self.stride.1.min(self.filter.1)
    }

    /// The tap of a block of channels at position `place` if tiles have windows, which go class by class.
    pub(super) fn tap_of(&self, place: u32) -> u32 {
        let ((r, s), mut before) = (self.filter, 0);
        let classes =
            (0..self.stride.0.min(r)).flat_map(|row| (0..self.stride.1.min(s)).map(move |col| (row, col)));
        for (row, col) in classes {
            let (rows, cols) = ((r - row).div_ceil(self.stride.0), (s - col).div_ceil(self.stride.1));
            if place < before + rows * cols {
                let (i, j) = ((place - before) / cols, (place - before) % cols);
                return (row + i * self.stride.0) * s + col + j * self.stride.1;
            }
            before += rows * cols;
        }
        before
    }

    /// Average number of input pixels that a k-block loads: a window serves all taps of its class.
    pub(crate) fn pixels_a_k_block(&self) -> Option<f64> {
        let window = self.window?;
        let rows = window.rows + (self.filter.0 - 1) / self.stride.0;
        let pixels = window.images * rows * window.pitch * self.classes();
        Some(f64::from(pixels) / f64::from(self.filter.0 * self.filter.1))
    }

    /// Footprint of tiles with windows: pixels along M, and channels along the k-blocks.
    pub(super) fn window_footprint(&self, window: &Window) -> Option<Footprint> {
        let taps = self.filter.0 * self.filter.1;
        let mut cols = Fit::new(&[(0, 0), (0, i64::from(CHANNELS / taps))]);
        for block in 0..self.channels.div_ceil(CHANNELS) * taps {
            cols.add(0, block, &At::along(block / taps, CHANNELS, self.channels));
        }
        Some(Footprint { rows: self.rows_under(window)?, cols: along_m(cols.best()?) })
    }

    /// Calls `f` with the filter taps (r, s) of the elements `ks` of k, and their channels.
    pub fn taps(&self, ks: Range<u32>, f: &mut dyn FnMut((u32, u32), Range<u32>)) {
        let mut at = ks.start;
        while at < ks.end {
            let (tap, channel) = (at / self.channels, at % self.channels);
            let end = ks.end.min(at - channel + self.channels);
            f((tap / self.filter.1, tap % self.filter.1), channel..channel + end - at);
            at = end;
        }
    }

    /// Affine ranges of the input for tiles of `tile_m` output pixels and k-blocks of `k` elements: one with the same
    /// rows at every k-block (the whole halo), and one with rows that follow the filter. Both contain every pixel
    /// read; they are exact up to the steps of the filter's rows, and of strides that do not divide a tile.
    pub(super) fn footprints(&self, tile_m: u32, k: u32) -> Option<(Footprint, Footprint)> {
        let pixels = self.pixels();
        let length = self.filter.0 * self.filter.1 * self.channels;
        let blocks = length.div_ceil(k);
        let per_tile = self.inputs_of(tile_m)?;
        // Rows advance by W for each step from one row of taps to the next, R times along the k-blocks.
        let rows = i64::from(self.filter.0) * i64::from(self.dilation.0);
        let travel = i64::from(self.input.1) * rows / i64::from(blocks);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Activation;
    use crate::graph::Axis;
    use crate::graph::op::{Rules, Sliding};

    fn conv(input: (u32, u32), filter: (u32, u32), stride: (u32, u32), padding: (u32, u32)) -> Conv {
        with_gaps(Sliding { images: 3, input, output: (0, 0), filter, stride, padding, dilation: (1, 1) })
    }

    /// A convolution with the output that follows.
    fn with_gaps(sliding: Sliding) -> Conv {
        let Sliding { input, filter, stride, padding, dilation, .. } = sliding;
        let out = |x: u32, f: u32, s: u32, p: u32, d: u32| (x + 2 * p - d * (f - 1) - 1) / s + 1;
        let rows = out(input.0, filter.0, stride.0, padding.0, dilation.0);
        let output = (rows, out(input.1, filter.1, stride.1, padding.1, dilation.1));
        let sliding = Sliding { output, ..sliding };
        Conv { epilogue: Activation::Relu.into(), channels: 24, sliding, window: None }
    }

    /// Filters with gaps, which no window holds.
    fn dilated() -> [Conv; 3] {
        let apart = |c: Conv, dilation: (u32, u32)| with_gaps(Sliding { dilation, ..c.sliding });
        [
            apart(conv((9, 9), (3, 3), (1, 1), (2, 2)), (2, 2)),
            apart(conv((11, 7), (3, 2), (2, 1), (1, 3)), (3, 4)),
            apart(conv((6, 10), (2, 5), (1, 3), (0, 0)), (5, 2)),
        ]
    }

    /// Odd shapes, strides and paddings, including padding wider than the filter.
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

    /// The input row of an output pixel's tap, from the definition.
    fn under(c: &Conv, pixel: u32, (r, s): (u32, u32)) -> Option<u32> {
        let (q, p) = (pixel % c.output.1, pixel / c.output.1 % c.output.0);
        let image = pixel / c.output.1 / c.output.0;
        let h = i64::from(p * c.stride.0 + r * c.dilation.0) - i64::from(c.padding.0);
        let w = i64::from(q * c.stride.1 + s * c.dilation.1) - i64::from(c.padding.1);
        let inside = (0..i64::from(c.input.0)).contains(&h) && (0..i64::from(c.input.1)).contains(&w);
        inside.then(|| image * c.input.0 * c.input.1 + h as u32 * c.input.1 + w as u32)
    }

    #[test]
    fn ranges_hold_the_pixels_of_the_definition_and_no_others() {
        for c in shapes().into_iter().chain(dilated()) {
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
        for c in shapes().into_iter().chain(dilated()) {
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

    fn two_images(filter: (u32, u32), padding: (u32, u32)) -> Conv {
        let one = conv((56, 56), filter, (1, 1), padding);
        Conv { channels: 64, sliding: Sliding { images: 2, ..one.sliding }, ..one }
    }

    #[test]
    fn a_same_convolution_reads_a_row_more_on_either_side() {
        let c = two_images((3, 3), (1, 1));
        let (whole, sliding) = c.footprints(128, 64).expect("small");
        assert_eq!(whole.rows, Axis { m: 128, n: 0, k: 0, offset: -57, extent: 128 + 2 * 57 });
        assert_eq!(whole.cols, Axis { extent: 64, ..Axis::default() });
        // From one row of taps to the next, the window advances by 54 or 57 of 56 pixels.
        assert!(sliding.rows.k >= 18 && sliding.rows.extent < 128 + 57, "{sliding:?}");
        let one = two_images((1, 1), (0, 0));
        let (whole, sliding) = one.footprints(128, 32).expect("small");
        assert_eq!(whole.rows, Axis { m: 128, extent: 128, ..Axis::default() });
        assert_eq!((whole.cols, whole), (Axis { k: 32, extent: 32, ..Axis::default() }, sliding));
    }

    /// The output pixels of tile `m` of a window, from the definition of a tile.
    fn pixels_of(c: &Conv, window: &Window, m: u32) -> Range<u32> {
        let tile = window.rows * window.images * c.output.1;
        m * tile..((m + 1) * tile).min(c.images * c.output.0 * c.output.1)
    }

    #[test]
    fn windows_hold_every_pixel_and_their_tiles_are_whole_rows_or_images() {
        let larger = [
            conv((56, 56), (3, 3), (1, 1), (1, 1)),
            conv((28, 28), (3, 3), (2, 2), (1, 1)),
            conv((14, 14), (3, 3), (1, 1), (1, 1)),
            conv((13, 13), (1, 1), (1, 1), (0, 0)),
            conv((33, 20), (3, 3), (1, 1), (0, 0)),
        ];
        let tiles = [((64, 64, 64), 512), ((128, 128, 64), 512), ((256, 64, 64), 768)];
        for (c, (tile, room)) in shapes().into_iter().chain(larger).flat_map(|c| tiles.map(|tile| (c, tile)))
        {
            let window = c.fit(tile, room).expect("a window fits");
            assert!(c.output.0.is_multiple_of(window.rows), "{c:?} {window:?}");
            assert!(window.images == 1 || window.rows == c.output.0, "{c:?} {window:?}");
            let whole = c.window_footprint(&window).expect("small");
            let tiles =
                (c.images * c.output.0 * c.output.1).div_ceil(window.rows * window.images * c.output.1);
            for m in 0..tiles {
                let mut loaded: Vec<u32> = Vec::new();
                c.pixels_in(&window, m, &mut |rows| {
                    let waited = whole.rows.range(u32::MAX, m, 0, 0);
                    assert!(
                        rows.is_empty() || waited.contains(&rows.start) && rows.end <= waited.end,
                        "{c:?}"
                    );
                    loaded.extend(rows);
                });
                assert!(loaded.is_sorted_by(|a, b| a < b), "{c:?}");
                for pixel in pixels_of(&c, &window, m) {
                    for tap in (0..c.filter.0).flat_map(|r| (0..c.filter.1).map(move |s| (r, s))) {
                        assert!(under(&c, pixel, tap).is_none_or(|row| loaded.binary_search(&row).is_ok()));
                    }
                }
            }
        }
    }

    #[test]
    fn filters_with_gaps_have_no_window() {
        for c in dilated() {
            assert_eq!(c.tiled((64, 64, 64)).window, None);
            let why = c.unfit((64, 64, 64)).expect("kernels read neighboring pixels");
            assert!(why.reason.contains("a dilation of"), "{why}");
        }
    }

    #[test]
    fn windows_are_as_large_as_a_tile_allows() {
        let window = |hw, images, slots| {
            let one = conv((hw, hw), (3, 3), (1, 1), (1, 1));
            Conv { sliding: Sliding { images, ..one.sliding }, ..one }
                .fit((slots, 128, 64), WINDOW_PIXELS)
                .map(|w| (w.rows, w.images, w.pitch))
        };
        assert_eq!(window(56, 8, 64), Some((1, 1, 57)));
        assert_eq!(window(56, 8, 128), Some((2, 1, 57)));
        assert_eq!(window(28, 8, 128), Some((4, 1, 29)));
        assert_eq!(window(14, 8, 128), Some((7, 1, 15)));
        assert_eq!(window(7, 8, 64), Some((7, 1, 8)));
        assert_eq!(window(7, 8, 128), Some((7, 2, 8)), "two images, with the padding between them");
        assert_eq!(window(7, 1, 128), Some((7, 1, 8)));
        assert_eq!(window(13, 1, 128), Some((1, 1, 14)), "13 rows do not fit, and nothing else divides them");
        assert_eq!(window(224, 1, 128), None, "a row does not fit");
        // One window per parity of the taps; two fit at a time.
        let down = conv((56, 56), (3, 3), (2, 2), (1, 1));
        assert_eq!(down.fit((64, 64, 64), WINDOW_PIXELS).map(|w| (w.rows, w.pitch)), Some((2, 29)));
        assert_eq!(down.fit((128, 64, 64), WINDOW_PIXELS).map(|w| (w.rows, w.pitch)), Some((4, 29)));
        // Two blocks of channels need no more windows at a time.
        let wide = Conv { channels: 72, ..down };
        assert_eq!(wide.fit((128, 64, 64), WINDOW_PIXELS).map(|w| (w.rows, w.pitch)), Some((4, 29)));
        let wider = conv((112, 112), (7, 7), (2, 2), (3, 3));
        assert_eq!(wider.fit((64, 64, 64), WINDOW_PIXELS).map(|w| (w.rows, w.pitch)), Some((1, 59)));
        assert_eq!(wider.fit((64, 64, 64), 472), None, "two windows are too large");
    }

    #[test]
    fn products_with_pixels_on_the_n_side_leave_few_slots_empty() {
        let tile = (256, 64, 64);
        let product = |hw, images| {
            let one = conv((hw, hw), (3, 3), (1, 1), (1, 1));
            let c = Conv { sliding: Sliding { images, ..one.sliding }, ..one };
            let window = c.fit(tile, 768).expect("a window fits");
            (window.rows, window.images, c.product(tile, &window))
        };
        assert_eq!(product(56, 8), (4, 1, Some(240)), "two rows a warpgroup");
        assert_eq!(product(28, 8), (7, 1, Some(208)), "cut within a row");
        assert_eq!(product(14, 8), (14, 1, Some(208)), "half an image");
        assert_eq!(product(7, 8), (7, 4, Some(256)), "two images");
        assert_eq!(product(7, 1), (7, 1, Some(112)));
        let c = conv((56, 56), (3, 3), (1, 1), (1, 1));
        let window = Window { rows: 8, images: 1, pitch: 57 };
        assert_eq!(c.product(tile, &window), None, "four rows are too many");
    }

    #[test]
    fn k_blocks_are_taps_of_one_block_of_channels_after_the_other() {
        let c = Conv { channels: 72, ..conv((14, 14), (3, 3), (1, 1), (1, 1)) };
        let (tiled, flat) = (c.tiled((64, 64, 64)), c.tiled((32, 64, 64)));
        assert_eq!((tiled.window.is_some(), flat.window), (true, None));
        assert_eq!((tiled.k_blocks(648, (64, 64, 64)), flat.k_blocks(648, (32, 64, 64))), (18, 11));
    }

    #[test]
    fn taps_are_ordered_by_their_class() {
        let order = |c: Conv| (0..c.filter.0 * c.filter.1).map(|place| c.tap_of(place)).collect::<Vec<_>>();
        assert_eq!(order(conv((14, 14), (3, 3), (1, 1), (1, 1))), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(order(conv((14, 14), (3, 3), (2, 2), (1, 1))), [0, 2, 6, 8, 1, 7, 3, 5, 4]);
        assert_eq!(order(conv((14, 14), (1, 1), (2, 2), (0, 0))), [0]);
        for c in shapes() {
            let mut taps = order(c);
            let class = |tap: &u32| (tap / c.filter.1 % c.stride.0, tap % c.filter.1 % c.stride.1);
            let classes = taps.chunk_by(|a, b| class(a) == class(b));
            assert_eq!(classes.count() as u32, c.classes(), "{c:?}: {taps:?}");
            taps.sort_unstable();
            assert!(taps.into_iter().eq(0..c.filter.0 * c.filter.1), "{c:?}");
        }
    }
}
