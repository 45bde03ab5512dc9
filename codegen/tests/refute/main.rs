//! Invalid plans are refused.

mod attend_check;
mod changed;
mod decode_check;
mod devices;
mod fused_check;
mod ledger;
mod mutations;
mod operations;
mod placement;
mod programs;
mod published;
#[path = "../support/mod.rs"]
mod support;
mod views;
