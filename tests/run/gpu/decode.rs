//! The decode kernels on a GPU: right at every width and shape, bit-identical from run to run, replayable, and timed.

use crate::common::{Gpu, gpu, quick};
use crate::decode_rig::{Layer, Model, RUN, Rig, SKIP_WAITS, STARVE, STREAM_ONLY, gated, models, plain};
use cusync::device::{DecodeTuning, Delays, Deviations, Kernel, LaunchAttributes, kernels_of};
use cusync::ffi;
use cusync_gen::graph::Activation;

/// Whether this binary's kernels support delays.
const DELAYS: bool = option_env!("CUSYNC_HAS_DELAYS").is_some();

/// The GPU, if it is a Hopper and this binary has decode kernels.
fn hopper() -> Option<Gpu> {
    let gpu = gpu()?;
    if gpu.device.capability() != (9, 0) || kernels_of(ffi::CUSYNC_FAMILY_DECODE).is_empty() {
        println!("skipped: decode kernels need a GPU of compute capability 9.0 and a build for it");
        return None;
    }
    Some(gpu)
}

/// Poisons outputs, runs eagerly and programmatically, verifies every layer, and compares the runs bit by bit.
fn assert_runs_right(gpu: &Gpu, model: &Model, m: u32, element: u32) {
    let rig = Rig::new(&gpu.device, model, m, element, 1);
    let chain = rig.chain(0, DecodeTuning::default(), RUN);
    let label = format!("{} M = {m}, element {element}", model.name);
    for seed in 0..2 {
        rig.refill(500 + seed);
        let mut first = None;
        for programmatic in [false, true, true, false] {
            rig.poison();
            rig.launch(&chain, programmatic);
            rig.synchronize(&label);
            let bits = rig.outputs();
            match &first {
                None => {
                    rig.assert_right(&label);
                    first = Some(bits);
                }
                Some(first) => {
                    assert!(*first == bits, "{label}: programmatic {programmatic} differs in its bits")
                }
            }
        }
    }
}

#[test]
fn mlps_are_right() {
    let Some(gpu) = hopper() else { return };
    let sizes: &[u32] = if quick() { &[1, 37] } else { &[1, 3, 8, 16, 17, 32, 37, 64] };
    for model in models() {
        for &m in sizes {
            for element in [ffi::CUSYNC_F16, ffi::CUSYNC_BF16] {
                assert_runs_right(&gpu, &model, m, element);
            }
        }
    }
}

/// Shapes that are not multiples of anything: short last k-blocks, chunks and groups, workers without a feature, one to
/// four row tiles, and chains that read inputs late.
fn ragged() -> Vec<Model> {
    let identity = Activation::Identity;
    let residual = |n, from, activation| Layer { bias: true, residual: Some(from), ..plain(n, activation) };
    vec![
        Model { name: "narrow", k: 8, layers: vec![plain(72, Activation::Relu), plain(40, identity)] },
        Model {
            name: "one",
            k: 520,
            layers: vec![Layer { bias: true, ..plain(1096, Activation::GeluTanh) }],
        },
        Model {
            name: "late",
            k: 2752,
            layers: vec![plain(2752, Activation::Relu), residual(2752, 0, identity)],
        },
        Model { name: "gates", k: 344, layers: vec![gated(1000), gated(2744), plain(344, identity)] },
        Model { name: "tall", k: 264, layers: vec![plain(16888, Activation::Relu), plain(264, identity)] },
        Model {
            name: "own",
            k: 1000,
            layers: vec![plain(1000, identity), residual(1000, 1, Activation::Relu)],
        },
        Model {
            name: "eight",
            k: 712,
            layers: (0..8)
                .map(|i| if i % 2 == 0 { gated(968) } else { residual(712, i - 1, identity) })
                .collect(),
        },
    ]
}

#[test]
fn ragged_chains_are_right() {
    let Some(gpu) = hopper() else { return };
    for model in ragged() {
        for m in [1, 3, 8, 16, 17, 32, 37, 64] {
            for element in [ffi::CUSYNC_F16, ffi::CUSYNC_BF16] {
                assert_runs_right(&gpu, &model, m, element);
            }
        }
    }
}

