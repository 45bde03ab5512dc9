//! The automatic choice and its model.

use cusync_gen::check::{Candidate, EdgeChoice, Executor, How, Prediction, judge};
use cusync_gen::choose::{self, ChainOverride};
use cusync_gen::device::{ChainKernel, Operations, Profile};
use cusync_gen::graph::{OperandKind, Resolved, StageId};
use cusync_gen::schedule::Hand;
use cusync_gen::simulate::{Conditions, expected_us, simulate, sketch};
use cusync_gen::sync::{Order, Policy, WaitAt};

fn shipped(source: &str, m: u64) -> Resolved {
    cusync_gen::spec::parse(source, "shipped")
        .and_then(|s| s.resolve(&[("M".into(), m)]))
        .expect("a shipped spec")
}

const GPT3: &str = include_str!("../../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../../policies/llama65_mlp.ron");

fn h200() -> &'static Profile {
    Profile::named("h200").expect("shipped")
}

fn predicted(source: &str, m: u64, tile: (u32, u32, u32), policy: Policy) -> Prediction {
    let graph = shipped(source, m).graph(&[tile, tile]).expect("sound");
    let mut c = Candidate::new(graph, h200().clone(), How::Programmatic);
    c.edges = vec![EdgeChoice { policy, wait_at: WaitAt::PerKBlock }];
    let loaded = Conditions { sustained: true, overlap: false };
    let synchronised_us = expected_us(&c, loaded);
    *c.launch.how_mut().expect("stages") = How::Serial;
    Prediction { serial_us: expected_us(&c, loaded), synchronised_us }
}

/// Many stages have more tile combinations than fit any integer.
#[test]
fn sixty_four_stages_are_chosen_for() {
    let resolved = cusync_gen::graph::gemm_chain("long", 256, &[1024; 65]);
    for executor in [Executor::Streams, Executor::Fused] {
        let c = choose::candidate(&resolved, h200(), executor).expect("chosen");
        assert_eq!(judge(&c).refutations, [], "{executor:?}");
    }
}

/// Convolutions and GEMMs have separate chain kernels, so a pipeline with both uses one launch per stage on a GPU with
/// such kernels, and no other executor.
#[test]
fn stages_that_no_kernel_runs_together_have_a_launch_each() {
    let source = include_str!("../spec/bad_specs/fused/conv_beside_gemm.ron");
    let spec = cusync_gen::spec::parse(source, "mixed").and_then(|s| s.resolve(&[])).expect("sound");
    let usual = |device| choose::usual_executor(&spec, Profile::named(device).expect("shipped"));
    assert_eq!((usual("h200"), usual("a100")), (Executor::Serial, Executor::Streams));
    let plan = choose::plan(&spec, h200(), Executor::Serial).expect("proved");
    let kernels = plan.launch().kernels();
    assert_eq!(kernels.len(), 2);
    assert!(kernels.iter().all(|launched| launched.kernel.lists().is_some()), "a chain kernel each");
}

/// `explain` names windows, wasted multiplications in tiles, and parts, with the numbers of the chosen plan.
#[test]
fn what_a_convolution_reads_wastes_and_shares_is_explained() {
    let source = include_str!("../../../policies/resnet_layer.ron");
    let choices = |images, hw, channels| {
        let dims = [("B", images), ("HW", hw), ("C", channels)].map(|(dim, size)| (dim.to_owned(), size));
        let spec =
            cusync_gen::spec::parse(source, "shipped").and_then(|s| s.resolve(&dims)).expect("shipped");
        let plan = choose::plan(&spec, h200(), Executor::Fused).expect("proved");
        let explained = |subject: &str| {
            let choice = plan.choices().iter().find(|c| c.subject == subject);
            choice.map(|c| format!("{}: {}", c.decision, c.reason))
        };
        (explained("window of second"), explained("parts of second"))
    };
    let (window, parts) = choices(1, 56, 64);
    assert_eq!(
        window.as_deref(),
        Some(
            "1 of the 56 rows of an image: 56 of 64 slots that are multiplied are pixels of the output, \
             12.5 % are waste; 171 pixels of 64 channels serve 9 taps"
        )
    );
    assert_eq!(parts, None, "no tile is cut");
    let (window, parts) = choices(1, 7, 512);
    assert!(window.is_some_and(|text| text.contains("49 of 64") && text.contains("23.4 % are waste")));
    let parts = parts.expect("few tiles of many k-blocks are cut");
    assert!(parts.starts_with("8 of 8 tiles in ") && parts.ends_with("of a tile's 72 k-blocks"), "{parts}");
}

