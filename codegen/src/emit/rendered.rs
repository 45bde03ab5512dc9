//! The plan that files of `policies/rendered` are made of.

use crate::check::{Executor, Plan};
use crate::choose;
use crate::device::DEVICES;
use crate::diagnostic::Diagnostic;
use crate::spec;

/// The plan that is rendered for a spec: its default dims, the first device profile, one stream a stage. What the spec leaves
/// open is chosen automatically.
///
/// # Errors
/// Faults of the spec, and obligations that do not hold.
pub fn rendered_plan(name: &str, source: &str) -> Result<Plan, Diagnostic> {
    let resolved = spec::parse(source, &format!("policies/{name}.ron"))?.resolve(&[])?;
    choose::plan(&resolved, &DEVICES[0], Executor::Streams)
}
