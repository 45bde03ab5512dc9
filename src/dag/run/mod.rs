//! Programs on a GPU: recorded with their kernels, bound to memory, and built into something that is launched again and
//! again.
//!
//! [`Recording`] writes serial code down, and [`Recording::bind`] gives it memory; [`Adopted`] takes a captured stream
//! instead. A [`super::Form`] says how the nodes reach the GPU, and [`executable`] builds that from a
//! [`super::Schedule`]. Plans by hand ([`LanePlan`], [`GraphPlan`]) go the same way.

mod adopt;
mod backend;
mod call;
mod error;
mod exec;
mod operand;
mod plan;
mod record;
mod tiled;

pub use adopt::{Adopted, Declaration, ParameterAccess};
pub use backend::executable;
pub use call::Call;
pub use error::{Error, Result};
pub use exec::Executable;
pub use operand::Operand;
pub use plan::{GraphPlan, LanePlan, Step, Steps};
pub use record::{Bound, Recording};
pub use tiled::RefinedCalls;
