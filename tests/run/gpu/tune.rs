//! Tuning on a GPU: the result is right, is stored, and is used by later plans.

use crate::common::{assert_runs_right, gpu, quick};
use cusync::runtime::{InputSets, Options, Overlap, Overrides, resolve_text, shipped};
use cusync::tune::{
    Config, Machine, Measure, Origin, StageExecutor, Store, confirm, pipeline, plan, predicted_us, proposals,
};
use cusync_gen::check::Executor;

fn overrides(dim: &str, size: u64) -> Overrides {
    Overrides { dims: vec![(dim.into(), size)], ..Overrides::default() }
}

#[test]
fn the_winner_is_kept_and_used() {
    let Some(gpu) = gpu() else { return };
    let profile = gpu.device.profile().expect("checked when the GPU was opened");
    let machine = Machine::for_device(&gpu.device).expect("the driver tells its version");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = Store::at(folder.path().join("tuned.json"));
    let sizes: &[(&str, &str, u64)] = if quick() {
        &[("gpt3_mlp", "M", 512), ("resnet_layer", "B", 2)]
    } else {
        &[
            ("gpt3_mlp", "M", 512),
            ("llama65_mlp", "M", 16),
            ("diamond", "M", 300),
            ("resnet_layer", "B", 2),
            ("resnet38_layer3", "B", 8),
            ("llama3_70b_attention", "S", 512),
            ("llama3_70b_generate", "B", 4),
        ]
    };
    for &(name, dim, m) in sizes {
        let overrides = |size| overrides(dim, size);
        let source = shipped(name).expect("the spec ships");
        let resolved = resolve_text(source, name, &overrides(m)).expect("a shipped spec");
        let all = proposals(&resolved, &profile, None).expect("kernels are built");
        let how = Measure { candidates: 6, samples: 7, ..Measure::default() };
        let mut reports = 0;
        let found =
            confirm(&all, &gpu.device, &how, &mut |_| reports += 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.wrong.is_empty(), "{name} {dim} = {m}: {:?}", found.wrong);
        assert!(
            found.tried.len() + found.skipped.len() == 6.min(all.len()) && reports > 0,
            "{name}: {found:?}"
        );
        assert!(found.tried.windows(2).all(|w| w[0].time.median_us <= w[1].time.median_us));
        for tried in &found.tried {
            println!(
                "{name} {dim} = {m}: {}: {:.1} us, {:.1} predicted",
                tried.config, tried.time.median_us, tried.predicted_us
            );
        }
        let entries = found.entries(&resolved, &machine, None, Overlap::Plain);
        store.update(|cache| entries.into_iter().for_each(|e| assert!(cache.insert(e)))).expect("writable");

        let cache = store.load().expect("it was just written");
        let options = Options::default();
        let planned =
            plan(source, name, &overrides(m), &gpu.device, None, &options, &cache).expect("it is proved");
        assert!(
            matches!(&planned.origin, Origin::Tuned { gpu: on, .. } if on == gpu.device.name()),
            "{}",
            planned.origin
        );
        assert!(planned.plan.runs_as(found.tried[0].config.executor()));
        let inputs = InputSets::random(planned.plan.graph(), &gpu.device, 2, 5).expect("fits");
        let (mut model, origin) =
            pipeline(source, name, &overrides(m), &gpu.device, None, options, &cache).expect("fits");
        assert_eq!(origin, planned.origin);
        inputs.bind(&mut model).expect("its inputs");
        let reference = cusync::runtime::verify::Reference::new(&mut model, 0).expect("runs");
        assert_runs_right(&gpu, &format!("{name} tuned"), &planned.plan, &inputs, &reference);
        // Another size has not been tuned.
        let other =
            plan(source, name, &overrides(m + 1), &gpu.device, None, &options, &cache).expect("it is proved");
        assert_eq!(other.origin, Origin::Predicted { refused: None });
    }
}

#[test]
fn an_entry_that_no_kernel_fits_falls_back_to_the_prediction() {
    let Some(gpu) = gpu() else { return };
    let profile = gpu.device.profile().expect("checked when the GPU was opened");
    let machine = Machine::for_device(&gpu.device).expect("the driver tells its version");
    let (name, m) = ("two_gemms", 200);
    let source = shipped(name).expect("the spec ships");
    let resolved = resolve_text(source, name, &overrides("M", m)).expect("a shipped spec");
    let serial = Some(Executor::Serial);
    let all = proposals(&resolved, &profile, serial).expect("kernels are built");
    assert!(all.iter().all(|p| predicted_us(&p.candidate) == Some(p.predicted_us)));
    let how = Measure { candidates: 2, samples: 3, ..Measure::default() };
    let mut found = confirm(&all, &gpu.device, &how, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let (executor, stages, edges) = (StageExecutor::Serial, Vec::new(), Vec::new());
    found.tried[0].config = Config::Stages { executor, stages, edges };
    let mut cache = cusync::tune::PlanCache::default();
    for entry in found.entries(&resolved, &machine, serial, Overlap::Plain) {
        cache.insert(entry);
    }
    let planned = plan(source, name, &overrides("M", m), &gpu.device, serial, &Options::default(), &cache)
        .expect("a prediction");
    assert!(matches!(planned.origin, Origin::Predicted { refused: Some(_) }), "{}", planned.origin);
}
