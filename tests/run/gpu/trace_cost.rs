//! The cost of recording times: the same plan with a trace, without one, and without one again, which shows the
//! difference between two equal pipelines. Visits alternate between forward and backward order, so that clocks and
//! neighbors affect all equally.

use std::time::Duration;

use crate::common::{pipeline, plan, quick};
use crate::fused::{STATIC, fused, hopper};
use crate::fused_decode::decode;
use cusync::device::{Device, Event};
use cusync::runtime::{
    Captured, InputSets, Options, Overlap, Overrides, Pipeline, Result, percentile, resolve_text, shipped,
};
use cusync::trace::{Kind, defect, events, page, trace};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// Runs of a timed graph.
const RUNS: usize = 12;
/// Input sets in rotation, so that weights come from device memory.
const SETS: usize = 4;
/// Maximum relative cost of a trace. It is wide because other work may slow only one of the pipelines.
const MOST: f64 = 0.15;

/// A pipeline with a graph of [`RUNS`] runs.
struct Timed {
    pipeline: Pipeline,
    graph: Captured,
    events: [Event; 2],
    samples: Vec<f64>,
}

impl Timed {
    fn new(device: &Device, mut pipeline: Pipeline) -> Result<Timed> {
        let order: Vec<usize> = (0..RUNS).map(|run| run % SETS).collect();
        let graph = pipeline.capture(Executor::Fused, &order)?;
        let events = [Event::timing(device)?, Event::timing(device)?];
        Ok(Timed { pipeline, graph, events, samples: Vec::new() })
    }

    /// Takes the time of one run in microseconds, after a rest.
    fn sample(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(3));
        self.pipeline.stream().record(&self.events[0])?;
        self.pipeline.replay(&self.graph)?;
        self.pipeline.stream().record(&self.events[1])?;
        self.pipeline.synchronize()?;
        self.samples.push(self.events[1].us_since(&self.events[0])? / RUNS as f64);
        Ok(())
    }

    fn median(&mut self) -> f64 {
        percentile(&mut self.samples, 0.5)
    }
}

#[test]
fn a_trace_costs_a_small_part_of_a_run() {
    let Some(gpu) = hopper() else { return };
    let samples = if quick() { 41 } else { 201 };
    let chain = |name, m| (format!("{name} M = {m}"), fused(&gpu, name, m, STATIC));
    let few = |name, m| {
        let plan = decode(&gpu, shipped(name).expect("it ships"), m, Element::F16);
        (format!("{name} M = {m} decode"), plan)
    };
    let cases = [
        chain("gpt3_mlp", 256),
        chain("gpt3_mlp", 1024),
        chain("llama65_mlp", 512),
        few("gpt3_mlp", 8),
        few("llama65_mlp", 32),
    ];
    for (label, plan) in cases {
        let inputs = InputSets::random(plan.graph(), &gpu.device, SETS, 3).expect("inputs fit");
        let attempt = || -> Result<[f64; 3]> {
            let with = |trace| {
                let options = Options { trace, overlap: Overlap::Captured, ..Options::default() };
                Timed::new(&gpu.device, pipeline(&gpu, &plan, &inputs, options))
            };
            let mut all = [with(false)?, with(true)?, with(false)?];
            for round in 0..samples + 2 {
                for place in 0..all.len() {
                    let place = if round % 2 == 0 { place } else { all.len() - 1 - place };
                    all[place].sample()?;
                }
                if round == 1 {
                    // The first runs upload graphs and bring clocks up.
                    all.iter_mut().for_each(|t| t.samples.clear());
                }
            }
            Ok(all.each_mut().map(Timed::median))
        };
        let [off, on, again] = attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
        let (cost, noise) = (on / off.max(again) - 1.0, (again / off - 1.0).abs());
        println!(
            "{label}: {off:.2} us without a trace, {again:.2} us in another pipeline without, {on:.2} us with one: {:.2} % (noise {:.2} %)",
            cost * 100.0,
            noise * 100.0
        );
        assert!(cost < MOST, "{label}: a trace costs {:.2} %", cost * 100.0);
    }
}

/// A measured timeline is valid, and a chain's waiting tiles record what they wait for.
#[test]
fn measured_timelines_have_no_defect() {
    let Some(gpu) = hopper() else { return };
    let few = decode(&gpu, shipped("gpt3_mlp").expect("it ships"), 8, Element::F16);
    let with_dims = |name, dims: &[(&str, u64)]| {
        let dims = dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)).collect();
        plan(&gpu, name, &Overrides { dims, ..Overrides::default() }, Executor::Fused)
    };
    for plan in [
        fused(&gpu, "gpt3_mlp", 512, STATIC),
        fused(&gpu, "llama65_mlp", 300, STATIC),
        few,
        with_dims("llama3_70b_generate", &[("B", 4), ("S", 512)]),
        with_dims("gpt3_layer", &[("B", 1), ("S", 256)]),
        with_dims("resnet_layer", &[("B", 2)]),
        with_dims("resnet38_layer2", &[("B", 1)]),
    ] {
        let graph = plan.graph();
        let dims = graph.dims.iter().map(|(name, size)| (name.clone(), u64::from(*size))).collect();
        let overrides = Overrides { dims, element: Some(graph.element), ..Overrides::default() };
        let source = shipped(&graph.name).expect("it ships");
        let resolved = resolve_text(source, &graph.name, &overrides).unwrap_or_else(|e| panic!("{e}"));
        let report = trace(&resolved, &plan, 0, 2, 5).unwrap_or_else(|e| panic!("{e}"));
        let timeline = &report.timeline;
        assert_eq!(defect(timeline), None);
        assert_eq!(timeline.runs.len(), 2);
        for (run, traced) in timeline.runs.iter().zip(&report.runs) {
            let waits = run.spans.iter().flat_map(|s| &s.phases).filter(|p| p.kind == Kind::Wait);
            assert!(waits.clone().all(|p| p.edge.is_some() && p.from.is_some()), "{}", run.name);
            assert_eq!(waits.clone().next().is_none(), traced.waits.is_empty(), "{}", run.name);
            println!("{} {}: {:?}, waits {:?}", timeline.pipeline, run.name, traced.shares, traced.waits);
        }
        assert!(report.runs[0].waits.is_empty(), "serial launches wait for no stage");
        assert!(page(timeline).len() > 10_000 && events(timeline)["traceEvents"].is_array());
    }
}
