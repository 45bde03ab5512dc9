//! A tile of a pool: whole rows of pixels.

use cusync_gen::graph::{OperandKind, Pool};

use super::CpuPipeline;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop, sized};

impl CpuPipeline {
    /// Computes and stores a tile.
    pub(super) fn pool(&self, place: &Place<'_>, shape: &Pool, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { work, stage, at, .. } = place;
        self.wait_for(place, work.k.start, &work.k, |_| true, scratch)?;
        let Some(images) = stage.operands.iter().find(|o| o.kind == OperandKind::A) else { return Ok(()) };
        let sliding = &shape.sliding;
        let (height, width) = (sliding.input.0 as usize, sliding.input.1 as usize);
        let (p_len, q_len) = (sliding.output.0 as usize, sliding.output.1 as usize);
        let Scratch { a, sum, .. } = scratch;
        let (line, out) = (sized(a, at.cols), sized(sum, at.rows * at.cols));
        for (i, out) in out.chunks_mut(at.cols).enumerate() {
            let pixel = at.row + i;
            let (image, p, q) = (pixel / (p_len * q_len), pixel / q_len % p_len, pixel % q_len);
            let rows = under(p, (sliding.stride.0, sliding.filter.0, sliding.padding.0), height);
            let cols = under(q, (sliding.stride.1, sliding.filter.1, sliding.padding.1), width);
            out.fill(if shape.mean { 0.0 } else { f32::NEG_INFINITY });
            for h in rows.clone() {
                for w in cols.clone() {
                    let row = (image * height + h) * width + w;
                    let from = Box2 { row, col: at.col, rows: 1, cols: at.cols };
                    self.memory.load(images.tensor, from, line);
                    let both = out.iter_mut().zip(&*line);
                    match shape.mean {
                        true => both.for_each(|(sum, x)| *sum += x),
                        // NaN stays NaN.
                        false => both.for_each(|(most, x)| {
                            *most = if *most >= *x || most.is_nan() { *most } else { *x };
                        }),
                    }
                }
            }
            if shape.mean {
                let share = 1.0 / (rows.len() * cols.len()) as f32;
                out.iter_mut().for_each(|sum| *sum *= share);
            }
        }
        self.memory.store(stage.out, *at, out);
        Ok(())
    }
}

/// Input positions in the window of output position `at`, along an axis of `length` pixels.
fn under(at: usize, (stride, filter, padding): (u32, u32, u32), length: usize) -> std::ops::Range<usize> {
    let begin = at * stride as usize;
    let inside = |x: usize| x.saturating_sub(padding as usize).min(length);
    inside(begin)..inside(begin + filter as usize)
}
