//! Random programs and chains of spin kernels, with their expected results.

use cusync_dag::{
    AccessMode, Argument, BufferId, DagError, LaunchConfig, Recording, TileAccesses, TileBytes,
};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Threads per CTA.
const THREADS: u32 = 128;
/// Bytes of each output that a CTA writes.
const TILE: i64 = 4 * THREADS as i64;

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
    /// Maximum difference between the rounds of two CTAs.
    ragged: u32,
    /// Distance to the second word of the first input that each word needs; 0: none.
    shift: usize,
}

/// A recorded [`SpinProgram`].
#[derive(Clone, Debug)]
pub struct SpinRecording {
    /// The program.
    pub recording: Recording,
    /// All ranges lie in it.
    pub arena: BufferId,
    /// Nanoseconds that each kernel sleeps first, one word per kernel; initially zero.
    pub delays: BufferId,
    /// Start and end of CTA 0 of each kernel: two 64-bit words per kernel.
    pub stamps: BufferId,
}

impl SpinProgram {
    fn from_kernels(kernels: Vec<Spin>, words: usize) -> SpinProgram {
        SpinProgram { kernels, words, arena: 0, ragged: 0, shift: 0 }
    }

    /// Makes CTAs uneven, by up to `rounds` additional rounds, and makes every word of an output depend on a
    /// second word of the first input, `shift` words further on, so that CTAs need their neighbors' results.
    /// The program can only be recorded with tiles.
    pub fn uneven(self, rounds: u32, shift: usize) -> SpinProgram {
        SpinProgram { ragged: rounds, shift, ..self }
    }

    /// One kernel after the other, with `ctas` CTAs and `rounds` rounds each.
    pub fn chain(kernels: usize, ctas: u32, rounds: u32) -> SpinProgram {
        let words = (ctas * THREADS) as usize;
        let spin =
            |k: usize| Spin { inputs: vec![k % 2 * words], outputs: vec![(k + 1) % 2 * words], rounds };
        SpinProgram { arena: 2 * words, ..SpinProgram::from_kernels((0..kernels).map(spin).collect(), words) }
    }

