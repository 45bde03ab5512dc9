//! The only place that writes: answers to standard output, refusals to standard error.

use std::io::Write;
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use cusync::bench::{Ceilings, Digest, SweepReport};
use cusync::trace::TraceReport;
use serde::Serialize;

use super::fault::Fault;
use super::print_dag;
use super::report::{
    BenchReport, CheckReport, DecodeReport, DoctorReport, ExplainReport, ObligationReport, PredictionReport,
    Report, RunReport, ScheduleReport, SimulateReport, StageReport, TimeReport,
};
use super::request::Output;
use super::schedule::{FORMS, NODES, ProgramReport, tables};
use super::tune::TuneReport;

/// Text under construction.
pub(super) struct Page {
    text: String,
    color: bool,
}

impl Page {
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    pub(super) fn table<const N: usize>(
        &mut self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        let rows = rows.into_iter().map(Vec::from).collect();
        self.wide_table(&header, rows);
    }

    pub(super) fn wide_table(&mut self, header: &[&str], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.force_no_tty();
        table.set_header(header.to_vec());
        table.add_rows(rows);
        self.line(table.to_string());
    }

    pub(super) fn good(&self, good: bool, text: &str) -> String {
        let code = if good { 32 } else { 31 };
        if self.color { format!("\u{1b}[1;{code}m{text}\u{1b}[0m") } else { text.into() }
    }
}

