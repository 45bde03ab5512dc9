//! Kernels that run one stage each, launched in sequence: chain kernels are proved by their lists, and kernel boundaries
//! prove the order.

use super::{Schedule, dealt, items_of, only, remove};
use cusync_gen::check::{
    Candidate, Executor, How, Launch, Obligation, StageKernel, StageLaunch, Subject, check, judge,
};
use cusync_gen::choose::{self, ChainOverride, Config};
use cusync_gen::device::Profile;
use cusync_gen::graph::StageId;
use cusync_gen::schedule::Part;
use cusync_gen::simulate::simulate;
use cusync_gen::spec;
use cusync_gen::sync::{Order, Tile};

/// Two stages with their own tiles and clusters, and four split tiles each.
fn sound() -> Candidate {
    let source = r#"Pipeline(name: "mlp", dims: { "M": 512, "H": 1024, "I": 1024 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    let resolved = spec::parse(source, "spec").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let graph = resolved.graph(&[(128, 256, 64), (128, 128, 64)]).expect("both are built");
    let lists = |stage, cluster, workers| {
        let kernel = StageKernel::Lists(dealt(&graph.only(StageId(stage)), cluster, workers, 4));
        StageLaunch { kernel, ..StageLaunch::neutral(StageId(stage)) }
    };
    let launch = Launch::Stages { how: How::Serial, stages: vec![lists(0, (2, 1), 5), lists(1, (1, 1), 8)] };
    Candidate::launched(graph, Profile::named("h200").expect("shipped").clone(), launch)
}

fn edit(stage: usize, change: impl FnOnce(&mut Schedule)) -> Candidate {
    let mut c = sound();
    let StageKernel::Lists(schedule) = &mut c.launch.kernels_mut()[stage].kernel else { panic!("lists") };
    change(schedule);
    c
}

#[test]
fn each_launch_is_proved_and_kernels_in_order_alone_run_them() {
    let plan = check(sound()).expect("proved");
    assert!(plan.runs_as(Executor::Serial) && !plan.runs_as(Executor::Fused));
    assert!(!plan.runs_as(Executor::Library), "which kernels are the library's is part of the plan");
    let mut c = sound();
    c.launch.how_mut().into_iter().for_each(|each| *each = How::Library);
    let plan = check(c).expect("proved");
    assert!(plan.runs_as(Executor::Serial) && plan.runs_as(Executor::Library));
    for (stage, alone) in sound().alone() {
        assert_eq!(alone.graph.stages[0].name, sound().graph.stages[stage.0].name);
        assert_eq!(judge(&alone).refutations, []);
    }
}

#[test]
fn a_tile_that_no_item_of_the_launch_computes() {
    let c = edit(1, |schedule| remove(schedule, 0));
    let report = judge(&c);
    assert_eq!(
        report.refutations[0].subject,
        Subject::Stage(StageId(1)),
        "it is told of the pipeline's stage"
    );
    only(&report, Obligation::Order, &["no item computes down(0, 0)"]);
}

#[test]
fn a_part_that_nobody_adds() {
    let c = edit(0, |schedule| {
        let finisher = items_of(schedule, 0, 1, 3).pop().expect("it is cut");
        let Part::Finish { first, .. } = schedule.sequence[finisher].part else { panic!("it finishes") };
        schedule.sequence[finisher].part = Part::Finish { first, slabs: 1 };
    });
    only(&judge(&c), Obligation::Cover, &["up(", "finishes without slab"]);
}

#[test]
fn workers_that_wait_for_each_other() {
    let c = edit(1, |schedule| {
        let finisher = items_of(schedule, 0, 3, 7).pop().expect("it is cut") as u32;
        // One worker finishes the tile before it contributes the first part's sums.
        schedule
            .lists
            .iter_mut()
            .for_each(|list| list.retain(|item| *item + 2 < finisher || *item > finisher));
        schedule.lists[0].extend([finisher, finisher - 2, finisher - 1]);
    });
    only(&judge(&c), Obligation::Progress, &["down(3, 7)", "waits forever"]);
}

#[test]
fn a_stage_before_its_producer() {
    let mut c = sound();
    c.launch.kernels_mut().reverse();
    only(&judge(&c), Obligation::Cover, &["`down` is launched before `up`, which writes what it reads"]);
}

#[test]
fn lists_of_another_grid() {
    let mut c = sound();
    let kernels = c.launch.kernels_mut();
    kernels[1].kernel = kernels[0].kernel.clone();
    only(&judge(&c), Obligation::Order, &["no item computes"]);
}

