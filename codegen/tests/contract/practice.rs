//! Compiled kernels keep the contract that proofs rely on, and kernels that break it are detected: xtask/practice.py
//! checks both in their PTX. Mutants of csrc, too:
//!
//!     python3 xtask/practice.py --mutants

use std::process::Command;

#[test]
#[allow(clippy::print_stdout)]
fn kernels_of_every_family_keep_their_contract_and_mutants_of_their_ptx_are_caught() {
    if crate::support::nvcc().is_none() {
        return;
    }
    let mut python = Command::new("python3");
    let Ok(output) = python.arg("-B").arg(crate::support::root().join("xtask/practice.py")).output() else {
        return println!("skipped: no python3");
    };
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("as its contract says").count(), 8, "{said}");
    assert_eq!(said.matches(": caught: ").count(), 18, "{said}");
}
