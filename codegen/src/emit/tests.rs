use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::check::{Candidate, How, check};
use crate::device::Profile;
use crate::graph::{
    Activation, Axis, Dependence, Element, Footprint, Graph, Op, Operand, OperandKind, Partition, Stage,
    StageId, Tensor, TensorId,
};
use crate::sync::{Order, Policy, Tile};

fn gemm_stage(name: &str, shape: (u32, u32, u32), reads: &[(OperandKind, usize)], out: usize) -> Stage {
    let (m, n, k) = shape;
    let axis = |m: i32, n: i32, k: i32, extent: i32| Axis { m, n, k, offset: 0, extent };
    let footprint = |kind| match kind {
        OperandKind::A => Footprint { rows: axis(128, 0, 0, 128), cols: axis(0, 0, 64, 64) },
        OperandKind::B => Footprint { rows: axis(0, 0, 64, 64), cols: axis(0, 256, 0, 256) },
        _ => Footprint { rows: axis(128, 0, 0, 128), cols: axis(0, 256, 0, 256) },
    };
    Stage {
        name: name.into(),
        op: Op::Gemm(Activation::GeluTanh.into()),
        m,
        n,
        k,
        mma_tile: (128, 256, 64),
        partition: Partition::Tiles { rows: 128, cols: 256 },
        grid: (m.div_ceil(128), n.div_ceil(256)),
        k_blocks: k.div_ceil(64),
        split_k: 1,
        devices: 1,
        operands: reads
            .iter()
            .map(|&(kind, t)| Operand {
                kind,
                tensor: TensorId(t),
                view: None,
                footprint: footprint(kind),
                sliding: None,
            })
            .collect(),
        out: TensorId(out),
    }
}

/// up: Y = X W1; down: Z = Y W2 + Y (with a residual, so two edges join the stages); the caller provides the policies.
fn plan(policies: [Policy; 2], orders: [Order; 2]) -> Plan {
    let graph = Graph {
        name: "fixture".into(),
        element: Element::F16,
        tensors: vec![
            Tensor::new("X", 300, 512, None),
            Tensor::new("W1", 512, 1000, None),
            Tensor::new("Y", 300, 1000, Some(StageId(0))),
            Tensor::new("W2", 1000, 1000, None),
            Tensor::new("Z", 300, 1000, Some(StageId(1))),
        ],
        stages: vec![
            gemm_stage("up", (300, 1000, 512), &[(OperandKind::A, 0), (OperandKind::B, 1)], 2),
            gemm_stage(
                "down",
                (300, 1000, 1000),
                &[(OperandKind::A, 2), (OperandKind::B, 3), (OperandKind::Residual, 2)],
                4,
            ),
        ],
        dependences: [0, 2]
            .map(|operand| Dependence { producer: StageId(0), consumer: StageId(1), operand })
            .to_vec(),
        dims: vec![("M".into(), 300)],
    };
    let device = Profile::named("h200").expect("shipped").clone();
    let mut candidate = Candidate::new(graph, device, How::STREAMS);
    for (kernel, order) in candidate.launch.kernels_mut().iter_mut().zip(orders) {
        kernel.order = order;
    }
    for (edge, policy) in candidate.edges.iter_mut().zip(policies) {
        edge.policy = policy;
    }
    check(candidate).expect("the fixture is proved")
}

fn plans() -> Vec<Plan> {
    let reversed = (0..12).rev().map(|i| Tile { m: i / 4, n: i % 4 }).collect();
    vec![
        plan([Policy::Row, Policy::Tile], [Order::RowMajor, Order::GroupedRows(2)]),
        plan(
            [Policy::Table(vec![0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]), Policy::Strided(3)],
            [Order::Table(reversed), Order::ColumnMajor],
        ),
        plan(
            [Policy::Batched { rows: 2, cols: 3 }, Policy::Batched { rows: 9, cols: 1 }],
            [Order::GroupedColumns(3), Order::GroupedRows(1)],
        ),
    ]
}

