//! Specs that must parse and resolve, including the shipped ones.

use std::fs;
use std::path::{Path, PathBuf};

use cusync_gen::device::{DEVICES, Profile};
use cusync_gen::graph::{Graph, Op, OperandKind, Resolved, StageId};
use cusync_gen::spec;

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the policies are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "ron"))
        .collect();
    files.sort();
    files
}

fn resolve(text: &str, overrides: &[(&str, u64)]) -> Resolved {
    let overrides: Vec<_> = overrides.iter().map(|&(name, value)| (name.to_string(), value)).collect();
    spec::parse(text, "test.ron")
        .and_then(|spec| spec.resolve(&overrides))
        .unwrap_or_else(|diagnostic| panic!("{}", diagnostic.render(text, "test.ron", false)))
}

fn graph(resolved: &Resolved, text: &str, device: &Profile) -> Graph {
    // The first tile; for a norm, the tile with the most rows, because a GEMM reads all of them in each k-block.
    let first = |i: usize, tiles: Vec<(u32, u32, u32)>| match resolved.stages[i].op {
        Op::Norm(_) => tiles.into_iter().max().expect("a tile"),
        _ => tiles[0],
    };
    let tiles: Vec<_> = (0..resolved.stages.len())
        .map(|i| resolved.kernel_candidates(StageId(i), device).map(|tiles| first(i, tiles)))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|diagnostic| panic!("{}", diagnostic.render(text, "test.ron", false)));
    resolved
        .graph(&tiles)
        .unwrap_or_else(|diagnostic| panic!("{}", diagnostic.render(text, "test.ron", false)))
}

#[test]
fn every_shipped_spec_lowers_on_every_device_at_ragged_sizes() {
    let files = shipped();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.starts_with("//"), "{}: starts with a comment that says what it is", file.display());
        let stem = file.file_stem().expect("named").to_str().expect("ASCII");
        for m in [1u64, 37, 200, 512, 1000, 4096] {
            let rows = spec::parse(&text, "shipped").expect("it parses");
            let dim = rows.dims().map(|(dim, _)| dim).find(|dim| ["M", "S", "B"].contains(dim));
            let (dim, size) = match dim {
                Some("B") => ("B", m.div_ceil(128)),
                other => (other.expect("tokens, a prompt or images"), m),
            };
            let resolved = resolve(&text, &[(dim, size)]);
            assert_eq!(resolved.name, stem, "a spec is named after its file");
            for device in DEVICES.iter() {
                let graph = graph(&resolved, &text, device);
                assert!(!graph.dependences.is_empty());
                for dependence in &graph.dependences {
                    assert!(dependence.producer < dependence.consumer, "producers come first");
                }
                for stage in &graph.stages {
                    assert!(
                        stage.grid.0 * stage.out_tile().0 >= stage.m
                            && stage.grid.1 * stage.out_tile().1 >= stage.n
                    );
                }
            }
        }
    }
}

const DIAMOND: &str = include_str!("../../../policies/diamond.ron");

#[test]
fn the_diamond_waits_for_a_and_residual() {
    let resolved = resolve(DIAMOND, &[]);
    let graph = graph(&resolved, DIAMOND, Profile::named("h200").expect("shipped"));
    let join = &graph.stages[2];
    let edges: Vec<_> = graph
        .dependences
        .iter()
        .map(|d| (graph.stages[d.producer.0].name.as_str(), join.operands[d.operand].kind))
        .collect();
    assert_eq!(edges, [("left", OperandKind::A), ("right", OperandKind::Residual)]);
    let residual = &join.operands[graph.dependences[1].operand].footprint;
    assert_eq!((residual.rows.k, residual.cols.k), (0, 0), "read once, after the last k-block");
    assert_eq!(residual.rows.range(512, 1, 0, 0), 64..128);
    assert_eq!(residual.cols.range(1024, 1, 1, 7), 128..256);
}

#[test]
fn gated_tiles_are_half_as_wide_as_the_mma() {
    let text = include_str!("../../../policies/llama65_mlp.ron");
    let resolved = resolve(text, &[]);
    let graph = resolved.graph(&[(128, 256, 64), (128, 128, 64)]).expect("lowers");
    let gated = &graph.stages[0];
    assert_eq!((gated.out_tile(), gated.grid, gated.k_blocks), ((128, 128), (4, 22), 128));
    let up = gated.operands.iter().find(|operand| operand.kind == OperandKind::Up).expect("has one");
    assert_eq!(up.footprint.cols.range(2752, 0, 21, 0), 2688..2752);
}

