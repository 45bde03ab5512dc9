//! Several devices that run one plan at once, each with its own tensors, and sum some products over all of them.
//!
//! ```
//! use cusync::prelude::*;
//!
//! let spec = r#"Pipeline(name: "halves", dims: { "M": 4, "H": 64, "I": 32 }, devices: 2, stages: [
//!     Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)"),
//!     Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)", all_reduce: true),
//! ])"#;
//! let mut group = Group::on_host(spec, &[])?;
//! for device in 0..group.devices() {
//!     let session = group.session_mut(device)?;
//!     session.set_f32("X", &[1.0; 4 * 64])?;
//!     session.set_f32("W1", &[0.25; 64 * 32])?;
//!     session.set_f32("W2", &[device as f32; 32 * 64])?;
//! }
//! group.run()?;
//! assert_eq!(group.session(0)?.read_f32("Z")?, vec![16.0 * 32.0; 4 * 64]);
//! assert_eq!(group.session(1)?.read_f32("Z")?, group.session(0)?.read_f32("Z")?);
//! # Ok::<(), SessionError>(())
//! ```

use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::DataType;

use crate::device::Device;
use crate::inputs::Inputs;
use crate::reference::Accuracy;
use crate::runtime::cpu::{Areas, CpuError, CpuOptions};
use crate::runtime::{Options, Overrides, Pipeline};
use crate::session::{Session, SessionError, SessionResult, host_plan, overrides};

/// A proved pipeline that several devices run at once. Each has a [`Session`] with tensors of its own: its part of the
/// weights, and what it computes from them. Stages with `all_reduce` sum their products over the devices.
pub struct Group {
    /// One per device.
    sessions: Vec<Session>,
}

impl Group {
    /// Plans a spec for host threads, as many devices as it states.
    ///
    /// # Errors
    /// The spec is refused.
    pub fn on_host(spec: &str, dims: &[(&str, u64)]) -> SessionResult<Group> {
        Group::on_host_with(spec, &overrides(dims))
    }

    /// [`Group::on_host`], with any overrides.
    ///
    /// # Errors
    /// As [`Group::on_host`].
    pub fn on_host_with(spec: &str, overrides: &Overrides) -> SessionResult<Group> {
        Ok(Group::of_plan(&host_plan(spec, overrides)?, CpuOptions::default()))
    }

    /// Runs a plan on host threads: `options.threads` for each device.
    pub fn of_plan(plan: &Plan, options: CpuOptions) -> Group {
        let areas = Areas::new(plan.graph());
        let session = |device| Session::of_group(plan.clone(), options, &areas, device);
        Group { sessions: (0..plan.graph().devices()).map(session).collect() }
    }

    /// Plans a spec for GPUs, one for each device that it states, in their order.
    ///
    /// # Errors
    /// The spec is refused, no decode kernel runs it, the GPUs are not as many or not connected, or memory is short.
    pub fn on_gpus(
        spec: &str,
        dims: &[(&str, u64)],
        devices: &[Device],
        options: Options,
    ) -> SessionResult<Group> {
        let open = |device| Session::on_gpu(spec, dims, device, Some(Executor::Fused), options);
        Group::of_gpus(devices.iter().map(open).collect::<SessionResult<_>>()?)
    }

    /// Runs a plan on GPUs, one for each device, in their order.
    ///
    /// # Errors
    /// As [`Group::on_gpus`].
    pub fn of_plan_on_gpus(plan: &Plan, devices: &[Device], options: Options) -> SessionResult<Group> {
        let open = |device| Session::of_plan_on_gpu(plan.clone(), device, options);
        Group::of_gpus(devices.iter().map(open).collect::<SessionResult<_>>()?)
    }

    fn of_gpus(mut sessions: Vec<Session>) -> SessionResult<Group> {
        let pipelines = sessions.iter_mut().map(Session::pipeline);
        Pipeline::form_group(&mut pipelines.collect::<SessionResult<Vec<_>>>()?)?;
        Ok(Group { sessions })
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.sessions.len()
    }

