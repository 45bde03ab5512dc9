//! Effect of the L2 cache on main loops.

use serde::{Deserialize, Serialize};

/// How fast tiles are fed from the L2 cache. The default models no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct L2Cost {
    /// Combined feed rate of all SMs, TB/s; 0: unknown.
    pub tbs: f64,
    /// SMs for which simultaneous reads of the same lines count once: those of a GPC.
    pub together: u32,
    /// Activations of a group of rows of tiles up to this size are read from memory only once, MB.
    pub keeps_mb: f64,
    /// Relative increase of all reads for tiles drawn from a counter: they lose the lockstep in which neighbors read
    /// the same data at the same time.
    #[serde(default)]
    pub drawn: f64,
    /// Extra k-block time per tile row that lies past the end of its tensor and per CTA that reads the same
    /// activations beyond `uncrowded` of them, if almost nothing of the tile is left; picoseconds. With `lines` rows
    /// of the tile left, it is zero. It does not apply to kernels with copies that skip such rows.
    #[serde(default)]
    pub ragged_ps: f64,
    /// See `ragged_ps`.
    #[serde(default)]
    pub uncrowded: u32,
    /// See `ragged_ps`.
    #[serde(default)]
    pub lines: u32,
}

/// The blocks that a k-block loads for the tiles in flight.
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    /// Bytes of the block shared by a row of tiles, and of the one shared by a column of tiles.
    pub bytes: (f64, f64),
    /// Rows of tiles taken at a time, column by column.
    pub group: f64,
    /// Number of active workers, and SMs per worker.
    pub workers: (f64, f64),
}

impl L2Cost {
    /// Time of a k-block limited by the L2 cache alone, microseconds.
    pub fn fetch_us(&self, fetch: &Fetch) -> f64 {
        if self.tbs <= 0.0 {
            return 0.0;
        }
        let (busy, sms) = fetch.workers;
        let together = (f64::from(self.together) / sms).min(busy).max(1.0);
        let rows = fetch.group.clamp(1.0, together);
        let columns = (together / rows).max(1.0);
        let bytes = rows * fetch.bytes.0 + columns * fetch.bytes.1;
        busy / together * bytes / (self.tbs * 1e6)
    }

    /// Extra time of a k-block in the last row of tiles, averaged over all rows, microseconds. A matrix of `m` rows is
    /// cut into `rows` tiles of `height` rows; `readers` CTAs read each at the same time.
    pub fn ragged_us(&self, m: u32, rows: u32, height: u32, readers: u32) -> f64 {
        let missing = (rows * height).saturating_sub(m);
        let there = height.saturating_sub(missing);
        let crowd = f64::from(readers.saturating_sub(self.uncrowded));
        let few = 1.0 - f64::from(there.min(self.lines)) / f64::from(self.lines.max(1));
        f64::from(missing) * few * crowd * self.ragged_ps * 1e-6 / f64::from(rows.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L2: L2Cost = L2Cost {
        tbs: 8.0,
        together: 16,
        keeps_mb: 25.0,
        drawn: 0.2,
        ragged_ps: 50.0,
        uncrowded: 40,
        lines: 100,
    };

    #[test]
    fn a_gpc_fetches_what_its_tiles_share_once() {
        let fetch = |group| Fetch { bytes: (8192.0, 32768.0), group, workers: (128.0, 1.0) };
        // Eight GPCs, each with one row of 16 columns, four rows of four, or 16 rows of one.
        let us = |rows: f64, columns: f64| 8.0 * (rows * 8192.0 + columns * 32768.0) / 8e6;
        for (group, expected) in [(1.0, us(1.0, 16.0)), (4.0, us(4.0, 4.0)), (64.0, us(16.0, 1.0))] {
            assert!((L2.fetch_us(&fetch(group)) - expected).abs() < 1e-12, "{group}");
        }
        assert_eq!(L2Cost::default().fetch_us(&fetch(1.0)), 0.0);
    }

    #[test]
    fn rows_that_do_not_exist_cost_where_many_read_the_others() {
        assert_eq!(L2.ragged_us(1, 1, 64, 40), 0.0);
        assert!((L2.ragged_us(1, 1, 64, 90) - 63.0 * 0.99 * 50.0 * 50e-6).abs() < 1e-12);
        assert!((L2.ragged_us(129, 3, 64, 90) - 21.0 * 0.99 * 50.0 * 50e-6).abs() < 1e-12);
        assert_eq!(L2.ragged_us(128, 1, 256, 132), 0.0, "lines enough for all");
        assert_eq!(L2.ragged_us(128, 1, 128, 132), 0.0);
        assert_eq!(L2Cost::default().ragged_us(1, 1, 64, 132), 0.0);
    }
}
