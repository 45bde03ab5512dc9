//! The command's behavior that others rely on: answers, errors, files, the first hour.

mod broken_driver;
mod cli_against;
mod cli_contract;
mod cli_output;
mod cli_tune;
mod first_hour;
mod json_errors;
mod kernel_build;
mod obstacles;
mod timelines;

/// The repository's folder.
fn root() -> &'static std::path::Path {
    cusync::sources::ROOT.as_ref()
}
