//! Executables that are timed against each other.

use std::rc::Rc;
use std::time::Instant;

use cusync_dag::Form;

use crate::{Result, percentile};
use cusync::device::Stream;
use cusync::measure::Variant;
use cusync::programs::Executable;

/// An executable with its name.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) peer: bool,
    pub(super) form: Option<Form>,
    pub(super) exec: Rc<Executable>,
}

impl Entry {
    pub(super) fn peer(name: &str, exec: Executable) -> Entry {
        Entry { name: name.into(), peer: true, form: None, exec: Rc::new(exec) }
    }

    pub(super) fn ours(form: Form, exec: Executable) -> Entry {
        Entry { name: format!("ours: {}", form.name()), peer: false, form: Some(form), exec: Rc::new(exec) }
    }

    /// Variant with `runs` runs per sample.
    pub(super) fn timed(&self, runs: usize) -> Box<dyn Variant> {
        Box::new(Runs { exec: self.exec.clone(), runs })
    }

    /// Median microseconds of the host call, with the GPU idle before each call.
    pub(super) fn host_us(&self, samples: usize) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..samples {
            let begin = Instant::now();
            self.exec.launch()?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
            self.exec.synchronize()?;
        }
        Ok(percentile(&mut times, 0.5))
    }
}

struct Runs {
    exec: Rc<Executable>,
    runs: usize,
}

impl Variant for Runs {
    fn enqueue(&mut self) -> Result<()> {
        for _ in 0..self.runs {
            self.exec.launch()?;
        }
        Ok(())
    }

    fn stream(&self) -> &Stream {
        self.exec.stream()
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(self.exec.synchronize()?)
    }
}
