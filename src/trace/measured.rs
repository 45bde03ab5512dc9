//! Timelines from the records of kernels.

use std::collections::BTreeMap;

use cusync_gen::check::Plan;
use cusync_gen::graph::OperandKind;
use cusync_gen::schedule::Part;

use super::cause::{Causes, Edges};
use super::simulated::part_name;
use super::timeline::{Kind, Phase, Run, TraceSpan};
use crate::runtime::ItemTrace;

/// Spans of a run from the records of its kernels; `stage_of` maps a kernel's stage to the pipeline's stage.
/// Times count from the earliest start.
pub(super) fn spans(
    notes: &[Vec<ItemTrace>],
    cluster: (u32, u32),
    stage_of: impl Fn(usize, usize) -> usize,
) -> (Vec<TraceSpan>, Vec<Part>) {
    let start = notes.iter().flatten().map(|t| t.begin).min().unwrap_or(0);
    let us = |ns: u64| ns.saturating_sub(start) as f64 * 1e-3;
    let mut by_sm: BTreeMap<u32, Vec<(usize, &ItemTrace)>> = BTreeMap::new();
    for (kernel, list) in notes.iter().enumerate() {
        list.iter().for_each(|t| by_sm.entry(t.sm).or_default().push((kernel, t)));
    }
    let (mut spans, mut parts) = (Vec::new(), Vec::new());
    for list in by_sm.values_mut() {
        list.sort_by_key(|(_, t)| (t.begin, t.end));
        // A time before its predecessor cost nothing: the load warp runs ahead of the math warps. It also
        // records an item as ready when its last wait is satisfied, which may be long after the first loads.
        let mut now = start;
        for (kernel, t) in list {
            now = now.max(t.begin);
            let begin_us = us(now);
            let ends = [t.ready.min(t.loaded), t.loaded, t.math_end, t.end];
            let mut phases = Vec::new();
            for (kind, end) in Kind::ALL.into_iter().zip(ends) {
                if end > now {
                    now = end;
                    phases.push(Phase::plain(kind, us(now)));
                }
            }
            if phases.is_empty() {
                phases.push(Phase::plain(Kind::Epilogue, begin_us));
            }
            spans.push(TraceSpan {
                stage: stage_of(*kernel, t.item.stage.0),
                tile: (
                    t.item.m * cluster.0 + t.cta % cluster.0.max(1),
                    t.item.n * cluster.1 + t.cta / cluster.0.max(1),
                ),
                k: (t.item.k_begin, t.item.k_end),
                part: part_name(t.item.part),
                sm: t.sm,
                begin_us,
                phases,
            });
            parts.push(t.item.part);
        }
    }
    (spans, parts)
}

fn run(name: &str, kernel: &str, sms: u32, spans: Vec<TraceSpan>) -> Run {
    let length_us = spans.iter().map(TraceSpan::end_us).fold(0.0, f64::max);
    Run { name: name.into(), what: kernel.into(), sms, length_us, spans, host: Vec::new() }
}

/// A run of the stages' own kernels, one after the other.
pub(super) fn serial(plan: &Plan, kernel: &str, notes: &[Vec<ItemTrace>], sms: u32) -> Run {
    let cluster = plan.launch().cluster();
    let (mut spans, _) = spans(notes, cluster, |kernel, _| kernel);
    // These stages never wait: the elapsed time is the latency of the first loads.
    let first = spans.iter_mut().filter_map(|s| s.phases.first_mut());
    first.filter(|p| p.kind == Kind::Wait).for_each(|p| p.kind = Kind::Load);
    run("serial", kernel, sms, spans)
}

