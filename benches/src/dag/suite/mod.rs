//! The kernel-level suite: eight programs with real kernels, and an independent reference for each.
//!
//! The programs come from KeSCo's evaluation, as far as it was published; the kernels (`csrc/suite`) and
//! the references are ours. M1 and M2 were never published: ours are substitutes of the same width.

mod check;
mod dl;
mod hand;
mod hits;
mod img;
mod ml;
mod prices;
mod transformer;
mod vec;

pub use check::{Check, Want};

use cusync_dag::{BufferId, DagError, LaunchConfig, Recording, StreamPlan};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A benchmark: a program with inputs, and the expected results of its first run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in the suite.
    pub name: &'static str,
    /// Description of its sizes.
    pub size: String,
    /// The program, as serial code would issue it.
    pub recording: Recording,
    /// Hand-written streams and events.
    pub hand: StreamPlan,
    /// Expected outputs after one run from the initial state.
    pub checks: Vec<Check>,
}

impl Case {
    /// Buffers that are checked.
    pub fn outputs(&self) -> Vec<BufferId> {
        self.checks.iter().map(|check| check.buffer).collect()
    }
}

/// Size of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    /// Kernels of 2 to 10 us that leave room for others on the GPU.
    Small,
    /// Kernels of 5 to 50 us that fill the GPU: concurrency cannot gain anything, and must not lose anything.
    Large,
}

/// Names of the suite, in KeSCo's order.
pub const NAMES: [&str; 8] = ["VEC", "B&S", "ML", "HITS", "IMG", "DL", "M1", "M2"];

/// KeSCo's speedup over serial launches on an A100, in the order of [`NAMES`].
pub const KESCO_A100: [f64; 8] = [1.18, 1.47, 1.09, 1.14, 1.01, 1.22, 1.53, 1.66];

/// A benchmark by its name in [`NAMES`]; `None` for other names.
pub fn case(name: &str, size: SizeClass) -> Option<Result<Case, DagError>> {
    let pick = |small, large| if size == SizeClass::Small { small } else { large };
    Some(match name {
        "VEC" => vec::vec(pick(1 << 18, 1 << 23)),
        "B&S" => prices::black_scholes(pick(1 << 14, 1 << 18)),
        "ML" => ml::ml(pick(256, 1024)),
        "HITS" => hits::hits(pick(1 << 15, 1 << 19), 5),
        "IMG" => img::img(pick(512, 1536)),
        "DL" => dl::dl(pick(256, 1024)),
        "M1" => transformer::chains("M1", 6, pick(64, 512), pick(1024, 2048)),
        "M2" => transformer::chains("M2", 12, pick(64, 512), pick(1024, 2048)),
        _ => return None,
    })
}

/// Names of the benchmarks that also have a variant with copies.
pub const WITH_COPIES: [&str; 2] = ["VEC", "B&S"];

/// A benchmark of [`WITH_COPIES`] with inputs and results in pinned host memory; `None` for other names.
pub fn case_with_copies(name: &str, size: SizeClass) -> Option<Result<Case, DagError>> {
    let hand = match name {
        "VEC" => hand::vec_with_copies(),
        "B&S" => hand::independent_with_copies(10),
        _ => return None,
    };
    Some(case(name, size)?.and_then(|plain| {
        let recording = plain.recording.with_copies(&plain.outputs())?;
        Ok(Case { recording, hand, ..plain })
    }))
}

/// HITS with the given number of iterations; the published table of dependences is for one.
pub fn hits_iterations(iterations: usize) -> Result<Case, DagError> {
    hits::hits(1 << 10, iterations)
}

/// Threads per CTA of kernels that iterate over an index.
const THREADS: u32 = 256;

/// A launch over `n` indices: at most eight CTAs for each of 132 SMs, because the kernels use a grid-stride
/// loop.
fn over(n: usize) -> LaunchConfig {
    LaunchConfig::linear((n as u32).div_ceil(THREADS).clamp(1, 1056), THREADS)
}

/// A launch with exactly one thread per index.
fn one_each(n: usize, threads: u32) -> LaunchConfig {
    LaunchConfig::linear((n as u32).div_ceil(threads).max(1), threads)
}

/// Words of scratch memory for a reduction with this launch.
fn scratch_words(launch: LaunchConfig) -> usize {
    1 + launch.ctas() as usize
}

/// Estimated microseconds of a kernel that moves `words` words: a launch takes two, and memory moves 3 TB/s.
fn moving(words: usize) -> f64 {
    2.0 + words as f64 * 4.0 / 3e6
}

