//! The benchmark's records are consistent.

use crate::common::gpu;
use cusync_bench::{LayerArgs, Regime, bench_layers, convolutions, mlps, rows};

#[test]
fn a_small_benchmark_has_baselines_and_floors() {
    // Only checks that a GPU exists; the benchmark opens it itself.
    let Some(_gpu) = gpu() else { return };
    let args = LayerArgs {
        points: mlps(&["two_gemms", "gpt3_mlp", "llama65_mlp"].map(str::to_owned), &[64]),
        seconds: Some(30.0),
        ..LayerArgs::default()
    };
    let mut sizes = 0;
    let report = bench_layers(&args, &mut |_| sizes += 1).unwrap_or_else(|e| panic!("{e}"));
    println!("not measured: {:?}", report.skipped);
    assert!(sizes > 0, "progress is told");
    assert!(report.ceilings.sustained.matrix_tflops > 1.0, "{:?}", report.ceilings);
    assert!(report.ceilings.rested.read_tbs > 0.05, "{:?}", report.ceilings);
    for name in ["two_gemms", "gpt3_mlp", "llama65_mlp"] {
        for regime in [Regime::Rested, Regime::Sustained] {
            let matching: Vec<_> =
                report.records.iter().filter(|r| r.pipeline == name && r.regime == regime).collect();
            assert!(matching.len() >= 6, "{name} {regime:?}: {} variants", matching.len());
            for r in matching {
                assert!(r.clock_mhz.is_some_and(|mhz| (300.0..2500.0).contains(&mhz)), "{r:?}");
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

#[test]
fn a_benchmark_of_convolutions_has_the_fused_and_the_serial_kernel() {
    let Some(_gpu) = crate::fused::hopper() else { return };
    let points = convolutions(&["resnet_layer".into()], &[3]);
    let args = LayerArgs { points, seconds: Some(20.0), ..LayerArgs::default() };
    let report = bench_layers(&args, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    assert!(report.wrong.is_empty() && report.fault.is_none(), "{:?} {:?}", report.wrong, report.fault);
    for variant in ["serial graph", "fused graph", "fused edges graph", "fused dynamic graph"] {
        let matching: Vec<_> = report.records.iter().filter(|r| r.variant == variant).collect();
        assert_eq!(
            matching.len(),
            8,
            "{variant}: four shapes, two regimes; not measured: {:?}",
            report.skipped
        );
        assert!(matching.iter().all(|r| r.max_rel_err.is_some() && r.baseline_us.is_some()), "{variant}");
    }
}
