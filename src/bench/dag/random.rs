//! Random programs of spin kernels, chains of them, and what they must compute.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::dag::run::{Operand, Recording};
use crate::dag::{BufferId, DagError, LaunchConfig, Mode};

/// Threads of a CTA.
const THREADS: u32 = 128;

/// One kernel: ranges of `words` words of one arena, each by its first word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spin {
    inputs: Vec<usize>,
    /// One or two; disjoint from each other, and each equal to or disjoint from every input.
    outputs: Vec<usize>,
    rounds: u32,
}

/// A program of spin kernels.
#[derive(Clone, Debug)]
pub struct SpinProgram {
    kernels: Vec<Spin>,
    /// Words of every range: CTAs x threads.
    words: usize,
    /// Words of the arena.
    arena: usize,
}

/// A recorded [`SpinProgram`].
#[derive(Clone, Debug)]
pub struct SpinRecording {
    /// The program.
    pub recording: Recording,
    /// All ranges lie in it.
    pub arena: BufferId,
    /// Nanoseconds that each kernel sleeps first, one word a kernel; zero at first.
    pub delays: BufferId,
    /// When CTA 0 of each kernel began and ended: two 64-bit words a kernel.
    pub stamps: BufferId,
}

impl SpinProgram {
    /// One kernel after the other, `ctas` CTAs and `rounds` rounds each.
    pub fn chain(kernels: usize, ctas: u32, rounds: u32) -> SpinProgram {
        let words = (ctas * THREADS) as usize;
        let spin =
            |k: usize| Spin { inputs: vec![k % 2 * words], outputs: vec![(k + 1) % 2 * words], rounds };
        SpinProgram { kernels: (0..kernels).map(spin).collect(), words, arena: 2 * words }
    }

    /// `width` strands of kernels that now and then read each other's results: what a compiler's graphs look like.
    /// Kernels have `ctas` CTAs and a number of rounds drawn from `rounds`.
    pub fn strands(
        seed: u64,
        kernels: usize,
        width: usize,
        ctas: u32,
        rounds: std::ops::Range<u32>,
    ) -> SpinProgram {
        let mut rng = SmallRng::seed_from_u64(seed);
        let words = (ctas * THREADS) as usize;
        // Each strand has two ranges and writes them in turn, or one in place.
        let mut current = vec![0; width];
        let at = |strand: usize, half: usize| (2 * strand + half) * words;
        let mut list = Vec::with_capacity(kernels);
        for _ in 0..kernels {
            let strand = rng.random_range(0..width);
            let own = at(strand, current[strand]);
            let mut inputs = vec![own];
            let output = if rng.random_bool(0.5) {
                own
            } else {
                current[strand] = 1 - current[strand];
                at(strand, current[strand])
            };
            if width > 1 && rng.random_bool(0.25) {
                let other = (strand + rng.random_range(1..width)) % width;
                inputs.push(at(other, current[other]));
            }
            list.push(Spin { inputs, outputs: vec![output], rounds: rng.random_range(rounds.clone()) });
        }
        SpinProgram { kernels: list, words, arena: 2 * width * words }
    }

    /// Anything: up to four inputs and two outputs at half-range offsets, so that ranges overlap in part, in an arena of
    /// `ranges` ranges.
    pub fn tangle(seed: u64, kernels: usize, ranges: usize, ctas: u32) -> SpinProgram {
        let mut rng = SmallRng::seed_from_u64(seed);
        let words = (ctas * THREADS) as usize;
        let half = words / 2;
        let places: Vec<usize> = (0..2 * ranges - 1).map(|i| i * half).collect();
        let overlap = |a: usize, b: usize| a.abs_diff(b) < words;
        let mut list = Vec::with_capacity(kernels);
        for _ in 0..kernels {
            let mut drawn = places.clone();
            drawn.shuffle(&mut rng);
            let mut outputs = vec![drawn[0]];
            if rng.random_bool(0.3) {
                outputs.extend(drawn[1..].iter().copied().find(|&p| !overlap(p, drawn[0])));
            }
            let fits = |p: &usize| outputs.iter().all(|o| o == p || !overlap(*o, *p));
            let mut inputs: Vec<usize> = places.iter().copied().filter(fits).collect();
            inputs.shuffle(&mut rng);
            inputs.truncate(rng.random_range(0..=4));
            list.push(Spin { inputs, outputs, rounds: rng.random_range(1..40) });
        }
        SpinProgram { kernels: list, words, arena: ranges * words }
    }

