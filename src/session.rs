//! A pipeline with its tensors by name, with the same interface on a GPU and on the host.
//!
//! ```
//! use cusync::prelude::*;
//!
//! let spec = cusync::runtime::shipped("two_gemms").ok_or(SessionError::NoSpec("two_gemms".into()))?;
//! let mut session = Session::on_host(spec, &[("M", 16), ("N", 32), ("K", 24)])?;
//! for input in session.inputs() {
//!     let (rows, cols) = session.shape(&input)?;
//!     session.set_f32(&input, &vec![0.5; rows * cols])?;
//! }
//! session.run()?;
//! let e = session.read_f32("E")?;
//! assert_eq!(e.len(), 16 * 24);
//! # Ok::<(), SessionError>(())
//! ```

mod custom;
mod error;
mod host;

use std::sync::Arc;

use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::{DataType, Tensor};

use crate::device::{Device, DeviceBuffer, Plain, Stream};
use crate::element::{Bits, transposed};
use crate::inputs::{Inputs, Values};
use crate::reference::Accuracy;
use crate::runtime::cpu::{Areas, CpuOptions};
use crate::runtime::{self, Options, Overrides, Pipeline, resolve_text};
use crate::tune::{self, PlanCache};
pub use error::{SessionError, SessionResult};
use host::Host;

const IN_GROUP: &str = "the session is a device of a group\n  help: `Group::run` runs all devices at once";

enum Place {
    Host(Box<Host>),
    Gpu { executor: Executor, pipeline: Box<Pipeline> },
}

/// A proved pipeline that can be given inputs and run repeatedly.
///
/// The number of tokens may change from run to run, up to the rows of the plan, without planning or binding
/// anew: rows of products and normalizations are independent, so filling the first rows of bound memory gives
/// the first rows of the result, whatever the other rows contain. A run takes the time of the whole plan; if
/// that is too long, open a session for fewer rows.
pub struct Session {
    plan: Plan,
    place: Place,
}

impl Session {
    /// Plans a spec, as text, for GPU 0, with tuned plans from the user's cache or the executor that is
    /// predicted to be the best; for the host if there is no GPU, or no kernel for a stage. `dims` override
    /// the spec's defaults.
    ///
    /// # Errors
    /// The spec is refused, or memory is short.
    pub fn open(spec: &str, dims: &[(&str, u64)]) -> SessionResult<Session> {
        Ok(Session::open_with(spec, &overrides(dims))?.0)
    }

