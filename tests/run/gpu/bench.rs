//! The benchmark's records hold together.

use crate::common::gpu;
use cusync::bench::{Regime, SuiteArgs, bench_suite, rows};

#[test]
fn a_small_benchmark_has_baselines_and_floors() {
    // Only asks whether there is one; the benchmark opens it itself.
    let Some(_gpu) = gpu() else { return };
    let args = SuiteArgs {
        points: ["two_gemms", "gpt3_mlp", "llama65_mlp"]
            .map(|name| (name.into(), vec![("M".into(), 64)]))
            .to_vec(),
        seconds: Some(30.0),
        ..SuiteArgs::default()
    };
    let mut sizes = 0;
    let report = bench_suite(&args, &mut |_| sizes += 1).unwrap_or_else(|e| panic!("{e}"));
    println!("not measured: {:?}", report.skipped);
    assert!(sizes > 0, "progress is told");
    assert!(report.ceilings.sustained.matrix_tflops > 1.0, "{:?}", report.ceilings);
    assert!(report.ceilings.rested.read_tbs > 0.05, "{:?}", report.ceilings);
    for name in ["two_gemms", "gpt3_mlp", "llama65_mlp"] {
        for regime in [Regime::Rested, Regime::Sustained] {
            let of: Vec<_> =
                report.records.iter().filter(|r| r.pipeline == name && r.regime == regime).collect();
            assert!(of.len() >= 6, "{name} {regime:?}: {} variants", of.len());
            for r in of {
                assert!(r.time.p10_us <= r.time.median_us && r.time.median_us <= r.time.p90_us, "{r:?}");
                assert!(
                    r.time.samples > 0 && r.baseline_us.is_some_and(|us| us > 0.0) && r.floor_us > 0.0,
                    "{r:?}"
                );
            }
        }
    }
    let (header, table) = rows(&report.records);
    assert_eq!(table.len(), report.records.len());
    assert!(table.iter().all(|row| row.len() == header.len()));
}
