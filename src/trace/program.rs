//! The predicted timeline of a scheduled program.

use cusync_dag::{KernelSchedule, PlanEdge, Program};

use super::timeline::{Edge, Kind, Phase, Run, TimeSource, Timeline, TraceSpan};

/// The chosen plan of a program: a row for each stream, a span for each node. A node waits for the node on another
/// stream that ends last, if that ends after the stream's own last node.
pub fn scheduled(program: &Program, schedule: &KernelSchedule, device: &str) -> Timeline {
    let name = |node: usize| program.nodes()[node].name.as_str();
    let streams = schedule.streams(schedule.form);
    let plan = schedule.plan(program, schedule.form);
    let (start, end) = (&schedule.timeline.start, &schedule.timeline.end);
    let mut edges = plan.edges();
    // A join ends with the last of its nodes.
    for join in plan.joins() {
        if let Some(&before) = join.before.iter().max_by(|&&a, &&b| end[a].total_cmp(&end[b])) {
            edges.extend(join.after.iter().map(|&after| PlanEdge { before, after, kind: "full" }));
        }
    }
    let mut latest: Vec<Option<usize>> = vec![None; streams.len()];
    for (index, edge) in edges.iter().enumerate() {
        let last = &mut latest[edge.after];
        if last.is_none_or(|other| end[edges[other].before] < end[edge.before]) {
            *last = Some(index);
        }
    }
    let mut order: Vec<usize> = (0..streams.len()).collect();
    order.sort_by(|&a, &b| start[a].total_cmp(&start[b]).then(end[a].total_cmp(&end[b])));
    let rows = streams.iter().max().map_or(1, |last| last + 1);
    let mut free = vec![0.0; rows as usize];
    let mut spans: Vec<TraceSpan> =
        (0..streams.len()).map(|node| span(node, streams[node], start[node])).collect();
    for node in order {
        let (span, free) = (&mut spans[node], &mut free[streams[node] as usize]);
        if let Some(edge) = latest[node]
            && streams[edges[edge].before] != streams[node]
            && end[edges[edge].before] > *free
        {
            let from = Some(edges[edge].before);
            span.begin_us = *free;
            span.phases.push(Phase { kind: Kind::Wait, end_us: start[node], edge: Some(edge), from });
        }
        span.phases.push(Phase::plain(Kind::Math, end[node]));
        *free = end[node];
    }
    let edge = |edge: &PlanEdge| Edge {
        name: format!("{} -> {}", name(edge.before), name(edge.after)),
        producer: edge.before,
        consumer: edge.after,
    };
    let run = Run {
        name: schedule.form.name().into(),
        what: format!("{} nodes", streams.len()),
        sms: rows,
        length_us: schedule.predicted_us(),
        spans,
        host: Vec::new(),
    };
    Timeline {
        pipeline: program.name().into(),
        dims: Vec::new(),
        device: device.into(),
        origin: TimeSource::Simulated,
        stages: program.nodes().iter().map(|node| node.name.clone()).collect(),
        edges: edges.iter().map(edge).collect(),
        rows: "stream",
        runs: vec![run],
    }
}

/// A span of a node without phases.
fn span(node: usize, stream: u32, begin_us: f64) -> TraceSpan {
    TraceSpan { stage: node, tile: (0, 0), k: (0, 0), part: None, sm: stream, begin_us, phases: Vec::new() }
}
