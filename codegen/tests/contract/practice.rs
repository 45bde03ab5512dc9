//! Compiled kernels keep the contract that proofs rely on, and kernels that break it are detected: xtask/practice.py
//! checks both in their PTX. All mutants of csrc:
//!
//!     python3 xtask/practice.py --mutants

use std::process::Command;

/// The reader's output; `None` if it cannot run.
#[allow(clippy::print_stdout)]
fn read(arguments: &[&str]) -> Option<(bool, String)> {
    crate::support::nvcc()?;
    let mut python = Command::new("python3");
    python.arg("-B").arg(crate::support::root().join("xtask/practice.py")).args(arguments);
    let Ok(output) = python.output() else {
        println!("skipped: no python3");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((output.status.success(), said + &String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn kernels_of_every_family_keep_their_contract() {
    let Some((good, said)) = read(&[]) else { return };
    assert!(good, "{said}");
    let kept = said.lines().filter(|line| line.contains("as its contract says")).count();
    assert_eq!(kept, 8, "{said}");
}

#[test]
fn a_fence_removed_a_weaker_wait_and_a_relaxed_look_are_caught() {
    let mutants = ["the proxy fence is gone", "full waits are `.read`", "a look is relaxed"];
    let Some((good, said)) = read(&["--mutants", mutants[0], mutants[1], "a look is relaxed"]) else {
        return;
    };
    assert!(good, "{said}");
    for mutant in mutants {
        assert!(
            said.lines().any(|line| line.starts_with(mutant) && line.contains("caught")),
            "{mutant}: {said}"
        );
    }
}
