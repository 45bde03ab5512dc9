//! Timelines predicted by the model.

use cusync_gen::check::{Candidate, Executor, Launch, StageKernel, StageLaunch};
use cusync_gen::graph::StageId;
use cusync_gen::schedule::decode::Decode;
use cusync_gen::schedule::{Part, Schedule, ScheduleRequest, time};
use cusync_gen::simulate::{TileCost, TileRun, TileWait, observe, simulate, simulate_serial};

use super::cause::{Causes, Edges};
use super::timeline::{Kind, Phase, Run, TimeSource, Timeline, TraceSpan};
use crate::runtime::executor_name;

/// A timeline without runs.
pub fn simulated(candidate: &Candidate) -> Timeline {
    let graph = &candidate.graph;
    Timeline {
        pipeline: graph.name.clone(),
        dims: graph.dims.clone(),
        device: candidate.device.name.clone(),
        origin: TimeSource::Simulated,
        stages: graph.stages.iter().map(|s| s.name.clone()).collect(),
        edges: Edges::names(graph),
        rows: "SM",
        runs: Vec::new(),
    }
}

/// The predicted run of a candidate chosen for `executor`.
pub fn simulated_run(candidate: &Candidate, executor: Executor) -> Run {
    match &candidate.launch {
        launch if launch.is_in_turn() => in_turn(candidate),
        Launch::Stages { .. } => kernels(candidate, executor),
        Launch::Lists(schedule) => chain(candidate, schedule),
        Launch::Shares(decode) => shares(candidate, decode),
    }
}

/// Kernels launched stage by stage.
fn kernels(candidate: &Candidate, executor: Executor) -> Run {
    let graph = &candidate.graph;
    let edges = Edges::of_candidate(candidate);
    let mut blocked: Vec<TileWait> = Vec::new();
    let timeline = observe(candidate, &mut |b| blocked.push(b));
    let mut blocked = blocked.into_iter().peekable();
    let launch = &candidate.launch;
    let per_sm = launch.kernels().iter().map(|kernel| kernel.ctas_per_sm).max().unwrap_or(1).max(1);
    let fixed_us = |stage: usize| {
        let order = launch.order(StageId(stage));
        TileCost::new(graph, &graph.stages[stage], order, &candidate.device, (per_sm, false)).fixed_us
    };
    let fixed: Vec<f64> = (0..graph.stages.len()).map(fixed_us).collect();
    // Waits refer to spans, so they are set after all spans exist.
    let mut waits = Vec::new();
    let mut spans = Vec::with_capacity(timeline.tiles.len());
    for (index, run) in timeline.tiles.iter().enumerate() {
        let mut phases: Vec<Phase> = Vec::new();
        let mut now = run.start;
        while let Some(b) = blocked.next_if(|b| b.tile == index) {
            if b.begin > now {
                phases.push(Phase::plain(Kind::Math, b.begin));
            }
            // Two edges may block in succession; the later one then begins where the earlier one ended.
            if b.end > now {
                waits.push((index, phases.len(), b.slot));
                phases.push(Phase { kind: Kind::Wait, end_us: b.end, edge: Some(b.edge), from: None });
                now = b.end;
            }
        }
        let epilogue = (run.end - fixed[run.stage.0]).max(now);
        if epilogue > now {
            phases.push(Phase::plain(Kind::Math, epilogue));
        }
        phases.push(Phase::plain(Kind::Epilogue, run.end.max(epilogue)));
        let stage = &graph.stages[run.stage.0];
        spans.push(TraceSpan {
            stage: run.stage.0,
            tile: (run.tile.m, run.tile.n),
            k: (0, stage.k_blocks),
            part: None,
            sm: run.sm,
            begin_us: run.start,
            phases,
        });
    }
    let causes = Causes::new(&edges, edges.posts(&spans, |_| true));
    for (span, phase, slot) in waits {
        let phase = &mut spans[span].phases[phase];
        phase.from = phase.edge.and_then(|edge| causes.post(edge, slot)).map(|(_, from)| from);
    }
    let tiles: Vec<String> =
        graph.stages.iter().map(|s| format!("{} {} x {}", s.name, s.mma_tile.0, s.mma_tile.1)).collect();
    let kernel = format!("one kernel per stage; tiles: {}", tiles.join(", "));
    let length_us = timeline.total_us;
    Run {
        name: executor_name(executor).into(),
        what: kernel,
        sms: timeline.slots,
        length_us,
        spans,
        host: Vec::new(),
    }
}