/// Uniform floats.
fn uniform(seed: u64, n: usize, low: f32, high: f32) -> Vec<f32> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..n).map(|_| rng.random_range(low..high)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_dag::{Argument, LaunchPlan, Times, all_concurrency, analyse};

    /// Kernels, dependences, reduced dependences, fewest waits.
    fn counts(case: &Case) -> [usize; 4] {
        let program = case.recording.program();
        let dependences = analyse(program);
        let times = Times::new(program, &dependences);
        let waits = all_concurrency(program, &dependences, &times).wait_count();
        [program.nodes().len(), dependences.edges.len(), dependences.reduced_edges().count(), waits]
    }

    #[test]
    fn programs_have_the_dependences_that_are_published() {
        let counted = |name| {
            counts(&case(name, SizeClass::Small).expect("a name of the suite").expect("a valid program"))
        };
        assert_eq!(counted("VEC"), [3, 2, 2, 1]);
        assert_eq!(counted("B&S"), [10, 0, 0, 0]);
        assert_eq!(counted("ML"), [10, 12, 9, 1]);
        assert_eq!(counted("IMG"), [11, 14, 11, 4]);
        assert_eq!(counted("DL"), [8, 7, 7, 1]);
        assert_eq!(counts(&hits_iterations(1).expect("a valid program")), [7, 14, 8, 3]);
        assert_eq!(counted("M1"), [19, 18, 18, 5]);
        assert_eq!(counted("M2"), [37, 36, 36, 11]);
    }

    #[test]
    fn plans_by_hand_keep_every_dependence() {
        let all = NAMES.iter().map(|name| case(name, SizeClass::Small).expect("a name of the suite"));
        let copied = WITH_COPIES.iter().map(|name| case_with_copies(name, SizeClass::Small).expect("a name"));
        for case in all.chain(copied) {
            let case = case.expect("a valid program");
            let plan = LaunchPlan::from(case.hand.clone());
            plan.prove(case.recording.program()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        }
    }

    /// Parameters of every kernel of the suite, from the C++ sources: `*` for a pointer, else the type.
    fn signatures() -> std::collections::HashMap<String, Vec<String>> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../csrc/suite");
        let mut found = std::collections::HashMap::new();
        for entry in std::fs::read_dir(folder).expect("the suite's sources").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("a source");
            for kernel in text.split("extern \"C\" __global__ void ").skip(1) {
                let (name, rest) = kernel.split_once('(').expect("a parameter list");
                let (list, _) = rest.split_once(')').expect("the end of a parameter list");
                let kind = |parameter: &str| match parameter.contains('*') {
                    true => "*".to_owned(),
                    false => parameter.split_whitespace().next().unwrap_or_default().to_owned(),
                };
                found.insert(name.to_owned(), list.split(',').map(kind).collect());
            }
        }
        found
    }

    #[test]
    fn kernels_are_launched_as_they_are_declared() {
        let signatures = signatures();
        let mut recordings: Vec<_> = NAMES
            .iter()
            .map(|name| case(name, SizeClass::Small).expect("a name").expect("a valid program").recording)
            .collect();
        let spin = crate::dag::SpinProgram::tangle(1, 20, 6, 1);
        let plain = spin.record("spin", 8.0, true).expect("a valid program");
        let tiled = spin.uneven(3, 5).record_tiled("spin", 8.0, true).expect("a valid program");
        recordings.extend([plain.recording, tiled.recording]);
        let mut launched = std::collections::HashSet::new();
        for recording in &recordings {
            for (kernel, operands) in recording.launches() {
                let kinds: Vec<&str> = operands
                    .iter()
                    .flat_map(|operand| match operand {
                        Argument::Bytes { passed: true, .. } | Argument::Null => vec!["*"],
                        Argument::U32(_) => vec!["uint32_t"],
                        Argument::F32(_) => vec!["float"],
                        Argument::Bytes { passed: false, .. }
                        | Argument::Addresses { .. }
                        | Argument::Value(_) => {
                            vec![]
                        }
                        // Semaphores, waits, report; width, first slot, node, how.
                        Argument::TileSync => [vec!["*"; 3], vec!["uint32_t"; 4]].concat(),
                    })
                    .collect();
                let declared =
                    signatures.get(kernel).unwrap_or_else(|| panic!("there is no kernel {kernel}"));
                assert_eq!(*declared, kinds, "{kernel}");
                launched.insert(kernel.to_owned());
            }
        }
        // All but the stamp, which only tasks use.
        assert_eq!(launched.len() + 1, signatures.len(), "{launched:?}");
    }
}
