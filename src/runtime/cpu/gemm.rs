//! A GEMM tile, or a part of one: products, partial sums, epilogue. Convolutions supply their own left
//! operand.

use std::cell::RefCell;
use std::time::Instant;

use cusync_gen::graph::{Activation, Epilogue, NormedGemm, Operand, OperandKind, Rotated, Stage, When};
use cusync_gen::schedule::Part;

use super::CpuPipeline;
use super::activation::activate;
use super::attention::{normalise_heads, rotate};
use super::error::CpuError;
use super::memory::Box2;
use super::semaphore::{Unmet, wait_value};
use super::tile::{Place, Scratch, Stop, sized};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};

/// Elements of k per product, so that the panels of a tile stay in the caches. A fixed number, so that the
/// order of summation, and with it the last bit, does not depend on which tile was ready when.
const K_RUN: usize = 512;

/// Fills a panel of the left operand: the operand, place of the tile, first element of k and count.
pub(super) type Left<'a> = dyn Fn(&Operand, Box2, (usize, usize), &mut [f32]) + 'a;

impl CpuPipeline {
    /// Computes and stores a tile; `false` if its sums are left in a slab.
    pub(super) fn gemm(
        &self,
        place: &mut Place<'_>,
        epilogue: Epilogue,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        let whole = self.sums(place, &|a, at, ks, panel| self.panel(a, at, ks, panel), scratch)?;
        if whole {
            self.sum_over_devices(place, scratch)?;
            self.epilogue(place, epilogue, scratch)?;
        }
        Ok(whole)
    }

    /// [`Self::gemm`] for a gated GEMM, which multiplies its two sums.
    pub(super) fn gated_gemm(
        &self,
        place: &mut Place<'_>,
        gate: Activation,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        let whole = self.sums(place, &|a, at, ks, panel| self.panel(a, at, ks, panel), scratch)?;
        if whole && place.at.rows > 0 {
            self.gate(place, gate, scratch);
        }
        Ok(whole)
    }

    /// Multiplies the up sums of a tile by their gates, and stores it.
    fn gate(&self, place: &Place<'_>, gate: Activation, scratch: &mut Scratch) {
        let area = place.at.rows * place.at.cols;
        let Scratch { sum, sum_up, .. } = scratch;
        activate(gate, &mut sum[..area]);
        sum[..area].iter_mut().zip(&sum_up[..area]).for_each(|(g, u)| *g *= u);
        self.memory.store(place.stage.out, place.at, &sum[..area]);
    }

    /// [`Self::gemm`] and [`Self::gated_gemm`] for rows that are normalized: gains multiply the rows as they are
    /// read, and the root of their mean square divides the sums.
    pub(super) fn normed_gemm(
        &self,
        place: &mut Place<'_>,
        shape: &NormedGemm,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        let k = place.stage.k as usize;
        let gain = self.gain(place.stage, OperandKind::Gain, k);
        let squares = RefCell::new(vec![0f32; place.at.rows]);
        let left = |a: &Operand, at: Box2, (from, length): (usize, usize), panel: &mut [f32]| {
            self.panel(a, at, (from, length), panel);
            for (row, square) in panel.chunks_mut(length).zip(squares.borrow_mut().iter_mut()) {
                *square += row.iter().map(|x| x * x).sum::<f32>();
                row.iter_mut().zip(&gain[from..]).for_each(|(x, gain)| *x *= gain);
            }
        };
        let whole = self.sums(place, &left, scratch)?;
        if !whole || place.at.rows == 0 {
            return Ok(whole);
        }
        let cols = place.at.cols;
        for (row, square) in squares.borrow().iter().enumerate() {
            let root = (square / k as f32 + shape.epsilon).sqrt();
            let cells = row * cols..(row + 1) * cols;
            scratch.sum[cells.clone()].iter_mut().for_each(|x| *x /= root);
            if shape.gated {
                scratch.sum_up[cells].iter_mut().for_each(|x| *x /= root);
            }
        }
        match shape.gated {
            true => self.gate(place, shape.epilogue.activation, scratch),
            false => self.epilogue(place, shape.epilogue, scratch)?,
        }
        Ok(true)
    }

