//! The C++ policy arithmetic, compiled for the host, against the Rust model, for random policies, orders, grids and
//! footprints, at every tile and k-block.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::support::*;
use cusync_gen::check::EdgeNumbers;
use cusync_gen::graph::{Axis, OperandKind};
use cusync_gen::sync::{Order, Policy, SlotMap, Tile, WaitAt};
use proptest::prelude::*;

fn driver() -> &'static PathBuf {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let program = scratch("host_policy").join("driver");
        let mut command = cxx();
        command
            .arg(root().join("csrc/host/policy.cpp"))
            .arg(root().join("codegen/tests/support/host_driver.cpp"));
        command.arg("-o").arg(&program);
        compile(command);
        program
    })
}

fn policies(grid: (u32, u32)) -> impl Strategy<Value = Policy> {
    let tiles = (grid.0 * grid.1) as usize;
    prop_oneof![
        Just(Policy::Tile),
        Just(Policy::Row),
        (1..=grid.0 + 1, 1..=grid.1 + 1).prop_map(|(rows, cols)| Policy::Batched { rows, cols }),
        (1..=grid.1 + 1).prop_map(Policy::Strided),
        prop::collection::vec(0..5u32, tiles).prop_map(|mut raw| {
            // Slots are numbered without gaps.
            let mut used = raw.clone();
            used.sort_unstable();
            used.dedup();
            raw.iter_mut().for_each(|s| *s = used.binary_search(s).expect("used") as u32);
            Policy::Table(raw)
        }),
    ]
}

/// An axis that moves with the tile or along k, with halos on both sides of the tensor. Consecutive k-blocks touch or
/// overlap, as in every built-in operation.
fn axes() -> impl Strategy<Value = Axis> {
    (0..40i32, 0..3i32, -24..40i32, 0..30i32, any::<bool>()).prop_map(|(tile, offset, k, halo, along_m)| {
        let k = if tile % 2 == 0 { k } else { 0 };
        let (m, n) = if along_m { (tile, 0) } else { (0, tile) };
        Axis { m, n, k, offset: offset * 7 - halo / 2, extent: k.abs().max(tile).max(1) + halo }
    })
}

fn edges() -> impl Strategy<Value = (EdgeNumbers, Policy, (u32, u32))> {
    let numbers = (1..40u32, 1..40u32, 0..20u32, 1..14u32, any::<bool>(), 1..5u32, 1..5u32);
    ((1..7u32, 1..9u32), numbers)
        .prop_flat_map(|(grid, numbers)| (Just(grid), policies(grid), Just(numbers), axes(), axes()))
        .prop_map(|(grid, policy, (tile_rows, tile_cols, ragged, k_blocks, start, cm, cn), rows, cols)| {
            let length = |tiles: u32, tile: u32| tiles * tile - ragged % tile;
            let edge = EdgeNumbers {
                policy: SlotMap { slot_base: ragged, ..policy.on(grid) },
                id: 3,
                operand: OperandKind::Custom(0),
                wait_at: if start { WaitAt::Start } else { WaitAt::PerKBlock },
                tile: (tile_rows, tile_cols),
                tensor: (length(grid.0, tile_rows), length(grid.1, tile_cols)),
                k_blocks,
                rows,
                cols,
            };
            (edge, policy, (cm, cn))
        })
}

/// Edges of decode kernels: an output in even shares, and a consumer that reads all rows of consecutive columns.
fn column_edges() -> impl Strategy<Value = EdgeNumbers> {
    (1..700u32, 1..40u32, 1..80u32, 0..9u32, 1..9u32).prop_map(|(columns, parts, width, base, rows)| {
        EdgeNumbers {
            policy: SlotMap { slot_base: base, ..Policy::Columns { width, columns }.on((1, parts)) },
            id: 3,
            operand: OperandKind::A,
            wait_at: WaitAt::PerKBlock,
            tile: (rows, width),
            tensor: (rows, columns),
            k_blocks: columns.div_ceil(width),
            rows: Axis { extent: rows as i32, ..Axis::default() },
            cols: Axis { k: width as i32, extent: width as i32, ..Axis::default() },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edges_agree((edge, policy, consumer) in edges()) {
        let have = run(driver(), &edge_input(&edge, consumer));
        let want = edge_dump(&edge, consumer) + "end\n";
        assert_same(&without_looks(&have), &without_looks(&want), &format!("{policy:?} {edge:?}"));
    }

    #[test]
    fn column_edges_agree(edge in column_edges()) {
        let have = run(driver(), &edge_input(&edge, (1, 1)));
        assert_same(&have, &(edge_dump(&edge, (1, 1)) + "end\n"), &format!("{edge:?}"));
    }

    #[test]
    fn orders_agree_and_are_bijections(
        grid in (1..30u32, 1..30u32), kind in 0..5u32, group in 1..40u32, seed in any::<u32>(),
    ) {
        let tiles = grid.0 * grid.1;
        // A stride that is an odd prime and does not divide the tile count visits each tile once.
        let step = [7919, 7927].into_iter().find(|p| tiles % p != 0).expect("small grids");
        let order = match kind {
            0 => Order::RowMajor,
            1 => Order::ColumnMajor,
            2 => Order::GroupedRows(group),
            3 => Order::GroupedColumns(group),
            _ => Order::Table(
                (0..tiles)
                    .map(|i| (i * step + seed % tiles) % tiles)
                    .map(|i| Tile { m: i / grid.1, n: i % grid.1 })
                    .collect(),
            ),
        };
        let have = run(driver(), &order_input(&order, grid));
        assert_same(&have, &(order_dump(&order, grid) + "end\n"), &format!("{order:?} on {grid:?}"));
        let seen: std::collections::BTreeSet<_> = (0..tiles).filter_map(|i| order.tile_at(grid, i)).collect();
        prop_assert_eq!(seen.len() as u32, tiles);
    }
}

/// A GEMM's k-loop checks its edge exactly as often as it waits.
#[test]
fn a_gemm_k_loop_looks_no_more_often_than_it_waits() {
    for (policy, waits) in [
        (Policy::Row, 1),
        (Policy::Tile, 4),
        (Policy::Batched { rows: 1, cols: 2 }, 2),
        (Policy::Strided(3), 4),
    ] {
        let edge = EdgeNumbers {
            policy: policy.on((3, 4)),
            id: 0,
            operand: OperandKind::A,
            wait_at: WaitAt::PerKBlock,
            tile: (128, 256),
            tensor: (300, 1000),
            k_blocks: 16,
            rows: Axis { m: 128, extent: 128, ..Axis::default() },
            cols: Axis { k: 64, extent: 64, ..Axis::default() },
        };
        let text = run(driver(), &edge_input(&edge, (3, 2)));
        assert_same(&text, &(edge_dump(&edge, (3, 2)) + "end\n"), &format!("{policy:?}"));
        assert!(text.contains(&format!("looks 1 1 0 = {waits}\n")), "{policy:?}");
    }
}

/// Counters wrap, slot numbers reach the maximum, and grids have up to 2^32 - 1 tiles: results match arithmetic without
/// wrapping.
#[test]
fn the_arithmetic_is_that_of_wide_integers() {
    let program = scratch("wide_arithmetic").join("wide");
    let mut command = cxx();
    command.arg(root().join("codegen/tests/support/wide.cpp")).arg("-o").arg(&program);
    compile(command);
    let text = run(&program, "");
    let compared = text.split(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert!(compared.is_some_and(|count| count > 1 << 32), "{text}");
}
