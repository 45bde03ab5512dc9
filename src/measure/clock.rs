//! SM clock frequency under a load. A chip trades clock for power within a kernel, so a time alone does not
//! tell whether a kernel does more work or runs at another clock.

use std::time::Duration;

use super::turns::{REST, Regime, filling};
use super::variant::Variant;
use super::{Result, percentile};
use crate::device::{Device, DeviceBuffer, helpers};

/// Rested samples of each variant.
const SAMPLES: usize = 5;

/// Readings of the clocks of all SMs before and after a sample.
struct Readings {
    before: DeviceBuffer<u64>,
    after: DeviceBuffer<u64>,
}

impl Readings {
    fn new(device: &Device) -> Result<Readings> {
        let buffer = || DeviceBuffer::zeroed(device, 2 * device.sms() as usize, "clocks");
        Ok(Readings { before: buffer()?, after: buffer()? })
    }

    /// Mean clock between both readings, MHz: the median over SMs, because a CTA need not have run on each.
    fn mhz(&self) -> Result<f64> {
        let (mut before, mut after) = (vec![0; self.before.len()], vec![0; self.after.len()]);
        self.before.download(&mut before)?;
        self.after.download(&mut after)?;
        let mut all = rates(&before, &after);
        Ok(percentile(&mut all, 0.5))
    }
}

/// Cycles per microsecond of each SM whose clock and timer both advanced.
fn rates(before: &[u64], after: &[u64]) -> Vec<f64> {
    let passed = |at: usize| after[at].checked_sub(before[at]).filter(|passed| *passed > 0 && before[at] > 0);
    (0..before.len() / 2)
        .filter_map(|sm| Some(passed(2 * sm)? as f64 * 1e3 / passed(2 * sm + 1)? as f64))
        .collect()
}

/// Mean SM clock while each variant runs, MHz, in the order of `variants`. These runs are separate from the
/// timed ones, because a kernel that reads clocks before a sample would hide part of its launch.
pub fn clocks_mhz(
    device: &Device,
    variants: &mut [Box<dyn Variant>],
    regime: Regime,
    window: Duration,
) -> Result<Vec<f64>> {
    let readings = Readings::new(device)?;
    let mut clocks = Vec::with_capacity(variants.len());
    for variant in variants.iter_mut() {
        let variant = variant.as_mut();
        let (samples, warm, runs) = match regime {
            Regime::Rested => (SAMPLES, 0, 1),
            Regime::Sustained => {
                let count = filling(variant, window)?;
                (1, count / 5, count - count / 5)
            }
        };
        let mut seen = Vec::with_capacity(samples);
        for _ in 0..samples {
            if regime == Regime::Rested {
                std::thread::sleep(REST);
            }
            for _ in 0..warm {
                variant.enqueue()?;
            }
            helpers::read_clocks(&readings.before, variant.stream())?;
            for _ in 0..runs {
                variant.enqueue()?;
            }
            helpers::read_clocks(&readings.after, variant.stream())?;
            variant.synchronize()?;
            seen.push(readings.mhz()?);
        }
        clocks.push(percentile(&mut seen, 0.5));
    }
    Ok(clocks)
}

#[cfg(test)]
mod tests {
    use super::rates;

    #[test]
    fn a_clock_is_cycles_a_microsecond_and_unread_sms_do_not_count() {
        // SM 0: 1800 cycles in 1 us; SM 1 was not read before, SM 2 not after; SM 3: 1500 cycles in 1 us.
        let before = [1000, 5_000, 0, 0, 400, 5_000, 9, 6_000];
        let after = [2800, 6_000, 700, 6_000, 400, 5_000, 1509, 7_000];
        assert_eq!(rates(&before, &after), [1800.0, 1500.0]);
    }
}