    /// [`Self::gemm`] for a GEMM that rotates its heads before rounding; a tile has whole heads.
    pub(super) fn rotated_gemm(
        &self,
        place: &mut Place<'_>,
        shape: &Rotated,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        let whole = self.sums(place, &|a, at, ks, panel| self.panel(a, at, ks, panel), scratch)?;
        if whole && place.at.rows > 0 {
            self.wait_for(place, 0, &(0..1), |kind| kind.when() == When::Epilogue, scratch)?;
            let Place { stage, at, .. } = place;
            self.add_bias(stage, *at, scratch);
            let (dim, tokens) = (shape.heads.dim as usize, shape.tokens as usize);
            let turned = (shape.columns() as usize).saturating_sub(at.col).min(at.cols);
            let queries = ((shape.heads.query * shape.heads.dim) as usize).saturating_sub(at.col).min(turned);
            let gains =
                [OperandKind::QueryGain, OperandKind::KeyGain].map(|kind| self.gain(stage, kind, dim));
            let sum = &mut scratch.sum[..at.rows * at.cols];
            for (i, row) in sum.chunks_mut(at.cols).enumerate() {
                let (sequence, token) = ((at.row + i) / tokens, (at.row + i) % tokens);
                // A row without angles stays as it is.
                let past = usize::try_from(self.length(stage, sequence)).ok();
                let positions = shape.positions.unwrap_or(shape.tokens) as usize;
                let Some(position) = past.map(|past| past + token).filter(|at| *at < positions) else {
                    continue;
                };
                if let Some(epsilon) = shape.heads.norm {
                    normalise_heads(&mut row[..queries], dim, epsilon, &gains[0]);
                    normalise_heads(&mut row[queries..turned], dim, epsilon, &gains[1]);
                }
                let angles = self.angles(stage, position, 1, dim).unwrap_or_default();
                rotate(&mut row[..turned], dim, |_| &angles);
            }
            self.memory.store(stage.out, *at, sum);
        }
        Ok(whole)
    }

    fn panel(&self, a: &Operand, at: Box2, (from, length): (usize, usize), panel: &mut [f32]) {
        self.memory.load_operand(a, Box2 { row: at.row, col: from, rows: at.rows, cols: length }, panel);
    }

    /// Computes the sums of a tile, including all of its parts, in `scratch`; `false` if this part leaves its
    /// sums in a slab for another. If parts share the tile, `place` becomes the rows of this part.
    pub(super) fn sums(
        &self,
        place: &mut Place<'_>,
        left: &Left<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        self.products(place, left, scratch)?;
        let at = place.at;
        match place.work.part {
            Part::Whole => {}
            Part::Contribute { slab } => {
                self.contribute(place, slab, scratch);
                return Ok(false);
            }
            Part::Finish { first, slabs } => {
                self.collect(place, first..first + slabs, 0..at.rows * at.cols, scratch)?;
            }
            Part::Share { first, parts, part } => {
                self.contribute(place, first + part, scratch);
                let rows = share_of(at.rows, parts, part);
                let cells = rows.start * at.cols..rows.end * at.cols;
                let others = (0..parts).filter(|p| *p != part).map(|p| first + p);
                self.collect(place, others, cells.clone(), scratch)?;
                // The epilogue expects its rows at the start.
                scratch.sum.copy_within(cells.clone(), 0);
                if gated(place) {
                    scratch.sum_up.copy_within(cells, 0);
                }
                place.at = Box2 { row: at.row + rows.start, rows: rows.len(), ..at };
            }
        }
        Ok(true)
    }

    /// Leaves the sums in a slab, gate before up.
    fn contribute(&self, place: &Place<'_>, slab: u32, scratch: &Scratch) {
        let (cta, area) = (place.work.cta, place.at.rows * place.at.cols);
        self.slabs.store(slab, cta, 0, &scratch.sum[..area]);
        if gated(place) {
            self.slabs.store(slab, cta, area, &scratch.sum_up[..area]);
        }
        self.semaphores.post(self.slabs.flag(slab, cta), 1);
        self.semaphores.advance();
    }

    /// Adds the sums that other parts left for some cells of the tile, slab after slab, regardless of arrival
    /// order.
    fn collect(
        &self,
        place: &Place<'_>,
        slabs: impl Iterator<Item = u32>,
        cells: std::ops::Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let (cta, area) = (place.work.cta, place.at.rows * place.at.cols);
        for slab in slabs {
            let (flag, want) = (self.slabs.flag(slab, cta), wait_value(place.epoch, 1));
            let since = Instant::now();
            let spun = self.semaphores.wait(flag, want).map_err(|unmet| match unmet {
                Unmet::Aborted => Stop::Aborted,
                Unmet::TimedOut => Stop::Failed(CpuError::StarvedSlab {
                    stage: place.stage.name.clone(),
                    tile_m: place.tile.m,
                    tile_n: place.tile.n,
                    slab,
                }),
            })?;
            if spun {
                scratch.blocked.waits += 1;
                scratch.blocked.time += since.elapsed();
            }
            self.slabs.take(slab, cta, cells.start, &mut scratch.sum[cells.clone()]);
            if gated(place) {
                self.slabs.take(slab, cta, area + cells.start, &mut scratch.sum_up[cells.clone()]);
            }
        }
        Ok(())
    }

