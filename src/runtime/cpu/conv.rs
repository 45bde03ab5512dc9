//! A tile of a convolution: a GEMM tile with the left operand gathered from the images.

use cusync_gen::graph::{Conv, Operand};

use super::CpuPipeline;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};

impl CpuPipeline {
    /// Computes and stores a tile; `false` if its sums are left in a slab.
    pub(super) fn convolve(
        &self,
        place: &mut Place<'_>,
        shape: &Conv,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        let left = |images: &Operand, at, ks, panel: &mut [f32]| self.gather(images, shape, at, ks, panel);
        let whole = self.sums(place, &left, scratch)?;
        if whole {
            self.epilogue(place, shape.epilogue, scratch)?;
        }
        Ok(whole)
    }

    /// Gathers the inputs of output pixels `at.row ..` for the elements `from .. from + length` of k into
    /// `out`, one row per pixel; zeros if a filter tap is in the padding.
    fn gather(
        &self,
        images: &Operand,
        shape: &Conv,
        at: Box2,
        (from, length): (usize, usize),
        out: &mut [f32],
    ) {
        let (channels, width) = (shape.channels as usize, shape.filter.1 as usize);
        let (p_len, q_len) = (shape.output.0 as usize, shape.output.1 as usize);
        let (h_len, w_len) = (shape.input.0 as usize, shape.input.1 as usize);
        for (i, line) in out.chunks_mut(length).take(at.rows).enumerate() {
            let pixel = at.row + i;
            let (image, p, q) = (pixel / (p_len * q_len), pixel / q_len % p_len, pixel % q_len);
            let mut done = 0;
            while done < length {
                let (tap, channel) = ((from + done) / channels, (from + done) % channels);
                let count = (channels - channel).min(length - done);
                let part = &mut line[done..done + count];
                // Coordinates in the padded image.
                let h = p * shape.stride.0 as usize + tap / width * shape.dilation.0 as usize;
                let w = q * shape.stride.1 as usize + tap % width * shape.dilation.1 as usize;
                let inside =
                    |x: usize, padding: u32, len: usize| x.checked_sub(padding as usize).filter(|x| *x < len);
                match (inside(h, shape.padding.0, h_len), inside(w, shape.padding.1, w_len)) {
                    (Some(h), Some(w)) => {
                        let row = (image * h_len + h) * w_len + w;
                        self.memory.load(
                            images.tensor,
                            Box2 { row, col: channel, rows: 1, cols: count },
                            part,
                        );
                    }
                    _ => part.fill(0.0),
                }
                done += count;
            }
        }
    }
}