/// A fused run with the cause of every wait: among the edges that the first k-block waits for, the one with
/// the last post.
pub(super) fn fused(plan: &Plan, kernel: &str, notes: &[Vec<ItemTrace>], sms: u32) -> Run {
    let cluster = plan.launch().cluster();
    let (mut spans, parts) = spans(notes, cluster, |_, stage| stage);
    let waiting: Vec<usize> = (0..spans.len()).filter(|i| spans[*i].phases[0].kind == Kind::Wait).collect();
    let mut found = Vec::new();
    if plan.launch().shares().is_some() {
        // Tiles of a decode plan are shares of columns; every worker needs part of all shares.
        let last: Vec<Option<(f64, usize)>> = (0..plan.graph().stages.len())
            .map(|stage| {
                let own = spans.iter().enumerate().filter(|(_, s)| s.stage == stage);
                own.map(|(i, s)| (s.end_us(), i)).max_by(|a, b| a.0.total_cmp(&b.0))
            })
            .collect();
        for &index in &waiting {
            let stage = spans[index].stage;
            let edges = plan.graph().dependences.iter().enumerate();
            let mut own = edges.filter(|(_, d)| {
                let operand = &plan.graph().stages[d.consumer.0].operands[d.operand];
                d.consumer.0 == stage && operand.kind == OperandKind::A
            });
            let edge = own.next().map(|(edge, d)| (edge, d.producer.0));
            let from = edge.and_then(|(_, producer)| last[producer]).map(|(_, from)| from);
            found.push((edge.map(|(edge, _)| edge), from));
        }
    } else {
        let edges = Edges::of_plan(plan);
        let posts = edges.posts(&spans, |index| parts[index].finishes());
        let mut causes = Causes::new(&edges, posts);
        for &index in &waiting {
            let first = spans[index].k.0;
            let latest = causes.latest(&spans[index], |k, posted| (k == first).then_some(posted));
            found.push((latest.map(|l| l.edge), latest.map(|l| l.from)));
        }
    }
    for (index, (edge, from)) in waiting.into_iter().zip(found) {
        let phase = &mut spans[index].phases[0];
        (phase.edge, phase.from) = (edge, from);
        if edge.is_none() {
            // It waits for no stage: the elapsed time is the latency of its first loads.
            phase.kind = Kind::Load;
        }
    }
    run("fused", kernel, sms, spans)
}

#[cfg(test)]
mod tests {
    use super::super::shares::Shares;
    use super::super::timeline::{TimeSource, Timeline, defect};
    use super::*;
    use crate::runtime::{Overrides, plan_text, shipped};
    use cusync_gen::check::Executor;
    use cusync_gen::device::Profile;
    use cusync_gen::graph::StageId;
    use cusync_gen::schedule::{Breakdown, Item, Schedule, ScheduleRequest, explain};

    fn note(sm: u32, times: [u64; 5]) -> ItemTrace {
        let item = Item { stage: StageId(0), m: 0, n: 0, k_begin: 0, k_end: 1, part: Part::Whole };
        let [begin, ready, loaded, math_end, end] = times.map(|us| us * 1000);
        ItemTrace { worker: sm, cta: 0, sm, item, begin, ready, loaded, math_end, end }
    }

    fn shares(notes: &[ItemTrace], sms: u32) -> Shares {
        Shares::from_spans(spans(&[notes.to_vec()], (1, 1), |_, s| s).0.iter(), sms, None)
    }

    #[test]
    fn waits_of_later_k_blocks_count_as_arithmetic() {
        let shares = shares(&[note(0, [0, 7, 3, 10, 11])], 1);
        assert_eq!((shares.wait_us, shares.load_us, shares.math_us), (3.0, 0.0, 7.0));
    }

    #[test]
    fn the_kinds_add_up_to_the_span() {
        // SM 0 is busy throughout; SM 1 begins late, ends early and waits; two more are idle.
        let notes = [
            note(0, [100, 101, 103, 110, 112]),
            // Ready and loaded while the previous item was in its epilogue.
            note(0, [112, 105, 106, 118, 120]),
            note(1, [104, 108, 109, 113, 114]),
        ];
        let shares = shares(&notes, 4);
        assert_eq!(shares.span_us, 20.0);
        assert_eq!(shares.wait_us, (1.0 + 4.0) / 4.0);
        assert_eq!(shares.load_us, (2.0 + 1.0) / 4.0);
        assert_eq!(shares.math_us, (7.0 + 6.0 + 4.0) / 4.0);
        assert_eq!(shares.epilogue_us, (2.0 + 2.0 + 1.0) / 4.0);
        let sum = shares.math_us + shares.epilogue_us + shares.load_us + shares.wait_us + shares.idle_us;
        assert!((sum - shares.span_us).abs() < 1e-9);
    }

