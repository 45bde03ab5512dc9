//! Timelines in the trace event format of Perfetto and chrome://tracing.

use serde_json::{Value, json};

use super::timeline::{HostRow, Kind, Run, Timeline, TraceSpan};

/// An object with one process per run and one thread per SM. A slice is a tile, the slices inside it are its
/// phases, and an arrow (a flow) leads from the slice whose post ended a wait to the end of that wait. A
/// session's host has one thread each for its jobs, launches and words, and an arrow leads from a word to the
/// tile that it was sent for. Times are in microseconds, rounded to nanoseconds, from the start of each run.
pub fn events(timeline: &Timeline) -> Value {
    let mut events = Vec::new();
    let mut flows = 0;
    for (index, run) in timeline.runs.iter().enumerate() {
        let pid = process(index);
        let name = format!("{} ({}): {}", run.name, timeline.device, run.what);
        events.push(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }));
        events.push(
            json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": { "sort_index": index } }),
        );
        let mut sms: Vec<u32> = run.spans.iter().map(|s| s.sm).collect();
        sms.sort_unstable();
        sms.dedup();
        for sm in sms {
            let (tid, name) = (thread(sm), format!("SM {sm}"));
            events.push(
                json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
            );
            events.push(json!({
                "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": { "sort_index": sm }
            }));
        }
        for span in &run.spans {
            slices(&mut events, timeline, span, pid);
            arrows(&mut events, run, span, pid, &mut flows);
        }
        host(&mut events, run, pid, &mut flows);
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": { "pipeline": timeline.pipeline, "origin": timeline.origin },
        "traceEvents": events,
    })
}

/// Viewers treat the thread with its process's number as the main thread and show it first, so no SM may use
/// that number.
fn process(run: usize) -> usize {
    (run + 1) * 100_000
}

/// First host thread: after all SMs.
const HOST: usize = 90_000;
/// Drawn width of a word.
const WORD_NS: i64 = 50;

/// Thread 0 is special in some viewers.
fn thread(sm: u32) -> u32 {
    sm + 1
}

fn ns(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// A span and its phases. Phases shorter than a nanosecond are not shown.
fn slices(events: &mut Vec<Value>, timeline: &Timeline, span: &TraceSpan, pid: usize) {
    let stage = timeline.stages.get(span.stage).map_or("?", String::as_str);
    let mut slice = |name: String, category: &str, begin: f64, end: f64, args: Value| {
        let (begin, end) = (ns(begin), ns(end));
        if end > begin {
            events.push(json!({
                "ph": "X", "pid": pid, "tid": thread(span.sm), "cat": category, "name": name,
                "ts": us(begin), "dur": us(end - begin), "args": args
            }));
        }
    };
    let part = span.part.as_deref().unwrap_or("whole");
    let args = json!({ "stage": stage, "tile": [span.tile.0, span.tile.1], "k": [span.k.0, span.k.1], "part": part });
    let name = format!("{stage} ({}, {})", span.tile.0, span.tile.1);
    slice(name, "tile", span.begin_us, span.end_us(), args);
    for (begin, phase) in span.steps() {
        let (name, args) = match (phase.kind, phase.edge.and_then(|e| timeline.edges.get(e))) {
            (Kind::Wait, Some(edge)) => (format!("wait {}", edge.name), json!({ "edge": edge.name })),
            (Kind::Wait, None) => ("wait for partial sums".to_owned(), json!({})),
            (kind, _) => (kind.name().to_owned(), json!({})),
        };
        slice(name, phase.kind.name(), begin, phase.end_us, args);
    }
}

/// Host threads, after those of the SMs. Overlapping events of a row get additional threads.
fn host(events: &mut Vec<Value>, run: &Run, pid: usize, flows: &mut u64) {
    for (place, row) in HostRow::ALL.into_iter().enumerate() {
        let mut busy: Vec<i64> = Vec::new();
        for event in run.host.iter().filter(|event| event.row == row) {
            let begin = ns(event.begin_us);
            // A word is written at once; the time at which it is taken is the end of the arrow.
            let end = if row == HostRow::Word { begin + WORD_NS } else { ns(event.end_us).max(begin + 1) };
            let free = busy.iter().position(|until| *until <= begin);
            let lane = free.unwrap_or(busy.len());
            let tid = HOST + 100 * place + lane;
            match free {
                Some(lane) => busy[lane] = end,
                None => {
                    busy.push(end);
                    let name = format!("host: {}", row.name());
                    events.push(json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }));
                    events.push(json!({
                        "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": { "sort_index": tid }
                    }));
                }
            }
            let span = event.span.and_then(|span| run.spans.get(span));
            let lies = span.map(|span| us((ns(span.begin_us) - begin).max(0)));
            events.push(json!({
                "ph": "X", "pid": pid, "tid": tid, "cat": row.name(), "name": event.what, "ts": us(begin), "dur": us(end - begin),
                "args": { "end seen": us(ns(event.end_us)), "in the mailbox, us": lies }
            }));
            let Some(span) = span else { continue };
            *flows += 1;
            let flow = |kind: &str, tid: usize, at: i64| {
                let ts = us(at);
                json!({ "ph": kind, "pid": pid, "tid": tid, "ts": ts, "id": *flows, "cat": "mail", "name": "word to tile" })
            };
            events.push(flow("s", tid, begin));
            // Clocks agree to within a microsecond.
            let mut to = flow("f", thread(span.sm) as usize, ns(span.begin_us).max(begin));
            to["bp"] = "e".into();
            events.push(to);
        }
    }
}

/// Arrows from the posts that ended a span's waits. Viewers require the ends of an arrow to be inside their
/// slices. An arrow that would lead back in time, which clock differences can cause, is omitted.
fn arrows(events: &mut Vec<Value>, run: &Run, span: &TraceSpan, pid: usize, flows: &mut u64) {
    for (begin, phase) in span.steps() {
        let Some(from) = phase.from.and_then(|f| run.spans.get(f)) else { continue };
        let to = ns(phase.end_us) - 1;
        let at = (ns(from.end_us()) - 1).min(to);
        if to < ns(begin) || at < ns(from.begin_us) {
            continue;
        }
        *flows += 1;
        let flow = |kind: &str, sm: u32, at: i64| {
            let (tid, ts) = (thread(sm), us(at));
            json!({ "ph": kind, "pid": pid, "tid": tid, "ts": ts, "id": *flows, "cat": "post", "name": "post to wait" })
        };
        events.push(flow("s", from.sm, at));
        let mut end = flow("f", span.sm, to);
        end["bp"] = "e".into();
        events.push(end);
    }
}
