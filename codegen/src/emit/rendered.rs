//! The plans of the files in `policies/rendered`.

use crate::check::{Executor, Plan};
use crate::choose;
use crate::device::DEVICES;
use crate::diagnostic::Diagnostic;
use crate::spec;

/// The plan rendered for a spec: its default dims, the first device profile, and one stream per stage or, if a stage
/// has no kernel on that device, the `cpu` executor. Everything the spec leaves open is chosen automatically.
///
/// # Errors
/// Faults of the spec, and failed obligations.
pub fn rendered_plan(name: &str, source: &str) -> Result<Plan, Diagnostic> {
    let resolved = spec::parse(source, &format!("policies/{name}.ron"))?.resolve(&[])?;
    let device = &DEVICES[0];
    let kernels = resolved.own_kernels(device);
    choose::plan(&resolved, device, if kernels { Executor::Streams } else { Executor::Cpu })
}
