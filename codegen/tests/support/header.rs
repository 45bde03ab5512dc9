//! Rendered headers against the Rust model.

use std::fmt::Write as _;

use cusync_gen::check::Plan;
use cusync_gen::emit;
use cusync_gen::graph::WaitWalk;
use cusync_gen::sync::Tile;

use super::*;

/// A program that prints all contents of a rendered header.
fn driver_source(plan: &Plan, header: &str) -> String {
    let graph = plan.graph();
    let mut out = format!(
        "#include \"dump.hpp\"\n#include \"{header}\"\nnamespace p = cusync::plans::{};\nint main() {{\n",
        graph.name
    );
    for tensor in &graph.tensors {
        let t = format!("p::tensor_{}", tensor.name);
        writeln!(out, "  std::printf(\"tensor %u %u\\n\", {t}::rows, {t}::cols);").expect("string");
    }
    for stage in &graph.stages {
        let s = format!("p::stage_{}", stage.name);
        writeln!(
            out,
            "  std::printf(\"stage %u %u %u, %u %u %u, %u %u, %u %u, %u %u\\n\", {s}::m, {s}::n, {s}::k, {s}::mma_tile_m, \
             {s}::mma_tile_n, {s}::mma_tile_k, {s}::tile_rows, {s}::tile_cols, {s}::grid_m, {s}::grid_n, \
             {s}::k_blocks, {s}::split_k);\n  dump_rendered_order<{s}::Order>();"
        )
        .expect("string");
    }
    for (name, edge) in emit::edge_names(plan).iter().zip(plan.edges()) {
        let consumer = &graph.stages[edge.dependence().consumer.0].name;
        writeln!(
            out,
            "  dump_rendered_edge<p::edges::{name}>(p::stage_{consumer}::grid_m, p::stage_{consumer}::grid_n);"
        )
        .expect("string");
    }
    out + "}\n"
}

/// The expected output of that program.
fn expected_dump(plan: &Plan) -> String {
    let graph = plan.graph();
    let mut out = String::new();
    for t in &graph.tensors {
        writeln!(out, "tensor {} {}", t.rows, t.cols).expect("string");
    }
    for (index, s) in graph.stages.iter().enumerate() {
        let order = plan.launch().order(cusync_gen::graph::StageId(index));
        let (mma, tile) = (s.mma_tile, s.out_tile());
        writeln!(
            out,
            "stage {} {} {}, {} {} {}, {} {}, {} {}, {} {}",
            s.m, s.n, s.k, mma.0, mma.1, mma.2, tile.0, tile.1, s.grid.0, s.grid.1, s.k_blocks, s.split_k
        )
        .expect("string");
        out += &order_dump(order, s.grid);
    }
    for (i, edge) in plan.edges().iter().enumerate() {
        let consumer = &graph.stages[edge.dependence().consumer.0];
        out += &edge_dump(plan.edges()[i].numbers(), consumer.grid);
    }
    out
}

/// Renders a plan's header, compiles a program that prints its contents, and compares the output with the model.
pub fn check_header(name: &str, plan: &Plan) {
    let dir = scratch("rendered");
    let header = format!("{name}.h");
    std::fs::write(dir.join(&header), emit::header(plan, "cargo xtask render")).expect("written");
    let (source, program) = (dir.join(format!("{name}.cpp")), dir.join(name));
    std::fs::write(&source, driver_source(plan, &header)).expect("written");
    let mut command = cxx();
    command.arg("-I").arg(&dir).arg(&source).arg("-o").arg(&program);
    compile(command);
    let printed = run(&program, "");
    assert_same(&without_looks(&printed), &without_looks(&expected_dump(plan)), name);
    let whole_tile = |line: &&str| line.starts_with("wait ") && line.split(' ').nth(3) == Some("0");
    let waits: String = printed.lines().filter(whole_tile).flat_map(|l| [l, "\n"]).collect();
    assert_same(&waits, &checked_waits(plan), name);
}

/// The whole tile's waits again, from the functions that `check` judged.
fn checked_waits(plan: &Plan) -> String {
    let graph = plan.graph();
    let mut out = String::new();
    for edge in plan.edges() {
        let consumer = &graph.stages[edge.dependence().consumer.0];
        let ks = 0..consumer.k_blocks;
        for (m, n) in (0..consumer.grid.0).flat_map(|m| (0..consumer.grid.1).map(move |n| (m, n))) {
            let made = graph.stages[edge.dependence().producer.0].partition;
            let mut walk = WaitWalk::new(edge.numbers(), made, Tile { m, n }, ks.clone());
            for k in ks.clone() {
                let slots = edge.slots().covering(&walk.at(k));
                if slots.is_empty() {
                    continue;
                }
                write!(out, "wait {m} {n} 0 {k} =").expect("string");
                for slot in slots {
                    write!(out, " {}:{}", edge.slots().slot_base + slot, edge.slots().posts_of(slot))
                        .expect("string");
                }
                out.push('\n');
            }
        }
    }
    out
}