    /// Kernels.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    fn first_words(&self) -> Vec<u32> {
        (0..self.arena as u32).map(|i| i.wrapping_mul(0x85eb_ca6b)).collect()
    }

    /// Records it. A round takes `ns_per_round`; `stamped`: kernels note when they begin and end.
    ///
    /// # Errors
    /// [`DagError`]: too many kernels.
    pub fn record(&self, name: &str, ns_per_round: f64, stamped: bool) -> Result<SpinRecording, DagError> {
        let mut r = Recording::new(name);
        let arena = r.filled("arena", self.first_words());
        let delays = r.zeros("delays", self.kernels.len().max(1));
        let stamps = r.zeros("stamps", 4 * self.kernels.len().max(1));
        let launch = LaunchConfig::linear(self.words as u32 / THREADS, THREADS);
        let range =
            |first: usize, mode| Operand::Words { buffer: arena, first, words: self.words, mode: Some(mode) };
        for (index, spin) in self.kernels.iter().enumerate() {
            let mut operands: Vec<Operand> = spin.inputs.iter().map(|&p| range(p, Mode::Read)).collect();
            operands.resize(4, Operand::Null);
            operands.extend(spin.outputs.iter().map(|&p| range(p, Mode::Write)));
            operands.resize(6, Operand::Null);
            operands.extend([
                Operand::U32(self.words as u32),
                Operand::U32(spin.inputs.len() as u32),
                Operand::U32(spin.outputs.len() as u32),
                Operand::U32(spin.in_place()),
                Operand::U32(index as u32),
                Operand::U32(spin.rounds),
                Operand::Words { buffer: delays, first: index, words: 1, mode: Some(Mode::Read) },
                // Stamps order nothing.
                match stamped {
                    true => Operand::Words { buffer: stamps, first: 4 * index, words: 4, mode: None },
                    false => Operand::Null,
                },
            ]);
            let us = 1.5 + f64::from(spin.rounds) * ns_per_round / 1e3;
            r.launch("spin", launch, us, &operands)?;
        }
        Ok(SpinRecording { recording: r, arena, delays, stamps })
    }

    /// What the arena holds after `runs` runs, by doing it on the host in order.
    pub fn expected(&self, runs: usize) -> Vec<u32> {
        self.run((0..runs).flat_map(|_| 0..self.kernels.len()))
    }

    /// The arena after the kernels of `order`.
    fn run(&self, order: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut arena = self.first_words();
        for index in order {
            let spin = &self.kernels[index];
            let word = |i| spin.word(&arena, index, i, self.words);
            // Long kernels are worth the threads.
            let result: Vec<u32> = match spin.rounds as usize * self.words > 1 << 17 {
                true => (0..self.words).into_par_iter().map(word).collect(),
                false => (0..self.words).map(word).collect(),
            };
            for (k, &output) in spin.outputs.iter().enumerate() {
                for (i, &h) in result.iter().enumerate() {
                    arena[output + i] = if k == 0 { h } else { mix(h, 1) };
                }
            }
        }
        arena
    }
}

impl Spin {
    /// The bits of the inputs that are outputs too.
    fn in_place(&self) -> u32 {
        let bit = |(k, p): (usize, &usize)| u32::from(self.outputs.contains(p)) << k;
        self.inputs.iter().enumerate().map(bit).sum()
    }

    fn word(&self, arena: &[u32], index: usize, i: usize, words: usize) -> u32 {
        let mut h = mix(index as u32, i as u32);
        for (k, &input) in self.inputs.iter().enumerate() {
            let at = if self.in_place() >> k & 1 == 1 { i } else { words - 1 - i };
            h = mix(h, arena[input + at]);
        }
        (0..self.rounds).fold(h, mix)
    }
}

/// One round of the hash that the kernel computes.
fn mix(h: u32, with: u32) -> u32 {
    let h = (h ^ with).wrapping_mul(0x9e37_79b1);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::analyse;

    #[test]
    fn a_chain_is_a_chain() {
        let chain = SpinProgram::chain(5, 2, 3);
        let recorded = chain.record("chain", 8.0, true).expect("a valid program");
        let dependences = analyse(recorded.recording.program());
        let pairs: Vec<_> = dependences.reduced_edges().map(|e| (e.before.0, e.after.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 3), (3, 4)]);
        // By hand: word 0 of the first kernel reads the mirrored word 255 of the first range.
        let mut h = mix(0, 0);
        h = mix(h, 255_u32.wrapping_mul(0x85eb_ca6b));
        h = mix(mix(mix(h, 0), 1), 2);
        assert_eq!(SpinProgram::chain(1, 2, 3).expected(1)[256], h);
    }

    #[test]
    fn a_wrong_order_is_seen() {
        let (mut exchanged, mut seen) = (0, 0);
        for seed in 0..50 {
            let program = SpinProgram::tangle(seed, 12, 4, 1);
            let recorded = program.record("tangle", 8.0, false).expect("a valid program");
            let dependences = analyse(recorded.recording.program());
            let right = program.expected(1);
            for edge in dependences.reduced_edges().filter(|e| e.after.0 == e.before.0 + 1) {
                let mut order: Vec<usize> = (0..program.len()).collect();
                order.swap(edge.before.index(), edge.after.index());
                exchanged += 1;
                seen += usize::from(program.run(order.into_iter()) != right);
            }
        }
        // The rest writes what is overwritten before it matters.
        assert!(exchanged > 300 && seen * 4 > exchanged * 3, "{seen} of {exchanged} exchanges show");
    }

    #[test]
    fn strands_have_their_width_and_are_reproducible() {
        let program = SpinProgram::strands(3, 200, 6, 4, 10..100);
        assert_eq!(program.kernels, SpinProgram::strands(3, 200, 6, 4, 10..100).kernels);
        let recorded = program.record("strands", 8.0, false).expect("a valid program");
        let dependences = analyse(recorded.recording.program());
        let roots = recorded.recording.program().ids();
        let first = roots.filter(|&id| !dependences.edges.iter().any(|e| e.after == id)).count();
        assert!((2..=6).contains(&first), "{first} kernels depend on nothing");
        assert!(SpinProgram::strands(4, 200, 6, 4, 10..100).expected(1) != program.expected(1));
    }
}