    /// Sums over k into `scratch.sum` (and `sum_up` if gated), waiting before each k-block according to the
    /// policy. `left` fills the rows of operand A: elements `from .. from + length` of k.
    fn products(&self, place: &Place<'_>, left: &Left<'_>, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { stage, at, .. } = place;
        let blocks = place.work.k.clone();
        let run = (K_RUN / stage.mma_tile.2.max(1) as usize).max(1) as u32;
        let (mut rows, mut b_id, mut up_id) = (None, None, None);
        for operand in &stage.operands {
            match operand.kind {
                OperandKind::A => rows = Some(operand),
                OperandKind::B => b_id = Some(operand.tensor),
                OperandKind::Up => up_id = Some(operand.tensor),
                _ => {}
            }
        }
        let mut k = blocks.start;
        while k < blocks.end {
            // k-blocks with adjacent elements.
            let (begin, mut elements) = (k, stage.elements(k));
            loop {
                self.wait_for(place, k, &blocks, |kind| kind.when() != When::Epilogue, scratch)?;
                k += 1;
                let next = stage.elements(k);
                if k == blocks.end || k - begin == run || next.start != elements.end {
                    break;
                }
                elements.end = next.end;
            }
            let (from, length) = (elements.start as usize, elements.len());
            let accumulate = begin > blocks.start;
            let Scratch { a, b, up, sum, sum_up, .. } = scratch;
            let a = sized(a, at.rows * length);
            if let Some(rows) = rows {
                left(rows, *at, (from, length), a);
            }
            let weights = [(b_id, b, sum), (up_id, up, sum_up)];
            for (id, panel, sum) in weights {
                let Some(id) = id else { continue };
                let panel = sized(panel, length * at.cols);
                self.memory.load(id, Box2 { row: from, col: at.col, rows: length, cols: at.cols }, panel);
                gemm_f32(
                    MatMut::new(sized(sum, at.rows * at.cols), at.rows, at.cols, at.cols),
                    MatRef::new(a, at.rows, length, length),
                    MatRef::new(panel, length, at.cols, at.cols),
                    accumulate,
                    Threads::Caller,
                );
            }
        }
        Ok(())
    }

    /// Adds the bias, if any, to the sums of a tile.
    fn add_bias(&self, stage: &Stage, at: Box2, scratch: &mut Scratch) {
        let Some(bias) = stage.operand(OperandKind::Bias) else { return };
        let Scratch { a, sum, .. } = scratch;
        let line = sized(a, at.cols);
        self.memory.load(bias.tensor, Box2 { row: 0, col: at.col, rows: 1, cols: at.cols }, line);
        let rows = sum[..at.rows * at.cols].chunks_mut(at.cols);
        rows.for_each(|row| row.iter_mut().zip(&*line).for_each(|(x, b)| *x += b));
    }

    /// Bias, activation and residual; stores the tile.
    pub(super) fn epilogue(
        &self,
        place: &Place<'_>,
        epilogue: Epilogue,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        // Some parts that share a tile of few rows may have none.
        if place.at.rows == 0 {
            return Ok(());
        }
        self.wait_for(place, 0, &(0..1), |kind| kind.when() == When::Epilogue, scratch)?;
        let Place { stage, at, .. } = place;
        self.add_bias(stage, *at, scratch);
        let area = at.rows * at.cols;
        let Scratch { a, sum, .. } = scratch;
        let sum = &mut sum[..area];
        let residual = stage.operand(OperandKind::Residual).map(|residual| {
            let other = sized(a, area);
            self.memory.load_operand(residual, *at, other);
            &*other
        });
        let add = |sum: &mut [f32]| {
            residual.into_iter().for_each(|other| sum.iter_mut().zip(other).for_each(|(x, r)| *x += r));
        };
        if epilogue.residual_first {
            add(sum);
        }
        activate(epilogue.activation, sum);
        if !epilogue.residual_first {
            add(sum);
        }
        self.memory.store(stage.out, *at, sum);
        Ok(())
    }
}

/// Whether a tile has sums of a second weight.
fn gated(place: &Place<'_>) -> bool {
    place.stage.operands.iter().any(|o| o.kind == OperandKind::Up)
}

/// Rows that part `part` of `parts` finishes. Kernels distribute units of columns instead; any division is
/// correct.
fn share_of(rows: usize, parts: u32, part: u32) -> std::ops::Range<usize> {
    let begin = |p: u32| rows * p as usize / parts as usize;
    begin(part)..begin(part + 1)
}
