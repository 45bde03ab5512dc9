//! What is chosen, and how long it is predicted to take.

mod choose;
mod obstacles;
mod prediction;
mod schedule;