    /// The session of a device: its tensors by name.
    ///
    /// # Errors
    /// There is no such device.
    pub fn session(&self, device: usize) -> SessionResult<&Session> {
        self.sessions.get(device).ok_or_else(|| SessionError::NoDevice { device, devices: self.devices() })
    }

    /// [`Group::session`], to set tensors.
    ///
    /// # Errors
    /// There is no such device.
    pub fn session_mut(&mut self, device: usize) -> SessionResult<&mut Session> {
        let devices = self.devices();
        self.sessions.get_mut(device).ok_or(SessionError::NoDevice { device, devices })
    }

    /// Sets every input of every device to random values; each device draws its own, from `seed` plus its number.
    ///
    /// # Errors
    /// Memory is short.
    pub fn set_random(&mut self, seed: u64) -> SessionResult<()> {
        for (device, session) in self.sessions.iter_mut().enumerate() {
            let graph = session.plan().graph();
            let inputs = Inputs::checked_random(graph, seed.wrapping_add(device as u64))?;
            let tensors: Vec<_> = graph.tensors.iter().map(|t| (t.name.clone(), t.data)).collect();
            for (at, (name, data)) in tensors.into_iter().enumerate() {
                let id = cusync_gen::graph::TensorId(at);
                match data {
                    DataType::Int32 => {
                        let integers = inputs.integers(id);
                        integers.map_or(Ok(()), |integers| session.set_integers(&name, integers))?;
                    }
                    DataType::Element => {
                        let bits = inputs.bits(id);
                        bits.map_or(Ok(()), |bits| session.set_bits(&name, bits.to_vec()))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs all devices at once and waits for the end.
    ///
    /// # Errors
    /// As [`Session::run`], with the number of the device that failed.
    pub fn run(&mut self) -> SessionResult<()> {
        // A device that cannot begin would keep the others waiting.
        for (device, session) in self.sessions.iter_mut().enumerate() {
            session.prepare().map_err(|error| of_device(device, error))?;
        }
        self.each(&|_, session| session.run_device())
    }

    /// Calls `f` with every device and its session, all at once on threads of their own: for runs that the caller paces.
    ///
    /// # Errors
    /// Those of `f`, with the number of the device that failed.
    pub fn each(
        &mut self,
        f: &(dyn Fn(usize, &mut Session) -> SessionResult<()> + Sync),
    ) -> SessionResult<()> {
        let results: Vec<_> = std::thread::scope(|scope| {
            let sessions = self.sessions.iter_mut().enumerate();
            let runs = sessions.map(|(device, session)| scope.spawn(move || f(device, session)));
            let runs: Vec<_> = runs.collect();
            let panicked = |_| Err(CpuError::Panicked("while a device ran".into()).into());
            runs.into_iter().map(|run| run.join().unwrap_or_else(panicked)).collect()
        });
        let failed = results.into_iter().enumerate().filter_map(|(device, run)| Some((device, run.err()?)));
        let (others, first): (Vec<_>, Vec<_>) =
            failed.partition(|(_, error)| matches!(error, SessionError::Host(CpuError::OtherDevice(_))));
        match first.into_iter().chain(others).next() {
            Some((device, error)) => Err(of_device(device, error)),
            None => Ok(()),
        }
    }

    /// Compares every tensor that a stage wrote in the last run, on each device, with an independent reference in
    /// float64; sums over devices with those of all devices.
    ///
    /// # Errors
    /// As [`Session::verify`].
    pub fn verify(&self) -> SessionResult<Vec<Vec<Accuracy>>> {
        Session::verify_group(&self.sessions)
    }
}

fn of_device(device: usize, error: SessionError) -> SessionError {
    SessionError::Device { device, error: Box::new(error) }
}
