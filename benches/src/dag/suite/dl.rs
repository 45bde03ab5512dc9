//! DL: two towers of convolution, pooling and convolution, joined by a dot product.

use cusync_dag::{Argument, DagError, LaunchConfig, Recording};

use super::{Case, Check, Want, hand, moving, over, scratch_words, uniform};

/// Channels between and after the convolutions.
const CHANNELS: [usize; 2] = [8, 16];

pub(super) fn dl(n: usize) -> Result<Case, DagError> {
    let (half, quarter, eighth) = (n / 2, n / 4, n / 8);
    let features = CHANNELS[1] * eighth * eighth;
    let mut r = Recording::new("DL").built_for_programmatic_edges();
    let conv = |plane: usize, channels: usize| {
        let ctas = over(plane * plane).grid[0];
        LaunchConfig { grid: [ctas, channels as u32, 1], ..over(1) }
    };
    let mut towers = Vec::new();
    let mut wanted = Vec::new();
    for tower in 0..2 {
        let image = uniform(10 + tower, n * n, 0.0, 1.0);
        let first = uniform(20 + tower, CHANNELS[0] * 9, -0.4, 0.5);
        let second = uniform(30 + tower, CHANNELS[1] * CHANNELS[0] * 9, -0.1, 0.12);
        let (source, w1, w2) = (r.floats("image", &image), r.floats("w1", &first), r.floats("w2", &second));
        let (c1, pooled) =
            (r.zeros("conv 1", CHANNELS[0] * half * half), r.zeros("pool", CHANNELS[0] * quarter * quarter));
        towers.push((source, w1, w2, c1, pooled, r.zeros("conv 2", features)));
        let maps = convolution(&image.iter().map(|&v| f64::from(v)).collect::<Vec<_>>(), &first, n, 1);
        wanted.extend(convolution(&mean_pool(&maps, half), &second, quarter, CHANNELS[0]));
    }
    // In the order of serial code: one kind of layer after the other.
    for &(source, w1, _, c1, _, _) in &towers {
        let operands = [r.read(source), r.read(w1), r.write(c1), Argument::U32(n as u32), Argument::U32(1)];
        let us = moving(n * n + CHANNELS[0] * half * half);
        r.launch("dl_conv", conv(half, CHANNELS[0]), us, &operands)?;
    }
    for &(_, _, _, c1, pooled, _) in &towers {
        let outputs = CHANNELS[0] * quarter * quarter;
        let operands =
            [r.read(c1), r.write(pooled), Argument::U32(half as u32), Argument::U32(outputs as u32)];
        r.launch("dl_mean_pool", over(outputs), moving(5 * outputs), &operands)?;
    }
    for &(_, _, w2, _, pooled, c2) in &towers {
        let operands = [
            r.read(pooled),
            r.read(w2),
            r.write(c2),
            Argument::U32(quarter as u32),
            Argument::U32(CHANNELS[0] as u32),
        ];
        r.launch("dl_conv", conv(eighth, CHANNELS[1]), 2.0 + moving(3 * features), &operands)?;
    }
    let weights = uniform(40, 2 * features, -1.0, 1.0);
    let (joined, w) = (r.zeros("concat", 2 * features), r.floats("weights", &weights));
    let (result, launch) = (r.zeros("result", 1), over(2 * features));
    let scratch = r.zeros("scratch", scratch_words(launch));
    let count = Argument::U32(features as u32);
    let operands = [r.read(towers[0].5), r.read(towers[1].5), r.write(joined), count];
    r.launch("dl_concat", launch, moving(4 * features), &operands)?;
    let operands =
        [r.read(joined), r.read(w), r.write(result), r.update(scratch), Argument::U32(2 * features as u32)];
    r.launch("dl_dot", launch, moving(4 * features), &operands)?;
    let dot: f64 = wanted.iter().zip(&weights).map(|(a, &b)| a * f64::from(b)).sum();
    // The error of single precision is relative to the sum of magnitudes; the sum itself may be near zero.
    let scale: f64 = wanted.iter().zip(&weights).map(|(a, &b)| (a * f64::from(b)).abs()).sum();
    let tolerance = 1e-5 * scale / dot.abs();
    let checks = vec![
        Check { name: "concat", buffer: joined, want: Want::F32(wanted, 1e-5) },
        Check { name: "result", buffer: result, want: Want::F32(vec![dot], tolerance) },
    ];
    Ok(Case { name: "DL", size: format!("two {n} x {n} images"), hand: hand::dl(), recording: r, checks })
}

/// 3 x 3, stride 2, a border of zeros, ReLU; (channels, n, n) to (weights' channels, n / 2, n / 2).
fn convolution(x: &[f64], weights: &[f32], n: usize, channels: usize) -> Vec<f64> {
    let half = n / 2;
    let mut out = Vec::new();
    for filter in weights.chunks(channels * 9) {
        for i in 0..half * half {
            let (top, left) = (2 * (i / half) as isize - 1, 2 * (i % half) as isize - 1);
            let tap = |(k, &w): (usize, &f32)| {
                let (row, column) = (top + (k % 9 / 3) as isize, left + (k % 3) as isize);
                let inside = |at: isize| (0..n as isize).contains(&at);
                let pixel = || x[k / 9 * n * n + row as usize * n + column as usize];
                if inside(row) && inside(column) { f64::from(w) * pixel() } else { 0.0 }
            };
            out.push(filter.iter().enumerate().map(tap).sum::<f64>().max(0.0));
        }
    }
    out
}

/// Means of 2 x 2 blocks in planes of n x n.
fn mean_pool(x: &[f64], n: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for plane in x.chunks(n * n) {
        for y in (0..n).step_by(2) {
            for x in (0..n).step_by(2) {
                let row = |y: usize| plane[y * n + x] + plane[y * n + x + 1];
                out.push((row(y) + row(y + 1)) / 4.0);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let x: Vec<f64> = (1..=16).map(f64::from).collect();
        assert_eq!(mean_pool(&x, 4), [3.5, 5.5, 11.5, 13.5]);
        // All ones: the corner output sees 2 x 2 pixels, the others one more row or column.
        assert_eq!(convolution(&x, &[1.0; 9], 4, 1), [14.0, 30.0, 57.0, 99.0]);
        assert_eq!(convolution(&x, &[-1.0; 9], 4, 1), [0.0; 4]);
        let two: Vec<f64> = x.iter().chain(&x).copied().collect();
        assert_eq!(convolution(&two, &[1.0; 18], 4, 2), [28.0, 60.0, 114.0, 198.0]);
    }
}
