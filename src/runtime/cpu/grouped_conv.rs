//! A tile of a grouped convolution: whole rows of pixels, summed tap by tap.

use cusync_gen::graph::{GroupedConv, OperandKind, When};

use super::CpuPipeline;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop, sized};

impl CpuPipeline {
    /// Computes and stores a tile.
    pub(super) fn convolve_groups(
        &self,
        place: &Place<'_>,
        shape: &GroupedConv,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, at, .. } = place;
        self.wait_for(place, work.k.start, &work.k, |kind| kind.when() != When::Epilogue, scratch)?;
        let (Some(images), Some(filter)) = (stage.operand(OperandKind::A), stage.operand(OperandKind::B))
        else {
            return Ok(());
        };
        let sliding = &shape.sliding;
        let (height, width) = (sliding.input.0 as usize, sliding.input.1 as usize);
        let (p_len, q_len) = (sliding.output.0 as usize, sliding.output.1 as usize);
        let (channels, features) = (shape.channels as usize, shape.features as usize);
        let (inputs, length) = (at.cols / features * channels, stage.k as usize);
        let Scratch { a, b, sum, .. } = scratch;
        let (line, weights) = (sized(a, inputs), sized(b, length * at.cols));
        self.memory.load(filter.tensor, Box2 { row: 0, col: at.col, rows: length, cols: at.cols }, weights);
        let out = sized(sum, at.rows * at.cols);
        out.fill(0.0);
        for (i, out) in out.chunks_mut(at.cols).enumerate() {
            let pixel = at.row + i;
            let (image, p, q) = (pixel / (p_len * q_len), pixel / q_len % p_len, pixel % q_len);
            for (tap, weights) in weights.chunks(channels * at.cols).enumerate() {
                let (r, s) = (tap / sliding.filter.1 as usize, tap % sliding.filter.1 as usize);
                // Coordinates in the padded image, then in the image.
                let h = (p * sliding.stride.0 as usize + r * sliding.dilation.0 as usize)
                    .checked_sub(sliding.padding.0 as usize);
                let w = (q * sliding.stride.1 as usize + s * sliding.dilation.1 as usize)
                    .checked_sub(sliding.padding.1 as usize);
                let Some((h, w)) = h.zip(w).filter(|(h, w)| *h < height && *w < width) else { continue };
                let row = (image * height + h) * width + w;
                self.memory.load(images.tensor, Box2 { row, col: 0, rows: 1, cols: inputs }, line);
                for (c, weights) in weights.chunks(at.cols).enumerate() {
                    let groups = out.chunks_mut(features).zip(weights.chunks(features));
                    for ((out, weights), x) in groups.zip(line.iter().skip(c).step_by(channels)) {
                        out.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
                    }
                }
            }
        }
        self.epilogue(place, shape.epilogue, scratch)
    }
}
