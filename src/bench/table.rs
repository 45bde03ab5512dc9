//! Records as table rows: a time beside its baseline and its floor.

use super::mlp::Record;

/// Header and rows of one line a record, ready for any table printer. Times in microseconds.
pub fn rows(records: &[Record]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "pipeline", "M", "regime", "variant", "tiles", "median", "p10", "p90", "baseline", "speed-up",
        "floor", "of floor",
    ];
    let row = |r: &Record| {
        vec![
            r.pipeline.clone(),
            r.dims.iter().find(|(n, _)| n == "M").map_or_else(String::new, |(_, m)| m.to_string()),
            format!("{:?}", r.regime).to_lowercase(),
            r.variant.clone(),
            r.tiles.join(" "),
            format!("{:.1}", r.time.median_us),
            format!("{:.1}", r.time.p10_us),
            format!("{:.1}", r.time.p90_us),
            format!("{} {:.1}", r.baseline, r.baseline_us),
            format!("{:.3}", r.speedup),
            format!("{:.1}", r.floor_us),
            format!("{:.2}", r.time.median_us / r.floor_us),
        ]
    };
    (header, records.iter().map(row).collect())
}
