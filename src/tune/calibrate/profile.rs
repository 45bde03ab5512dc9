//! Makes a device profile of measurements.

use cusync_gen::device::{Profile, TileRate};

use super::Calibration;

/// A profile, and what in it was not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The profile that was made.
    pub profile: Profile,
    /// Fields that are the base's, as a RON file names them.
    pub kept: Vec<&'static str>,
}

/// Fields that no measurement tells.
const NEVER: [&str; 7] =
    ["load_latency_us", "wait_us", "l2", "fused.l2", "fused.unhidden", "fused.min_part", "fused.max_parts"];

impl Calibration {
    /// The profile of the GPU that was measured; what was not is taken from `base`, as are the name and the architecture.
    /// Rates are TFLOP/s and TB/s, times microseconds, each rounded to four digits.
    pub fn profile(&self, base: &Profile) -> Calibrated {
        let mut profile = base.clone();
        let mut kept = NEVER.to_vec();
        let mut set = |field: &'static str, to: &mut f64, value: Option<f64>| match value {
            Some(value) if value.is_finite() && value >= 0.0 => *to = rounded(value),
            _ => kept.push(field),
        };
        let best = self.kernels.iter().filter(|k| k.tflops.is_some());
        let best = best.max_by(|a, b| a.tflops.unwrap_or(0.0).total_cmp(&b.tflops.unwrap_or(0.0)));
        let times = best.and_then(|k| k.times);
        set("tflops", &mut profile.tflops, best.and_then(|k| k.tflops));
        // One SM alone is never slower than one among others.
        let share = best.and_then(|k| k.tflops).map_or(0.0, |t| t / f64::from(base.sms));
        set("sm_tflops", &mut profile.sm_tflops, self.alone_tflops.map(|t| t.max(share)));
        let read_tbs = self.ceilings.rested.read_tbs;
        set("read_tbs", &mut profile.read_tbs, Some(read_tbs));
        set("boundary_us", &mut profile.boundary_us, Some(self.boundary_us));
        let handoff_us = self.semaphores.hand_off_ns * 1e-3;
        set("handoff_us", &mut profile.handoff_us, Some(handoff_us));
        let launch_us = times.map(|t| (t.start_us - self.boundary_us).max(0.0));
        set("launch_us", &mut profile.launch_us, launch_us);
        set("tile_us", &mut profile.tile_us, times.map(|t| t.tile_us));

        let (chain, cost) = (&self.chain, &mut profile.fused);
        let area = f64::from(chain.tile.0) * f64::from(chain.tile.1) / (128.0 * 256.0);
        let of_area = |us: Option<f64>| us.map(|us| us / area);
        let reference =
            self.chains.iter().find(|c| (c.tile.0, c.tile.1) == chain.tile && c.cluster == (1, 1));
        let sm_tflops = reference.and_then(|c| c.sm_tflops);
        let fill_us = reference.and_then(|c| c.times.fill_us);
        set("fused.sm_tflops", &mut cost.sm_tflops, sm_tflops);
        set("fused.alone_tflops", &mut cost.alone_tflops, self.alone_tflops);
        cost.read_tbs = 0.0;
        set("fused.launch_us", &mut cost.launch_us, chain.launch_us);
        set("fused.fill_us", &mut cost.fill_us, fill_us);
        set("fused.gelu_us", &mut cost.gelu_us, of_area(chain.gelu_us));
        set("fused.gate_us", &mut cost.gate_us, of_area(chain.gate_us));
        // A tile is stored and posted, the post is seen, the consumer's ring fills.
        let post_us = chain.passed_on_us.zip(fill_us).map(|(all, fill)| (all - handoff_us - fill).max(0.0));
        set("fused.post_us", &mut cost.post_us, post_us);
        set("fused.handoff_us", &mut cost.handoff_us, Some(handoff_us));
        set("fused.slab_write_us", &mut cost.slab_write_us, of_area(chain.slab_write_us));
        set("fused.slab_read_us", &mut cost.slab_read_us, of_area(chain.slab_read_us));
        let mut measured = 0;
        for c in &self.chains {
            let (Some(rate), Some(best), Some(epilogue)) = (c.sm_tflops, sm_tflops, c.times.epilogue_us)
            else {
                continue;
            };
            let (tile, rate) = ((c.tile.0, c.tile.1), rounded(rate / best));
            let epilogue_us = rounded(epilogue);
            let new = TileRate {
                tile,
                cluster: c.cluster,
                rate,
                epilogue_us,
                gate_us: 0.0,
                first_us: 0.0,
                slabs: 1.0,
            };
            match cost.rates.iter_mut().find(|r| r.tile == tile && r.cluster == c.cluster) {
                Some(old) => {
                    *old = TileRate { gate_us: old.gate_us, first_us: old.first_us, slabs: old.slabs, ..new }
                }
                None => cost.rates.push(new),
            }
            measured += 1;
        }
        if measured < cost.rates.len() {
            kept.push("fused.rates of kernels that were not measured");
        }
        kept.push("fused.other");
        let (day, driver) = (self.measured.get(..10).unwrap_or(&self.measured), &self.driver);
        profile.source =
            format!("measured on one {} with CUDA {driver} on {day} by `cusync calibrate`", self.gpu);
        profile.measured = true;
        Calibrated { profile, kept }
    }
}

