//! The text of `cusync tune`.

use cusync::tune::{Entry, wish_name};

use super::print::{Page, title};
use super::tune::{CandidateReport, MergeReport, ShowReport, SpecReport, TuneReport};

/// Unmeasured configurations that are listed.
const LISTED: usize = 12;

pub(super) fn tune(page: &mut Page, r: &TuneReport) {
    match r {
        TuneReport::Show(r) => show(page, r),
        TuneReport::Merge(r) => merge(page, r),
        TuneReport::Spec(r) => spec(page, r),
    }
}

fn show(page: &mut Page, r: &ShowReport) {
    page.line(format!("{}: {} tuned plans", r.cache, r.entries.len()));
    if r.entries.is_empty() {
        return;
    }
    let row = |e: &Entry| {
        [
            title(&e.pipeline, &e.key.dims),
            e.key.element.clone(),
            format!("{}, CUDA {}", e.key.machine.gpu, e.key.machine.driver),
            wish_name(e.key.executor).into(),
            format!("{:?}", e.key.edges).to_lowercase(),
            e.best.config.to_string(),
            format!("{:.1}", e.best.time.median_us),
            format!("{:.1}", e.best.predicted_us),
            format!("{}, {} candidates", e.day(), e.candidates()),
        ]
    };
    page.table(
        ["pipeline", "type", "GPU", "executor", "edges", "fastest", "median us", "predicted us", "measured"],
        r.entries.iter().map(row),
    );
}

fn merge(page: &mut Page, r: &MergeReport) {
    for (file, held, taken) in &r.files {
        page.line(format!("{file}: {taken} of {held} entries taken"));
    }
    page.line(format!("{}: {} tuned plans", r.cache, r.entries));
}

fn spec(page: &mut Page, r: &SpecReport) {
    let title = title(&r.pipeline, &r.dims);
    page.line(format!("{title}, {}, {} executor, on {}", r.element, r.executor, r.device));
    r.note.iter().for_each(|note| page.line(note));
    let us = |us: Option<f64>| us.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
    let measured = r.candidates.iter().filter(|c| c.median_us.is_some()).count();
    let row = |c: &CandidateReport| {
        [c.name.clone(), format!("{:.1}", c.predicted_us), us(c.median_us), us(c.p10_us), us(c.p90_us)]
    };
    let listed = measured + LISTED;
    page.table(
        ["configuration", "predicted us", "median us", "p10", "p90"],
        r.candidates.iter().take(listed).map(row),
    );
    if let Some(more @ 1..) = r.candidates.len().checked_sub(listed) {
        page.line(format!("{more} more, predicted to be slower (--json lists them)"));
    }
    page.line(format!("plan: {}", r.plan));
    page.line(format!("    {}", r.chosen.name));
    if let (Some(first), Some(regret)) = (&r.first_choice, r.regret) {
        let slower = format!("{:.1} % slower than the fastest", regret * 100.0);
        page.line(format!("without measurements: {}, {slower}", first.name));
    }
    r.cache.iter().for_each(|cache| page.line(format!("kept in {cache}")));
    r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
}
