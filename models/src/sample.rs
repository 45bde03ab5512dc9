//! Choice of a token from logits: the same arithmetic as `csrc/kernels/token/draw.cu`.
//!
//! ```
//! use cusync_models::Sampling;
//!
//! let sampling = Sampling { temperature: 1.0, top_k: 2, ..Sampling::default() };
//! assert!((0..100).all(|position| sampling.draw(&[0.0, 5.0, -1.0, 4.0], 7, position) % 2 == 1));
//! ```

/// Weights are integers of this unit, so that their sums do not depend on the order of additions.
const UNIT: f32 = (1 << 24) as f32;

/// How tokens are chosen. The default is the most likely token.
///
/// Tokens are kept whose logit is at least that of the `top_k`-th, and of these the most likely ones, until their
/// probabilities add up to `top_p` of those kept. Tokens with equal logits are kept or left out together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides logits; 0 chooses the most likely token.
    pub temperature: f32,
    /// Number of most likely tokens to choose from; 0: all.
    pub top_k: u32,
    /// Probability of the most likely tokens to choose from; 1: all.
    pub top_p: f32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0 }
    }
}

/// What a step does with a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// The slot that holds the sequence.
    pub slot: usize,
    /// The token to append; `None`: the one that the last step drew for this slot.
    pub token: Option<u32>,
    /// How the token after it is drawn.
    pub sampling: Sampling,
    /// Seed of the draw, which also depends on the sequence's length.
    pub seed: u32,
}

impl Sampling {
    /// A token, by the logits of all tokens. The same seed and position give the same token; of equal candidates
    /// the first is chosen.
    pub fn draw(&self, logits: &[f32], seed: u32, position: u32) -> u32 {
        let best = |scores: &mut dyn Iterator<Item = (u32, f32)>| {
            let best = scores.reduce(|best, other| if other.1 > best.1 { other } else { best });
            best.map_or(0, |(token, _)| token)
        };
        let tokens = || (0..).zip(logits.iter().copied());
        if self.temperature <= 0.0 {
            return best(&mut tokens());
        }
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let score = |logit: f32| (logit - most) / self.temperature;
        let least = self.least(logits, &|logit| (score(logit).exp() * UNIT) as u64);
        let kept = tokens().filter(|(_, logit)| *logit >= least);
        best(&mut kept.map(|(token, logit)| (token, score(logit) + gumbel(mixed(seed, position, token)))))
    }

    /// The smallest logit to keep.
    fn least(&self, logits: &[f32], weight: &dyn Fn(f32) -> u64) -> f32 {
        let (count, all) = (self.top_k as usize, self.top_p >= 1.0);
        if (count == 0 || count >= logits.len()) && all {
            return f32::NEG_INFINITY;
        }
        let mut sorted = logits.to_vec();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut least = f32::NEG_INFINITY;
        if count > 0 && count < sorted.len() {
            least = sorted[count - 1];
            sorted.retain(|logit| *logit >= least);
        }
        if !all {
            let total: u64 = sorted.iter().map(|logit| weight(*logit)).sum();
            let limit = ((total as f64 * f64::from(self.top_p)) as u64).max(1);
            let mut sum = 0;
            let reached = sorted.iter().find(|logit| {
                sum += weight(**logit);
                sum >= limit
            });
            least = reached.copied().unwrap_or(least);
        }
        least
    }
}

/// A well-mixed number for each (seed, position, token).
fn mixed(seed: u32, position: u32, token: u32) -> u32 {
    let product = |x: u32, y: u32| x.wrapping_mul(y);
    let mut x = product(token, 0x9e37_79b1) ^ product(position, 0x85eb_ca77) ^ product(seed, 0xc2b2_ae3d);
    for _ in 0..3 {
        x = product(x ^ x >> 16, 0x7feb_352d);
        x = product(x ^ x >> 15, 0x846c_a68b);
        x = (x ^ x >> 16).wrapping_add(position).wrapping_add(seed);
    }
    x
}

/// The largest of log weight plus this noise has the distribution of the weights.
fn gumbel(bits: u32) -> f32 {
    let uniform = ((bits >> 9) as f32 + 0.5) / (1 << 23) as f32;
    -(-uniform.ln()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let (mut counts, draws) = (vec![0.0; logits.len()], 20_000);
        (0..draws)
            .for_each(|at| counts[sampling.draw(logits, at % 7, at / 7) as usize] += 1.0 / f64::from(draws));
        counts
    }

    fn near(have: &[f64], want: &[f64]) {
        assert!(have.iter().zip(want).all(|(h, w)| (h - w).abs() < 0.015), "{have:?} for {want:?}");
    }

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        let logits = [0.0, 2f32.ln(), f32::NEG_INFINITY, 4f32.ln()];
        let all = Sampling { temperature: 1.0, ..Sampling::default() };
        near(&shares(all, &logits), &[1.0 / 7.0, 2.0 / 7.0, 0.0, 4.0 / 7.0]);
        near(
            &shares(Sampling { temperature: 0.5, ..all }, &logits),
            &[1.0 / 21.0, 4.0 / 21.0, 0.0, 16.0 / 21.0],
        );
        near(&shares(Sampling { top_k: 2, ..all }, &logits), &[0.0, 1.0 / 3.0, 0.0, 2.0 / 3.0]);
        near(&shares(Sampling { top_p: 0.7, ..all }, &logits), &[0.0, 1.0 / 3.0, 0.0, 2.0 / 3.0]);
        near(&shares(Sampling { top_p: 0.5, ..all }, &logits), &[0.0, 0.0, 0.0, 1.0]);
        near(&shares(Sampling::default(), &logits), &[0.0, 0.0, 0.0, 1.0]);
        // Equal logits are kept together.
        near(&shares(Sampling { top_k: 1, ..all }, &[1.0, 0.0, 1.0]), &[0.5, 0.0, 0.5]);
    }

    #[test]
    fn a_seed_repeats_its_tokens() {
        let sampling = Sampling { temperature: 1.5, top_k: 20, top_p: 0.9 };
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 / 3.0).collect();
        let draw = |seed| (0..40).map(|at| sampling.draw(&logits, seed, at)).collect::<Vec<_>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