/// Three and four 64-row tiles per worker, and more, which is refused.
#[test]
fn many_rows_are_right_or_refused() {
    let Some(gpu) = hopper() else { return };
    let wide = |n| Model { name: "wide", k: 512, layers: vec![plain(n, Activation::Identity)] };
    for model in [wide(20000), wide(33000)] {
        for m in [5, 12, 32, 64] {
            assert_runs_right(&gpu, &model, m, ffi::CUSYNC_F16);
        }
    }
    let rig = Rig::new(&gpu.device, &wide(34000), 64, ffi::CUSYNC_F16, 1);
    let refused = Kernel::new(&gpu.device, rig.args(0, DecodeTuning::default(), RUN));
    assert!(matches!(refused, Err(cusync::device::Error::NotBuilt(_))), "{refused:?}");
}

#[test]
fn replays_stay_right() {
    let Some(gpu) = hopper() else { return };
    for (model, m) in models().iter().zip([8, 64, 17]) {
        let rig = Rig::new(&gpu.device, model, m, ffi::CUSYNC_F16, 2);
        let chains = [1, 0].map(|set| rig.chain(set, DecodeTuning::default(), RUN));
        let graph = rig.stream.capture(|| -> cusync::device::Result<()> {
            for chain in chains.iter().chain(&chains) {
                chain.launch(LaunchAttributes { stream: &rig.stream, started: None, programmatic: true })?;
            }
            Ok(())
        });
        let graph = graph.expect("captures");
        rig.poison();
        rig.launch(&chains[1], false);
        rig.synchronize("eager");
        rig.assert_right("eager");
        let want = rig.outputs();
        for replay in 0..200 {
            if replay % 50 == 49 {
                rig.poison();
            }
            graph.launch(&rig.stream).expect("launches");
            if replay % 50 == 49 {
                rig.launch(&chains[1], replay % 100 == 99);
                rig.synchronize("replay");
                assert!(rig.outputs() == want, "{} M = {m}: replay {replay} differs in its bits", model.name);
            }
        }
    }
}

/// Tunings in which activation slots pass from one warpgroup to the other while much of the weight ring is full: few
/// slots, small chunks, and shapes with k-blocks that do not fill the last chunk. The bits are compared with the first
/// launch.
#[test]
fn slots_that_change_hands_are_read_in_time() {
    let Some(gpu) = hopper() else { return };
    let kib = |n: u32| n * 1024;
    let tuning = |chunk, in_flight, ahead, activation_slots| DecodeTuning {
        chunk_bytes: kib(chunk),
        in_flight_bytes: kib(in_flight),
        ahead_bytes: kib(ahead),
        activation_slots,
        ..DecodeTuning::default()
    };
    let tunings = [
        tuning(24, 128, 160, 8),
        tuning(24, 128, 160, 12),
        tuning(16, 64, 80, 8),
        tuning(16, 64, 160, 12),
        tuning(32, 128, 160, 4),
        DecodeTuning::default(),
    ];
    // Always two k-blocks per chunk in the second layer, and an odd number of k-blocks.
    let odd = Model { name: "odd", k: 1024, layers: vec![gated(2752), plain(12288, Activation::Identity)] };
    let llama = models().swap_remove(1);
    let launches = if quick() { 200 } else { 1500 };
    for (model, m) in [(&llama, 1), (&llama, 8), (&odd, 1), (&odd, 20)] {
        let rig = Rig::new(&gpu.device, model, m, ffi::CUSYNC_F16, 1);
        for tuning in tunings {
            let label = format!("{} M = {m} {tuning:?}", model.name);
            for &limit_ns in if DELAYS { &[0, 2000][..] } else { &[0] } {
                let delays = Delays { seed: 9, limit_ns };
                let chain = rig.chain(0, tuning, Deviations { delays, ..RUN });
                rig.poison();
                rig.launch(&chain, false);
                rig.synchronize(&label);
                rig.assert_right(&label);
                let want = rig.outputs();
                for launch in 1..launches {
                    rig.launch(&chain, false);
                    rig.synchronize(&label);
                    assert!(rig.outputs() == want, "{label}: launch {launch} differs in its bits");
                }
            }
        }
    }
}

