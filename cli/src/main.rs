//! The command `cusync`: see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cusync_cli::command(std::env::args_os()))
}
