//! Convolutions on the fused executor on a GPU: every convolution kernel and every way to hand out items, right to 2e-3
//! against direct convolution on the host.

use crate::common::{assert_runs_right, plan_of, quick};
use crate::fused::{CONFIGS, DYNAMIC, STATIC, expected, hopper, of_images};
use crate::fused_runs::{repeats_to_the_bit, runs_in_turn, starves, ten_thousand_launches};
use cusync::runtime::{ChainOverride, Overlap, Overrides, plan_text, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::{ChainKernel, Operation};
use cusync_gen::graph::Element;
use cusync_gen::schedule::{Hand, Part};
use cusync_gen::sync::Policy;

/// Two convolutions, the first with 3 x 3 taps and a bias.
fn convs((height, width): (u32, u32), images: u32, channels: u32, second: &str) -> String {
    let (b, h, w, c) = (images, height, width, channels);
    format!(
        r#"Pipeline(name: "convs", dims: {{}}, stages: [
            Conv2d(name: "first", input: "X({b},{h},{w},{c})", filter: "F1(3,3,{c},72)", padding: (1,1), bias: "c(72)", epilogue: Relu, out: "Y({b},{h},{w},72)"),
            Conv2d(name: "second", input: "Y({b},{h},{w},72)", {second}),
        ])"#
    )
}

