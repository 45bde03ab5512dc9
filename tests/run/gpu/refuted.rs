//! Plans that `check` refutes for `cover` fail on the device: mutants that drop or shift the waits of an edge give a
//! wrong result under injected delays, and the original plan does not, under the same delays.
//!
//! The kernels must be built with `CUSYNC_DELAYS=1`. Delays come before a tile's store and before its post, so a
//! consumer that does not wait reads the NaNs that every run begins with. `CUSYNC_GPU_QUICK=1` keeps few cases.

use crate::common::{Gpu, assert_right, pipeline, quick};
use crate::faults::{Expected, delayed, delays};
use crate::fused::{DYNAMIC, STATIC, expected};
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, Result, resolve_text, shipped};
use cusync_gen::check::fault::{WaitMutant, wait_mutants};
use cusync_gen::check::{Candidate, Executor, Plan, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::sync::Policy;

/// Runs per plan. Each run has different delays; the n-th runs of all plans of a case have the same delays.
const RUNS: usize = 50;

/// Mutants per case.
const SAMPLE: usize = 3;

/// How a chain is run.
#[derive(Clone, Debug)]
enum Launch {
    /// One kernel per stage, with this policy on every edge.
    Coupled(Executor, Policy),
    /// A chain kernel with one slot per tile.
    Chain(ChainOverride),
}

impl Launch {
    /// The choice for a shipped spec, before it is proved.
    fn candidate(&self, profile: &Profile, name: &str, dims: &[(&str, u64)]) -> Candidate {
        let policy = match self {
            Launch::Coupled(_, policy) => Some(policy.clone()),
            Launch::Chain(_) => None,
        };
        let dims = dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)).collect();
        let overrides = Overrides { dims, policy, ..Overrides::default() };
        let source = shipped(name).expect("it ships");
        let resolved = resolve_text(source, name, &overrides).unwrap_or_else(|e| panic!("{name}: {e}"));
        let candidate = match self {
            Launch::Coupled(executor, _) => choose::candidate(&resolved, profile, *executor),
            Launch::Chain(asked) => choose::chain(&resolved, profile, *asked),
        };
        candidate.unwrap_or_else(|e| panic!("{name}: {}", e.render(source, name, false)))
    }
}

struct Case {
    name: &'static str,
    dims: Vec<(&'static str, u64)>,
    launch: Launch,
    /// Seed of the inputs, delays and mutants.
    seed: u32,
}

impl Case {
    fn label(&self) -> String {
        format!("{} {:?} {:?}", self.name, self.dims, self.launch)
    }