    /// [`Session::open`], with any overrides; also returns the GPU, if it is planned for one.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_with(spec: &str, overrides: &Overrides) -> SessionResult<(Session, Option<Device>)> {
        let host = || Ok((Session::on_host_with(spec, overrides)?, None));
        let Ok(device) = Device::open(0) else { return host() };
        let resolved = resolve_text(spec, "spec", overrides)?;
        let runs = |profile: &Profile| choose::fallback(&resolved, profile).is_none();
        let profile = device.profile().filter(runs);
        if profile.is_none() || crate::device::kernels().is_empty() {
            return host();
        }
        let (options, cache) = (Options::default(), usual_cache());
        let session = Session::on_gpu_with(spec, overrides, &device, None, options, &cache)?;
        Ok((session, Some(device)))
    }

    /// Plans a spec for host threads.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn on_host(spec: &str, dims: &[(&str, u64)]) -> SessionResult<Session> {
        Session::on_host_with(spec, &overrides(dims))
    }

    /// [`Session::on_host`], with any overrides.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn on_host_with(spec: &str, overrides: &Overrides) -> SessionResult<Session> {
        Ok(Session::of_plan(host_plan(spec, overrides)?, CpuOptions::default()))
    }

    /// Runs a plan on host threads.
    pub fn of_plan(plan: Plan, options: CpuOptions) -> Session {
        let inputs = Inputs::none(plan.graph());
        Session { plan, place: Place::Host(Box::new(Host::new(inputs, options, None))) }
    }

    /// Device number `device` of a group on host threads.
    pub(crate) fn of_group(plan: Plan, options: CpuOptions, areas: &Arc<Areas>, device: u32) -> Session {
        let inputs = Inputs::none(plan.graph());
        let group = Some((Arc::clone(areas), device));
        Session { plan, place: Place::Host(Box::new(Host::new(inputs, options, group))) }
    }

    /// Plans a spec for a GPU; `executor`: `None` for the best of all.
    ///
    /// # Errors
    /// Errors of [`Session::open`] and [`Pipeline::with_options`].
    pub fn on_gpu(
        spec: &str,
        dims: &[(&str, u64)],
        device: &Device,
        executor: Option<Executor>,
        options: Options,
    ) -> SessionResult<Session> {
        Session::on_gpu_with(spec, &overrides(dims), device, executor, options, &usual_cache())
    }

    /// [`Session::on_gpu`], with any overrides and a cache of tuned plans.
    ///
    /// # Errors
    /// As [`Session::on_gpu`].
    pub fn on_gpu_with(
        spec: &str,
        overrides: &Overrides,
        device: &Device,
        executor: Option<Executor>,
        options: Options,
        cache: &PlanCache,
    ) -> SessionResult<Session> {
        let planned = tune::plan(spec, "spec", overrides, device, executor, &options, cache)?;
        let mut session = Session::of_plan_on_gpu(planned.plan, device, options)?;
        if let (Place::Gpu { executor: own, .. }, Some(executor)) = (&mut session.place, executor) {
            *own = executor;
        }
        Ok(session)
    }

    /// Runs a plan on a GPU, by its executor.
    ///
    /// # Errors
    /// As [`Pipeline::with_options`].
    pub fn of_plan_on_gpu(plan: Plan, device: &Device, options: Options) -> SessionResult<Session> {
        let pipeline = Box::new(Pipeline::with_options(&plan, device, options)?);
        let executor = plan.executor();
        Ok(Session { plan, place: Place::Gpu { executor, pipeline } })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The executor that runs it.
    pub fn executor(&self) -> Executor {
        match &self.place {
            Place::Host(_) => Executor::Cpu,
            Place::Gpu { executor, .. } => *executor,
        }
    }

    /// The pipeline on the GPU, for features that only it has: graphs, sets of inputs, streams.
    ///
    /// # Errors
    /// The session is on the host.
    pub fn pipeline(&mut self) -> SessionResult<&mut Pipeline> {
        match &mut self.place {
            Place::Gpu { pipeline, .. } => Ok(pipeline),
            Place::Host(_) => {
                Err(SessionError::Elsewhere("the session is on the host: there is no GPU pipeline"))
            }
        }
    }

    /// Another session of the same plan on the GPU, with the same weights: see [`Pipeline::fork`].
    ///
    /// # Errors
    /// The session is on the host, or memory is short.
    pub fn fork(&mut self) -> SessionResult<Session> {
        let (plan, executor) = (self.plan.clone(), self.executor());
        let pipeline = Box::new(self.pipeline()?.fork()?);
        Ok(Session { plan, place: Place::Gpu { executor, pipeline } })
    }

    /// Names of the tensors that no stage writes; set or bind all of them.
    pub fn inputs(&self) -> Vec<String> {
        let tensors = &self.plan.graph().tensors;
        tensors.iter().filter(|t| t.producer.is_none()).map(|t| t.name.clone()).collect()
    }

    /// Names of the tensors that a stage writes and no stage reads.
    pub fn outputs(&self) -> Vec<String> {
        let graph = self.plan.graph();
        runtime::outputs(graph).map(|id| graph.tensors[id.0].name.clone()).collect()
    }

    /// Rows and columns of a tensor, as the spec states them.
    ///
    /// # Errors
    /// There is no such tensor.
    pub fn shape(&self, name: &str) -> SessionResult<(usize, usize)> {
        self.find(name).map(|(_, tensor)| caller_shape(tensor))
    }

    fn find(&self, name: &str) -> SessionResult<(usize, &Tensor)> {
        let tensors = &self.plan.graph().tensors;
        let found = tensors.iter().enumerate().find(|(_, t)| t.name == name);
        found.ok_or_else(|| SessionError::NoTensor {
            name: name.into(),
            known: tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Sets an input or a weight, row-major, rounded to the pipeline's element type. On a GPU the values are
    /// copied into memory of the session.
    ///
    /// # Errors
    /// There is no such input, or the length differs.
    pub fn set_f32(&mut self, name: &str, values: &[f32]) -> SessionResult<()> {
        self.settable(name, values.len(), DataType::Element)?;
        let mut bits = vec![0; values.len()];
        self.plan.graph().element.round(values, &mut bits);
        self.set_bits(name, bits)
    }

    /// [`Session::set_f32`] with bits of the element type.
    ///
    /// # Errors
    /// As [`Session::set_f32`].
    pub fn set_bits(&mut self, name: &str, bits: Vec<u16>) -> SessionResult<()> {
        let index = self.settable(name, bits.len(), DataType::Element)?;
        let tensor = &self.plan.graph().tensors[index];
        let bits = if tensor.transposed { transposed(&bits, caller_shape(tensor).1) } else { bits };
        match &mut self.place {
            Place::Gpu { pipeline, .. } => {
                pipeline.bind_read(0, name, upload(pipeline, &bits, name)?)?;
            }
            Place::Host(host) => host.put(index, Values::Bits(Arc::new(bits))),
        }
        Ok(())
    }

    /// Sets lengths or page numbers.
    ///
    /// # Errors
    /// There is no such input of integers, or the length differs.
    pub fn set_integers(&mut self, name: &str, values: &[i32]) -> SessionResult<()> {
        let index = self.settable(name, values.len(), DataType::Int32)?;
        match &mut self.place {
            Place::Gpu { pipeline, .. } => pipeline.bind_integers(name, upload(pipeline, values, name)?)?,
            Place::Host(host) => host.put(index, Values::Integers(Arc::new(values.to_vec()))),
        }
        Ok(())
    }

    fn settable(&self, name: &str, have: usize, data: DataType) -> SessionResult<usize> {
        let (index, tensor) = self.find(name)?;
        if tensor.producer.is_some() {
            return Err(SessionError::Produced(name.into()));
        }
        if tensor.data != data {
            return Err(SessionError::Type(name.into()));
        }
        let (rows, cols) = caller_shape(tensor);
        if have != rows * cols {
            return Err(SessionError::Length { name: name.into(), rows, cols, want: rows * cols, have });
        }
        Ok(index)
    }

    /// Binds device memory to an input, a weight or a result ([`Session::outputs`]): every run reads or
    /// writes it in place, except for weights that the spec keeps as N x K ([`Pipeline::bind_in`]).
    ///
    /// # Errors
    /// There is no such tensor, the length differs, or the session is on the host.
    pub fn bind(&mut self, name: &str, buffer: Arc<DeviceBuffer<u16>>) -> SessionResult<()> {
        Ok(self.pipeline()?.bind(name, buffer)?)
    }

    /// [`Session::bind`] for lengths and page numbers.
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub fn bind_integers(&mut self, name: &str, buffer: Arc<DeviceBuffer<i32>>) -> SessionResult<()> {
        Ok(self.pipeline()?.bind_integers(name, buffer)?)
    }

    /// Runs once and waits for the end.
    ///
    /// # Errors
    /// An input has no values, a wait was never satisfied, or the session is a device of a group.
    pub fn run(&mut self) -> SessionResult<()> {
        match &self.place {
            Place::Host(host) if host.in_group() => Err(SessionError::Elsewhere(IN_GROUP)),
            Place::Gpu { pipeline, .. } if pipeline.in_group() => Err(SessionError::Elsewhere(IN_GROUP)),
            Place::Host(_) | Place::Gpu { .. } => self.run_device(),
        }
    }

    /// Allocates what the first run needs.
    pub(crate) fn prepare(&mut self) -> SessionResult<()> {
        match &mut self.place {
            Place::Host(host) => host.prepare(&self.plan),
            Place::Gpu { pipeline, .. } => Ok(pipeline.prepare()?),
        }
    }

    /// [`Session::run`], also for a device of a group whose other devices run at the same time.
    pub(crate) fn run_device(&mut self) -> SessionResult<()> {
        match &mut self.place {
            Place::Host(host) => host.run(&self.plan)?,
            Place::Gpu { executor, pipeline } => {
                pipeline.run(*executor)?;
                pipeline.synchronize()?;
            }
        }
        Ok(())
    }

    /// Queues a run on a stream, which may be capturing, and returns before it is done.
    ///
    /// # Errors
    /// As [`Session::run`]; also if the session is on the host.
    pub fn run_on(&mut self, stream: &Stream) -> SessionResult<()> {
        let executor = self.executor();
        Ok(self.pipeline()?.run_on(executor, stream)?)
    }

    /// Compares every tensor that a stage wrote in the last run with an independent reference in float64.
    ///
    /// # Errors
    /// The session is on a GPU, inputs were set after the last run, or caches were changed by earlier runs.
    pub fn verify(&self) -> SessionResult<Vec<Accuracy>> {
        host::verify(self.plan.graph(), &[self.host()?]).map(|mut devices| devices.remove(0))
    }

    /// [`Session::verify`] for each device of a group.
    pub(crate) fn verify_group(group: &[Session]) -> SessionResult<Vec<Vec<Accuracy>>> {
        let Some(first) = group.first() else { return Ok(Vec::new()) };
        let hosts = group.iter().map(Session::host).collect::<SessionResult<Vec<_>>>()?;
        host::verify(first.plan.graph(), &hosts)
    }

    fn host(&self) -> SessionResult<&Host> {
        match &self.place {
            Place::Host(host) => Ok(host),
            Place::Gpu { .. } => Err(SessionError::Elsewhere(
                "only runs on the host are verified\n  help: `cusync run` verifies runs on a GPU",
            )),
        }
    }

    /// Values of a tensor after the last run, row-major, widened to float32. Waits for all work queued on the
    /// GPU.
    ///
    /// # Errors
    /// There is no such tensor, or nothing has run yet.
    pub fn read_f32(&self, name: &str) -> SessionResult<Vec<f32>> {
        let (_, tensor) = self.find(name)?;
        let values = match &self.place {
            Place::Host(host) => host.read_f32(name)?,
            Place::Gpu { pipeline, .. } => {
                pipeline.device().synchronize().map_err(runtime::Error::from)?;
                let buffer = pipeline.tensor(0, name)?;
                let mut bits = vec![0; tensor.rows as usize * tensor.cols as usize];
                let mut values = vec![0.0; bits.len()];
                buffer.download(&mut bits).map_err(runtime::Error::from)?;
                self.plan.graph().element.widen(&bits, &mut values);
                values
            }
        };
        Ok(if tensor.transposed { transposed(&values, tensor.cols as usize) } else { values })
    }
}

/// Rows and columns of a tensor, as callers keep it.
fn caller_shape(tensor: &Tensor) -> (usize, usize) {
    let (rows, cols) = tensor.caller_shape();
    (rows as usize, cols as usize)
}

/// Uploads values into memory of the session.
fn upload<T: Plain>(pipeline: &Pipeline, values: &[T], name: &str) -> runtime::Result<Arc<DeviceBuffer<T>>> {
    Ok(Arc::new(DeviceBuffer::from_slice(pipeline.device(), values, name)?))
}

/// The user's cache of tuned plans; empty, so that predictions are used, if it cannot be read.
fn usual_cache() -> PlanCache {
    tune::Store::usual().and_then(|store| store.load()).unwrap_or_default()
}

/// Plans a spec for host threads.
pub(crate) fn host_plan(spec: &str, overrides: &Overrides) -> SessionResult<Plan> {
    let resolved = resolve_text(spec, "spec", overrides)?;
    let refused = |d: Diagnostic| runtime::Error::Refused(d.render(spec, "spec", false));
    let none = || runtime::Error::Unsupported("no device profile ships".into());
    let profile = cusync_gen::device::DEVICES.first().ok_or_else(none)?;
    Ok(choose::plan(&resolved, profile, Executor::Cpu).map_err(refused)?)
}

pub(crate) fn overrides(dims: &[(&str, u64)]) -> Overrides {
    let dims = dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Overrides { dims, ..Overrides::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cpu::CpuError;

    const SPEC: &str = r#"Pipeline(name: "p", dims: { "M": 16, "H": 32 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
        Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
    ])"#;

    #[test]
    fn tensors_are_set_and_read_by_name_and_mistakes_are_errors() {
        let mut session = Session::on_host(SPEC, &[("M", 8)]).expect("valid");
        assert_eq!(
            (session.inputs(), session.outputs()),
            (["X", "W", "V"].map(String::from).to_vec(), vec!["Z".into()])
        );
        assert!(matches!(session.set_f32("Q", &[]), Err(SessionError::NoTensor { .. })));
        assert!(matches!(session.set_f32("Y", &[]), Err(SessionError::Produced(_))));
        assert!(matches!(session.set_f32("X", &[0.0]), Err(SessionError::Length { want: 256, have: 1, .. })));
        assert!(matches!(session.read_f32("Z"), Err(SessionError::Elsewhere(_))));
        assert!(matches!(session.run(), Err(SessionError::Host(CpuError::NoInput(_)))));
        let identity: Vec<f32> = (0..32 * 32).map(|i| f32::from(u8::from(i / 32 == i % 32))).collect();
        let x: Vec<f32> = (0..256).map(|i| (i % 17) as f32).collect();
        session.set_f32("X", &x).expect("an input");
        session.set_f32("W", &identity).expect("an input");
        session.set_f32("V", &identity).expect("an input");
        session.run().expect("right");
        assert_eq!(session.read_f32("Z").expect("it ran"), x);
        session.set_f32("X", &[2.0; 256]).expect("an input");
        session.run().expect("again");
        assert_eq!(session.read_f32("Z").expect("it ran"), vec![2.0; 256]);
        assert!(session.pipeline().is_err());
        let stages = session.verify().expect("it ran");
        assert_eq!(stages.len(), 2);
        assert!(stages.iter().all(|stage| stage.verified), "{stages:?}");
        session.set_f32("X", &[3.0; 256]).expect("an input");
        assert!(matches!(session.verify(), Err(SessionError::Elsewhere(_))), "these inputs have not run");
    }

    #[test]
    fn rows_that_are_not_in_use_touch_no_others() {
        let mut session = Session::on_host(SPEC, &[("M", 24)]).expect("valid");
        let weights: Vec<f32> = (0..32 * 32).map(|i| (i % 5) as f32 / 8.0).collect();
        session.set_f32("W", &weights).expect("an input");
        session.set_f32("V", &weights).expect("an input");
        let tokens: Vec<f32> = (0..24 * 32).map(|i| (i % 7) as f32 / 8.0).collect();
        session.set_f32("X", &tokens).expect("an input");
        session.run().expect("right");
        let all = session.read_f32("Z").expect("it ran");
        for rows in [1, 9, 17] {
            let mut few = tokens.clone();
            few[rows * 32..].fill(f32::NAN);
            session.set_f32("X", &few).expect("an input");
            session.run().expect("right");
            let found = session.read_f32("Z").expect("it ran");
            assert_eq!(found[..rows * 32], all[..rows * 32], "{rows} rows");
            assert!(found[rows * 32].is_nan(), "the rest is what the rest of the input makes of it");
        }
    }
}
