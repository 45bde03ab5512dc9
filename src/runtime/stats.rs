//! Order statistics of repeated times.

/// Median, tenth and ninetieth percentile of at least one sample.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Median, microseconds.
    pub median_us: f64,
    /// Tenth percentile, microseconds.
    pub p10_us: f64,
    /// Ninetieth percentile, microseconds.
    pub p90_us: f64,
    /// Number of samples.
    pub samples: usize,
}

impl Summary {
    /// Summarizes times in any order.
    pub fn from_times(times: &[f64]) -> Summary {
        let mut times = times.to_vec();
        Summary {
            median_us: percentile(&mut times, 0.5),
            p10_us: percentile(&mut times, 0.1),
            p90_us: percentile(&mut times, 0.9),
            samples: times.len(),
        }
    }
}

/// The value at `fraction` (0 to 1) of the sorted times, interpolated between neighbors; NaN for an empty
/// slice.
pub fn percentile(times: &mut [f64], fraction: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let Some(last) = times.len().checked_sub(1) else { return f64::NAN };
    let place = fraction.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    times[low] + (times[high] - times[low]) * (place - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_between_sorted_times() {
        let mut times = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(percentile(&mut times, 0.0), 10.0);
        assert_eq!(percentile(&mut times, 0.5), 25.0);
        assert_eq!(percentile(&mut times, 1.0), 40.0);
        assert!(percentile(&mut [], 0.5).is_nan());
        assert_eq!(Summary::from_times(&[7.0]).p90_us, 7.0);
    }
}