    /// The judged candidate and its mutants.
    fn sample(&self, profile: &Profile) -> (Candidate, Vec<WaitMutant>) {
        let candidate = self.launch.candidate(profile, self.name, &self.dims);
        let mutants = wait_mutants(&candidate, self.seed.into(), SAMPLE);
        assert_eq!(mutants.len(), SAMPLE, "{}: too few mutants are refuted for cover", self.label());
        (candidate, mutants)
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let coupled = |executor, policy: &Policy| Launch::Coupled(executor, policy.clone());
    let mut cases = Vec::new();
    for name in ["two_gemms", "gpt3_mlp", "llama65_mlp"] {
        let mut launches = vec![
            (256, coupled(Executor::Streams, &Policy::Tile)),
            (256, coupled(Executor::Programmatic, &Policy::Row)),
            (256, Launch::Chain(STATIC)),
        ];
        if !quick {
            launches.extend([
                (64, coupled(Executor::Programmatic, &Policy::Tile)),
                (256, coupled(Executor::Streams, &Policy::Row)),
                (256, coupled(Executor::Programmatic, &Policy::Tile)),
                (64, Launch::Chain(STATIC)),
                (256, Launch::Chain(DYNAMIC)),
            ]);
        }
        for (m, launch) in launches {
            cases.push((name, vec![("M", m)], launch));
        }
    }
    // Windows with halos, pools, shortcuts, norm rows.
    cases.push(("resnet_layer", vec![("B", 2), ("HW", 28), ("C", 128)], Launch::Chain(STATIC)));
    if !quick {
        cases.push(("resnet_layer", vec![("B", 3), ("HW", 14), ("C", 256)], Launch::Chain(DYNAMIC)));
        cases.push(("resnet38_layer4", vec![("B", 3)], Launch::Chain(STATIC)));
        cases.push(("vgg19_block2", vec![("B", 1)], Launch::Chain(STATIC)));
        cases.push(("llama65_norm_mlp", vec![("M", 200)], Launch::Chain(STATIC)));
    }
    let with_seed = |(seed, (name, dims, launch))| Case { name, dims, launch, seed };
    (400..).zip(cases).map(with_seed).collect()
}

/// How many of a plan's runs differ from the expected result.
fn wrong_runs(
    gpu: &Gpu,
    plan: &Plan,
    inputs: &InputSets,
    expected: &Expected,
    options: Options,
) -> Result<usize> {
    let mut pipeline = pipeline(gpu, plan, inputs, options);
    pipeline.prepare()?;
    let mut wrong = 0;
    for _ in 0..RUNS {
        pipeline.poison_outputs()?;
        pipeline.run(plan.executor())?;
        expected.compare(&pipeline)?;
        wrong += usize::from(!expected.differing(&mut pipeline)?.is_empty());
    }
    Ok(wrong)
}

/// Results of a case.
#[derive(Default)]
struct Tally {
    mutants: usize,
    /// Mutants with no wrong run.
    always_right: Vec<String>,
    /// Mutants that also fail without delays.
    undelayed: usize,
}

/// One case: the plan, which is always right, and its mutants.
fn go_wrong(gpu: &Gpu, case: &Case, tally: &mut Tally) {
    let label = case.label();
    let profile = gpu.device.profile().expect("checked when the GPU was opened");
    let (candidate, mutants) = case.sample(&profile);
    let plan = check(candidate).unwrap_or_else(|r| panic!("{label}: {r}"));
    let (inputs, reference) = expected(gpu, &plan, 1, case.seed);
    let mut attempt = || -> Result<()> {
        let mut plain = pipeline(gpu, &plan, &inputs, Options::default());
        plain.prepare()?;
        plain.poison_outputs()?;
        plain.run(plan.executor())?;
        assert_right(&label, &reference.compare(&mut plain)?);
        let expected = Expected::new(&mut plain)?;
        let late = Options { delays: delays(case.seed), ..Options::default() };
        let runs = |plan: &Plan, options| wrong_runs(gpu, plan, &inputs, &expected, options);

        let wrong = runs(&plan, late)?;
        assert_eq!(wrong, 0, "{label}: the proved plan goes wrong in {wrong} of {RUNS} runs");
        for mutant in &mutants {
            let title = format!("{label}: {:?} of {}", mutant.fault, plan.edge_name(mutant.edge));
            let (with, without) = (runs(&mutant.plan, late)?, runs(&mutant.plan, Options::default())?);
            println!("{title}: wrong in {with} of {RUNS} runs with delays, in {without} without");
            tally.mutants += 1;
            tally.undelayed += usize::from(without > 0);
            if with == 0 {
                tally.always_right.push(format!("{title}, refuted: {}", mutant.refutation));
            }
        }
        Ok(())
    };
    attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
}

#[test]
fn mutants_refuted_for_cover_go_wrong() {
    let Some(gpu) = delayed() else { return };
    let mut tally = Tally::default();
    cases(quick()).iter().for_each(|case| go_wrong(&gpu, case, &mut tally));
    println!(
        "{} mutants: {} never wrong with delays, {} never wrong without",
        tally.mutants,
        tally.always_right.len(),
        tally.mutants - tally.undelayed
    );
    assert!(tally.mutants >= 20, "{} mutants are too few to tell", tally.mutants);
    assert!(tally.always_right.is_empty(), "never wrong:\n{}", tally.always_right.join("\n"));
}

/// Needs no GPU: every case has a sample, and the sample is reproducible.
#[test]
fn the_sample_is_there() {
    let profile = Profile::named("h200").expect("the profile ships");
    for case in cases(false) {
        let faults = |(_, mutants): (Candidate, Vec<WaitMutant>)| -> Vec<_> {
            mutants.into_iter().map(|m| (m.edge, m.fault)).collect()
        };
        assert_eq!(faults(case.sample(profile)), faults(case.sample(profile)), "{}", case.label());
    }
}
