//! Checks a pipeline: RON in, a verdict on every proof obligation out.
//!
//!     cargo run --release --example 01_check

use cusync_gen::check::{Executor, Obligation, judge};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::spec;

const SPEC: &str = r#"
Pipeline(
    name: "mine",
    dims: { "M": 256, "K": 1024, "N": 2048 },
    stages: [
        Gemm(name: "up", a: "X(M,K)", b: "W1(K,N)", out: "Y(M,N)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,N)", b: "W2(N,K)", out: "Z(M,K)"),
    ],
)"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Profile::named("h200").ok_or("the profile ships")?;
    // Dims have defaults in the spec; this replaces M with a size that no tile divides.
    let resolved = spec::parse(SPEC, "mine.ron")
        .and_then(|spec| spec.resolve(&[("M".into(), 37)]))
        .map_err(|d| d.render(SPEC, "mine.ron", false))?;

    // Choose tiles, orders and policies, then prove the choice.
    let candidate = choose::candidate(&resolved, device, Executor::Programmatic)
        .map_err(|d| d.render(SPEC, "mine.ron", false))?;
    let report = judge(&candidate);
    for obligation in Obligation::ALL {
        match report.refutation(obligation) {
            None => show(&format!("{:9} proved", obligation.id())),
            Some(counterexample) => show(&format!("{:9} REFUTED\n{counterexample}", obligation.id())),
        }
    }
    if report.proved() { Ok(()) } else { Err("refuted".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