#[test]
fn launches_that_do_not_follow_each_other() {
    for how in [How::STREAMS, How::Programmatic, How::Host] {
        let mut c = sound();
        c.launch.how_mut().into_iter().for_each(|each| *each = how);
        only(&judge(&c), Obligation::Bounds, &["`up` has a kernel of its own", "waits for no other stage"]);
    }
}

/// A kernel that runs alone follows no list: its tiles cover the output, and only kernel boundaries order it.
#[test]
fn a_stage_that_runs_alone_is_proved_between_kernel_boundaries_only() {
    let source = r#"Pipeline(name: "prompt", dims: { "S": 200 }, stages: [
        Gemm(name: "qkv", a: "X(S,512)", b: "W(512,768)", out: "QKV(S,768)"),
        Attention(name: "attend", qkv: "QKV(S,768)", heads: "4", out: "A(S,256)"),
        Gemm(name: "project", a: "A(S,256)", b: "V(256,512)", out: "Z(S,512)"),
    ])"#;
    let resolved = spec::parse(source, "spec").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let h200 = Profile::named("h200").expect("shipped");
    let c = choose::candidate(&resolved, h200, Executor::Serial).expect("a choice");
    assert_eq!(c.launch.kernels()[1].kernel, StageKernel::Alone);
    let plan = check(c.clone()).expect("proved");
    assert!(plan.works_apart(StageId(1)) && plan.may_begin_early(StageId(1)));
    for how in [How::STREAMS, How::Programmatic, How::Host] {
        let mut c = c.clone();
        c.launch.kernels_mut().iter_mut().for_each(|launched| {
            if launched.stage != StageId(1) {
                launched.kernel = StageKernel::Ordered;
            }
        });
        c.launch.how_mut().into_iter().for_each(|each| *each = how);
        only(
            &judge(&c),
            Obligation::Bounds,
            &["`attend` has a kernel of its own", "waits for no other stage"],
        );
    }
    let mut late = c.clone();
    late.launch.kernels_mut().swap(1, 2);
    only(&judge(&late), Obligation::Cover, &["`project` is launched before `attend`"]);
    let mut lost = c;
    lost.launch.kernels_mut()[1].order = Order::Table(vec![Tile { m: 0, n: 0 }; 8]);
    assert!(!judge(&lost).proved(), "tiles that are never computed");
}

/// The choices for `serial` in stages without kernels that follow an order: GEMMs use GEMM-only chain kernels, norms and
/// attentions run alone, and the predicted time is the sum of the separate launches.
#[test]
fn a_layer_for_prompts_gets_the_best_kernel_of_each_stage() {
    let h200 = Profile::named("h200").expect("shipped");
    let file = format!("{}/../policies/gpt3_prompt_layer.ron", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&file).expect("it ships");
    let layer = spec::parse(&source, "layer").and_then(|s| s.resolve(&[("S".into(), 512)])).expect("sound");
    let c = choose::candidate(&layer, h200, Executor::Serial).expect("a choice");
    let best = |stage: StageId| choose::plan(&layer.only(stage), h200, Executor::Fused).expect("proved");
    let mut us = -h200.boundary_us;
    let spans = simulate(&c).stages;
    let mut without_list = Vec::new();
    let mut chains = c.alone().collect::<Vec<_>>().into_iter();
    for StageLaunch { stage, kernel, .. } in c.launch.kernels() {
        let name = &c.graph.stages[stage.0].name;
        let explained = |subject: String| c.choices.iter().any(|choice| choice.subject == subject);
        let (begin, end) = spans[stage.0];
        let own_us = if *kernel == StageKernel::Alone {
            without_list.push(name.clone());
            assert!(explained(format!("kernel of {name}")), "{name}");
            end - begin
        } else {
            let (_, alone) = chains.next().expect("a chain kernel");
            let plan = best(*stage);
            assert_eq!(plan.launch(), &alone.launch, "{name}");
            assert_eq!(format!("{:?}", plan.graph()), format!("{:?}", alone.graph));
            assert!(explained(format!("chain kernel of {name}")), "{name}");
            plan.launch().predicted_us().expect("it is priced")
        };
        us += own_us + h200.boundary_us;
    }
    assert_eq!(without_list, ["before_attention", "attend", "before_mlp"]);
    let predicted = c.predicted.expect("it is priced").synchronised_us;
    assert!((predicted / us - 1.0).abs() < 1e-6, "{predicted} {us}");
    assert_eq!(c.alone().count() + without_list.len(), layer.stages.len());
    assert!(c.alone().any(|(_, alone)| alone.launch.cluster() != (1, 1)), "clusters of products alone");
    check(c).expect("proved");
}

