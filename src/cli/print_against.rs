//! The text of `cusync simulate --against`.

use cusync_gen::simulate::comparison::{Point, Row};

use super::against::{AgainstReport, GoalReport, KindReport};
use super::print::Page;

pub(super) fn against(page: &mut Page, r: &AgainstReport) {
    page.line(format!("{} of {}, predicted with the profile {}", r.record, r.measured_on, r.device));
    page.table(
        ["pipeline", "M", "regime", "way", "measured us", "predicted us", "error %"],
        r.rows.iter().map(row),
    );
    page.table(
        [
            "pipeline",
            "M",
            "regime",
            "ways",
            "error %",
            "rank correlation",
            "choice loses %",
            "choice",
            "fastest",
        ],
        r.points.iter().map(point),
    );
    page.table(["kind", "entries", "mean error %", "mean magnitude %"], r.kinds.iter().map(kind));
    for g in &r.goals {
        let line = goal(page, g);
        page.line(line);
    }
    let worst = r.points.iter().map(|p| p.regret).fold(0.0, f64::max);
    let within = r.points.iter().filter(|p| p.regret <= 0.03).count();
    page.line(format!(
        "the worst choice loses {}; {within} of {} choices lose at most 3 %",
        percent(worst),
        r.points.len()
    ));
    page.line(format!(
        "not compared: {} entries that do not say how they were run, {} of chain kernels with other work lists than today's",
        r.unknown, r.other_schedules
    ));
}

fn size(dims: &[(String, u64)]) -> String {
    dims.iter().find(|(name, _)| name == "M").map_or_else(String::new, |(_, m)| m.to_string())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn row(r: &Row) -> [String; 7] {
    [
        r.pipeline.clone(),
        size(&r.dims),
        r.regime.clone(),
        r.variant.clone(),
        format!("{:.1}", r.measured_us),
        format!("{:.1}", r.predicted_us),
        format!("{:+.1}", r.error() * 100.0),
    ]
}

fn point(p: &Point) -> [String; 9] {
    [
        p.pipeline.clone(),
        size(&p.dims),
        p.regime.clone(),
        p.ways.to_string(),
        format!("{:.1}", p.mean_error * 100.0),
        p.rank_correlation.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
        format!("{:.1}", p.regret * 100.0),
        p.chosen.clone(),
        p.fastest.clone(),
    ]
}

fn kind(k: &KindReport) -> [String; 4] {
    [
        k.kind.clone(),
        k.entries.to_string(),
        format!("{:+.1}", k.mean_error * 100.0),
        format!("{:.1}", k.mean_magnitude * 100.0),
    ]
}

fn goal(page: &Page, g: &GoalReport) -> String {
    let show = |value: f64| if g.goal.at_least { format!("{value:.2}") } else { percent(value) };
    let bound = if g.goal.at_least { "at least" } else { "at most" };
    let have = g.goal.have.map_or_else(|| "nothing to judge".into(), show);
    let verdict = page.good(g.met, if g.met { "met" } else { "missed" });
    format!("{}: {have}, goal {bound} {}: {verdict}", g.goal.name, show(g.goal.bound))
}
