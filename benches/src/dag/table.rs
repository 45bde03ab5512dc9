//! The report as readable tables.

use cusync_dag::Form;

use super::report::{DagPoint, DagReport};
use crate::Regime;

/// A table with a title.
#[derive(Clone, Debug)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Column names.
    pub header: Vec<&'static str>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Conclusions from the table.
    pub notes: Vec<String>,
}

/// Tables of a report; parts that were not measured have none.
pub fn tables(report: &DagReport) -> Vec<Table> {
    let mut all = Vec::new();
    for regime in [Regime::Rested, Regime::Sustained] {
        if report.points.iter().any(|p| p.records.iter().any(|r| r.regime == regime)) {
            all.push(programs(report, regime));
        }
    }
    if !report.points.is_empty() {
        all.push(variants(report));
    }
    if !report.chains.is_empty() {
        all.push(chains(report));
    }
    if !report.tasks.is_empty() {
        all.push(tasks(report));
        all.push(gates(report));
    }
    all
}

fn us(value: f64) -> String {
    format!("{value:.2}")
}

/// The name of a form; an old record's may have only an id.
fn name(form: &str) -> &str {
    match Form::named(form) {
        Some(found) => found.name(),
        None => form,
    }
}

fn class(point: &DagPoint) -> String {
    let class = point.class.map(|c| format!(" {c:?}").to_lowercase());
    format!("{}{}", point.name, class.unwrap_or_default())
}

fn programs(report: &DagReport, regime: Regime) -> Table {
    let mut rows = Vec::new();
    let mut speedups: Vec<f64> = Vec::new();
    let mut kesco_met = Vec::new();
    let mut worst: [(f64, String); 2] = [(f64::INFINITY, String::new()), (f64::INFINITY, String::new())];
    for point in &report.points {
        let find = |name: &str| {
            let found = point.records.iter().find(|r| r.regime == regime && r.variant == name);
            found.map_or_else(|| "-".into(), |r| us(r.time.median_us))
        };
        let mut row = vec![
            class(point),
            point.kernels.to_string(),
            format!("{} ({})", point.edges, point.reduced_edges),
            format!("{}, {}", point.streams, point.waits),
            find("serial launches"),
            find("serial graph"),
            find("streams by hand"),
            find("branch graph by hand"),
            find("captured streams"),
        ];
        for (form, worst) in [&point.model, &point.tuned].into_iter().zip(&mut worst) {
            let Some(hardest) = point.hardest(form, regime) else {
                row.extend(["-".into(), "-".into()]);
                continue;
            };
            if hardest.ratio < worst.0 {
                *worst = (hardest.ratio, class(point));
            }
            let ratio = format!("{:.3} [{:.3}, {:.3}]", hardest.ratio, hardest.low, hardest.high);
            row.extend([format!("{} ({})", us(hardest.ours_us), name(form)), ratio]);
        }
        let speedup = point.speedup(&point.tuned, regime);
        row.push(speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}")));
        row.push(point.kesco.map_or_else(|| "-".into(), |s| format!("{s:.2}")));
        let serial =
            point.records.iter().find(|r| r.regime == regime && r.form.as_deref() == Some(Form::SERIAL.id()));
        row.push(us(point.bound_us()));
        let ceiling = serial.map(|r| r.time.median_us / point.bound_us());
        row.push(ceiling.map_or_else(|| "-".into(), |c| format!("{c:.2}")));
        if let (Some(speedup), Some(kesco)) = (speedup, point.kesco) {
            speedups.push(speedup);
            if speedup < kesco {
                kesco_met.push(format!("{} ({speedup:.2} < {kesco:.2})", class(point)));
            }
        }
        rows.push(row);
    }
    let mean = speedups.iter().sum::<f64>() / speedups.len().max(1) as f64;
    let [model, tuned] = worst;
    Table {
        title: format!(
            "{regime:?}: median us of one run; best peer over ours in turns, with the 95 % interval of the median; bound: the longest path, and for large sizes what a further copy adds to a full GPU"
        ),
        header: vec![
            "program",
            "kernels",
            "edges",
            "streams",
            "serial",
            "graph",
            "hand",
            "hand graph",
            "captured",
            "ours: model",
            "peer/ours",
            "ours: tuned",
            "peer/ours",
            "over serial",
            "KeSCo",
            "bound",
            "serial/bound",
        ],
        rows,
        notes: vec![
            format!("mean over serial launches, suite, tuned choice: {mean:.2}"),
            format!(
                "worst against the best peer: model {:.3} ({}), tuned {:.3} ({})",
                model.0, model.1, tuned.0, tuned.1
            ),
            format!(
                "below KeSCo's figure: {}",
                if kesco_met.is_empty() { "none".into() } else { kesco_met.join(", ") }
            ),
        ],
    }
}

