//! A run as a few lines of text.

use std::time::Duration;

use cusync::runtime::cpu::TileSpan;

/// Width of a timeline in characters.
const WIDTH: usize = 60;

/// One line per stage: the fraction of workers on it over time, from blank (none) to full (all).
pub(crate) fn stages(tiles: &[TileSpan], names: &[&str], threads: usize, time: Duration) -> Vec<String> {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    let step = time.as_secs_f64() / WIDTH as f64;
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    // Rounded up, so that any activity is visible.
    let shade = |busy: f64| match (busy / threads.max(1) as f64 * 4.0).ceil() as usize {
        _ if busy < 1e-3 => ' ',
        level => SHADES[level.min(4)],
    };
    let line = |(stage, name): (usize, &&str)| {
        let mut busy = [0.0_f64; WIDTH];
        for tile in tiles.iter().filter(|t| t.stage == stage) {
            let (begin, end) = (tile.begin.as_secs_f64() / step, tile.end.as_secs_f64() / step);
            for (column, busy) in busy.iter_mut().enumerate() {
                *busy += (end.min(column as f64 + 1.0) - begin.max(column as f64)).max(0.0);
            }
        }
        let bar: String = busy.iter().map(|&b| shade(b - 1e-9)).collect();
        format!("{name:longest$} |{bar}|")
    };
    names.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_drawn_where_it_ran() {
        let ms = Duration::from_millis;
        let span = |stage, begin, end| TileSpan { worker: 0, stage, begin: ms(begin), end: ms(end) };
        let lines = stages(&[span(0, 0, 30), span(1, 30, 60)], &["up", "down"], 1, ms(60));
        assert_eq!(lines[0], format!("up   |{}{}|", "█".repeat(30), " ".repeat(30)));
        assert_eq!(lines[1], format!("down |{}{}|", " ".repeat(30), "█".repeat(30)));
    }
}
