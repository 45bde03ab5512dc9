//! Linear fits of times.

use super::Sample;

/// Cost model of a kernel of whole waves: `run = start + waves * (tile + k_blocks * k_block)`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct WaveTimes {
    /// Per kernel, microseconds.
    pub start_us: f64,
    /// Per wave: ring fill, epilogue, advance to the next tile, microseconds.
    pub tile_us: f64,
    /// Per k-block, microseconds.
    pub k_block_us: f64,
}

impl WaveTimes {
    /// Least-squares fit of relative errors; `None` if the samples cannot separate the three costs, or if a
    /// cost is negative by more than noise.
    pub fn fit(samples: &[Sample]) -> Option<WaveTimes> {
        // Normal equations of the three unknowns.
        let mut rows = [[0.0f64; 4]; 3];
        for s in samples {
            let (waves, k_blocks) = (f64::from(s.waves), f64::from(s.k_blocks));
            let weight = 1.0 / s.us;
            let terms = [weight, waves * weight, waves * k_blocks * weight];
            for (row, a) in rows.iter_mut().zip(terms) {
                for (cell, b) in row.iter_mut().zip([terms[0], terms[1], terms[2], 1.0]) {
                    *cell += a * b;
                }
            }
        }
        let [start_us, tile_us, k_block_us] = solve(rows)?;
        let sane = [start_us, tile_us, k_block_us].iter().all(|us| us.is_finite());
        // Noise may make a small cost slightly negative.
        let most = samples.iter().map(|s| s.us).fold(f64::INFINITY, f64::min) * 0.05;
        (sane && k_block_us > 0.0 && start_us > -most && tile_us > -most).then_some(WaveTimes {
            start_us: start_us.max(0.0),
            tile_us: tile_us.max(0.0),
            k_block_us,
        })
    }
}

/// Gaussian elimination with pivoting; `None` if the system is singular.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    let scale = rows.iter().flatten().fold(0.0f64, |most, x| most.max(x.abs()));
    for column in 0..3 {
        let pivot = (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() <= scale * 1e-12 {
            return None;
        }
        let by = rows[column];
        for row in rows.iter_mut().skip(column + 1) {
            let factor = row[column] / by[column];
            row.iter_mut().zip(by).for_each(|(cell, b)| *cell -= factor * b);
        }
    }
    let mut x = [0.0f64; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|i| rows[row][i] * x[i]).sum();
        x[row] = (rows[row][3] - known) / rows[row][row];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(waves: u32, k_blocks: u32, us: f64) -> Sample {
        Sample { waves, k_blocks, us }
    }

    const SHAPES: [(u32, u32); 6] = [(1, 32), (1, 128), (2, 32), (2, 128), (4, 32), (4, 128)];

    #[test]
    fn the_three_costs_are_found_again() {
        let exact = |(w, k): (u32, u32)| 3.1 + f64::from(w) * (1.2 + f64::from(k) * 0.7);
        let found =
            WaveTimes::fit(&SHAPES.map(|(w, k)| sample(w, k, exact((w, k))))).expect("they are told apart");
        assert!((found.start_us - 3.1).abs() < 1e-6 && (found.tile_us - 1.2).abs() < 1e-6, "{found:?}");
        assert!((found.k_block_us - 0.7).abs() < 1e-9);
        // Noise of half a percent.
        let noisy = |i: usize, shape| exact(shape) * if i.is_multiple_of(2) { 1.005 } else { 0.995 };
        let noisy: Vec<_> = SHAPES.iter().enumerate().map(|(i, s)| sample(s.0, s.1, noisy(i, *s))).collect();
        let found = WaveTimes::fit(&noisy).expect("they are told apart");
        assert!((found.k_block_us / 0.7 - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_guessed() {
        assert_eq!(WaveTimes::fit(&[]), None);
        assert_eq!(WaveTimes::fit(&[sample(1, 64, 40.0), sample(1, 64, 41.0), sample(1, 64, 42.0)]), None);
        let one_wave: Vec<_> = [32, 64, 128].iter().map(|&k| sample(1, k, 3.0 + f64::from(k))).collect();
        assert_eq!(WaveTimes::fit(&one_wave), None, "start and tile are both once a kernel");
        let falling: Vec<_> = SHAPES.iter().map(|s| sample(s.0, s.1, 1e3 / f64::from(s.0 * s.1))).collect();
        assert_eq!(WaveTimes::fit(&falling), None);
    }
}
