//! Choice of a token from logits.
//!
//! ```
//! use cusync_models::{Sampler, Sampling};
//!
//! let mut sampler = Sampler::new(Sampling { temperature: 1.0, top_k: 2, ..Sampling::default() }, 7);
//! assert!((0..100).all(|_| sampler.pick(vec![0.0, 5.0, -1.0, 4.0]) % 2 == 1));
//! ```

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How tokens are chosen. The default is the most likely token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides logits; 0 chooses the most likely token.
    pub temperature: f32,
    /// Number of most likely tokens to choose from; 0: all.
    pub top_k: usize,
    /// The most likely tokens whose probabilities reach this sum are chosen from; 1: all.
    pub top_p: f32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0 }
    }
}

impl Sampling {
    /// Whether the most likely token is always chosen.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}

/// Chooses the tokens of one sequence; a seed makes them reproducible.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: StdRng,
}

impl Sampler {
    /// A sampler with a seed.
    pub fn new(sampling: Sampling, seed: u64) -> Sampler {
        Sampler { sampling, random: StdRng::seed_from_u64(seed) }
    }

    /// How it chooses.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// A token, by its logit. Of equal logits the first counts as larger.
    pub fn pick(&mut self, logits: Vec<f32>) -> u32 {
        let Sampling { temperature, top_k, top_p } = self.sampling;
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let larger = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if self.sampling.is_greedy() {
            return order.into_iter().min_by(larger).unwrap_or(0);
        }
        if top_k > 0 && top_k < order.len() {
            order.select_nth_unstable_by(top_k - 1, larger);
            order.truncate(top_k);
        }
        order.sort_unstable_by(larger);
        let most = order.first().map_or(0.0, |token| logits[*token as usize]);
        let weight = |token: &u32| f64::from((logits[*token as usize] - most) / temperature).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        let mut sum: f64 = weights.iter().sum();
        if top_p < 1.0 {
            let (limit, mut reached) = (sum * f64::from(top_p), 0.0);
            let within = weights.iter().take_while(|weight| {
                let before = reached;
                reached += **weight;
                before < limit
            });
            let count = within.count().max(1);
            weights.truncate(count);
            sum = weights.iter().sum();
        }
        let mut rest = self.random.random::<f64>() * sum;
        for (token, weight) in order.iter().zip(&weights) {
            rest -= weight;
            if rest < 0.0 {
                return *token;
            }
        }
        // Rounding may leave a rest: the last token that was in question.
        order[weights.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let (mut sampler, draws) = (Sampler::new(sampling, 3), 20_000);
        let mut counts = vec![0.0; logits.len()];
        (0..draws).for_each(|_| counts[sampler.pick(logits.to_vec()) as usize] += 1.0 / f64::from(draws));
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
    }

    #[test]
    fn a_seed_repeats_its_tokens() {
        let sampling = Sampling { temperature: 1.5, top_k: 20, top_p: 0.9 };
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 / 3.0).collect();
        let draw = |seed| {
            let mut sampler = Sampler::new(sampling, seed);
            (0..40).map(|_| sampler.pick(logits.clone())).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