fn sources() -> Vec<String> {
    vec![
        convs(
            (7, 7),
            5,
            512,
            r#"filter: "F2(3,3,72,96)", padding: (1,1), epilogue: Relu, out: "Z(5,7,7,96)""#,
        ),
        convs((13, 13), 3, 8, r#"filter: "F2(1,1,72,64)", out: "Z(3,13,13,64)""#),
        convs(
            (14, 28),
            1,
            96,
            r#"filter: "F2(3,3,72,64)", stride: (2,2), padding: (1,1), out: "Z(1,7,14,64)""#,
        ),
        convs(
            (55, 20),
            1,
            64,
            r#"filter: "F2(1,1,72,64)", stride: (2,2), bias: "b(64)", out: "Z(1,28,10,64)""#,
        ),
        convs(
            (14, 14),
            3,
            72,
            r#"filter: "F2(7,7,72,64)", padding: (3,3), residual: "R(3,14,14,64)", epilogue: Relu, out: "Z(3,14,14,64)""#,
        ),
    ]
}

#[test]
fn convolutions_are_right_in_every_kernel_for_them() {
    let Some(gpu) = hopper() else { return };
    let (mut cut, mut ran) = (0, 0);
    for source in sources() {
        for element in [Element::F16, Element::Bf16] {
            let overrides =
                |chain| Overrides { element: Some(element), chain: Some(chain), ..Overrides::default() };
            let first = plan_of(&gpu, &source, &overrides(CONFIGS[0]), Executor::Fused);
            let (inputs, reference) = expected(&gpu, &first, 1, 12);
            for kernel in ChainKernel::running([Operation::Conv2d].into_iter().collect()) {
                let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
                for config in CONFIGS {
                    let config = ChainOverride { kernel, ..config };
                    let plan = plan_of(&gpu, &source, &overrides(config), Executor::Fused);
                    let items = &plan.launch().lists().expect("a chain").sequence;
                    cut += items.iter().filter(|i| i.part != Part::Whole).count();
                    ran += 1;
                    assert_runs_right(&gpu, &format!("{element:?} {config:?}"), &plan, &inputs, &reference);
                }
            }
        }
    }
    assert!(ran > 0 && cut > 0, "{ran} plans ran, {cut} items were parts of tiles");
}

/// All combinations of image sizes, channels, taps and strides; number types, executors, ways to hand out items, biases
/// and residual positions in turn.
#[test]
fn every_shape_is_right() {
    let Some(gpu) = hopper() else { return };
    let mut shapes = Vec::new();
    for (height, width) in [(7, 7), (13, 13), (55, 55), (56, 56), (14, 28), (20, 9)] {
        for (images, channels) in [1, 3, 5].into_iter().flat_map(|b| [8, 64, 72, 96].map(|c| (b, c))) {
            for (taps, stride) in [1, 3, 7].into_iter().flat_map(|taps| [1, 2].map(|stride| (taps, stride))) {
                shapes.push((height, width, images, channels, taps, stride));
            }
        }
    }
    for (case, (h, w, b, c, taps, stride)) in shapes.into_iter().enumerate() {
        if quick() && case % 7 != 0 {
            continue;
        }
        let turn = case + case / 6 + case / 24;
        let ((p, q), half) = (((h - 1) / stride + 1, (w - 1) / stride + 1), taps / 2);
        let second = [1, 3][turn / 2 % 2];
        let bias = ["", r#"bias: "c(64)", "#][turn % 2];
        let residual = match turn % 3 {
            0 => String::new(),
            1 => format!(r#"residual: "R({b},{p},{q},64)", "#),
            _ => format!(r#"residual: "R({b},{p},{q},64)", residual_at: BeforeActivation, "#),
        };
        let source = format!(
            r#"Pipeline(name: "shape", dims: {{}}, stages: [
                Conv2d(name: "first", input: "X({b},{h},{w},{c})", filter: "F1({taps},{taps},{c},72)", stride: ({stride},{stride}),
                    padding: ({half},{half}), epilogue: Relu, out: "Y({b},{p},{q},72)"),
                Conv2d(name: "second", input: "Y({b},{p},{q},72)", filter: "F2({second},{second},72,64)",
                    padding: ({pad},{pad}), {bias}{residual}epilogue: Relu, out: "Z({b},{p},{q},64)"),
            ])"#,
            pad = second / 2,
        );
        let element = [Element::F16, Element::Bf16][turn / 3 % 2];
        let executor = if turn % 5 == 0 { Executor::Serial } else { Executor::Fused };
        let chain = (executor == Executor::Fused).then_some(CONFIGS[turn % CONFIGS.len()]);
        let overrides = Overrides { element: Some(element), chain, ..Overrides::default() };
        // Two windows with this many pixels do not fit in shared memory.
        if taps == 7 && stride == 1 && w >= 55 && c > 64 {
            let profile = gpu.device.profile().expect("checked when the GPU was opened");
            let refused = plan_text(&source, "test.ron", &overrides, &profile, executor).map(|_| "a plan");
            let text = refused.expect_err("no tile has room for it").to_string();
            assert!(text.contains("`first`") && text.contains("no window fits"), "{text}");
            continue;
        }
        let plan = plan_of(&gpu, &source, &overrides, executor);
        let (inputs, reference) = expected(&gpu, &plan, 1, case as u32);
        let label = format!(
            "{b} x {h} x {w} x {c}, {taps} x {taps} taps, stride {stride}, {element:?} {executor:?} {chain:?}"
        );
        assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
    }
}

/// Pools with and without padding, adjacent and overlapping, means, and two residual blocks between them.
const BLOCKS: &str = r#"Pipeline(name: "blocks", dims: { "B": 3 }, stages: [
    Pool(name: "pool", input: "X(B,28,20,40)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1), out: "P(B,14,10,40)"),
    Conv2d(name: "first", input: "P(B,14,10,40)", filter: "F1(3,3,40,72)", stride: (2,2), padding: (1,1), epilogue: Relu, out: "A(B,7,5,72)"),
    Conv2d(name: "shortcut", input: "P(B,14,10,40)", filter: "F0(1,1,40,72)", stride: (2,2), out: "S(B,7,5,72)"),
    Conv2d(name: "second", input: "A(B,7,5,72)", filter: "F2(3,3,72,72)", padding: (1,1), bias: "b(72)", residual: "S(B,7,5,72)",
        residual_at: BeforeActivation, epilogue: Relu, out: "Y(B,7,5,72)"),
    Pool(name: "over", input: "Y(B,7,5,72)", kind: Max, window: (3,2), stride: (1,3), padding: (2,0), out: "O(B,9,2,72)"),
    Pool(name: "apart", input: "Y(B,7,5,72)", kind: Average, window: (2,2), out: "Q(B,3,2,72)"),
    Conv2d(name: "third", input: "Y(B,7,5,72)", filter: "F3(3,3,72,72)", padding: (1,1), epilogue: Relu, out: "C(B,7,5,72)"),
    Conv2d(name: "fourth", input: "C(B,7,5,72)", filter: "F4(3,3,72,72)", padding: (1,1), residual: "Y(B,7,5,72)",
        residual_at: BeforeActivation, epilogue: Gelu, out: "D(B,7,5,72)"),
    Pool(name: "mean", input: "D(B,7,5,72)", kind: Average, out: "M(B,1,1,72)"),
])"#;

#[test]
fn residual_blocks_and_pools_are_right_in_every_kernel_for_them() {
    let Some(gpu) = hopper() else { return };
    let mut ran = 0;
    for (images, element) in [(3, Element::F16), (3, Element::Bf16), (40, Element::F16)] {
        let overrides = |chain| Overrides {
            dims: vec![("B".into(), images)],
            element: Some(element),
            chain: Some(chain),
            ..Overrides::default()
        };
        let (inputs, reference) =
            expected(&gpu, &plan_of(&gpu, BLOCKS, &overrides(CONFIGS[0]), Executor::Fused), 1, 12);
        for kernel in ChainKernel::running([Operation::Conv2d, Operation::Pool].into_iter().collect()) {
            let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
            for config in CONFIGS {
                let config = ChainOverride { kernel, ..config };
                let plan = plan_of(&gpu, BLOCKS, &overrides(config), Executor::Fused);
                ran += 1;
                assert_runs_right(
                    &gpu,
                    &format!("{images} {element:?} {config:?}"),
                    &plan,
                    &inputs,
                    &reference,
                );
            }
        }
    }
    assert!(ran > 0, "no kernel for pools");
}

#[test]
fn layers_and_bodies_of_resnet_and_vgg_are_right() {
    let Some(gpu) = hopper() else { return };
    let bodies = ["resnet38_body", "vgg19_body"];
    let some = ["resnet38_layer1", "resnet38_layer4", "vgg19_block1", "vgg19_block2"];
    let others = ["resnet38_layer2", "resnet38_layer3", "vgg19_block3", "vgg19_block4"];
    let others = others.into_iter().filter(|_| !quick());
    for name in some.into_iter().chain(others).chain(bodies) {
        for images in if quick() { vec![1, 5] } else { vec![1, 5, 8, 32] } {
            let overrides = Overrides { dims: vec![("B".into(), images)], ..Overrides::default() };
            let plan = plan_of(&gpu, shipped(name).expect("it ships"), &overrides, Executor::Fused);
            let (inputs, reference) = expected(&gpu, &plan, 1, 7);
            assert_runs_right(&gpu, &format!("{name}, {images} images"), &plan, &inputs, &reference);
        }
    }
}

#[test]
fn chains_of_two_and_of_four_are_right() {
    let Some(gpu) = hopper() else { return };
    let shapes = [(56, 64), (28, 128), (14, 256), (7, 512)];
    let batches = if quick() { vec![1, 3] } else { vec![1, 3, 4, 8, 12, 16, 20, 24, 28, 32] };
    for (number, (hw, channels)) in shapes.into_iter().enumerate() {
        // With the quick sizes, a shape runs in only one of the two chains.
        let lengths = ["resnet_layer", "vgg_layer"].into_iter().enumerate();
        for (_, name) in lengths.filter(|(length, _)| !quick() || *length == number / 2) {
            for &images in &batches {
                let dims =
                    [("B", images), ("HW", hw), ("C", channels)].map(|(dim, size)| (dim.to_owned(), size));
                for mode in [Hand::Fixed, Hand::Drawn] {
                    let chain = Some(ChainOverride { mode, ..ChainOverride::default() });
                    let overrides = Overrides { dims: dims.to_vec(), chain, ..Overrides::default() };
                    let plan = plan_of(&gpu, shipped(name).expect("it ships"), &overrides, Executor::Fused);
                    let (inputs, reference) = expected(&gpu, &plan, 1, 7);
                    let label = format!("{name} {hw} x {hw}, {channels} channels, {images} images, {mode:?}");
                    assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
                }
            }
        }
    }
}

#[test]
fn ten_thousand_launches_stay_right() {
    let Some(gpu) = hopper() else { return };
    for (name, images, config, edges) in [
        ("resnet_layer", 1, STATIC, Overlap::Captured),
        ("resnet38_layer4", 2, STATIC, Overlap::All),
        ("vgg19_block3", 3, DYNAMIC, Overlap::Captured),
    ] {
        ten_thousand_launches(&gpu, &of_images(&gpu, name, images, config), edges);
    }
}

#[test]
fn results_repeat_to_the_bit() {
    let Some(gpu) = hopper() else { return };
    for (name, images) in [("resnet_layer", 1), ("resnet38_layer3", 2), ("vgg19_block4", 8)] {
        for config in CONFIGS {
            repeats_to_the_bit(&gpu, &of_images(&gpu, name, images, config));
        }
    }
}

/// The second convolution waits for the rows above and below its own.
#[test]
fn a_starved_halo_is_named_in_time() {
    let Some(gpu) = hopper() else { return };
    starves(&gpu, "images", "edge first -> second (Y): second tile");
}

#[test]
fn a_chain_kernel_a_stage_is_right() {
    let Some(gpu) = hopper() else { return };
    for (name, images) in [("resnet_layer", 1), ("resnet38_layer2", 3), ("vgg19_block4", 2)] {
        let overrides = Overrides { dims: vec![("B".into(), images)], ..Overrides::default() };
        runs_in_turn(&gpu, shipped(name).expect("it ships"), &overrides, Executor::Serial);
    }
    // No kernel supports both, so this is also the default.
    let classified = r#"Pipeline(name: "classified", dims: { "B": 40 }, stages: [
        Conv2d(name: "conv", input: "X(B,14,14,64)", filter: "F(3,3,64,64)", padding: (1,1), epilogue: Relu, out: "Y(B,14,14,64)"),
        Gemm(name: "dense", a: "A(B,512)", b: "W(512,1000)", bias: "c(1000)", out: "Z(B,1000)"),
    ])"#;
    runs_in_turn(&gpu, classified, &Overrides::default(), Executor::Serial);
}

