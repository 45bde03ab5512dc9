//! Timing of several variants in turns, so that all see the same clocks.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::variant::Variant;
use super::{Result, percentile};
use crate::device::{Device, Event};

/// GPU activity just before a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// Idle for 3 ms.
    Rested,
    /// The same work, back to back.
    Sustained,
}

/// Idle time before a rested sample.
pub(super) const REST: Duration = Duration::from_millis(3);

/// Times of each variant, microseconds per sample, in the order of `variants`; `None` for an absent variant.
///
/// Rested: `samples` visits in the order A B C, C B A, A B C ... Sustained: two visits, forward and
/// backward, of `window` each.
pub fn interleaved(
    device: &Device,
    variants: &mut [Box<dyn Variant>],
    regime: Regime,
    samples: usize,
    window: Duration,
) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); variants.len()];
    let rounds = if regime == Regime::Rested { samples } else { 2 };
    let events = (0..=MAX_SAMPLES).map(|_| Ok(Event::timing(device)?)).collect::<Result<Vec<_>>>()?;
    // Graph uploads, first launches and lazily loaded helpers must not be timed.
    for variant in variants.iter_mut() {
        variant.enqueue()?;
        variant.synchronize()?;
    }
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let variant = variants[index].as_mut();
            let taken = match regime {
                Regime::Rested => rested(variant, &events)?,
                Regime::Sustained => sustained(variant, &events, window)?,
            };
            times[index].extend(taken);
        }
    }
    Ok(times)
}

/// One time per variant and round, microseconds per sample, in the order of `variants`: a rested sample, or
/// the median of a sustained window. Rounds visit the variants in random order, and every second round
/// reverses the previous one, so that no variant always follows the same other. Times of one round share one
/// state of the machine, so their ratios are more precise than medians of whole runs.
pub fn paired(
    device: &Device,
    variants: &mut [Box<dyn Variant>],
    regime: Regime,
    rounds: usize,
    window: Duration,
) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(rounds); variants.len()];
    let events = (0..=MAX_SAMPLES).map(|_| Ok(Event::timing(device)?)).collect::<Result<Vec<_>>>()?;
    for variant in variants.iter_mut() {
        variant.enqueue()?;
        variant.synchronize()?;
    }
    let mut rng = SmallRng::seed_from_u64(rounds as u64);
    let mut order: Vec<usize> = (0..variants.len()).collect();
    for round in 0..rounds {
        if round % 2 == 1 {
            order.reverse();
        } else {
            order.shuffle(&mut rng);
        }
        for &index in &order {
            let variant = variants[index].as_mut();
            let mut taken = match regime {
                Regime::Rested => rested(variant, &events)?,
                Regime::Sustained => sustained(variant, &events, window)?,
            };
            times[index].push(percentile(&mut taken, 0.5));
        }
    }
    Ok(times)
}

/// Median of a few rested samples of a single variant, microseconds.
pub fn quick(device: &Device, variant: &mut dyn Variant, samples: usize) -> Result<f64> {
    let events = [Event::timing(device)?, Event::timing(device)?];
    variant.enqueue()?;
    variant.synchronize()?;
    let mut times = Vec::new();
    for _ in 0..samples {
        times.extend(rested(variant, &events)?);
    }
    Ok(percentile(&mut times, 0.5))
}

/// Maximum number of samples in a sustained window.
const MAX_SAMPLES: usize = 4096;

fn rested(variant: &mut dyn Variant, events: &[Event]) -> Result<Vec<f64>> {
    std::thread::sleep(REST);
    variant.stream().record(&events[0])?;
    variant.enqueue()?;
    variant.stream().record(&events[1])?;
    variant.synchronize()?;
    Ok(vec![events[1].us_since(&events[0])?])
}

/// Number of samples that fill a window, from the time of one.
pub(super) fn filling(variant: &mut dyn Variant, window: Duration) -> Result<usize> {
    let begin = Instant::now();
    variant.enqueue()?;
    variant.synchronize()?;
    let one = begin.elapsed().max(Duration::from_micros(1));
    Ok((window.as_secs_f64() / one.as_secs_f64()).ceil().clamp(5.0, MAX_SAMPLES as f64) as usize)
}

fn sustained(variant: &mut dyn Variant, events: &[Event], window: Duration) -> Result<Vec<f64>> {
    let count = filling(variant, window)?;
    variant.stream().record(&events[0])?;
    for event in &events[1..=count] {
        variant.enqueue()?;
        variant.stream().record(event)?;
    }
    variant.synchronize()?;
    let times = (0..count).map(|i| Ok(events[i + 1].us_since(&events[i])?)).collect::<Result<Vec<_>>>()?;
    // The clocks still reflect the previous variant.
    Ok(times[count / 5..].to_vec())
}
