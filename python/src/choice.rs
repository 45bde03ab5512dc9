//! Predicted times of a pipeline, beside those of its matrix products by a library.

use cusync::codegen::check::{Candidate, Executor};
use cusync::codegen::choose::{Choices, space};
use cusync::codegen::device::Profile;
use cusync::codegen::diagnostic::Diagnostic;
use cusync::device::Device;
use cusync::runtime::{Options, Overrides, executor_name, resolve_text};
use cusync::tune::{Key, Machine, Origin, PlanCache, Store, answer};
use cusync::{SessionError, runtime};
use cusync_cli::embed::{self, Failure, SpecRequest};
use pyo3::prelude::*;

use super::error::{argument, detached};
use super::pipeline::{Place, element, place};

/// The fastest plan's executor and its time (predicted, or measured if it is tuned), whether it is tuned, the predicted
/// time with products by cuBLASLt (`None`: the profile has no times of it), and that of copies. Microseconds.
type Times = (&'static str, Option<f64>, bool, Option<f64>, f64);

/// Bytes that a copy moves for each element: one read and one written.
const MOVED: f64 = 4.0;

/// Times of a pipeline on a GPU (`gpu:0`), or on one with a shipped profile. `copies`: elements of each copy that a run
/// needs beside the pipeline. A tuned plan may be that of `library`; a prediction is the best of the others.
#[pyfunction]
pub(crate) fn times(
    py: Python<'_>,
    spec: &str,
    dims: Vec<(String, u64)>,
    element: Option<&str>,
    device: &str,
    copies: Vec<u64>,
) -> PyResult<Times> {
    detached(py, || {
        let text = embed::text(&SpecRequest { dims: &dims, ..SpecRequest::new(spec) })?;
        let overrides = Overrides { dims, element: self::element(element)?, ..Overrides::default() };
        let resolved = resolve_text(&text, "spec", &overrides).map_err(SessionError::from)?;
        let wrong = |error: runtime::Error| Failure::from(SessionError::from(error));
        let (profile, machine) = match Profile::named(device) {
            Some(profile) => (profile.clone(), None),
            None => {
                let Place::Gpu(number) = place(device)? else {
                    return Err(argument(format!("`{device}` is no GPU"), "name one: gpu:0"));
                };
                let device = Device::open(number).map_err(|error| wrong(error.into()))?;
                let old = || argument(format!("{} has no kernels", device.name()), "use another GPU");
                let machine = Machine::for_device(&device).map_err(|error| wrong(error.into()))?;
                (device.profile().ok_or_else(old)?, Some(machine))
            }
        };
        let copies_us =
            copies.iter().map(|n| profile.boundary_us + MOVED * *n as f64 / (profile.read_tbs * 1e6));
        let copies_us = copies_us.sum();
        let refused = |d: Diagnostic| wrong(runtime::Error::Refused(d.render(&text, "spec", false)));
        let choices = Choices::new(&resolved, &profile);
        let us = |candidate: &Candidate| candidate.predicted_us();
        let library =
            profile.library.as_ref().and_then(|_| choices.candidate(Executor::Library).as_ref().ok());
        let library_us = library.and_then(us);
        if let Some(machine) = machine {
            // Without a readable cache, the prediction is used.
            let cache: PlanCache = Store::usual().and_then(|store| store.load()).unwrap_or_default();
            let key = Key::new(&resolved, &machine, None, Options::default().overlap);
            if let Some(entry) = cache.get(&key) {
                let found = answer(&resolved, &profile, None, Some(entry)).map_err(refused)?;
                if let Origin::Tuned { median_us, .. } = found.origin {
                    let name = executor_name(found.candidate.launch.executor());
                    return Ok((name, Some(median_us), true, library_us, copies_us));
                }
            }
        }
        let others = space::executors(&profile).into_iter().filter(|executor| *executor != Executor::Library);
        let found = others.filter_map(|executor| choices.candidate(executor).as_ref().ok());
        let cost = |candidate: &&Candidate| us(candidate).unwrap_or(f64::INFINITY);
        match found.min_by(|a, b| cost(a).total_cmp(&cost(b))) {
            Some(best) => Ok((executor_name(best.launch.executor()), us(best), false, library_us, copies_us)),
            None => Err(choices
                .best()
                .err()
                .map_or_else(|| argument("no kernel of ours runs it", "use another library"), refused)),
        }
    })
}
