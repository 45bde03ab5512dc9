//! The plan that files of `policies/rendered` are made of.

use crate::check::{Executor, Plan};
use crate::choose;
use crate::device::DEVICES;
use crate::diagnostic::Diagnostic;
use crate::spec;

/// The plan that is rendered for a spec: its default dims, the first device profile, one stream a stage or, where a stage has
/// no kernel on that device, the `cpu` executor. What the spec leaves open is chosen automatically.
///
/// # Errors
/// Faults of the spec, and obligations that do not hold.
pub fn rendered_plan(name: &str, source: &str) -> Result<Plan, Diagnostic> {
    let resolved = spec::parse(source, &format!("policies/{name}.ron"))?.resolve(&[])?;
    let device = &DEVICES[0];
    let kernels = resolved.own_kernels(device);
    choose::plan(&resolved, device, if kernels { Executor::Streams } else { Executor::Cpu })
}