/// Every shipped spec has proved chain-kernel schedules for every size and mode, with and without splits.
#[test]
fn every_shipped_spec_is_proved_for_chain_kernels() {
    for source in [
        GPT3,
        LLAMA,
        include_str!("../../../policies/chain3.ron"),
        include_str!("../../../policies/diamond.ron"),
    ] {
        for m in [1, 37, 64, 200, 512, 1000] {
            for mode in [Hand::Fixed, Hand::Drawn] {
                for splits in [false, true] {
                    let asked = ChainOverride { mode, splits, ..ChainOverride::default() };
                    let c = choose::chain(&shipped(source, m), h200(), asked).expect("a kernel");
                    let schedule = c.launch.lists().expect("a schedule");
                    assert_eq!(schedule.mode, mode);
                    assert!(splits || schedule.slabs == 0);
                    assert_eq!(judge(&c).refutations, [], "M = {m} {asked:?}");
                }
            }
        }
    }
}

#[test]
fn every_chain_kernel_is_proved_and_stated_tiles_are_kept() {
    for kernel in ChainKernel::running(Operations::products()) {
        let tile = (kernel.tile.0, kernel.tile.1);
        let asked = ChainOverride { kernel: Some((tile, kernel.cluster)), ..ChainOverride::default() };
        let c = choose::chain(&shipped(LLAMA, 768), h200(), asked).expect("a kernel");
        assert_eq!(c.graph.stages[0].mma_tile, kernel.tile);
        assert_eq!(c.launch.lists().map(|s| s.cluster), Some(kernel.cluster));
        assert_eq!(judge(&c).refutations, [], "{kernel:?}");
    }
    let stated = |tile: &str| {
        let text = LLAMA.replacen("stages:", &format!("tiles: {{ {tile} }}, stages:"), 1);
        cusync_gen::spec::parse(&text, "spec").and_then(|s| s.resolve(&[])).expect("sound")
    };
    let c =
        choose::chain(&stated("\"down\": (128, 192)"), h200(), ChainOverride::default()).expect("a kernel");
    assert!(c.graph.stages.iter().all(|s| s.mma_tile == (128, 192, 64)), "one tile for all");
    let both = stated("\"down\": (128, 192), \"gate_up\": (128, 256)");
    let refused = choose::chain(&both, h200(), ChainOverride::default()).expect_err("no kernel has both");
    assert!(refused.message.contains("no chain kernel has the stated tile (128, 192)"), "{refused:?}");
}

#[test]
fn predictions_are_near_the_measured_times() {
    let wide = (128, 256, 64);
    let measured = [
        (GPT3, 768, wide, 562.5, 398.9),
        (GPT3, 1000, wide, 588.2, 505.9),
        (GPT3, 1536, wide, 913.8, 749.0),
        (GPT3, 2048, wide, 1006.7, 1010.9),
        (LLAMA, 768, wide, 176.3, 176.1),
        (LLAMA, 1000, wide, 285.9, 242.7),
        (LLAMA, 1536, wide, 344.1, 343.6),
        (LLAMA, 2048, wide, 486.1, 457.1),
        (GPT3, 1536, (128, 128, 64), 910.2, 866.4),
        (GPT3, 1, (64, 128, 64), 114.3, 114.4),
        (GPT3, 37, (64, 128, 64), 97.3, 99.4),
        (LLAMA, 37, (64, 128, 64), 53.7, 54.6),
    ];
    let mut wrong = Vec::new();
    for (source, m, tile, serial, synchronised) in measured {
        let p = predicted(source, m, tile, Policy::Row);
        let off = [p.serial_us / serial - 1.0, p.synchronised_us / synchronised - 1.0];
        println!(
            "M={m} {tile:?}: serial {:.0} ({:+.0} %), synchronised {:.0} ({:+.0} %)",
            p.serial_us,
            off[0] * 100.0,
            p.synchronised_us,
            off[1] * 100.0
        );
        if off.iter().any(|off| off.abs() > 0.25) {
            wrong.push((m, tile, off));
        }
    }
    assert_eq!(wrong, []);
    // Measured 1.41: the model overestimates how much a fuller last wave slows down reads of drawn tiles.
    let gain = predicted(GPT3, 768, wide, Policy::Row);
    assert!((1.1..1.6).contains(&(gain.serial_us / gain.synchronised_us)), "{gain:?}");
}

