//! The choice, and its predicted time.

mod batches;
mod choose;
mod obstacles;
mod prediction;
mod schedule;
mod simulated;
