//! Proof obligations over a candidate, and the only constructor of [`Plan`].

mod plan;

pub use plan::{Choice, EdgeChoice, EdgePlan, Executor, Plan, StartGuarantee};
