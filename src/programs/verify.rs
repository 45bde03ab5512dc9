//! Declarations of kernels against their code.

use cusync_dag::{Evidence, NodeId, Program};

use super::calls::Call;
use super::error::{Error, Result};
use crate::device::{GridControl, Presence};

/// The program with the evidence for each kernel that is declared fit for programmatic edges. `code` gives the name and the
/// instructions of such a kernel.
///
/// # Errors
/// [`Error::NeverWaits`] and [`Error::NeverTriggers`] for code that contradicts the declaration.
pub fn verified<'a>(
    program: &Program,
    mut code: impl FnMut(NodeId) -> (&'a str, GridControl),
) -> Result<Program> {
    let mut found = program.clone();
    for (id, node) in program.ids().zip(program.nodes()) {
        let Some(declared) = node.kernel().filter(|kernel| kernel.programmatic) else { continue };
        let (kernel, GridControl { wait, trigger }) = code(id);
        let (node, kernel) = (node.name.clone(), kernel.into());
        let triggers = declared.tiles.as_ref().is_some_and(|tiles| tiles.early_trigger);
        let evidence = match (wait, trigger) {
            (Presence::Absent, _) => return Err(Error::NeverWaits { node, kernel }),
            (_, Presence::Absent) if triggers => return Err(Error::NeverTriggers { node, kernel }),
            (Presence::Unknown(why), _) => Evidence::Declaration(why),
            (_, Presence::Unknown(why)) if triggers => Evidence::Declaration(why),
            (Presence::Present, _) => Evidence::Code,
        };
        found.set_evidence(id, evidence)?;
    }
    Ok(found)
}

/// [`verified`] for the calls of a program.
pub(super) fn verified_calls(program: &Program, calls: &[Call]) -> Result<Program> {
    verified(program, |id| match &calls[id.index()] {
        Call::Kernel(call) => (call.function().name(), call.function().grid_control().clone()),
        Call::Copy(_) | Call::Opaque(_) | Call::Adopted(_) => ("", GridControl::unknown("it is no kernel")),
    })
}
