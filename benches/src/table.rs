//! Records as table rows: a time next to its baseline and its floor.

use super::record::{Record, size_text};

/// Header and rows with one line per record, ready for any table printer. Times in microseconds.
pub fn rows(records: &[Record]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "pipeline", "size", "regime", "variant", "tiles", "median", "p10", "p90", "MHz", "baseline",
        "speed-up", "floor", "of floor",
    ];
    let row = |r: &Record| {
        vec![
            r.pipeline.clone(),
            size_text(&r.dims),
            format!("{:?}", r.regime).to_lowercase(),
            r.variant.clone(),
            r.schedule.as_ref().map_or_else(|| r.tiles.join(" "), |s| format!("{} by {}", s.tile, s.cluster)),
            format!("{:.1}", r.time.median_us),
            format!("{:.1}", r.time.p10_us),
            format!("{:.1}", r.time.p90_us),
            r.clock_mhz.map_or_else(|| "-".into(), |mhz| format!("{mhz:.0}")),
            r.baseline_us.map_or_else(|| "-".into(), |us| format!("{} {us:.1}", r.baseline)),
            r.speedup.map_or_else(|| "-".into(), |s| format!("{s:.3}")),
            format!("{:.1}", r.floor_us),
            format!("{:.2}", r.time.median_us / r.floor_us),
        ]
    };
    (header, records.iter().map(row).collect())
}
