//! Timelines of sessions: when the host submitted work and saw its end, next to the activity of the workers.

use std::collections::HashMap;

use cusync_gen::check::Plan;

use super::timeline::{HostEvent, HostRow, Run};
use crate::runtime::ItemTrace;
use crate::runtime::copilot::{Sent, SessionNotes};

/// Joins words with the worker's record of the item that each was sent for. Only the last run of each item is
/// recorded.
pub fn joined<'a>(
    plan: &Plan,
    notes: &'a SessionNotes,
    items: &'a [ItemTrace],
) -> Vec<(&'a Sent, &'a ItemTrace)> {
    let sequence = plan.launch().work().map_or(&[][..], |work| &work.sequence);
    let mut last: HashMap<(u32, u32), &Sent> = HashMap::new();
    for sent in &notes.sent {
        last.insert((sent.worker, sent.item), sent);
    }
    let place: HashMap<_, _> =
        sequence.iter().enumerate().map(|(at, item)| ((item.stage.0, item.m, item.n), at as u32)).collect();
    let with_word = |trace: &'a ItemTrace| {
        let item = place.get(&(trace.item.stage.0, trace.item.m, trace.item.n))?;
        Some((*last.get(&(trace.worker, *item))?, trace))
    };
    items.iter().filter_map(with_word).collect()
}

/// Offset from a worker's clock to the host's in nanoseconds, and its uncertainty: work begins after the host
/// requested it, and ends before the host saw it end. Each pair holds a request and its start, or an end and
/// its observation.
pub fn shift(
    asked: impl Iterator<Item = (i64, i64)>,
    seen: impl Iterator<Item = (i64, i64)>,
) -> Option<(i64, i64)> {
    let least = asked.map(|(host, begin)| host - begin).max()?;
    let most = seen.map(|(end, host)| host - end).min()?;
    // Clocks that drift by more than the latency of words can leave an empty interval.
    Some(((least + most).div_euclid(2), (most - least).abs() / 2 + 1))
}

/// A run of a session: `run` has the recorded spans of its workers, and receives the host events. Time zero
/// becomes the first host event. A session of jobs has no words for single items; spans are known only for
/// its last job.
pub(super) fn beside_host(mut run: Run, plan: &Plan, notes: &SessionNotes, items: &[ItemTrace]) -> Run {
    let ns = |time: &std::time::Duration| time.as_nanos() as i64;
    let pairs = joined(plan, notes, items);
    let first = items.iter().map(|t| t.begin).min().unwrap_or(0) as i64;
    let last = items.iter().map(|t| t.end).max().unwrap_or(0) as i64;
    let found = match notes.jobs.last() {
        Some(job) if pairs.is_empty() => {
            shift([(ns(&job.at), first)].into_iter(), [(last, ns(&job.seen))].into_iter())
        }
        _ => shift(
            pairs.iter().map(|(sent, trace)| (ns(&sent.at), trace.begin as i64)),
            pairs.iter().map(|(sent, trace)| (trace.end as i64, ns(&sent.seen))),
        ),
    };
    let Some((shift, error)) = found else { return run };
    // Jobs before the last have no recorded spans to show next to them.
    let jobs: Vec<_> = match pairs.is_empty() {
        true => notes.jobs.iter().rev().take(1).collect(),
        false => notes.jobs.iter().collect(),
    };
    let from = jobs.iter().map(|job| ns(&job.at)).chain(pairs.iter().map(|(sent, _)| ns(&sent.at))).min();
    let from = from.unwrap_or(first + shift).min(first + shift);
    let us = |host: i64| (host - from) as f64 * 1e-3;
    let later = us(first + shift);
    for span in &mut run.spans {
        span.begin_us += later;
        span.phases.iter_mut().for_each(|phase| phase.end_us += later);
    }
    run.length_us += later;
    let graph = plan.graph();
    for job in jobs {
        let rows = job.rows.map_or_else(String::new, |rows| format!(", {rows} rows"));
        let which = if pairs.is_empty() { "set" } else { "kind" };
        run.host.push(HostEvent {
            row: HostRow::Job,
            what: format!("job {} of {which} {}{rows}", job.number, job.what),
            begin_us: us(ns(&job.at)),
            end_us: us(ns(&job.seen)),
            span: None,
        });
    }
    for (begin, end) in notes.launches.iter().filter(|(begin, _)| ns(begin) >= from) {
        let (begin_us, end_us) = (us(ns(begin)), us(ns(end)));
        run.host.push(HostEvent {
            row: HostRow::Launch,
            what: "launch".into(),
            begin_us,
            end_us,
            span: None,
        });
    }
    let place: HashMap<_, _> =
        run.spans.iter().enumerate().map(|(at, span)| ((span.stage, span.tile), at)).collect();
    for (sent, trace) in &pairs {
        let item = trace.item;
        run.host.push(HostEvent {
            row: HostRow::Word,
            what: format!(
                "{} ({}, {}) to worker {}",
                graph.stages[item.stage.0].name, item.m, item.n, sent.worker
            ),
            begin_us: us(ns(&sent.at)),
            end_us: us(ns(&sent.seen)),
            span: place.get(&(item.stage.0, (item.m, item.n))).copied(),
        });
    }
    run.host.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us));
    run.length_us = run.host.iter().map(|event| event.end_us).fold(run.length_us, f64::max);
    run.what = format!("{}; host and workers on one clock to {:.1} us", run.what, error as f64 * 1e-3);
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_meet_where_nothing_is_before_its_cause() {
        // The workers' clocks are 1000 behind.
        let asked = [(1100, 130), (1200, 205)];
        let seen = [(180, 1190), (300, 1340)];
        let (shift, error) = shift(asked.into_iter(), seen.into_iter()).expect("pairs");
        assert!((995..=1010).contains(&shift) && error <= 8, "{shift} {error}");
        assert!(asked.iter().all(|(host, begin)| host - error <= begin + shift));
        assert!(seen.iter().all(|(end, host)| end + shift <= host + error));
        assert_eq!(super::shift([].into_iter(), seen.into_iter()), None);
    }
}
