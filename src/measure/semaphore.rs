//! Cost of one wait, one post and one hand-off.

use super::Result;
use crate::device::{Device, DeviceBuffer, Stream, helpers};

/// Nanoseconds of each primitive.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SemaphoreCost {
    /// A wait that is already satisfied, nanoseconds.
    pub wait_ns: f64,
    /// One post, nanoseconds.
    pub post_ns: f64,
    /// Time from a post until the waiter on another SM has seen it.
    pub hand_off_ns: f64,
    /// Repetitions of each; the result is the median of five rounds.
    pub count: u32,
}

/// Measures on GPU number `gpu`.
pub fn bench_semaphores(gpu: u32, count: u32) -> Result<SemaphoreCost> {
    if count == 0 {
        return Err(super::Error::Argument("the number of repetitions is 0".into()));
    }
    let device = Device::open(gpu)?;
    let stream = Stream::new(&device)?;
    let scratch = DeviceBuffer::<u32>::zeroed(&device, 1024, "semaphore scratch")?;
    let out = DeviceBuffer::<f32>::zeroed(&device, 3, "semaphore times")?;
    let mut rounds: [Vec<f64>; 3] = Default::default();
    // The first round warms up the clocks.
    for round in 0..6 {
        helpers::measure_semaphores(&scratch, count, &out, &stream)?;
        stream.synchronize()?;
        let mut times = [0f32; 3];
        out.download(&mut times)?;
        if round > 0 {
            rounds.iter_mut().zip(times).for_each(|(list, time)| list.push(time.into()));
        }
    }
    let [wait_ns, post_ns, hand_off_ns] = rounds.map(|mut list| super::percentile(&mut list, 0.5));
    Ok(SemaphoreCost { wait_ns, post_ns, hand_off_ns, count })
}
