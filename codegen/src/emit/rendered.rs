//! The files of `policies/rendered`: source text in, file contents out.

use super::{handle, header};
use crate::check::{Executor, Plan};
use crate::choose;
use crate::device::DEVICES;
use crate::diagnostic::Diagnostic;
use crate::spec;

/// The plan that is rendered of a spec: its default dims, the first device profile, one stream a stage; what the spec
/// leaves open is chosen automatically.
///
/// # Errors
/// Faults of the spec, and obligations that do not hold.
pub fn rendered_plan(name: &str, source: &str) -> Result<Plan, Diagnostic> {
    let resolved = spec::parse(source, &format!("policies/{name}.ron"))?.resolve(&[])?;
    choose::plan(&resolved, &DEVICES[0], Executor::Streams)
}

/// Names and contents of the files rendered of the spec `name`.ron.
///
/// # Errors
/// Those of [`rendered_plan`].
pub fn rendered_files(name: &str, source: &str) -> Result<Vec<(String, String)>, Diagnostic> {
    let plan = rendered_plan(name, source)?;
    Ok(vec![(format!("{name}.h"), header(&plan)), (format!("{name}.rs"), handle(&plan))])
}