#[test]
fn stages_may_be_stated_in_any_order() {
    let text = r#"Pipeline(name: "p", dims: {"M": 64, "H": 64}, stages: [
        Gemm(name: "c", a: "Y(M,H)", b: "W(H,H)", bias: "s(1,H)", out: "Z(M,H)"),
        Gemm(name: "b", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
        Gemm(name: "a", a: "v(1,H)", b: "W(H,H)", out: "s(1,H)"),
    ], sync: [Edge(from: "b", to: "c", operand: A, policy: Strided(1), wait: Start)])"#;
    let resolved = resolve(text, &[]);
    let names: Vec<_> = resolved.stages.iter().map(|stage| stage.name.value.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    let graph = graph(&resolved, text, Profile::named("a100").expect("shipped"));
    let stated: Vec<_> = graph.dependences.iter().map(|d| resolved.stated_edge(d).is_some()).collect();
    assert_eq!(stated, [true, false], "the edge names operand A only");
}

#[test]
fn a_custom_stage_is_known_by_its_footprints() {
    let text = r#"Pipeline(name: "p", dims: {"M": 300, "H": 512}, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
        Custom(name: "norm", tile: (128, "H"), grid: ("ceil_div(M, 128)", 1), k_blocks: "H/64",
            reads: [Read(tensor: "Y(M,H)", rows: "128*m .. 128*m + 128", cols: "64*k .. 64*(k + 1)")],
            writes: "Z(M,H)"),
    ], tiles: {"up": (128, 128)})"#;
    let graph = graph(&resolve(text, &[]), text, Profile::named("h200").expect("shipped"));
    let norm = &graph.stages[1];
    assert_eq!((norm.grid, norm.k_blocks, graph.dependences.len()), ((3, 1), 8, 1));
    let read = &norm.operands[0].footprint;
    assert_eq!((read.rows.range(300, 2, 0, 0), read.cols.range(512, 2, 0, 1)), (256..300, 64..128));
}

/// The defaults of PyTorch and of checkpoints.
#[test]
fn an_epsilon_may_be_left_out() {
    let text = r#"Pipeline(name: "p", dims: {"M": 8, "H": 64}, stages: [
        RmsNorm(name: "root", x: "X(M,H)", gain: "g(H)", out: "N(M,H)"),
        LayerNorm(name: "layer", x: "N(M,H)", gain: "h(H)", bias: "b(H)", out: "P(M,H)"),
        Gemm(name: "head", a: "P(M,H)", b: "W(H,H)", input_norm: InputNorm(gain: "i(H)"), out: "Q(M,H)"),
    ])"#;
    let epsilons: Vec<f32> = resolve(text, &[])
        .stages
        .iter()
        .filter_map(|stage| match &stage.op {
            Op::Norm(norm) => Some(norm.epsilon),
            Op::NormedGemm(normed) => Some(normed.epsilon),
            _ => None,
        })
        .collect();
    assert_eq!(epsilons, [1e-6, 1e-5, 1e-6]);
}

#[test]
fn overrides_are_checked_like_dims() {
    let spec = spec::parse(DIAMOND, "diamond.ron").expect("valid");
    let resolve = |name: &str, value| spec.resolve(&[(name.to_string(), value)]);
    assert_eq!(resolve("M", 37).expect("valid").tensors[0].rows, 37);
    assert_eq!(resolve("H", 1021).expect("rows of any length").tensors[0].cols, 1021);
    for (name, value, code) in [("N", 8, "unknown-dim"), ("M", 0, "zero-dim"), ("M", u64::MAX, "dim-range")] {
        let diagnostic = resolve(name, value).expect_err(name);
        assert_eq!(diagnostic.code, code);
        assert!(diagnostic.primary.is_some() && !diagnostic.help.is_empty(), "{diagnostic}");
    }
    let last_wins = spec.resolve(&[("M".into(), 1), ("M".into(), 64)]).expect("valid");
    assert_eq!(last_wins.dims[0], ("M".to_string(), 64));
}

#[test]
fn the_documented_spec_is_valid() {
    let page = include_str!("../../../docs/spec.md");
    let mut specs = 0;
    for block in page.split("```ron\n").skip(1) {
        let text = block.split("```").next().expect("closed");
        if text.starts_with("Pipeline(") {
            resolve(text, &[]);
            specs += 1;
        }
    }
    assert!(specs > 0, "the page shows a whole spec");
}