    #[test]
    fn spans_of_an_sm_follow_each_other() {
        let notes =
            [note(3, [10, 12, 13, 20, 22]), note(3, [21, 21, 21, 30, 31]), note(3, [40, 40, 40, 40, 40])];
        let (spans, _) = spans(&[notes.to_vec()], (1, 1), |_, s| s);
        let begins: Vec<_> = spans.iter().map(|s| (s.begin_us, s.end_us())).collect();
        assert_eq!(begins, [(0.0, 12.0), (12.0, 21.0), (30.0, 30.0)]);
    }

    #[test]
    fn a_cta_of_a_cluster_has_its_own_tile() {
        let mut second = note(1, [0, 1, 2, 3, 4]);
        (second.item.m, second.item.n, second.cta) = (2, 5, 1);
        let tile = |cluster| spans(&[vec![second]], cluster, |_, s| s).0[0].tile;
        assert_eq!((tile((2, 1)), tile((1, 2))), ((5, 5), (2, 11)));
    }

    /// Records of a run that goes exactly as predicted.
    fn as_predicted(schedule: &Schedule, breakdown: &Breakdown) -> Vec<ItemTrace> {
        let ctas = schedule.cluster.0 * schedule.cluster.1;
        let mut notes = Vec::new();
        for (worker, list) in schedule.lists.iter().enumerate() {
            for &index in list {
                let (item, time) = (schedule.sequence[index as usize], breakdown.items[index as usize]);
                let ns = |us: f64| 1_000_000 + (us * 1e3).round() as u64;
                let ready = time.begin_us + time.wait_us;
                let math_end = ready + 0.5 * time.fixed_us + time.math_us;
                notes.extend((0..ctas).map(|cta| ItemTrace {
                    worker: worker as u32,
                    cta,
                    sm: worker as u32 * ctas + cta,
                    item,
                    begin: ns(time.begin_us),
                    ready: ns(ready),
                    loaded: ns(ready + 0.5 * time.fixed_us),
                    math_end: ns(math_end),
                    end: ns(time.end_us()),
                }));
            }
        }
        notes
    }

    #[test]
    fn waits_are_laid_to_the_edge_that_caused_them() {
        let device = Profile::named("h200").expect("the profile ships");
        for (name, m) in [("gpt3_mlp", 512), ("llama65_mlp", 300), ("diamond", 512)] {
            let overrides = Overrides { dims: vec![("M".into(), m)], ..Overrides::default() };
            let source = shipped(name).expect("it ships");
            let plan = plan_text(source, name, &overrides, device, Executor::Fused).expect("it is proved");
            let schedule = plan.launch().lists().expect("a chain kernel");
            let cost = device.cost_model(plan.graph().operations());
            let request = ScheduleRequest {
                workers: schedule.lists.len() as u32,
                cluster: schedule.cluster,
                mode: schedule.mode,
                splits: true,
                cost: &cost,
            };
            let (made, breakdown) = explain(plan.graph(), &request);
            assert!(made == *schedule, "{name}: another schedule was chosen");
            let run = fused(&plan, "test", &[as_predicted(schedule, &breakdown)], device.sms);
            let timeline = Timeline {
                pipeline: name.into(),
                dims: Vec::new(),
                device: "test".into(),
                origin: TimeSource::Measured,
                stages: plan.graph().stages.iter().map(|s| s.name.clone()).collect(),
                edges: Edges::names(plan.graph()),
                rows: "SM",
                runs: vec![run],
            };
            assert_eq!(defect(&timeline), None, "{name}");
            let spans = &timeline.runs[0].spans;
            let mut waits = 0;
            for phase in spans.iter().flat_map(|s| &s.phases).filter(|p| p.kind == Kind::Wait) {
                let (Some(edge), Some(from)) = (phase.edge, phase.from) else {
                    panic!("{name}: a wait without a cause: {phase:?}")
                };
                assert_eq!(spans[from].stage, timeline.edges[edge].producer, "{name}");
                waits += 1;
            }
            assert!(waits > 0, "{name}: nothing waits");
        }
    }
}