/// Median and spread of every variant, and the host's time for a launch.
fn variants(report: &DagReport) -> Table {
    let mut rows = Vec::new();
    for point in &report.points {
        for record in &point.records {
            rows.push(vec![
                class(point),
                format!("{:?}", record.regime).to_lowercase(),
                record.variant.clone(),
                us(record.time.median_us),
                us(record.time.p10_us),
                us(record.time.p90_us),
                format!("{:.2}", record.speedup),
                us(record.host_us),
                us(record.host_us / point.kernels as f64),
            ]);
        }
    }
    Table {
        title: "Every variant: us of one run; host us of a run's launch".into(),
        header: vec![
            "program",
            "regime",
            "variant",
            "median",
            "p10",
            "p90",
            "over serial",
            "host",
            "host/kernel",
        ],
        rows,
        notes: Vec::new(),
    }
}

fn chains(report: &DagReport) -> Table {
    let row = |r: &super::ChainRecord| {
        vec![
            chain(r),
            format!("{}{}", r.variant, if r.chosen { " (the model's)" } else { "" }),
            us(r.time.median_us),
            us(r.body_us),
            format!("{:.3}", r.idle_us),
            format!("{:.3}", r.overhead_us),
            format!("{} / {}", us(r.bounds_us[0]), us(r.bounds_us[1])),
        ]
    };
    Table {
        title: "Chains: idle us from one kernel to the next".into(),
        header: vec![
            "chain",
            "variant",
            "total",
            "body",
            "idle",
            "total/kernel - body",
            "arithmetic by kernels / by tiles",
        ],
        rows: report.chains.iter().map(row).collect(),
        notes: chain_notes(report),
    }
}

fn chain(r: &super::ChainRecord) -> String {
    let uneven = if r.uneven_us > 0.0 { format!(" to {}", r.target_us + r.uneven_us) } else { String::new() };
    let neighbours = if r.neighbours { ", neighbours" } else { "" };
    format!("{} x {}{uneven} us, {} CTAs{neighbours}", r.kernels, r.target_us, r.ctas)
}

/// Our best variant of each chain against the best previously available one.
fn chain_notes(report: &DagReport) -> Vec<String> {
    let mut notes = Vec::new();
    for group in report.chains.chunk_by(|a, b| chain(a) == chain(b)) {
        let least = |ours: bool| {
            let records = group.iter().filter(move |r| r.ours == ours);
            records.min_by(|a, b| a.time.median_us.total_cmp(&b.time.median_us))
        };
        if let (Some(ours), Some(peer)) = (least(true), least(false)) {
            notes.push(format!(
                "{}: best of ours {} us ({}), best peer {} us ({}): {:.3}",
                chain(ours),
                us(ours.time.median_us),
                ours.variant,
                us(peer.time.median_us),
                peer.variant,
                peer.time.median_us / ours.time.median_us
            ));
        }
    }
    notes
}

fn tasks(report: &DagReport) -> Table {
    let row = |r: &super::TaskRecord| {
        let each = r.tasks.iter().zip(&r.alone_best_us);
        let text = each.map(|((name, end), alone)| format!("{name} {end:.1} ({:.2})", end / alone));
        let by = match (r.chosen, r.tuned) {
            (true, true) => " (the model's and tuned)",
            (true, false) => " (the model's)",
            (false, true) => " (tuned)",
            (false, false) => "",
        };
        vec![
            r.mix.clone(),
            format!("{}{by}", r.variant),
            us(r.time.median_us),
            us(r.time.p10_us),
            us(r.time.p90_us),
            format!("{:.3}", r.highest),
            format!("{:.2}", r.share),
            text.collect::<Vec<_>>().join(", "),
        ]
    };
    let over = |r: &super::TaskRecord| {
        let total = |name: &str| {
            let found = report.tasks.iter().find(|o| o.mix == r.mix && o.variant == name);
            found.map_or(f64::NAN, |o| o.time.median_us / r.time.median_us)
        };
        format!(
            "{} tuned: {:.2} times as fast as uncoordinated streams, {:.2} as these captured; the highest task takes {:.3} \
             of its time alone, the others have at least {:.2} of a fair share",
            r.mix,
            total("uncoordinated streams"),
            total("uncoordinated, captured"),
            r.highest,
            r.share
        )
    };
    Table {
        title: "Tasks, highest priority first: us to each task's end (over the same alone in its fastest form); share: least \
                of the others, in fair shares"
            .into(),
        header: vec!["mix", "variant", "total", "p10", "p90", "highest/alone", "share", "tasks"],
        rows: report.tasks.iter().map(row).collect(),
        notes: report.tasks.iter().filter(|r| r.tuned).map(over).collect(),
    }
}

fn gates(report: &DagReport) -> Table {
    let row = |r: &super::GateRecord| {
        vec![
            r.mix.clone(),
            r.form.name().into(),
            r.gate.clone().unwrap_or_else(|| "-".into()),
            format!("{:.3}", r.highest),
            format!("{:.3}", r.predicted),
            format!("{:.2}", r.share),
            us(r.total_us),
        ]
    };
    Table {
        title: "Gates: the node after which tasks of lower priority begin".into(),
        header: vec!["mix", "form", "gate", "highest/alone", "predicted", "share", "total"],
        rows: report.gates.iter().map(row).collect(),
        notes: Vec::new(),
    }
}
