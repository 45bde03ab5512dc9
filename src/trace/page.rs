//! Timelines as one self-contained HTML page.

use serde_json::{Value, json};

use super::timeline::{HostRow, Kind, Run, Timeline};

const TEMPLATE: &str = include_str!("page.html");

/// Placeholder of the data.
const PLACE: &str = "/*DATA*/null";

/// A page with the runs of a timeline one below the other on a common scale. It loads no other files.
pub fn page(timeline: &Timeline) -> String {
    // Inside a script element, only `</` could end the data.
    let data = data(timeline).to_string().replace("</", "<\\/");
    TEMPLATE.replacen(PLACE, &data, 1)
}

/// The timeline in columns, times in whole nanoseconds: a page holds some ten thousand tiles.
pub(super) fn data(timeline: &Timeline) -> Value {
    let dims = timeline.dims.iter().map(|(n, v)| json!([n, v])).collect::<Vec<_>>();
    let edges = timeline.edges.iter().map(|e| json!([e.name, e.producer, e.consumer])).collect::<Vec<_>>();
    let runs = timeline.runs.iter().map(|run| of_run(timeline, run)).collect::<Vec<_>>();
    json!({
        "pipeline": timeline.pipeline, "dims": dims, "device": timeline.device, "origin": timeline.origin,
        "rows": timeline.rows, "stages": timeline.stages, "edges": edges, "kinds": Kind::ALL.map(Kind::name), "runs": runs
    })
}

fn ns(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

fn of_run(timeline: &Timeline, run: &Run) -> Value {
    let index = |i: Option<usize>| i.map_or(-1, |i| i as i64);
    let kind = |k: Kind| Kind::ALL.iter().position(|other| *other == k).unwrap_or(0);
    let column = |value: &dyn Fn(&super::timeline::TraceSpan) -> Value| {
        run.spans.iter().map(value).collect::<Vec<_>>()
    };
    let phases = || run.spans.iter().flat_map(|s| &s.phases);
    json!({
        "name": run.name, "what": run.what, "sms": run.sms,
        "shares": run.shares(None), "waits_us": run.waits_us(timeline.edges.len()),
        "spans": {
            "stage": column(&|s| s.stage.into()), "sm": column(&|s| s.sm.into()),
            "m": column(&|s| s.tile.0.into()), "n": column(&|s| s.tile.1.into()),
            "k0": column(&|s| s.k.0.into()), "k1": column(&|s| s.k.1.into()),
            "part": column(&|s| s.part.as_deref().unwrap_or("").into()),
            "begin": column(&|s| ns(s.begin_us).into()), "phases": column(&|s| s.phases.len().into()),
        },
        "phases": {
            "kind": phases().map(|p| kind(p.kind)).collect::<Vec<_>>(),
            "end": phases().map(|p| ns(p.end_us)).collect::<Vec<_>>(),
            "edge": phases().map(|p| index(p.edge)).collect::<Vec<_>>(),
            "from": phases().map(|p| index(p.from)).collect::<Vec<_>>(),
        },
        "host": run.host.iter().map(|event| {
            let row = HostRow::ALL.iter().position(|row| *row == event.row);
            json!([row, event.what, ns(event.begin_us), ns(event.end_us), index(event.span)])
        }).collect::<Vec<_>>(),
        "host_rows": HostRow::ALL.map(HostRow::name),
    })
}
