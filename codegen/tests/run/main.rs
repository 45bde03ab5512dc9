//! The choice, and its predicted time.

mod choose;
mod obstacles;
mod prediction;
mod schedule;