const ROLE: &str = "CUSYNC_STARVED_DECODE";

/// The child process of the next test: its trap destroys the process's context.
#[test]
fn starved_child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let gpu = hopper().expect("the parent saw a GPU");
    let model = &models()[1];
    let rig = Rig::new(&gpu.device, model, 8, ffi::CUSYNC_F16, 1);
    let chain = rig.chain(0, DecodeTuning::default(), STARVE);
    rig.launch(&chain, false);
    let error = rig.stream.synchronize().expect_err("no post ever comes");
    let report = rig.report().unwrap_or_else(|| panic!("no report: {error}"));
    println!("starved: {report:?}");
    assert_eq!((report.claimed, report.edge, report.stage, report.have), (2, 0, 1, 0));
    assert!(report.want >= 1 && report.slot < model.layers[0].n.div_ceil(64), "{report:?}");
}

#[test]
fn a_starved_stage_is_reported() {
    // The turn lasts until the child exits: with other kernels running, an error takes longer.
    let Some(_gpu) = hopper() else { return };
    let this = std::env::current_exe().expect("this binary has a path");
    let child = std::process::Command::new(this)
        .args(["--exact", "decode::starved_child", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .output()
        .expect("the child starts");
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{}\n{out}{err}", child.status);
    assert!(out.contains("starved: "), "{out}{err}");
}

/// The times at which each worker begins, gets its first operands, ends its arithmetic and posts: checks their order
/// and prints them.
#[test]
fn decode_timeline() {
    let Some(gpu) = hopper() else { return };
    for model in models() {
        for m in [8, 64] {
            let rig = Rig::new(&gpu.device, &model, m, ffi::CUSYNC_F16, SETS);
            let records = rig.trace(SETS - 1, DecodeTuning::default());
            let origin = records.iter().map(|r| r.begin).min().expect("there are workers");
            for stage in 0..model.layers.len() as u32 {
                let in_stage: Vec<_> = records.iter().filter(|r| r.item == stage).collect();
                assert_eq!(in_stage.len(), records.len() / model.layers.len());
                for r in &in_stage {
                    let times = [r.begin, r.loaded, r.math_end, r.end];
                    assert!(times.is_sorted() && r.ready <= r.loaded, "{r:?}");
                }
                let spread = |name: &str, time: fn(&ffi::cusync_trace) -> u64| {
                    let mut us: Vec<f64> = in_stage.iter().map(|r| (time(r) - origin) as f64 / 1e3).collect();
                    us.sort_by(f64::total_cmp);
                    format!("{name} {:.1} {:.1} {:.1}", us[0], us[us.len() / 2], us[us.len() - 1])
                };
                println!(
                    "timeline {:<10} M {m:>2} stage {stage} [least, median, most us]: {}; {}; {}; {}; {}",
                    model.name,
                    spread("begin", |r| r.begin),
                    spread("ready", |r| r.ready),
                    spread("loaded", |r| r.loaded),
                    spread("math end", |r| r.math_end),
                    spread("end", |r| r.end),
                );
            }
        }
    }
}

const SETS: usize = 4;

/// Median us per launch with plain and programmatic edges, and the bounding resource.
#[test]
fn decode_speed() {
    let Some(gpu) = hopper() else { return };
    for model in models() {
        for m in [1, 8, 16, 32, 64] {
            let rig = Rig::new(&gpu.device, &model, m, ffi::CUSYNC_F16, SETS);
            let time = |mode| {
                let chains: Vec<_> = (0..SETS).map(|s| rig.chain(s, DecodeTuning::default(), mode)).collect();
                [false, true].map(|programmatic| rig.time(&chains, programmatic))
            };
            let run = time(RUN);
            let free = time(SKIP_WAITS);
            let limit = time(STREAM_ONLY);
            let tbs = |us: f64| rig.weight_bytes() as f64 / us * 1e-6;
            println!(
                "decode {:<10} M {m:>2}  run {:6.2} / {:6.2} us ({:.2} / {:.2} TB/s)  no waits {:6.2} / {:6.2}  read \
                 limit {:6.2} / {:6.2}  share of the limit {:.3} / {:.3}",
                model.name,
                run[0],
                run[1],
                tbs(run[0]),
                tbs(run[1]),
                free[0],
                free[1],
                limit[0],
                limit[1],
                limit[0] / run[0],
                limit[1] / run[1],
            );
            for i in 0..2 {
                assert!(run[i] >= 0.9 * limit[i], "{run:?} cannot be faster than reading, {limit:?}");
                assert!(tbs(limit[i]) < 5.5, "{limit:?} us is more than the memory can give");
            }
        }
    }
}

/// Ring sizes: sixteen points that cover every pair of values of any two sizes, and the slots alone. Each is right and
/// bit-identical in every launch; the times are printed.
#[test]
fn every_tuning_is_right() {
    /// Verified launches per point.
    const LAUNCHES: usize = 24;
    /// Multiplication by an element in the field of four; addition is exclusive or.
    const TWICE: [usize; 4] = [0, 2, 3, 1];
    let Some(gpu) = hopper() else { return };
    let kib = |n: u32| n * 1024;
    for model in models() {
        for &m in if quick() { &[8][..] } else { &[1, 8, 32, 64] } {
            let rig = Rig::new(&gpu.device, &model, m, ffi::CUSYNC_F16, SETS);
            let small = DecodeTuning { ring_bytes: kib(100), ..DecodeTuning::default() };
            let slots = |most: u32| {
                [8, 12, 16, 24, 32].into_iter().filter(move |slots| slots * m.next_multiple_of(8) <= most)
            };
            let mut points = vec![DecodeTuning::default(), small];
            points
                .extend(slots(1024).map(|n| DecodeTuning { activation_slots: n, ..DecodeTuning::default() }));
            // With more slots, the weight ring has no room for two of the largest chunks.
            let slots: Vec<u32> = slots(768).take(4).collect();
            for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
                points.push(DecodeTuning {
                    chunk_bytes: kib([16, 24, 32, 48][i]),
                    in_flight_bytes: kib([64, 80, 96, 128][j]),
                    ahead_bytes: kib([24, 48, 96, 160][i ^ j]),
                    activation_slots: slots[(i ^ TWICE[j]) % slots.len()],
                    ..DecodeTuning::default()
                });
            }
            let mut timed = Vec::new();
            for tuning in points {
                let label = format!("{} M = {m} {tuning:?}", model.name);
                let chains: Vec<_> = (0..SETS).map(|s| rig.chain(s, tuning, RUN)).collect();
                rig.poison();
                rig.launch(&chains[0], false);
                rig.synchronize(&label);
                rig.assert_right(&label);
                let first = rig.outputs();
                for launch in 1..LAUNCHES {
                    rig.launch(&chains[0], launch % 2 == 1);
                    rig.synchronize(&label);
                    assert!(rig.outputs() == first, "{label}: launch {launch} differs in its bits");
                }
                timed.push((rig.time(&chains, false), rig.time(&chains, true), tuning));
            }
            for programmatic in [false, true] {
                let time_of = |t: &(f64, f64, DecodeTuning)| if programmatic { t.1 } else { t.0 };
                timed.sort_by(|a, b| time_of(a).total_cmp(&time_of(b)));
                for point in timed.iter().take(8).chain(timed.last()) {
                    let t = point.2;
                    println!(
                        "tuning {:<10} M {m:>2} programmatic {programmatic}: {:6.2} us  chunk {:>5} in flight {:>6} \
                         ahead {:>6} slots {} ring {}",
                        model.name,
                        time_of(point),
                        t.chunk_bytes,
                        t.in_flight_bytes,
                        t.ahead_bytes,
                        t.activation_slots,
                        t.ring_bytes
                    );
                }
            }
        }
    }
}
