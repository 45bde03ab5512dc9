//! A consumer without a post from its producer ends in an error that names the edge, within two seconds.
//!
//! The trap that ends the wait destroys the process's CUDA context, so each case runs in a child process: this same
//! binary, with an environment variable that selects the executor to starve.

use crate::common::{dim, executors, gpu, pipeline, plan};
use cusync::runtime::{Error, InputSets, Options};
use cusync_gen::check::Executor;

const ROLE: &str = "CUSYNC_STARVED_CHILD";

fn executor_of(role: &str) -> Executor {
    match role {
        "streams" => Executor::Streams,
        "programmatic" => Executor::Programmatic,
        other => panic!("no such role: {other}"),
    }
}

/// The child process: starves, checks the error, and prints it. Without the variable it does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let executor = executor_of(&role);
    let gpu = gpu().expect("the parent saw a GPU");
    let plan = plan(&gpu, "two_gemms", &dim("M", 512), executor);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 31).expect("inputs fit");
    let options = Options { starve: true, ..Options::default() };
    let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
    pipeline.prepare().expect("kernels load");

    pipeline.run(executor).expect("kernels are queued");
    let error = pipeline.synchronize().expect_err("no post ever comes");
    println!("{error}");
    let Error::Starved { edge, consumer, want, have, tile, k_block, .. } = &error else {
        panic!("not the error of a starved edge: {error}")
    };
    assert_eq!(edge, "first -> second (C)");
    assert_eq!(consumer, "second");
    assert!(have < want, "have {have}, want {want}");
    let grid = plan.graph().stages[1].grid;
    assert!(tile.0 < grid.0 && tile.1 < grid.1, "tile {tile:?} of grid {grid:?}");
    assert!(*k_block < plan.graph().stages[1].k_blocks, "k-block {k_block}");
    assert!(pipeline.is_poisoned());
    assert!(matches!(pipeline.run(executor), Err(Error::Poisoned(_))), "a poisoned pipeline says so");
}

#[test]
fn a_starved_edge_is_named_in_time() {
    // The turn lasts until the last child exits: with other kernels running, an error takes longer.
    let Some(gpu) = gpu() else { return };
    for executor in executors(&gpu).into_iter().filter(|e| *e != Executor::Serial) {
        let role = cusync::runtime::executor_name(executor);
        let this = std::env::current_exe().expect("this binary has a path");
        let child = std::process::Command::new(this)
            .args(["--exact", "starved::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .output()
            .expect("the child starts");
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success(), "{role}: {}\n{out}{err}", child.status);
        assert!(out.contains("edge first -> second (C): second tile"), "{role}:\n{out}{err}");
    }
}
