//! Programs on a GPU: recorded with their kernels, bound to memory, and built into something that is launched again and
//! again.
//!
//! [`Recording`] writes serial code down; [`Recording::bind`] gives it memory. [`Backend`] says how the nodes reach the
//! GPU, [`Bound::executable`] builds that from a [`super::Distribution`]. Plans by hand ([`LanePlan`], [`GraphPlan`]) go
//! the same way.

mod backend;
mod call;
mod error;
mod exec;
mod plan;
mod record;

pub use backend::Form;
pub use call::Call;
pub use error::{Error, Result};
pub use exec::Executable;
pub use plan::{GraphPlan, LanePlan, Step, Steps};
pub use record::{Bound, Operand, Recording};
