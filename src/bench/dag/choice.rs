//! What is chosen among the forms before anything is measured.

use crate::dag::run::{Bound, Form};
use crate::dag::{Dependences, Distribution};

/// A chain where nothing can run beside anything else, else branches; programmatic edges where the GPU has them.
pub(super) fn choose(
    bound: &Bound,
    dependences: &Dependences,
    distribution: &Distribution,
    forms: impl Iterator<Item = Form>,
) -> Form {
    let forms: Vec<Form> = forms.collect();
    let chain = dependences.reduced.len() + 1 == bound.program().nodes().len() && distribution.streams() == 1;
    let wishes = match chain {
        true => [Form::SerialProgrammatic, Form::SerialGraph],
        false => [Form::BranchProgrammatic, Form::BranchGraph],
    };
    wishes.into_iter().find(|form| forms.contains(form)).unwrap_or(Form::Serial)
}
