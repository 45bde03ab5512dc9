//! Creates a device profile from measurements.

use cusync_gen::device::{CostModel, Profile, TileRate, WindowCost, area};

use super::{Calibration, Chains};

/// A profile, and its fields that were not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The profile.
    pub profile: Profile,
    /// Fields taken from the base, as a RON file names them.
    pub kept: Vec<String>,
}

/// Fields that no measurement determines.
const NEVER: [&str; 24] = [
    "post_us",
    "load_latency_us",
    "wait_us",
    "rates",
    "look_us",
    "unhidden",
    "l2",
    "sustained",
    "decode",
    "library",
    "programs",
    "fused.other",
    "fused.l2",
    "fused.unhidden",
    "fused.residual_us",
    "fused.window_us",
    "fused.cut_gain",
    "fused.rows",
    "fused.alone",
    "fused.min_part",
    "fused.max_parts",
    "fused.rates.gate_us",
    "fused.rates.first_us",
    "fused.rates.slabs",
];

impl Chains {
    /// Costs of these kernels. Values that were not measured come from the base, and `kept` records them as
    /// fields of `section`. Rates of tiles are fractions of `best`, TFLOP/s.
    fn cost(
        &self,
        base: WindowCost,
        (handoff_us, best): (f64, Option<f64>),
        section: &str,
        kept: &mut Vec<String>,
    ) -> WindowCost {
        let of_area = |us: Option<f64>| us.map(|us| us / area(self.chain.tile));
        let fill_us = self.reference().and_then(|c| c.times.fill_us);
        // The tile is stored and posted, the post is seen, the consumer's ring fills.
        let post_us =
            self.chain.passed_on_us.zip(fill_us).map(|(all, fill)| (all - handoff_us - fill).max(0.0));
        let mut or = |field: &str, measured, base| {
            usable(measured).unwrap_or_else(|| {
                kept.push(format!("{section}.{field}"));
                base
            })
        };
        let mut cost = WindowCost {
            launch_us: or("launch_us", self.chain.launch_us, base.launch_us),
            fill_us: or("fill_us", fill_us, base.fill_us),
            post_us: or("post_us", post_us, base.post_us),
            slab_write_us: or("slab_write_us", of_area(self.chain.slab_write_us), base.slab_write_us),
            slab_read_us: or("slab_read_us", of_area(self.chain.slab_read_us), base.slab_read_us),
            ..base
        };
        let mut measured = 0;
        for c in &self.chains {
            let (Some(rate), Some(best), Some(epilogue)) = (c.sm_tflops, best, c.times.epilogue_us) else {
                continue;
            };
            let (tile, cluster) = ((c.tile.0, c.tile.1), c.cluster);
            let (rate, epilogue_us) = (rounded(rate / best), rounded(epilogue));
            match cost.rates.iter_mut().find(|r| r.tile == tile && r.cluster == cluster) {
                Some(old) => (old.rate, old.epilogue_us) = (rate, epilogue_us),
                None => cost.rates.push(TileRate {
                    tile,
                    cluster,
                    rate,
                    epilogue_us,
                    gate_us: 0.0,
                    first_us: 0.0,
                    slabs: 1.0,
                }),
            }
            measured += 1;
        }
        if measured < cost.rates.len() {
            kept.push(format!("{section}.rates of kernels that were not measured"));
        }
        cost
    }
}

/// A measured value rounded to four digits, if it is valid in a profile.
fn usable(measured: Option<f64>) -> Option<f64> {
    measured.filter(|value| value.is_finite() && *value >= 0.0).map(rounded)
}

