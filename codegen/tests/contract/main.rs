//! Rendered and compiled output keeps the contracts that proofs and callers rely on.

mod emit_device;
mod emit_headers;
mod host_policy;
mod practice;
mod rendered;
#[path = "../support/mod.rs"]
mod support;
mod windows;