/// sm_80 kernels with one stage each, compiled for this GPU: in serial order, and with tile semaphores.
#[test]
fn kernels_for_sm80_are_right() {
    let Some(gpu) = hopper() else { return };
    let mut profile = gpu.device.profile().expect("checked when the GPU was opened");
    profile.arch = 80;
    let residual = r#"filter: "F2(3,3,72,64)", padding: (1,1), bias: "b(64)", residual: "R(9,7,7,64)",
        residual_at: BeforeActivation, epilogue: Gelu, out: "Z(9,7,7,64)""#;
    for source in sources().into_iter().chain([convs((7, 7), 9, 64, residual)]) {
        for element in [Element::F16, Element::Bf16] {
            let mut known = None;
            for (executor, tile) in [
                (Executor::Serial, (64, 64)),
                (Executor::Serial, (128, 64)),
                (Executor::Streams, (64, 64)),
                (Executor::Streams, (128, 64)),
            ] {
                let overrides = Overrides {
                    element: Some(element),
                    tiles: Some(vec![tile; 2]),
                    policy: Some(Policy::Row),
                    ..Overrides::default()
                };
                let plan = plan_text(&source, "test.ron", &overrides, &profile, executor);
                let plan = plan.unwrap_or_else(|e| panic!("{executor:?} {tile:?}: {e}"));
                assert_eq!(plan.launch().has_semaphores(), executor == Executor::Streams);
                let (inputs, reference) = known.get_or_insert_with(|| expected(&gpu, &plan, 1, 12));
                let label = format!("sm_80 {element:?} {executor:?} {tile:?}");
                assert_runs_right(&gpu, &label, &plan, inputs, reference);
            }
        }
    }
}
