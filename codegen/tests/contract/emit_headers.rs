//! Headers for every kind of policy, wait location and tile order, on ragged grids, compared with the model at every
//! tile and k-block; the host compiler compiles each one with its static assertions.

use crate::support::header::check_header;
use cusync_gen::check::{Candidate, EdgeChoice, Executor, How, Plan, check};
use cusync_gen::device::Profile;
use cusync_gen::spec;
use cusync_gen::sync::{Order, Policy, Tile, WaitAt};

/// Two edges connect `up` and `down`: one is read along k, the other once; `side` connects through operand B.
const SPEC: &str = r#"Pipeline(
    name: "everything",
    dims: { "M": 300, "H": 1000, "I": 1000 },
    stages: [
        Gemm(name: "side", a: "S(H,H)", b: "T(H,I)", out: "W(H,I)"),
        Gemm(name: "up", a: "X(M,H)", b: "V(H,H)", out: "Y(M,H)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,H)", b: "W(H,I)", residual: "Y(M,H)", out: "Z(M,I)"),
    ],
)"#;

/// `edges` are the edges of `down`: operands A, B, residual.
fn plan(edges: [(Policy, WaitAt); 3], orders: [Order; 3]) -> Plan {
    let resolved = spec::parse(SPEC, "everything.ron").and_then(|s| s.resolve(&[])).expect("valid");
    let graph = resolved.graph(&[(128, 128, 64), (128, 256, 64), (64, 128, 64)]).expect("built tiles");
    let device = Profile::named("h200").expect("shipped").clone();
    let mut candidate = Candidate::new(graph, device, How::STREAMS);
    candidate.edges = edges.into_iter().map(|(policy, wait_at)| EdgeChoice { policy, wait_at }).collect();
    for (kernel, order) in candidate.launch.kernels_mut().iter_mut().zip(orders) {
        kernel.order = order;
    }
    check(candidate).unwrap_or_else(|refutation| panic!("{refutation:?}"))
}

#[test]
fn block_policies() {
    use Policy::{Batched, Row, Tile as EachTile};
    let (along_k, start) = (WaitAt::PerKBlock, WaitAt::Start);
    check_header(
        "blocks",
        &plan(
            [(EachTile, along_k), (Row, along_k), (EachTile, start)],
            [Order::RowMajor, Order::ColumnMajor, Order::GroupedRows(2)],
        ),
    );
    check_header(
        "batches",
        &plan(
            [(Batched { rows: 2, cols: 3 }, along_k), (Batched { rows: 3, cols: 2 }, start), (Row, along_k)],
            [Order::GroupedColumns(3), Order::GroupedRows(5), Order::GroupedColumns(1)],
        ),
    );
}

#[test]
fn strided_policies() {
    let strided = |stride| Policy::Strided(stride);
    check_header(
        "strided",
        &plan(
            [(strided(3), WaitAt::PerKBlock), (strided(2), WaitAt::Start), (strided(1), WaitAt::PerKBlock)],
            [Order::RowMajor, Order::RowMajor, Order::RowMajor],
        ),
    );
}

#[test]
fn tables_of_slots_and_tiles() {
    // side is 8 x 8 tiles, up 3 x 4, down 5 x 8.
    let by_diagonal = (0..64).map(|i| (i / 8 + i % 8) % 5).collect();
    let reversed = (0..12).rev().map(|i| Tile { m: i / 4, n: i % 4 }).collect();
    check_header(
        "tables",
        &plan(
            [
                (Policy::Table((0..12).map(|i| i % 7).collect()), WaitAt::PerKBlock),
                (Policy::Table(by_diagonal), WaitAt::PerKBlock),
                (Policy::Table(vec![0; 12]), WaitAt::Start),
            ],
            [Order::ColumnMajor, Order::Table(reversed), Order::RowMajor],
        ),
    );
}

#[test]
fn plans_of_the_fused_executor() {
    let small = |source: &str, m: u64| {
        let dims = [("M", m), ("H", 1024), ("I", 776)].map(|(name, value)| (name.to_owned(), value));
        spec::parse(source, "shipped").and_then(|s| s.resolve(&dims)).expect("valid")
    };
    let device = Profile::named("h200").expect("shipped");
    let source = include_str!("../../../policies/llama65_mlp.ron");
    let chain = cusync_gen::choose::plan(&small(source, 300), device, Executor::Fused).expect("proved");
    assert!(chain.launch().lists().is_some());
    check_header("chain", &chain);
    // A C++ user would run the policies on a grid of tiles, regardless of our own kernel.
    let few = cusync_gen::choose::plan(&small(source, 8), device, Executor::Fused).expect("proved");
    assert!(few.launch().shares().is_some());
    let tiled = few.on_tiles();
    let slots: u32 = tiled.edges().iter().map(|e| e.slots().slot_count).sum();
    assert_eq!(slots, tiled.graph().stages[0].tiles());
    assert!(cusync_gen::emit::header(&few, "cargo xtask render").contains(&format!("slot_count = {slots};")));
    check_header("few", &tiled);
    check(Candidate::new(tiled.graph().clone(), device.clone(), How::Serial)).expect("a serial chain");
}
