//! `cusync calibrate` measures plausible values for a GPU.

use crate::common::gpu;
use cusync::tune::calibrate::calibrate;
use cusync_gen::device::{Profile, WindowCost};

#[test]
fn a_profile_is_measured_and_plausible() {
    let Some(gpu) = gpu() else { return };
    let base = gpu.device.profile().expect("checked when the GPU was opened");
    let measured = calibrate(0, &mut |line| println!("{line}")).unwrap_or_else(|e| panic!("{e}"));
    println!("{measured:#?}");
    let made = measured.profile(&base);
    println!("{}\nkept: {:?}", made.profile.to_ron(), made.kept);
    assert_eq!(Profile::from_ron(&made.profile.to_ron()).expect("it is a profile"), made.profile);
    // For the 64-row kernels on an H200, a line fit cannot separate k-block and fill times, so the base profile's
    // values are kept.
    let separated = measured.kernels.iter().filter(|k| k.times.is_some()).count();
    assert!(separated >= 3, "the times of {separated} kernels are told apart");
    let p = &made.profile;
    // Within a factor of the same GPU model and of physical limits.
    let near = |label: &str, have: f64, want: f64, factor: f64| {
        assert!(have > want / factor && have < want * factor, "{label}: {have}, the base says {want}");
    };
    near("matrix rate", p.tflops, base.tflops, 2.0);
    near("reads", p.read_tbs, base.read_tbs, 2.0);
    near("hand-off", p.handoff_us, base.handoff_us, 4.0);
    assert!((0.2..20.0).contains(&p.boundary_us), "boundary: {} us", p.boundary_us);
    assert!(p.sm_tflops >= p.tflops / f64::from(p.sms));
    assert!(p.tile_us > 0.0 && p.launch_us > 0.0, "{p:?}");
    if base.arch >= 90 && !cusync::device::kernels_of(cusync::ffi::CUSYNC_FAMILY_CHAIN).is_empty() {
        for family in [&measured.products, &measured.windows] {
            assert!(
                !family.chains.is_empty() && family.chains.iter().all(|c| c.sm_tflops.is_some()),
                "{family:?}"
            );
        }
        near("rate of an SM", p.fused.sm_tflops, base.fused.sm_tflops, 1.5);
        near("epilogue", p.fused.tile_rate((128, 256), (1, 1)).epilogue_us, 3.7, 4.0);
        let [windows, shipped] =
            [p, &base].map(|profile| profile.fused.windows.as_ref().expect("kernels for windows"));
        for (c, was) in windows.rates.iter().zip(&shipped.rates) {
            near(&format!("rate of {:?}", c.tile), c.rate, was.rate, 1.5);
            near(&format!("epilogue of {:?}", c.tile), c.epilogue_us, was.epilogue_us, 4.0);
        }
        near("launch of windows", windows.launch_us, shipped.launch_us, 4.0);
        let passed_on =
            |profile: &Profile, cost: &WindowCost| profile.fused.handoff_us + cost.post_us + cost.fill_us;
        near("passing a tile on", passed_on(p, windows), passed_on(&base, shipped), 2.0);
        let kept = |field: &str| made.kept.iter().any(|kept| kept == field);
        assert!(!kept("fused.gelu_us") && !kept("fused.windows"));
        for section in ["fused", "fused.windows"] {
            for field in ["launch_us", "fill_us", "post_us", "slab_write_us", "slab_read_us"] {
                let field = format!("{section}.{field}");
                assert!(!kept(&field), "{field} was not measured");
            }
        }
    }
}