/// Kernels that run one stage each, one after the other: chain kernels, and those that run alone, which have
/// one span on each SM.
fn in_turn(candidate: &Candidate) -> Run {
    let (sms, timeline) = (candidate.device.sms, simulate_serial(candidate));
    let (mut spans, mut tiles) = (Vec::new(), Vec::new());
    let mut chains = candidate.alone();
    for StageLaunch { stage, kernel, .. } in candidate.launch.kernels() {
        let planned = &candidate.graph.stages[stage.0];
        let (begin_us, end_us) = timeline.stages[stage.0];
        if *kernel == StageKernel::Alone {
            tiles.push(format!("{} alone", planned.name));
            spans.extend((0..sms).map(|sm| TraceSpan {
                stage: stage.0,
                tile: (0, 0),
                k: (0, planned.k_blocks),
                part: Some("the whole kernel".into()),
                sm,
                begin_us,
                phases: vec![Phase::plain(Kind::Math, end_us)],
            }));
            continue;
        }
        let Some((_, alone)) = chains.next() else { continue };
        let Launch::Lists(schedule) = &alone.launch else { continue };
        let (run, before) = (chain(&alone, schedule), spans.len());
        let begin_us = begin_us - run.spans.iter().map(|s| s.begin_us).fold(f64::INFINITY, f64::min);
        let later = |phase: Phase| Phase {
            end_us: begin_us + phase.end_us,
            from: phase.from.map(|span| before + span),
            ..phase
        };
        spans.extend(run.spans.into_iter().map(|span| TraceSpan {
            stage: stage.0,
            begin_us: begin_us + span.begin_us,
            phases: span.phases.into_iter().map(later).collect(),
            ..span
        }));
        let ((m, n, _), (rows, cols)) = (alone.graph.kernel_tile(), schedule.cluster);
        tiles.push(format!("{} {m} x {n} by {rows} x {cols}", planned.name));
    }
    Run {
        name: executor_name(Executor::Serial).into(),
        what: format!("a kernel a stage; tiles and clusters: {}", tiles.join(", ")),
        sms,
        length_us: timeline.total_us,
        spans,
        host: Vec::new(),
    }
}

/// A decode kernel: every worker has a share of each stage in turn, and streams weights all the time.
fn shares(candidate: &Candidate, decode: &Decode) -> Run {
    let timeline = simulate(candidate);
    let span = |run: &TileRun| TraceSpan {
        stage: run.stage.0,
        tile: (run.tile.m, run.tile.n),
        k: (0, candidate.graph.stages[run.stage.0].k_blocks),
        part: None,
        sm: run.sm,
        begin_us: run.start,
        phases: vec![Phase::plain(Kind::Math, run.end)],
    };
    Run {
        name: executor_name(Executor::Fused).into(),
        what: format!("one decode kernel, {} tokens wide", decode.width),
        sms: candidate.device.sms.max(decode.workers()),
        length_us: timeline.total_us,
        spans: timeline.tiles.iter().map(span).collect(),
        host: Vec::new(),
    }
}

