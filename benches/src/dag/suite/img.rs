//! IMG: blurs, edges and a sharpened image, combined: eleven kernels.

use cusync_dag::{Argument, DagError, Recording};

use super::{Case, Check, Want, hand, moving, over, scratch_words, uniform};

/// Diameters of the blurs: small, large, and the one for sharpening.
const DIAMETERS: [usize; 3] = [3, 5, 3];
/// Strengths of the blurs, in pixels.
const SIGMAS: [f32; 3] = [1.0, 10.0, 5.0];
const AMOUNT: f32 = 0.5;

pub(super) fn img(n: usize) -> Result<Case, DagError> {
    let image = uniform(7, n * n, 0.0, 1.0);
    let mut r = Recording::new("IMG").built_for_programmatic_edges();
    let source = r.floats("image", &image);
    let weights: Vec<Vec<f32>> = DIAMETERS.iter().zip(SIGMAS).map(|(&d, s)| gaussian(d, s)).collect();
    let kernels: Vec<_> = weights.iter().map(|w| r.floats("weights", w)).collect();
    let names = ["blur_s", "blur_l", "blur_u", "sobel_s", "sobel_l", "unsharpened", "combined", "result"];
    let [blur_s, blur_l, blur_u, sobel_s, sobel_l, sharp, combined, result] =
        names.map(|name| r.zeros(name, n * n));
    let (largest, smallest) = (r.zeros("maximum", 1), r.zeros("minimum", 1));
    let launch = over(n * n);
    let scratch = [r.zeros("scratch", scratch_words(launch)), r.zeros("scratch", scratch_words(launch))];
    let size = n as u32;
    let us = |words: usize| moving(words * n * n);
    for ((&weights, diameter), out) in kernels.iter().zip(DIAMETERS).zip([blur_s, blur_l, blur_u]) {
        let operands =
            [r.read(source), r.read(weights), r.write(out), size.into(), Argument::U32(diameter as u32)];
        r.launch("img_blur", launch, us(2) + 0.1 * (diameter * diameter) as f64, &operands)?;
    }
    for (blurred, out) in [(blur_s, sobel_s), (blur_l, sobel_l)] {
        r.launch("img_sobel", launch, us(2), &[r.read(blurred), r.write(out), size.into()])?;
    }
    r.launch(
        "img_max",
        launch,
        us(1),
        &[r.read(sobel_l), r.write(largest), r.update(scratch[0]), size.into()],
    )?;
    r.launch(
        "img_min",
        launch,
        us(1),
        &[r.read(sobel_l), r.write(smallest), r.update(scratch[1]), size.into()],
    )?;
    let operands = [r.update(sobel_l), r.read(smallest), r.read(largest), size.into()];
    r.launch("img_extend", launch, us(2), &operands)?;
    let operands = [r.read(source), r.read(blur_u), r.write(sharp), Argument::F32(AMOUNT), size.into()];
    r.launch("img_unsharpen", launch, us(3), &operands)?;
    let operands = [r.read(sharp), r.read(blur_l), r.read(sobel_l), r.write(combined), size.into()];
    r.launch("img_combine", launch, us(4), &operands)?;
    let operands = [r.read(combined), r.read(blur_s), r.read(sobel_s), r.write(result), size.into()];
    r.launch("img_combine", launch, us(4), &operands)?;
    let want = Want::F32(reference(&image, &weights, n), 2e-4);
    let checks = vec![Check { name: "result", buffer: result, want }];
    Ok(Case { name: "IMG", size: format!("{n} x {n} floats"), hand: hand::img(), recording: r, checks })
}

/// Weights of a Gaussian that add up to 1.
fn gaussian(diameter: usize, sigma: f32) -> Vec<f32> {
    let middle = (diameter / 2) as f32;
    let weight = |i: usize| {
        let (dy, dx) = ((i / diameter) as f32 - middle, (i % diameter) as f32 - middle);
        (-(dy * dy + dx * dx) / (2.0 * sigma * sigma)).exp()
    };
    let raw: Vec<f32> = (0..diameter * diameter).map(weight).collect();
    let sum: f32 = raw.iter().sum();
    raw.iter().map(|w| w / sum).collect()
}

/// A square image that is constant beyond its borders.
struct Image {
    values: Vec<f64>,
    n: usize,
}

impl Image {
    fn at(&self, y: isize, x: isize) -> f64 {
        let inside = |i: isize| i.clamp(0, self.n as isize - 1) as usize;
        self.values[inside(y) * self.n + inside(x)]
    }

    /// The image whose pixels are `pixel(y, x)`.
    fn map(&self, pixel: impl Fn(isize, isize) -> f64) -> Image {
        let n = self.n;
        let values = (0..n * n).map(|i| pixel((i / n) as isize, (i % n) as isize)).collect();
        Image { values, n }
    }

    fn blurred(&self, weights: &[f32]) -> Image {
        let diameter = weights.len().isqrt() as isize;
        let tap = |i: usize| (i as isize / diameter - diameter / 2, i as isize % diameter - diameter / 2);
        self.map(|y, x| {
            let taps = weights.iter().enumerate();
            taps.map(|(i, &w)| f64::from(w) * self.at(y + tap(i).0, x + tap(i).1)).sum()
        })
    }

    fn sobel(&self) -> Image {
        self.map(|y, x| {
            let line = |dy: isize| self.at(y + dy, x - 1) + 2.0 * self.at(y + dy, x) + self.at(y + dy, x + 1);
            let side = |dx: isize| self.at(y - 1, x + dx) + 2.0 * self.at(y, x + dx) + self.at(y + 1, x + dx);
            (line(1) - line(-1)).hypot(side(1) - side(-1))
        })
    }
}

fn reference(image: &[f32], weights: &[Vec<f32>], n: usize) -> Vec<f64> {
    let image = Image { values: image.iter().map(|&v| f64::from(v)).collect(), n };
    let [small, large, sharpening] = [0, 1, 2].map(|i: usize| image.blurred(&weights[i]));
    let (fine, coarse) = (small.sobel(), large.sobel());
    let low = coarse.values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = coarse.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let pixels = image.values.iter().enumerate();
    pixels
        .map(|(i, &v)| {
            let sharp = (v + f64::from(AMOUNT) * (v - sharpening.values[i])).clamp(0.0, 1.0);
            let mask = ((coarse.values[i] - low) * 5.0 / (high - low)).min(1.0);
            let combined = sharp * mask + large.values[i] * (1.0 - mask);
            combined * fine.values[i] + small.values[i] * (1.0 - fine.values[i])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let sum: f32 = gaussian(5, 2.0).iter().sum();
        assert!((sum - 1.0).abs() < 1e-6);
        let step = Image { values: vec![0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0], n: 3 };
        // A vertical edge: 4 at the pixels that see both sides, 0 far from it.
        assert_eq!(step.sobel().values, [0.0, 4.0, 4.0, 0.0, 4.0, 4.0, 0.0, 4.0, 4.0]);
        let ones = vec![1.0 / 9.0; 9];
        let third = step.blurred(&ones).at(1, 1);
        assert!((third - 1.0 / 3.0).abs() < 1e-6, "{third}");
        // The border repeats: column 2 is its own right neighbor.
        assert!((step.blurred(&ones).at(0, 2) - 2.0 / 3.0).abs() < 1e-6);
    }
}