/// `library` uses the lists of `serial` for stages that cuBLASLt does not compute or computes no faster; a pipeline
/// with no cuBLASLt stage is refused, and the error names the stage.
#[test]
fn the_library_has_products_of_layers_and_none_of_images() {
    let h200 = Profile::named("h200").expect("shipped");
    let resolved = |name: &str, dims: &[(String, u64)]| {
        let file = format!("{}/../policies/{name}.ron", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&file).expect("it ships");
        spec::parse(&source, name).and_then(|s| s.resolve(dims)).expect("sound")
    };
    for name in ["gpt3_prompt_layer", "llama65_prompt_layer", "llama3_70b_attention"] {
        let layer = resolved(name, &[("S".into(), 512)]);
        let [ours, theirs] = [Executor::Serial, Executor::Library]
            .map(|executor| choose::candidate(&layer, h200, executor).expect("a choice"));
        assert_eq!(theirs.launch.how(), Some(How::Library), "{name}");
        assert_eq!(ours.launch.kernels(), theirs.launch.kernels(), "{name}");
        let us = |c: &Candidate| c.predicted.expect("it is priced").synchronised_us;
        assert!(us(&theirs) < us(&ours), "{name}: {} {}", us(&theirs), us(&ours));
        let stated = Config::from_candidate(&theirs).expect("a launch on a GPU");
        let stated = stated.candidate(&layer, h200).expect("what it states");
        assert_eq!(stated.launch, theirs.launch, "{name}");
        check(theirs).expect("proved");
    }
    let images = resolved("resnet_layer", &[]);
    let refused =
        choose::candidate(&images, h200, Executor::Library).expect_err("it computes no convolution");
    let says = ["library executor cannot run this pipeline: stage `first`", "no stage is a product"];
    assert!(says.iter().all(|part| refused.message.contains(part)), "{}", refused.message);
    let ours = choose::candidate(&images, h200, Executor::Serial).expect("a choice");
    let Some(Config::InTurn { stages, .. }) = Config::from_candidate(&ours) else { panic!("{ours:?}") };
    let stated = Config::InTurn { library: true, stages };
    assert_eq!(stated.candidate(&images, h200).expect_err("the same").code, "unfit");
}

/// If no tile is split, no worker waits for another, so nothing on the GPU can delay such a launch.
#[test]
fn workers_of_whole_tiles_wait_for_nobody() {
    let plan = check(sound()).expect("proved");
    assert!(![0, 1].map(|stage| plan.works_apart(StageId(stage))).contains(&true), "both have cut tiles");
    let mut c = sound();
    let graph = c.graph.only(StageId(1));
    c.launch.kernels_mut()[1].kernel = StageKernel::Lists(dealt(&graph, (1, 1), 8, 0));
    let plan = check(c).expect("proved");
    assert_eq!([0, 1].map(|stage| plan.works_apart(StageId(stage))), [false, true]);
}

/// Before it waits for the previous kernel's end, a chain kernel loads only weights.
#[test]
fn a_launch_may_begin_early_where_nobody_writes_its_weights() {
    let source = r#"Pipeline(name: "square", dims: { "M": 256 }, stages: [
        Gemm(name: "left", a: "X(M,M)", b: "W0(M,M)", out: "L(M,M)"),
        Gemm(name: "right", a: "X(M,M)", b: "W1(M,M)", out: "R(M,M)"),
        Gemm(name: "join", a: "L(M,M)", b: "R(M,M)", out: "Z(M,M)"),
    ])"#;
    let resolved = spec::parse(source, "spec").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let h200 = Profile::named("h200").expect("shipped");
    let mut c =
        choose::in_turn(&resolved, h200, How::Serial, |_| ChainOverride::default()).expect("a choice");
    let early = |c: &Candidate| {
        let plan = check(c.clone()).expect("proved");
        [0, 1, 2].map(|stage| plan.may_begin_early(StageId(stage)))
    };
    assert_eq!(early(&c), [true, true, false]);
    // Kernels that follow an order start after the previous kernel ends.
    c.launch.kernels_mut().iter_mut().for_each(|launched| launched.kernel = StageKernel::Ordered);
    assert_eq!(early(&c), [false; 3]);
}
