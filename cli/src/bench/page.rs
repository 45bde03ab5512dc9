//! Answers of `cusync bench` as text and JSON.

use cusync_bench::copilot::CopilotReport;
use cusync_bench::dag::{DagReport, tables};
use cusync_bench::{self, Ceilings, Digest, Record, size_text};
use cusync_gen::choose::against::Measured;

use super::super::print::{Answer, Page, json};
use super::BenchReport;

impl Answer for BenchReport {
    fn good(&self) -> bool {
        match self {
            BenchReport::Layers(r) => r.wrong.is_empty() && r.fault.is_none(),
            BenchReport::Dag(r) => r.wrong.is_empty(),
            BenchReport::Copilot(r) => r.exact.iter().all(|e| e.wrong == 0),
            BenchReport::Sync(_) | BenchReport::Times(_) => true,
        }
    }

    fn json(&self) -> serde_json::Result<String> {
        match self {
            BenchReport::Layers(r) => json(&r.records),
            BenchReport::Dag(r) => json(r),
            BenchReport::Copilot(r) => json(r),
            BenchReport::Sync(r) => json(r),
            BenchReport::Times(r) => json(&r.records.iter().map(time).collect::<Vec<_>>()),
        }
    }

    fn page(&self, page: &mut Page) {
        match self {
            BenchReport::Layers(r) => {
                ceilings(page, &r.device, &r.ceilings);
                let (header, rows) = cusync_bench::rows(&r.records);
                page.wide_table(&header, rows);
                // A sample of configurations has no peers to compare with.
                let judged = |r: &Record| r.baseline_us.is_some() || r.variant.starts_with("decode");
                if r.records.iter().any(judged) {
                    page.line("");
                    page.line(Digest::from_records(&r.records).markdown());
                }
                r.tuned.iter().for_each(|s| page.line(s));
                r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
                r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
                r.fault.iter().for_each(|s| page.line(format!("ended early: {s}")));
            }
            BenchReport::Dag(r) => dag(page, r),
            BenchReport::Copilot(r) => copilot(page, r),
            BenchReport::Sync(r) => page.line(format!(
                "wait {:.0} ns, post {:.0} ns, hand-off {:.0} ns (mean of {})",
                r.wait_ns, r.post_ns, r.hand_off_ns, r.count
            )),
            BenchReport::Times(r) => {
                page.line(&r.device);
                page.table(
                    ["pipeline", "size", "regime", "variant", "median us"],
                    r.records.iter().map(time).map(|t| {
                        let us = format!("{:.1}", t.median_us);
                        [t.pipeline.clone(), size_text(t.dims), t.regime.clone(), t.variant.clone(), us]
                    }),
                );
                page.line("the record keeps no more than `cusync simulate --against` compares with");
            }
        }
    }
}

/// One time of such a record.
#[derive(serde::Serialize)]
struct Time<'a> {
    pipeline: &'a String,
    dims: &'a Vec<(String, u64)>,
    variant: &'a String,
    regime: &'a String,
    median_us: f64,
}

fn time(m: &Measured) -> Time<'_> {
    let Measured { pipeline, dims, variant, regime, median_us, .. } = m;
    Time { pipeline, dims, variant, regime, median_us: *median_us }
}

fn ceilings(page: &mut Page, device: &str, c: &Ceilings) {
    page.line(format!(
        "{device}: {:.0} TFLOP/s rested, {:.0} sustained; reads {:.2} TB/s",
        c.rested.matrix_tflops, c.sustained.matrix_tflops, c.rested.read_tbs
    ));
}

fn dag(page: &mut Page, r: &DagReport) {
    page.line(&r.device);
    for table in tables(r) {
        page.line("");
        page.line(table.title);
        page.wide_table(&table.header, table.rows);
        table.notes.iter().for_each(|note| page.line(note));
    }
    if let Some(e) = &r.exact {
        page.line("");
        page.line(format!(
            "{} random programs ({} kernels) with injected delays, {} runs: {} not bit-exact with the host",
            e.programs,
            e.kernels,
            e.runs,
            e.wrong.len()
        ));
    }
    r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
}

