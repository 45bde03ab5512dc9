//! RON text becomes a plan or a diagnostic.

mod bad_specs;
mod config;
mod profiles;
mod spec;
mod spec_fuzz;