impl Calibration {
    /// Profile of the measured GPU; values that were not measured come from `base`, as do the name and the
    /// architecture. Rates are in TFLOP/s and TB/s, times in microseconds, each rounded to four digits.
    pub fn profile(&self, base: &Profile) -> Calibrated {
        let mut profile = base.clone();
        let mut kept: Vec<String> = NEVER.map(Into::into).to_vec();
        let mut set = |field: &str, to: &mut f64, value: Option<f64>| match usable(value) {
            Some(value) => *to = value,
            None => kept.push(field.into()),
        };
        let best = self.kernels.iter().filter(|k| k.tflops.is_some());
        let best = best.max_by(|a, b| a.tflops.unwrap_or(0.0).total_cmp(&b.tflops.unwrap_or(0.0)));
        let times = best.and_then(|k| k.times);
        set("tflops", &mut profile.tflops, best.and_then(|k| k.tflops));
        // A single SM is never slower than one among others.
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

        let (chain, cost) = (&self.products.chain, &mut profile.fused);
        let of_area = |us: Option<f64>| us.map(|us| us / area(chain.tile));
        let sm_tflops = self.products.reference().and_then(|c| c.sm_tflops);
        set("fused.sm_tflops", &mut cost.sm_tflops, sm_tflops);
        set("fused.alone_tflops", &mut cost.alone_tflops, self.alone_tflops);
        cost.read_tbs = 0.0;
        set("fused.gelu_us", &mut cost.gelu_us, of_area(chain.gelu_us));
        set("fused.gate_us", &mut cost.gate_us, of_area(chain.gate_us));
        set("fused.handoff_us", &mut cost.handoff_us, Some(handoff_us));
        let window_cost = |cost: &CostModel| WindowCost {
            rates: cost.rates.clone(),
            launch_us: cost.launch_us,
            fill_us: cost.fill_us,
            post_us: cost.post_us,
            slab_write_us: cost.slab_write_us,
            slab_read_us: cost.slab_read_us,
            residual_us: cost.residual_us,
            window_us: cost.window_us,
            cut_gain: cost.cut_gain,
        };
        let rates = (handoff_us, sm_tflops);
        let WindowCost { rates: shares, launch_us, fill_us, post_us, slab_write_us, slab_read_us, .. } =
            self.products.cost(window_cost(cost), rates, "fused", &mut kept);
        (cost.rates, cost.launch_us, cost.fill_us, cost.post_us) = (shares, launch_us, fill_us, post_us);
        (cost.slab_write_us, cost.slab_read_us) = (slab_write_us, slab_read_us);
        if self.windows.chains.is_empty() {
            kept.push("fused.windows".into());
        } else {
            let base = cost.windows.take().unwrap_or_else(|| window_cost(cost));
            kept.extend(
                ["residual_us", "window_us", "cut_gain"].map(|field| format!("fused.windows.{field}")),
            );
            cost.windows = Some(self.windows.cost(base, rates, "fused.windows", &mut kept));
        }
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

    fn has(kept: &[String], field: &str) -> bool {
        kept.iter().any(|kept| kept == field)
    }

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
            products: Chains {
                chains: vec![chain((128, 256, 64), (1, 1), 6.0, 3.5), chain((64, 256, 64), (1, 1), 5.4, 2.0)],
                chain: ChainCosts {
                    tile: (128, 256),
                    gelu_us: Some(3.3),
                    passed_on_us: Some(3.0),
                    slab_write_us: Some(3.1),
                    ..ChainCosts::default()
                },
            },
            windows: Chains {
                chains: vec![chain((128, 64, 64), (1, 1), 4.5, 1.4)],
                chain: ChainCosts {
                    tile: (128, 64),
                    launch_us: Some(2.5),
                    passed_on_us: Some(2.6),
                    slab_read_us: Some(0.75),
                    ..ChainCosts::default()
                },
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
            assert!(has(&kept, field), "{field}: {kept:?}");
        }
        assert!(!has(&kept, "fused.gelu_us") && !has(&kept, "tflops"), "{kept:?}");
        assert_eq!((cost.gate_us, cost.launch_us), (base.fused.gate_us, base.fused.launch_us));
        let windows = cost.windows.as_ref().expect("they were measured");
        assert_eq!((windows.launch_us, windows.post_us, windows.slab_read_us), (2.5, 1.05, 3.0));
        let tile = windows.rates.iter().find(|r| r.tile == (128, 64)).expect("it was measured");
        assert_eq!((tile.rate, tile.epilogue_us), (0.75, 1.4));
        let of_base = base.fused.windows.as_ref().expect("it ships");
        assert_eq!(windows.slab_write_us, of_base.slab_write_us);
        assert!(has(&kept, "fused.windows.slab_write_us") && !has(&kept, "fused.windows.fill_us"));
        assert!(
            profile.measured
                && profile.source.contains("NVIDIA H200")
                && profile.source.contains("2026-11-21")
        );
        assert_eq!(Profile::from_ron(&profile.to_ron()).expect("it is a profile"), profile);
    }

    /// Every field is either measured or named among those that are not.
    #[test]
    fn no_field_is_kept_in_silence() {
        let mut base = Profile::named("h200").expect("the profile ships").clone();
        // This value becomes the device's.
        base.fused.read_tbs = 1.0;
        let Calibrated { profile, kept } = calibration().profile(&base);
        let fields = |profile: &Profile, section: &str| {
            let all = serde_json::to_value(profile).expect("a profile is data");
            let all = if section.is_empty() { all } else { all["fused"].clone() };
            all.as_object().expect("fields").clone()
        };
        // Identity of the GPU: `source` and `measured` change afterward.
        let is = ["name", "arch", "sms", "shared_per_sm", "threads_per_sm", "ctas_per_sm", "measured"];
        for section in ["", "fused."] {
            let (have, were) = (fields(&profile, section), fields(&base, section));
            for (field, value) in have.iter().filter(|(field, value)| were[*field] == **value) {
                let known = is.contains(&&**field);
                let named =
                    kept.iter().any(|k| k.split_whitespace().next() == Some(&format!("{section}{field}")));
                assert!(known || named, "{section}{field} is still {value}, and nothing says so: {kept:?}");
            }
        }
    }

    #[test]
    fn without_measurements_the_base_stays() {
        let base = Profile::named("a100").expect("the profile ships");
        let mut nothing = calibration();
        (nothing.kernels, nothing.alone_tflops) = (Vec::new(), None);
        (nothing.products, nothing.windows) = (Chains::default(), Chains::default());
        let Calibrated { profile, kept } = nothing.profile(base);
        assert_eq!((profile.tflops, profile.tile_us, profile.arch), (base.tflops, base.tile_us, 80));
        assert_eq!(profile.fused.rates, base.fused.rates);
        assert_eq!(profile.fused.windows, base.fused.windows);
        assert!(has(&kept, "fused.windows"), "{kept:?}");
        assert!(has(&kept, "tflops") && has(&kept, "fused.post_us"), "{kept:?}");
    }
}
