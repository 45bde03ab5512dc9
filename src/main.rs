//! The `cusync` command.
fn main() {}