/// A chain kernel.
fn chain(candidate: &Candidate, schedule: &Schedule) -> Run {
    let graph = &candidate.graph;
    let cost = candidate.device.cost_model(graph.operations());
    let request = ScheduleRequest {
        workers: schedule.lists.len() as u32,
        cluster: schedule.cluster,
        mode: schedule.mode,
        splits: schedule.slabs > 0,
        cost: &cost,
    };
    let breakdown = time(graph, &request, schedule);
    let edges = Edges::of_candidate(candidate);
    let fill_us = cost.fill_us;
    let (rows, cols) = schedule.cluster;
    let mut spans = Vec::new();
    let mut parts = Vec::new();
    for (worker, list) in schedule.lists.iter().enumerate() {
        for &index in list {
            let (item, time) = (&schedule.sequence[index as usize], &breakdown.items[index as usize]);
            let load_us = fill_us.min(time.fixed_us);
            let lengths = Lengths {
                wait_us: time.wait_us.max(0.0),
                load_us,
                math_us: time.math_us,
                epilogue_us: time.fixed_us - load_us + time.split_us,
            };
            let (phases, _) = lengths.from(time.begin_us, None);
            for rank in 0..rows * cols {
                spans.push(TraceSpan {
                    stage: item.stage.0,
                    tile: (item.m * rows + rank % rows, item.n * cols + rank / rows),
                    k: (item.k_begin, item.k_end),
                    part: part_name(item.part),
                    sm: worker as u32 * rows * cols + rank,
                    begin_us: time.begin_us,
                    phases: phases.clone(),
                });
                parts.push((item.part, lengths));
            }
        }
    }
    let posts = edges.posts(&spans, |index| parts[index].0.finishes());
    let mut causes = Causes::new(&edges, posts);
    for index in 0..spans.len() {
        let (span, lengths) = (&spans[index], parts[index].1);
        if lengths.wait_us <= 0.0 {
            continue;
        }
        // A k-block delays its span more the later it arrives and the more k-blocks follow it.
        let (begin, first) = (span.begin_us, span.k.0);
        let k_us = lengths.math_us / f64::from((span.k.1 - span.k.0).max(1));
        let done_us = |k: u32| f64::from(k - first) * k_us;
        let latest = causes.latest(span, |k, posted| (posted > begin).then_some(posted - done_us(k)));
        // Time that no edge explains is spent on partial sums, which are needed when the span's own sums are
        // ready.
        let before = match latest {
            Some(latest) if latest.k == first => None,
            Some(latest) => Some(done_us(latest.k)),
            None => Some(lengths.math_us),
        };
        let (mut phases, place) = lengths.from(begin, before);
        let from = match latest {
            Some(latest) => Some(latest.from),
            None => last_sums(&spans, index, phases[place].end_us),
        };
        (phases[place].edge, phases[place].from) = (latest.map(|l| l.edge), from);
        spans[index].phases = phases;
    }
    let tile = graph.kernel_tile();
    let kernel = format!("one chain kernel; {} x {} tiles, clusters of {rows} x {cols}", tile.0, tile.1);
    let sms = candidate.device.sms.max(schedule.lists.len() as u32 * rows * cols);
    let (name, length_us) = (executor_name(Executor::Fused).into(), schedule.predicted_us);
    Run { name, what: kernel, sms, length_us, spans, host: Vec::new() }
}

/// Durations of an item's phases, microseconds.
#[derive(Clone, Copy)]
struct Lengths {
    wait_us: f64,
    load_us: f64,
    math_us: f64,
    epilogue_us: f64,
}

impl Lengths {
    /// Phases of a span that begins at `begin_us`, and the index of the wait among them: the first, or the
    /// one after `before` microseconds of arithmetic. Phases of zero length are omitted, unless it is the
    /// only one.
    fn from(&self, begin_us: f64, before: Option<f64>) -> (Vec<Phase>, usize) {
        let Lengths { wait_us, load_us, math_us, epilogue_us } = *self;
        let (wait, end) = ((Kind::Wait, wait_us), (Kind::Epilogue, epilogue_us));
        let order = match before {
            None => [wait, (Kind::Load, load_us), (Kind::Math, math_us), (Kind::Math, 0.0), end],
            Some(part) => {
                [(Kind::Load, load_us), (Kind::Math, part), wait, (Kind::Math, math_us - part), end]
            }
        };
        let (mut now, mut place) = (begin_us, 0);
        let mut phases = Vec::with_capacity(order.len());
        for (kind, length) in order.into_iter().filter(|(_, length)| *length > 0.0) {
            now += length;
            if kind == Kind::Wait {
                place = phases.len();
            }
            phases.push(Phase::plain(kind, now));
        }
        if phases.is_empty() {
            phases.push(Phase::plain(Kind::Epilogue, now));
        }
        (phases, place)
    }
}

/// The other part of a span's tile that ended last before `end_us`.
fn last_sums(spans: &[TraceSpan], index: usize, end_us: f64) -> Option<usize> {
    let span = &spans[index];
    let others = spans.iter().enumerate().filter(|(other, s)| {
        let same = *other != index && s.stage == span.stage && s.tile == span.tile;
        same && s.part.is_some() && s.end_us() <= end_us
    });
    let last = others.max_by(|a, b| a.1.end_us().total_cmp(&b.1.end_us()));
    last.map(|(other, _)| other)
}

/// Description of a part's sums; `None` for a whole tile.
pub(super) fn part_name(part: Part) -> Option<String> {
    match part {
        Part::Whole => None,
        Part::Contribute { .. } => Some("contributes".into()),
        Part::Finish { slabs, .. } => Some(format!("finishes, with the sums of {slabs} others")),
        Part::Share { parts, part, .. } => Some(format!("part {} of {parts} that share it", part + 1)),
    }
}