    /// `width` strands of kernels that sometimes read each other's results, like the graphs of compilers.
    /// Kernels have `ctas` CTAs and a random number of rounds from `rounds`.
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
        SpinProgram { arena: 2 * width * words, ..SpinProgram::from_kernels(list, words) }
    }

    /// Arbitrary programs: up to four inputs and two outputs at half-range offsets, so that ranges overlap
    /// partially, in an arena of `ranges` ranges.
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
        SpinProgram { arena: ranges * words, ..SpinProgram::from_kernels(list, words) }
    }

    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    fn first_words(&self) -> Vec<u32> {
        (0..self.arena as u32).map(|i| i.wrapping_mul(0x85eb_ca6b)).collect()
    }

    /// Records the program. A round takes `ns_per_round`; `stamped`: kernels record when they begin and end.
    ///
    /// # Errors
    /// [`DagError`]: too many kernels.
    pub fn record(&self, name: &str, ns_per_round: f64, stamped: bool) -> Result<SpinRecording, DagError> {
        self.record_as(name, ns_per_round, stamped, false)
    }

    /// [`SpinProgram::record`] with kernels that can wait for tiles and declare the accesses of each of their
    /// CTAs.
    ///
    /// # Errors
    /// [`DagError`]: too many kernels, too many CTAs.
    pub fn record_tiled(
        &self,
        name: &str,
        ns_per_round: f64,
        stamped: bool,
    ) -> Result<SpinRecording, DagError> {
        self.record_as(name, ns_per_round, stamped, true)
    }

    fn record_as(
        &self,
        name: &str,
        ns_per_round: f64,
        stamped: bool,
        tiled: bool,
    ) -> Result<SpinRecording, DagError> {
        let mut r = Recording::new(name).built_for_programmatic_edges();
        let arena = r.filled("arena", self.first_words());
        let delays = r.zeros("delays", self.kernels.len().max(1));
        let stamps = r.zeros("stamps", 4 * self.kernels.len().max(1));
        let launch = LaunchConfig::linear(self.words as u32 / THREADS, THREADS);
        let range = |first: usize, mode| Argument::words(arena, first, self.words, Some(mode));
        for (index, spin) in self.kernels.iter().enumerate() {
            let mut operands: Vec<Argument> =
                spin.inputs.iter().map(|&p| range(p, AccessMode::Read)).collect();
            operands.resize(4, Argument::Null);
            operands.extend(spin.outputs.iter().map(|&p| range(p, AccessMode::Write)));
            operands.resize(6, Argument::Null);
            operands.extend([
                Argument::U32(self.words as u32),
                Argument::U32(spin.inputs.len() as u32),
                Argument::U32(spin.outputs.len() as u32),
                Argument::U32(spin.in_place()),
                Argument::U32(index as u32),
                Argument::U32(spin.rounds),
                Argument::words(delays, index, 1, Some(AccessMode::Read)),
                // Stamps order nothing.
                match stamped {
                    true => Argument::words(stamps, 4 * index, 4, None),
                    false => Argument::Null,
                },
            ]);
            let us = |rounds: u32| f64::from(rounds) * ns_per_round / 1e3;
            if !tiled {
                r.launch("spin", launch, 0.5 + us(spin.rounds), &operands)?;
                continue;
            }
            operands.extend([Argument::U32(self.ragged), Argument::U32(self.shift as u32)]);
            let mut bytes = self.tiles(spin);
            if let Some(&input) = spin.inputs.first().filter(|_| self.shift > 0) {
                let (first, words) = (input + self.shift, self.words - self.shift);
                operands.push(Argument::words(arena, first, words, Some(AccessMode::Read)).unpassed());
                bytes.push(TileBytes::Strided { first: 0, stride: TILE, bytes: TILE as u64 });
            }
            operands.push(Argument::TileSync);
            // Rounds are uniformly distributed, so the longest CTA exceeds the mean by half of the range.
            let tiles = TileAccesses { bytes, spread_us: us(self.ragged) / 2.0, early_trigger: true };
            r.launch_tiled("spin_tiled", launch, 0.5 + us(spin.rounds + self.ragged), &operands, tiles)?;
        }
        Ok(SpinRecording { recording: r, arena, delays, stamps })
    }

    /// Accesses of each CTA of a kernel: to inputs, outputs and delays.
    fn tiles(&self, spin: &Spin) -> Vec<TileBytes> {
        let last = 4 * self.words as i64 - TILE;
        let own = TileBytes::Strided { first: 0, stride: TILE, bytes: TILE as u64 };
        let mirrored = TileBytes::Strided { first: last, stride: -TILE, bytes: TILE as u64 };
        let input = |k: usize| if spin.in_place() >> k & 1 == 1 { own } else { mirrored };
        let inputs = (0..spin.inputs.len()).map(input);
        inputs.chain(spin.outputs.iter().map(|_| own)).chain([TileBytes::All]).collect()
    }

    /// Contents of the arena after `runs` runs, computed on the host in order.
    pub fn expected(&self, runs: usize) -> Vec<u32> {
        self.run((0..runs).flat_map(|_| 0..self.kernels.len()))
    }

    /// Word `i` of the outputs of kernel `index`.
    fn word(&self, arena: &[u32], index: usize, i: usize) -> u32 {
        let spin = &self.kernels[index];
        let last = self.words - 1;
        let mut h = mix(index as u32, i as u32);
        for (k, &input) in spin.inputs.iter().enumerate() {
            let at = if spin.in_place() >> k & 1 == 1 { i } else { last - i };
            h = mix(h, arena[input + at]);
        }
        if let Some(&input) = spin.inputs.first().filter(|_| self.shift > 0) {
            h = mix(h, arena[input + (i + self.shift).min(last)]);
        }
        (0..self.rounds(index, i as u32 / THREADS)).fold(h, mix)
    }

    /// Rounds of a CTA of kernel `index`.
    pub(super) fn rounds(&self, index: usize, cta: u32) -> u32 {
        let more = if self.ragged > 0 { (mix(index as u32, cta) & 7) * self.ragged / 7 } else { 0 };
        self.kernels[index].rounds + more
    }

    /// The arena after the kernels of `order`.
    fn run(&self, order: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut arena = self.first_words();
        for index in order {
            let spin = &self.kernels[index];
            let word = |i| self.word(&arena, index, i);
            // Only long kernels are worth starting threads.
            let result: Vec<u32> = match (spin.rounds + self.ragged) as usize * self.words > 1 << 17 {
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
    /// Bit mask of the inputs that are also outputs.
    fn in_place(&self) -> u32 {
        let bit = |(k, p): (usize, &usize)| u32::from(self.outputs.contains(p)) << k;
        self.inputs.iter().enumerate().map(bit).sum()
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
    use cusync_dag::analyse;

    #[test]
    fn a_chain_is_a_chain() {
        let chain = SpinProgram::chain(5, 2, 3);
        let recorded = chain.record("chain", 8.0, true).expect("a valid program");
        let dependences = analyse(recorded.recording.program());
        let pairs: Vec<_> = dependences.reduced_edges().map(|e| (e.before.0, e.after.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 3), (3, 4)]);
        // Computed by hand: word 0 of the first kernel reads the mirrored word 255 of the first range.
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
        // The other exchanges write values that are overwritten before they are read.
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