/// Rounds to four digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::super::{ChainCosts, ChainTimes, ItemTimes, KernelTimes, Sample, WaveTimes};
    use super::*;
    use crate::measure::{Ceiling, Ceilings, SemaphoreCost};

    fn calibration() -> Calibration {
        let rate = Ceiling { matrix_tflops: 800.0, read_tbs: 4.25 };
        let kernel = |tile, tflops, start_us| KernelTimes {
            tile,
            samples: vec![Sample { waves: 1, k_blocks: 32, us: 30.0 }],
            times: Some(WaveTimes { start_us, tile_us: 1.3, k_block_us: 0.7 }),
            tflops: Some(tflops),
        };
        let chain = |tile, cluster, tflops, epilogue| ChainTimes {
            tile,
            cluster,
            times: ItemTimes { epilogue_us: Some(epilogue), fill_us: Some(0.9), ..ItemTimes::default() },
            sm_tflops: Some(tflops),
        };
        Calibration {
            gpu: "NVIDIA H200".into(),
            driver: "13.0".into(),
            measured: "2026-11-21T12:00:00Z".into(),
            ceilings: Ceilings { rested: rate, sustained: rate },
            semaphores: SemaphoreCost { wait_ns: 600.0, post_ns: 20.0, hand_off_ns: 650.0, count: 9 },
            boundary_us: 1.5,
            alone_tflops: Some(7.1234567),
            kernels: vec![kernel((64, 128, 64), 500.0, 9.0), kernel((128, 256, 64), 700.0, 4.0)],
            chains: vec![chain((128, 256, 64), (1, 1), 6.0, 3.5), chain((64, 256, 64), (1, 1), 5.4, 2.0)],
            chain: ChainCosts {
                tile: (128, 256),
                gelu_us: Some(3.3),
                passed_on_us: Some(3.0),
                slab_write_us: Some(3.1),
                ..ChainCosts::default()
            },
            skipped: Vec::new(),
        }
    }

    #[test]
    fn what_was_measured_is_in_the_profile_and_the_rest_is_named() {
        let base = Profile::named("h200").expect("the profile ships");
        let Calibrated { profile, kept } = calibration().profile(base);
        assert_eq!((profile.tflops, profile.sm_tflops, profile.read_tbs), (700.0, 7.123, 4.25));
        assert_eq!((profile.boundary_us, profile.launch_us, profile.tile_us), (1.5, 2.5, 1.3));
        let cost = &profile.fused;
        assert_eq!((cost.sm_tflops, cost.handoff_us, cost.fill_us), (6.0, 0.65, 0.9));
        assert_eq!((cost.post_us, cost.gelu_us, cost.slab_write_us), (1.45, 3.3, 3.1));
        let small = cost.rates.iter().find(|r| r.tile == (64, 256)).expect("it was measured");
        assert_eq!((small.rate, small.epilogue_us), (0.9, 2.0));
        for field in ["fused.gate_us", "fused.launch_us", "fused.slab_read_us", "wait_us"] {
            assert!(kept.contains(&field), "{field}: {kept:?}");
        }
        assert!(!kept.contains(&"fused.gelu_us") && !kept.contains(&"tflops"), "{kept:?}");
        assert_eq!((cost.gate_us, cost.launch_us), (base.fused.gate_us, base.fused.launch_us));
        assert!(
            profile.measured
                && profile.source.contains("NVIDIA H200")
                && profile.source.contains("2026-11-21")
        );
        assert_eq!(Profile::from_ron(&profile.to_ron()).expect("it is a profile"), profile);
    }

    #[test]
    fn without_measurements_the_base_stays() {
        let base = Profile::named("a100").expect("the profile ships");
        let mut nothing = calibration();
        (nothing.kernels, nothing.chains, nothing.alone_tflops) = (Vec::new(), Vec::new(), None);
        nothing.chain = ChainCosts::default();
        let Calibrated { profile, kept } = nothing.profile(base);
        assert_eq!((profile.tflops, profile.tile_us, profile.arch), (base.tflops, base.tile_us, 80));
        assert_eq!(profile.fused.rates, base.fused.rates);
        assert!(kept.contains(&"tflops") && kept.contains(&"fused.post_us"), "{kept:?}");
    }
}
