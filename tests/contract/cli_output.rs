//! What commands do whose output cannot be written.

use std::fs::File;
use std::process::{Command, Stdio};

fn cusync(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cusync"));
    command.args(args).stdin(Stdio::null());
    command
}

const COMMANDS: [&[&str]; 11] = [
    &["check", "two_gemms", "--json"],
    &["check", "two_gemms"],
    &["explain", "two_gemms"],
    &["simulate", "two_gemms", "--json"],
    &["schedule", "vec"],
    &["tune", "--show", "--cache", "no such cache"],
    &["trace", "two_gemms", "--simulate"],
    &["list"],
    &["check", "--help"],
    &["--help"],
    &["--version"],
];

#[test]
fn output_that_is_lost_is_an_error() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("skipped: no /dev/full");
        return;
    };
    for args in COMMANDS {
        let full = full.try_clone().expect("another handle");
        let output = cusync(args).stdout(full).stderr(Stdio::piped()).output().expect("the binary starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.starts_with("error: the output cannot be written: "), "{args:?}: {error}");
    }
}

#[test]
fn a_reader_who_has_enough_is_no_error() {
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = cusync(args).stdout(writer).stderr(Stdio::piped()).output().expect("the binary starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}