/// Prints an answer; the exit status says whether it is a good one.
pub(crate) fn report(report: &Report, output: &Output) -> ExitCode {
    let good = match report {
        Report::Check(r) => r.verdict == "proved",
        Report::Run(r) => r.verified,
        Report::Bench(BenchReport::Mlp(r)) => r.wrong.is_empty() && r.fault.is_none(),
        Report::Bench(BenchReport::Dag(r)) => r.wrong.is_empty(),
        Report::Tune(r) => match r.as_ref() {
            TuneReport::Spec(r) => r.wrong.is_empty(),
            TuneReport::Show(_) | TuneReport::Merge(_) => true,
        },
        Report::Explain(_)
        | Report::Generate(_)
        | Report::Simulate(_)
        | Report::Against(_)
        | Report::Bench(_)
        | Report::Trace(_)
        | Report::Calibrate(_)
        | Report::Schedule(_)
        | Report::Doctor(_) => true,
    };
    let text = if output.json {
        match report {
            Report::Check(r) => json(r),
            Report::Explain(r) => json(r),
            Report::Generate(r) => json(r),
            Report::Simulate(r) => json(r),
            Report::Against(r) => json(r.as_ref()),
            Report::Run(r) => json(r.as_ref()),
            Report::Bench(BenchReport::Mlp(r)) => json(&r.records),
            Report::Bench(BenchReport::Sweep(r)) => json(&r.records),
            Report::Bench(BenchReport::Dag(r)) => json(r),
            Report::Bench(BenchReport::Sync(r)) => json(r),
            Report::Trace(r) => json(r.as_ref()),
            Report::Calibrate(r) => json(r.as_ref()),
            Report::Tune(r) => match r.as_ref() {
                TuneReport::Show(r) => json(r),
                TuneReport::Merge(r) => json(r),
                TuneReport::Spec(r) => json(r),
            },
            Report::Schedule(r) => json(r.as_ref()),
            Report::Doctor(r) => json(r),
        }
    } else {
        let mut page = Page { text: String::new(), color: output.color };
        match report {
            Report::Check(r) => check(&mut page, r),
            Report::Explain(r) => explain(&mut page, r),
            Report::Generate(r) => r.files.iter().for_each(|f| page.line(format!("wrote {f}"))),
            Report::Simulate(r) => simulate(&mut page, r),
            Report::Against(r) => super::print_against::against(&mut page, r),
            Report::Run(r) => run(&mut page, r),
            Report::Bench(r) => bench(&mut page, r),
            Report::Trace(r) => trace(&mut page, r),
            Report::Tune(r) => super::print_tune::tune(&mut page, r),
            Report::Calibrate(r) => super::print_calibrate::calibrate(&mut page, r),
            Report::Schedule(r) => schedule(&mut page, r),
            Report::Doctor(r) => doctor(&mut page, r),
        }
        page.text
    };
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Prints a refusal.
pub(crate) fn fault(fault: &Fault) -> ExitCode {
    let rendered = fault.message.starts_with("error");
    let mut text = if rendered { fault.message.clone() } else { format!("error: {}", fault.message) };
    if let Some(help) = &fault.help {
        text.push_str(&format!("\n  help: {help}"));
    }
    let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
    ExitCode::from(fault.status)
}

fn json(value: &impl Serialize) -> String {
    // Reports are strings, numbers and lists of them; nothing in them can fail to serialise.
    serde_json::to_string_pretty(value)
        .map_or_else(|e| format!("{{\"error\": \"{e}\"}}\n"), |text| text + "\n")
}

pub(super) fn title(name: &str, dims: &std::collections::BTreeMap<String, u32>) -> String {
    let dims: Vec<_> = dims.iter().map(|(n, v)| format!("{n} = {v}")).collect();
    format!("{name} ({})", dims.join(", "))
}

fn proved_line(obligations: &[ObligationReport]) -> String {
    let proved: Vec<_> = obligations.iter().filter(|o| o.verdict == "proved").map(|o| o.id).collect();
    format!("{} of {}: {}", proved.len(), obligations.len(), proved.join(", "))
}

fn check(page: &mut Page, r: &CheckReport) {
    let verdict = page.good(r.verdict == "proved", r.verdict);
    page.line(format!("{} for {} on {}: {verdict}", title(&r.pipeline, &r.dims), r.executor, r.device));
    page.table(
        ["obligation", "verdict"],
        r.obligations.iter().map(|o| [o.id.to_owned(), o.verdict.to_owned()]),
    );
    r.schedule.iter().for_each(|s| page.line(schedule_line(s)));
    r.decode.iter().for_each(|d| page.line(decode_line(d)));
    r.refutations.iter().for_each(|refutation| page.line(refutation));
}

fn decode_line(d: &DecodeReport) -> String {
    format!(
        "decode: {} workers, each an equal share of every stage's columns; {} tokens wide, {} slots of {} columns; {:.1} us \
         predicted",
        d.workers, d.width, d.slots, d.column_tile, d.predicted_us
    )
}

fn shares_line(t: &TimeReport) -> String {
    let total = t.math_us + t.fixed_us + t.wait_us + t.split_us + t.idle_us;
    let share = |us: f64| format!("{:.1} %", us / total * 100.0);
    format!(
        "of a worker's predicted time: {} multiplying, {} ring fills and epilogues, {} waiting, {} partial sums, {} idle",
        share(t.math_us),
        share(t.fixed_us),
        share(t.wait_us),
        share(t.split_us),
        share(t.idle_us)
    )
}

fn schedule_line(s: &ScheduleReport) -> String {
    let splits = match s.split_tiles {
        0 => "no tile split".into(),
        n => format!("{n} tiles split into {} parts ({} slabs)", s.parts, s.slabs),
    };
    format!(
        "schedule: {} workers of {} x {} CTAs, tile {} x {} x {}; {} items, {splits}; {} lists, the longest {}; {:.1} us predicted",
        s.workers,
        s.cluster[0],
        s.cluster[1],
        s.tile[0],
        s.tile[1],
        s.tile[2],
        s.items,
        s.mode,
        s.longest_list,
        s.predicted_us
    )
}

fn stage_row(s: &StageReport) -> [String; 6] {
    let [m, n, k] = s.shape;
    [
        s.name.clone(),
        format!("{m} x {n} x {k}"),
        format!("{} x {} x {}", s.tile[0], s.tile[1], s.tile[2]),
        format!("{} x {} = {}", s.grid[0], s.grid[1], s.tiles),
        format!("{:.2}", s.waves),
        s.order.clone(),
    ]
}

const STAGE_HEADER: [&str; 6] = ["stage", "M x N x K", "tile", "tiles", "waves", "order"];

fn prediction(p: &PredictionReport) -> String {
    format!(
        "{:.1} us serial, {:.1} us {} ({:.2}x)",
        p.serial_us,
        p.synchronised_us,
        p.executor,
        p.serial_us / p.synchronised_us
    )
}

fn explain(page: &mut Page, r: &ExplainReport) {
    page.line(format!("{} for {} on {}", title(&r.pipeline, &r.dims), r.executor, r.device));
    page.line(format!("start guarantee: {}", r.start));
    page.table(STAGE_HEADER, r.stages.iter().map(stage_row));
    page.table(
        ["dependence", "operand", "policy", "waits at", "slots"],
        r.edges.iter().map(|e| {
            [e.name.clone(), e.operand.clone(), e.policy.clone(), e.wait_at.clone(), e.slots.to_string()]
        }),
    );
    r.schedule.iter().for_each(|s| page.line(schedule_line(s)));
    r.schedule.iter().filter_map(|s| s.shares.as_ref()).for_each(|t| page.line(shares_line(t)));
    r.decode.iter().for_each(|d| page.line(decode_line(d)));
    for c in &r.choices {
        let stated = if c.stated { " (stated)" } else { "" };
        page.line(format!("{}: {}{stated}: {}", c.subject, c.decision, c.reason));
        for (other, us) in &c.alternatives {
            let more = r.predicted.as_ref().map(|p| (us / p.synchronised_us - 1.0) * 100.0);
            let more = more.map(|more| format!(" ({more:+.1} %)")).unwrap_or_default();
            page.line(format!("    {other}: {us:.1} us predicted{more}"));
        }
    }
    if let Some(p) = &r.predicted {
        page.line(format!("predicted on {}: {}", p.device, prediction(p)));
    }
}

fn simulate(page: &mut Page, r: &SimulateReport) {
    page.line(format!("{} on {}, chosen for {}", title(&r.pipeline, &r.dims), r.device, r.chosen_for));
    let span = |t: &super::report::PredictedTime| -> String {
        let of = |s: &super::report::PredictedStage| format!("{} {:.1}-{:.1}", s.name, s.begin_us, s.end_us);
        t.stages.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    page.table(
        ["executor", "predicted us", "speed-up", "stages, begin-end us"],
        r.times
            .iter()
            .map(|t| [t.executor.into(), format!("{:.1}", t.time_us), format!("{:.2}x", t.speedup), span(t)]),
    );
    page.line(format!("profile: {}", r.source));
}

fn run(page: &mut Page, r: &RunReport) {
    if let Some(note) = &r.note {
        page.line(note);
    }
    let tiles = |s: &StageReport| format!("{}: {} tiles of {} x {}", s.name, s.tiles, s.tile[0], s.tile[1]);
    let mut rows = vec![
        ["pipeline".to_owned(), format!("{}, {}", title(&r.pipeline, &r.dims), r.element)],
        ["stages".to_owned(), r.stages.iter().map(tiles).collect::<Vec<_>>().join("\n")],
        ["proved".to_owned(), proved_line(&r.obligations)],
    ];
    let edge = |e: &super::report::EdgeReport| format!("{}: {}, waits at {}", e.name, e.policy, e.wait_at);
    if !r.edges.is_empty() {
        rows.push(["policies".to_owned(), r.edges.iter().map(edge).collect::<Vec<_>>().join("\n")]);
    }
    let time = match r.threads {
        Some(threads) => {
            let blocked = r.waits_blocked.unwrap_or(0);
            format!("{:.1} ms on {threads} threads, {blocked} waits had to spin", r.time_us / 1e3)
        }
        None => format!("{:.1} us on {} ({})", r.time_us, r.device, r.executor),
    };
    rows.push(["time".to_owned(), time]);
    rows.push(["plan".to_owned(), r.plan.clone()]);
    let verdict = page.good(r.verified, if r.verified { "right" } else { "WRONG" });
    let error = format!("{verdict}: max relative error {:.1e}, in norm {:.1e}", r.max_rel_err, r.rel_l2_err);
    rows.push(["result".to_owned(), error]);
    if let Some(p) = &r.predicted {
        rows.push([format!("{} (predicted)", p.device), prediction(p)]);
    }
    page.table(["", "cusync run"], rows);
    if !r.variants.is_empty() {
        page.table(
            ["executor", "median us", "p10", "p90", "speed-up", "max rel. error", "", "plan"],
            r.variants.iter().map(|v| {
                let verdict = if v.verified { "right" } else { "WRONG" };
                [
                    v.executor.clone(),
                    format!("{:.1}", v.time_us),
                    format!("{:.1}", v.p10_us),
                    format!("{:.1}", v.p90_us),
                    v.speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}x")),
                    format!("{:.1e}", v.max_rel_err),
                    verdict.into(),
                    v.plan.clone(),
                ]
            }),
        );
    }
    if !r.timeline.is_empty() {
        page.line("tiles at work over the run, by stage:");
        r.timeline.iter().for_each(|l| page.line(l));
    }
}

fn ceilings(page: &mut Page, device: &str, c: &Ceilings) {
    page.line(format!(
        "{device}: {:.0} TFLOP/s rested, {:.0} sustained; reads {:.2} TB/s",
        c.rested.matrix_tflops, c.sustained.matrix_tflops, c.rested.read_tbs
    ));
}

fn bench(page: &mut Page, r: &BenchReport) {
    match r {
        BenchReport::Mlp(r) => {
            ceilings(page, &r.device, &r.ceilings);
            let (header, rows) = cusync::bench::rows(&r.records);
            page.wide_table(&header, rows);
            // A sample of all ways has no peers to be judged against.
            if r.records.iter().any(|r| r.baseline_us.is_some()) {
                page.line("");
                page.line(Digest::of(&r.records).markdown());
            }
            r.tuned.iter().for_each(|s| page.line(s));
            r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
            r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
            r.fault.iter().for_each(|s| page.line(format!("ended early: {s}")));
        }
        BenchReport::Sweep(r) => {
            ceilings(page, &r.device, &r.ceilings);
            sweep(page, r);
            r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
        }
        BenchReport::Dag(r) => print_dag::dag(page, r),
        BenchReport::Sync(r) => page.line(format!(
            "wait {:.0} ns, post {:.0} ns, hand-off {:.0} ns (mean of {})",
            r.wait_ns, r.post_ns, r.hand_off_ns, r.count
        )),
    }
}

fn sweep(page: &mut Page, r: &SweepReport) {
    let header = [
        "pipeline",
        "M",
        "tile",
        "cluster",
        "mode",
        "cut",
        "predicted us",
        "median us",
        "p10",
        "p90",
        "without waits",
        "floor",
    ];
    page.table(
        header,
        r.records.iter().map(|r| {
            let s = &r.schedule;
            [
                r.pipeline.clone(),
                r.m.to_string(),
                s.tile.clone(),
                s.cluster.clone(),
                s.mode.clone(),
                if r.splits { s.cut.to_string() } else { "never".into() },
                format!("{:.1}", s.predicted_us),
                format!("{:.1}", r.time.median_us),
                format!("{:.1}", r.time.p10_us),
                format!("{:.1}", r.time.p90_us),
                format!("{:.1}", r.without_waits_us),
                format!("{:.1}", r.floor_us),
            ]
        }),
    );
}

fn trace(page: &mut Page, r: &TraceReport) {
    page.line(format!(
        "{} on {}, {}",
        title(&r.pipeline, &r.dims.iter().cloned().collect()),
        r.device,
        r.kernel
    ));
    page.line("microseconds of an average SM, from the first item's beginning to the last one's end:");
    let us = |us: f64| format!("{us:.1}");
    let mut rows = Vec::new();
    for run in &r.runs {
        let s = &run.shares;
        let all = [s.math_us, s.epilogue_us, s.load_us, s.wait_us, s.idle_us, s.span_us].map(us);
        let [math, epilogue, load, wait, idle, span] = all;
        rows.push([run.name.to_owned(), "all".into(), math, epilogue, load, wait, idle, span]);
        for (stage, s) in &run.stages {
            let [math, epilogue, load, wait] = [s.math_us, s.epilogue_us, s.load_us, s.wait_us].map(us);
            let (none, span) = ("".to_owned(), us(s.span_us));
            rows.push([none.clone(), stage.clone(), math, epilogue, load, wait, none, span]);
        }
    }
    page.table(["run", "stage", "math", "epilogue", "load", "wait", "idle", "span"], rows);
}

fn schedule(page: &mut Page, r: &ProgramReport) {
    let tables = tables(r);
    page.line(tables.title);
    page.table(NODES, tables.nodes);
    page.table(FORMS, tables.forms);
    tables.notes.iter().for_each(|note| page.line(note));
}

fn doctor(page: &mut Page, r: &DoctorReport) {
    let rows: Vec<_> = r
        .findings
        .iter()
        .map(|f| {
            let mark = page.good(f.ok, if f.ok { "ok" } else { "missing" });
            [f.what.to_owned(), mark, f.detail.clone(), f.fix.clone().unwrap_or_default()]
        })
        .collect();
    page.table(["", "", "found", "to mend it"], rows);
}
