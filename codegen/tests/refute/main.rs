//! Invalid plans are refused.

mod attend_check;
mod changed;
mod decode_check;
mod devices;
mod fused_check;
mod general;
mod ledger;
mod mutations;
mod placement;
mod programs;
mod published;
#[path = "../support/mod.rs"]
mod support;
