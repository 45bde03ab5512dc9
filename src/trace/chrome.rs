//! Traces in the form that Perfetto and chrome://tracing read.

use cusync_gen::schedule::Part;
use serde_json::{Value, json};

use super::TraceReport;
use crate::runtime::ItemTrace;

/// An object with one event a kind of time and item: a process a run, a thread an SM. Times from the run's first item, in
/// microseconds.
pub fn events(report: &TraceReport) -> Value {
    let mut events = Vec::new();
    for (process, run) in report.runs.iter().enumerate() {
        let start = run.items.iter().flatten().map(|t| t.begin).min().unwrap_or(0);
        events.push(json!({
            "ph": "M", "name": "process_name", "pid": process, "args": { "name": run.name }
        }));
        for (names, items) in run.names.iter().zip(&run.items) {
            for t in items {
                let stage = names.get(t.item.stage.0).map_or("?", String::as_str);
                events.extend(item(process, stage, t, start));
            }
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

fn item(process: usize, stage: &str, t: &ItemTrace, start: u64) -> Vec<Value> {
    let part = match t.item.part {
        Part::Whole => "whole".to_owned(),
        other => format!("{other:?}"),
    };
    let kinds =
        [("wait", t.ready.min(t.loaded)), ("load", t.loaded), ("math", t.math_end), ("epilogue", t.end)];
    let mut now = t.begin;
    let mut events = Vec::new();
    for (kind, until) in kinds {
        if until > now {
            events.push(json!({
                "ph": "X", "pid": process, "tid": t.sm, "cat": kind,
                "name": format!("{kind} {stage}"),
                "ts": (now - start) as f64 * 1e-3, "dur": (until - now) as f64 * 1e-3,
                "args": {
                    "tile": [t.item.m, t.item.n], "k": [t.item.k_begin, t.item.k_end], "part": part,
                    "worker": t.worker, "cta": t.cta
                }
            }));
            now = until;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::super::{Shares, Traced};
    use super::*;
    use cusync_gen::graph::StageId;
    use cusync_gen::schedule::Item;

    #[test]
    fn events_follow_each_other_on_their_sm() {
        let item = Item { stage: StageId(0), m: 1, n: 2, k_begin: 0, k_end: 8, part: Part::Whole };
        let times = ItemTrace {
            worker: 5,
            cta: 0,
            sm: 7,
            item,
            begin: 10_000,
            ready: 9_000,
            loaded: 11_000,
            math_end: 15_000,
            end: 16_000,
        };
        let run = Traced {
            name: "fused",
            shares: Shares::default(),
            stages: Vec::new(),
            names: vec![vec!["up".into()]],
            items: vec![vec![times]],
        };
        let report = TraceReport {
            pipeline: "p".into(),
            dims: Vec::new(),
            device: "d".into(),
            kernel: "k".into(),
            runs: vec![run],
        };
        let value = events(&report);
        let list = value["traceEvents"].as_array().expect("a list");
        let spans: Vec<_> = list[1..].iter().map(|e| (&e["name"], &e["ts"], &e["dur"])).collect();
        let want = [
            (json!("load up"), json!(0.0), json!(1.0)),
            (json!("math up"), json!(1.0), json!(4.0)),
            (json!("epilogue up"), json!(5.0), json!(1.0)),
        ];
        assert_eq!(spans, want.iter().map(|(n, t, d)| (n, t, d)).collect::<Vec<_>>(), "it never waited");
        assert!(list[1..].iter().all(|e| e["tid"] == 7 && e["args"]["worker"] == 5));
    }
}
