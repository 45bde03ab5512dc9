//! A predicted run as text, for terminals.

use super::PredictedRun;

/// Rows of the sketch; each represents an equal share of the SMs.
const ROWS: u32 = 6;

/// One line per group of SMs and one column per slice of time; `1`, `2`, ... is the stage that most of the group runs
/// then, `~` is waiting, `.` is idle. All lines have `width` columns; `scale_us` is the time that they span, so that
/// sketches of equal width and scale can be compared.
pub fn sketch(timeline: &PredictedRun, width: usize, scale_us: f64) -> Vec<String> {
    let rows = ROWS.min(timeline.slots).max(1);
    let stages = timeline.stages.len();
    let column_us = scale_us / width.max(1) as f64;
    // Busy time by row, column and stage; waiting is an additional kind.
    let kinds = stages + 1;
    let mut busy = vec![0.0f64; rows as usize * width * kinds];
    let mut add = |row: usize, from: f64, to: f64, kind: usize| {
        let (first, last) = ((from / column_us) as usize, (to / column_us).ceil() as usize);
        for column in first..last.min(width) {
            let (a, b) = (column as f64 * column_us, (column + 1) as f64 * column_us);
            busy[(row * width + column) * kinds + kind] += (to.min(b) - from.max(a)).max(0.0);
        }
    };
    for run in &timeline.tiles {
        let row = (u64::from(run.sm) * u64::from(rows) / u64::from(timeline.slots)) as usize;
        add(row, run.start, (run.start + run.wait).min(run.end), stages);
        add(row, (run.start + run.wait).min(run.end), run.end, run.stage.0);
    }
    let share = column_us * f64::from(timeline.slots) / f64::from(rows);
    (0..rows as usize)
        .map(|row| {
            (0..width)
                .map(|column| {
                    let cell = &busy[(row * width + column) * kinds..][..kinds];
                    let used: f64 = cell.iter().sum();
                    let most =
                        cell.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
                    match most {
                        _ if used < share / 2.0 => '.',
                        m if m == stages => '~',
                        m => char::from_digit(m as u32 % 9 + 1, 10).unwrap_or('#'),
                    }
                })
                .collect()
        })
        .collect()
}