#[test]
fn every_shipped_spec_gets_a_proved_plan_on_every_device() {
    let specs = [
        GPT3,
        LLAMA,
        include_str!("../../../policies/llama3_70b_mlp.ron"),
        include_str!("../../../policies/two_gemms.ron"),
        include_str!("../../../policies/diamond.ron"),
    ];
    for source in specs {
        for device in ["h200", "a100"] {
            for m in [1, 200, 512] {
                for executor in [Executor::Cpu, Executor::Serial, Executor::Streams, Executor::Programmatic] {
                    let device = Profile::named(device).expect("shipped");
                    let plan = choose::plan(&shipped(source, m), device, executor);
                    // Without programmatic launches, only its serial fallback remains.
                    if executor == Executor::Programmatic
                        && device.arch < 90
                        && let Err(refused) = &plan
                    {
                        let text = refused.render(source, "spec", false);
                        assert!(text.contains("programmatic launches begin with sm_90"), "{text}");
                        continue;
                    }
                    let plan = plan.unwrap_or_else(|d| panic!("{}", d.render(source, "spec", false)));
                    let predicted = plan.predicted().expect("the model chose");
                    assert!(predicted.synchronised_us > 0.0 && predicted.serial_us > 0.0);
                    // The cpu executor has no kernel boundaries to fall back to.
                    if !matches!(executor, Executor::Serial | Executor::Cpu) {
                        assert!(predicted.synchronised_us <= predicted.serial_us * 1.03, "{predicted:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_spec_states_is_kept() {
    let source = include_str!("../../../policies/chain3.ron");
    let plan = choose::plan(&shipped(source, 512), h200(), Executor::Streams).expect("proved");
    assert!(plan.graph().stages.iter().all(|s| s.mma_tile == (128, 128, 64)));
    assert_eq!(*plan.launch().order(StageId(0)), Order::GroupedRows(2));
    assert_eq!(plan.edges()[0].policy(), &Policy::Row);
    assert_eq!(plan.edges()[1].policy(), &Policy::Batched { rows: 1, cols: 2 });
    let stated: Vec<&str> = plan.choices().iter().filter(|c| c.stated).map(|c| c.subject.as_str()).collect();
    assert_eq!(
        stated,
        [
            "tile of project",
            "order of project",
            "tile of up",
            "tile of down",
            "policy of project -> up (P)",
            "policy of up -> down (Y)",
            "wait of up -> down (Y)"
        ]
    );
}

#[test]
fn a_producer_of_operand_b_goes_by_columns() {
    let source = r#"Pipeline(name: "b", dims: { "M": 4096 }, stages: [
        Gemm(name: "left", a: "X(M,M)", b: "W(M,M)", out: "L(M,M)"),
        Gemm(name: "right", a: "X(M,M)", b: "L(M,M)", out: "R(M,M)"),
    ])"#;
    let resolved = cusync_gen::spec::parse(source, "b").and_then(|s| s.resolve(&[])).expect("sound");
    let plan = choose::plan(&resolved, h200(), Executor::Streams).expect("proved");
    assert_eq!(plan.graph().stages[1].operands[1].kind, OperandKind::B);
    assert!(
        matches!(*plan.launch().order(StageId(0)), Order::ColumnMajor | Order::GroupedColumns(_)),
        "{:?}",
        *plan.launch().order(StageId(0))
    );
}

#[test]
fn choosing_is_deterministic() {
    let decide = || choose::plan(&shipped(GPT3, 4096), h200(), Executor::Streams).expect("proved");
    let decisions = |plan: &cusync_gen::check::Plan| -> Vec<String> {
        plan.choices().iter().map(|c| format!("{}: {}", c.subject, c.decision)).collect()
    };
    assert_eq!(decisions(&decide()), decisions(&decide()));
}

#[test]
fn a_timeline_accounts_for_every_tile() {
    let graph = shipped(GPT3, 768).graph(&[(128, 256, 64), (128, 256, 64)]).expect("sound");
    let c = Candidate::new(graph, h200().clone(), How::STREAMS);
    let timeline = simulate(&c);
    assert_eq!(timeline.tiles.len(), 144 + 288);
    let busy: f64 = timeline.tiles.iter().map(|t| t.end - t.start).sum();
    assert!(busy <= timeline.total_us * f64::from(timeline.slots));
    let mut ends = vec![0.0f64; timeline.slots as usize];
    for run in &timeline.tiles {
        assert!(run.start >= ends[run.sm as usize] && run.wait >= 0.0 && run.end > run.start, "{run:?}");
        ends[run.sm as usize] = run.end;
    }
    let lines = sketch(&timeline, 60, timeline.total_us);
    assert!(
        lines.iter().all(|l| l.chars().count() == 60) && lines[0].starts_with('1') && lines[0].contains('2')
    );
}

#[test]
fn overlap_is_chosen_only_where_it_gains() {
    let plan = |m| choose::plan(&shipped(GPT3, m), h200(), Executor::Programmatic).expect("proved");
    assert!(plan(768).launch().has_semaphores(), "1.09 and 2.18 waves leave much to overlap");
    let flat = plan(2048);
    assert_eq!(flat.launch().how(), Some(How::Serial), "2.9 and 5.8 waves leave nothing");
    let choice = flat.choices().iter().find(|c| c.subject == "coupling").expect("explained");
    assert!(choice.reason.contains("state a policy to overlap all the same"), "{}", choice.reason);
    let mut stated = shipped(GPT3, 2048);
    stated.edges = vec![cusync_gen::graph::StatedEdge {
        span: Default::default(),
        producer: StageId(0),
        consumer: StageId(1),
        operand: None,
        policy: Some(cusync_gen::diagnostic::Spanned::new(Policy::Row, Default::default())),
        wait_at: None,
    }];
    let stated = choose::plan(&stated, h200(), Executor::Programmatic).expect("proved");
    assert!(stated.launch().has_semaphores(), "a stated policy is kept");
}

/// Medians on one H200 at rest, in microseconds (docs/results/mlp_h200.json).
#[test]
fn products_of_the_library_are_predicted_and_chosen_only_where_its_times_are_known() {
    let rested = Conditions { sustained: false, overlap: false };
    // At 64 tokens LLaMA's first GEMM leaves SMs without a tile.
    for (source, m, measured) in [
        (GPT3, 64, 80.9),
        (GPT3, 512, 212.3),
        (GPT3, 2048, 818.2),
        (LLAMA, 64, 44.4),
        (LLAMA, 128, 44.4),
        (LLAMA, 768, 139.2),
    ] {
        let resolved = shipped(source, m);
        let c = choose::candidate(&resolved, h200(), Executor::Library).expect("a choice");
        let us = expected_us(&c, rested);
        assert!((us / measured - 1.0).abs() < 0.08, "{m}: {us} predicted, {measured} measured");
        let plan = choose::plan(&resolved, h200(), Executor::Library).expect("proved");
        assert!(plan.runs_as(Executor::Library) && plan.runs_as(Executor::Serial));
        assert!(!plan.runs_as(Executor::Programmatic) && !plan.runs_as(Executor::Fused));
        // Never slower than our serial kernels: each stage uses the faster of the two.
        let predicted = c.predicted.expect("a prediction");
        assert!(predicted.synchronised_us <= predicted.serial_us);
    }
    let offered = |name| choose::space::executors(Profile::named(name).expect("shipped"));
    assert!(offered("h200").contains(&Executor::Library) && !offered("a100").contains(&Executor::Library));
}

#[test]
fn few_tokens_get_a_decode_kernel() {
    for (m, few) in [(1, true), (37, true), (64, true), (65, false), (128, false), (512, false)] {
        for source in [GPT3, LLAMA] {
            let plan = choose::plan(&shipped(source, m), h200(), Executor::Fused).expect("proved");
            assert_eq!(
                (plan.launch().shares().is_some(), plan.launch().lists().is_some()),
                (few, !few),
                "M = {m}"
            );
            let predicted = plan.predicted().expect("a serial chain to compare with");
            // The prediction for serial launches with 64-row tiles, two deep, is too fast (docs/results/prediction.md).
            let within = if m == 65 || m == 128 { 1.06 } else { 1.0 };
            assert!(predicted.synchronised_us < predicted.serial_us * within, "{predicted:?}");
            let other = if few { "a chain kernel" } else { "128 x" };
            let alternatives = &plan.choices()[0].alternatives;
            assert!(alternatives.iter().any(|(name, _)| name.contains(other)), "{alternatives:?}");
        }
    }
    // Stated settings are kept, and a decode kernel has no tiles.
    let text = GPT3.replacen("stages:", "tiles: { \"up\": (128, 128) }, stages:", 1);
    let stated =
        cusync_gen::spec::parse(&text, "spec").and_then(|s| s.resolve(&[("M".into(), 8)])).expect("sound");
    let plan = choose::plan(&stated, h200(), Executor::Fused).expect("proved");
    assert_eq!(plan.graph().stages[1].mma_tile, (128, 128, 64));
    assert!(plan.launch().lists().is_some());
}