fn copilot(page: &mut Page, r: &CopilotReport) {
    page.line(&r.device);
    for e in &r.exact {
        let (jobs, wrong, launches) = (e.jobs, e.wrong, e.launches);
        page.line(format!(
            "{}: {jobs} jobs, {wrong} not bit-equal to fused, {launches} launches",
            e.pipeline
        ));
    }
    for case in r.handed.chunk_by(|a, b| a.case == b.case) {
        page.line(format!("{}: {} items", case[0].case, case[0].items));
        let one = |h: &cusync_bench::copilot::HandedOut| {
            let us = [h.times.p50_us, h.times.p10_us, h.times.p99_us, h.span_us].map(|us| format!("{us:.1}"));
            let [p50, p10, p99, span] = us;
            let [gap, gap_p90, _] = h.gap_ns.map(|ns| format!("{ns:.0}"));
            [h.way.clone(), p50, p10, p99, span, gap, gap_p90, format!("{:.1}", h.waits_us)]
        };
        page.table(
            [
                "items by",
                "p50 us",
                "p10",
                "p99",
                "first begin to last end",
                "gap ns",
                "gap p90",
                "waits inside us",
            ],
            case.iter().map(one),
        );
        for [launched, word, item] in case.iter().filter_map(|h| h.begins_us) {
            page.line(format!(
                "with a launch, from the decision: it is queued after {launched:.1} us, the first word is written after {word:.1}, \
                 the first item begins after {item:.1}"
            ));
        }
    }
    if let Some(host) = &r.host {
        let (ledger, look) = (host.ledger_ns, host.look_ns);
        page.line(format!("the ledger takes {ledger:.0} ns an item, a look at all workers {look:.0} ns"));
    }
    if !r.kinds.is_empty() {
        let rates =
            |rates: &[f64]| rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
        page.table(
            ["short jobs", "p50 us", "p10", "p99", "max", "jobs", "long jobs a second", "without short ones"],
            r.kinds.iter().map(|k| {
                let us = [k.short.p50_us, k.short.p10_us, k.short.p99_us, k.short.max_us];
                let [p50, p10, p99, max] = us.map(|us| format!("{us:.1}"));
                let jobs = k.short.jobs.to_string();
                [k.way.clone(), p50, p10, p99, max, jobs, rates(&k.long_rates), rates(&k.alone_rates)]
            }),
        );
    }
    let us = |us: f64| format!("{us:.1}");
    let times =
        |t: &cusync_bench::copilot::JobTimes| [us(t.p50_us), us(t.p10_us), us(t.p99_us), us(t.max_us)];
    for l in &r.latency {
        page.line(format!("{} M={}: the kernel in a graph {:.1} us", l.pipeline, l.m, l.kernel_us));
        page.table(
            ["decision to end", "p50 us", "p10", "p99", "max", "less the kernel", "p99 less it"],
            l.ways.iter().map(|(name, t)| {
                let [p50, p10, p99, max] = times(t);
                [name.clone(), p50, p10, p99, max, us(t.p50_us - l.kernel_us), us(t.p99_us - l.kernel_us)]
            }),
        );
    }
    if !r.rows.is_empty() {
        page.line("llama65_mlp, M of 1 to 64 drawn anew for each job");
        page.table(
            ["way", "p50 us", "p10", "p99", "max", "set-up ms", "MiB"],
            r.rows.iter().map(|w| {
                let [p50, p10, p99, max] = times(&w.times);
                [w.way.clone(), p50, p10, p99, max, us(w.setup_ms), us(w.bytes as f64 / f64::from(1 << 20))]
            }),
        );
    }
    for a in &r.ahead {
        let (ahead, job, replay) = (a.ahead, a.us, a.replay_us);
        page.line(format!(
            "{}: {ahead} jobs ahead {job:.1} us a job, replays back to back {replay:.1} us",
            a.pipeline
        ));
    }
    if let Some(s) = &r.stopped {
        page.line(format!(
            "host stopped: GPU idle within {:.0} us, memory allocated and freed elsewhere within {:.0}; kernel stopped: {}",
            s.idle_after_us, s.memory_us, s.unfinished
        ));
    }
}
