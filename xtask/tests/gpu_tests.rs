//! The runner of the GPU tests, with a script in place of the tests.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// Three tests, and a parser for the filters used here.
const SUITE: &str = r#"#!/bin/sh
tests="a::one a::two b::three"
for arg in "$@"; do
  if [ -n "$value" ]; then value=; continue; fi
  case "$arg" in
    --test-threads) value=1 ;;
    --list) list=1 ;;
    --ignored) tests="$IGNORED" ;;
    --skip) skip=1 ;;
    --*) ;;
    *) if [ -n "$skip" ]; then out="$arg"; skip=; else only="$arg"; fi ;;
  esac
done
for test in $tests; do
  case "$test" in *"$only"*) ;; *) continue ;; esac
  if [ -n "$out" ]; then case "$test" in *"$out"*) continue ;; esac; fi
  if [ -n "$list" ]; then echo "$test: test"; else echo "test $test ... ok"; fi
done
if [ -n "$list" ]; then exit 0; fi
if [ -n "$SAYS" ]; then echo "$SAYS"; fi
exit "${STATUS:-0}"
"#;

/// The runner next to that script, created once: a file that is being written cannot be executed.
static RUNNER: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu_tests");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    let (runner, suite) = (dir.join("gpu_tests"), dir.join("gpu_suite"));
    std::fs::copy(env!("CARGO_BIN_EXE_gpu_tests"), &runner).expect("copied");
    std::fs::write(&suite, SUITE).expect("written");
    std::fs::set_permissions(&suite, std::fs::Permissions::from_mode(0o755)).expect("may be run");
    runner
});

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(&*RUNNER);
    command.args(args).env_remove("CUSYNC_GPU_QUICK").envs(env.iter().copied());
    command.output().expect("the runner starts")
}

/// The exit status and the reported faults.
fn faults(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, Vec<String>) {
    let output = run(args, env);
    let text = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.lines().map(str::to_owned).collect())
}

#[test]
fn all_tests_or_those_of_a_name_may_run() {
    assert_eq!(faults(&[], &[]), (Some(0), vec![]));
    assert_eq!(faults(&["a::"], &[]), (Some(0), vec![]));
    assert_eq!(faults(&["--test-threads", "1"], &[]), (Some(0), vec![]));
    let elsewhere = [("SAYS", "skipped: another build: delays need an option")];
    assert_eq!(faults(&[], &elsewhere), (Some(0), vec![]));
    let output = run(&[], &elsewhere);
    assert!(String::from_utf8_lossy(&output.stdout).contains("not in this build: delays need an option"));
}

#[test]
fn a_test_that_was_left_out_is_a_fault_and_is_named() {
    for (args, env, says) in [
        (&["--skip", "two"][..], &[][..], "left out: a::two"),
        (&["a::", "--skip", "two"], &[], "left out: a::two"),
        (&[], &[("IGNORED", "b::three")], "left out: b::three"),
        (&[], &[("SAYS", "skipped: no GPU")], "skipped: no GPU"),
        (&["--nocapture"], &[("SAYS", "test a::one ... skipped: no GPU")], "skipped: no GPU"),
        (&["a::"], &[("SAYS", "skipped: another build: x")], "skipped: another build: x"),
        (&[], &[("CUSYNC_GPU_QUICK", "1")], "left out: all but a few sizes, for CUSYNC_GPU_QUICK is set"),
        (&[], &[("STATUS", "1")], "the tests ended with exit status: 1"),
    ] {
        assert_eq!(faults(args, env), (Some(1), vec![format!("error: {says}")]), "{args:?} {env:?}");
    }
    let (status, said) = faults(&["nothing"], &[]);
    assert!(status == Some(1) && said[0].contains("no test is named"), "{said:?}");
}