/// A separate folder for a test's compiler output.
fn scratch(test: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cusync-emit-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary folder");
    dir
}

fn check_compiles(mut command: Command, label: &str) {
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{label}:\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn headers_compile() {
    let dir = scratch("header");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../csrc/include");
    let cxx = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    for (i, plan) in plans().iter().enumerate() {
        let path = dir.join(format!("plan{i}.h"));
        std::fs::write(&path, header(plan, "cargo test")).expect("written");
        let main = dir.join(format!("plan{i}.cpp"));
        std::fs::write(&main, format!("#include \"plan{i}.h\"\nint main() {{}}\n")).expect("written");
        let mut command = Command::new(&cxx);
        command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        check_compiles(
            {
                command.arg(&include).arg(&main);
                command
            },
            &header(plan, "cargo test"),
        );
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn handles_compile_alone_and_warn_of_nothing() {
    let dir = scratch("handle");
    let mut plans = plans();
    plans[0].edges.clear();
    plans[0].graph.tensors[1].transposed = true;
    assert!(
        handle(&plans[0], "cargo test")
            .contains("512 x 1000, an input: the transpose of what the spec states.")
    );
    for (i, plan) in plans.iter().enumerate() {
        let path = dir.join(format!("handle{i}.rs"));
        std::fs::write(&path, handle(plan, "cargo test")).expect("written");
        let mut command = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
        command.args([
            "--crate-type=lib",
            "--emit=metadata",
            "--edition=2024",
            "-Dwarnings",
            "-Wmissing-docs",
        ]);
        command.arg("--crate-name").arg(format!("handle{i}")).arg("--out-dir").arg(&dir).arg(&path);
        check_compiles(command, &handle(plan, "cargo test"));
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn names_tell_edges_of_one_pair_of_stages_apart() {
    let mut plan = plan([Policy::Row, Policy::Tile], [Order::RowMajor, Order::RowMajor]);
    assert_eq!(edge_names(&plan), ["up_to_down_a", "up_to_down_residual"]);
    plan.edges.pop();
    assert_eq!(edge_names(&plan), ["up_to_down"]);
}

#[test]
fn names_stay_apart_when_stage_names_look_like_edges() {
    let mut plan = plan([Policy::Row, Policy::Tile], [Order::RowMajor, Order::RowMajor]);
    for (i, name) in ["p", "q_to_r", "p_to_q", "r"].into_iter().enumerate() {
        if i < 2 {
            plan.graph.stages[i].name = name.into();
        } else {
            let mut stage = plan.graph.stages[1].clone();
            stage.name = name.into();
            plan.graph.stages.push(stage);
        }
    }
    plan.edges[1].dependence = Dependence { producer: StageId(2), consumer: StageId(3), operand: 0 };
    assert_eq!(edge_names(&plan), ["p_to_q_to_r", "p_to_q_to_r_1"]);
}

#[test]
fn the_stamp_follows_the_inputs() {
    let stamp = |plan: &Plan| {
        let text = header(plan, "cargo test");
        text.lines()
            .nth(1)
            .and_then(|l| l.split("inputs ").nth(1))
            .map(|s| s[..16].to_string())
            .expect("stamped")
    };
    let orders = [Order::RowMajor, Order::RowMajor];
    let a = plan([Policy::Row, Policy::Tile], orders.clone());
    let b = plan([Policy::Row, Policy::Row], orders);
    assert_eq!(stamp(&a), stamp(&a.clone()));
    assert_ne!(stamp(&a), stamp(&b));
}

#[test]
fn edges_carry_the_plan_s_numbers() {
    let plan = plan([Policy::Row, Policy::Tile], [Order::GroupedRows(2), Order::RowMajor]);
    let edge = plan.edges()[1].numbers();
    assert_eq!((edge.policy.grid, edge.policy.slot_base, edge.policy.slot_count), ((3, 4), 3, 12));
    assert_eq!((edge.operand, edge.tile, edge.tensor), (OperandKind::Residual, (128, 256), (300, 1000)));
}
