//! A kernel that occupies SMs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::Result;
use cusync::device::{Arg, Device, DeviceBuffer, KernelCall, Module, Shape, Stream};

/// Number of SMs that it occupies.
pub(super) const TAKEN: u32 = 16;

/// A kernel of `TAKEN` CTAs, each on its own SM for a given time.
pub(super) struct SmTaker {
    call: KernelCall,
    stream: Stream,
}

impl SmTaker {
    const THREADS: u32 = 1024;

    fn call(device: &Device, rounds: u32) -> Result<KernelCall> {
        let function = Module::suite(device)?.function("spin")?;
        let words = TAKEN * Self::THREADS;
        let out = Arc::new(DeviceBuffer::zeroed(device, words as usize, "what spins")?);
        let to = || Arg::Words(out.clone(), 0);
        let args = [
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
            to(),
            Arg::Null,
            Arg::U32(words),
            Arg::U32(0),
            Arg::U32(1),
            Arg::U32(0),
            Arg::U32(1),
            Arg::U32(rounds),
            Arg::Null,
            Arg::Null,
        ];
        // More than 40 KiB per CTA, so that no SM fits two of them next to a kernel's worker.
        let shape = Shape { shared_bytes: 40 << 10, ..Shape::linear(TAKEN, Self::THREADS) };
        Ok(KernelCall::new(&function, shape, &args)?)
    }

    pub(super) fn new(device: &Device, us: f64) -> Result<SmTaker> {
        let stream = Stream::new(device)?;
        let timed = |rounds: u32| -> Result<f64> {
            let call = Self::call(device, rounds)?;
            stream.launch(&call, false)?;
            stream.synchronize()?;
            let begin = Instant::now();
            stream.launch(&call, false)?;
            stream.synchronize()?;
            Ok(begin.elapsed().as_secs_f64() * 1e6)
        };
        let (few, many) = (timed(1000)?, timed(101_000)?);
        let rounds = us / ((many - few) / 100_000.0).max(1e-6);
        Ok(SmTaker { call: Self::call(device, rounds as u32)?, stream })
    }

    /// Waits until it has released the SMs.
    pub(super) fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Launches it, and waits until it most likely occupies the SMs.
    pub(super) fn take(&self) -> Result<()> {
        self.stream.launch(&self.call, false)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(8) {
            std::hint::spin_loop();
        }
        Ok(())
    }
}
