//! Compiles C++ against the device library and computes the expected answers in Rust.

// Each test program uses only a part, and prints what it could not run.
#![allow(dead_code, unreachable_pub, clippy::print_stdout)]

pub mod header;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cusync_gen::check::EdgeNumbers;
use cusync_gen::graph::{Axis, OperandKind};
use cusync_gen::sync::{Order, Tile, WaitAt};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder for a test program's output, kept between runs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("scratch folder");
    dir
}

/// Runs a compiler and panics with its output if it fails.
pub(crate) fn compile(mut command: Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The host C++ compiler with the project's flags and include paths.
pub(crate) fn cxx() -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
    command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]);
    for dir in ["csrc", "csrc/include", "codegen/tests/support"] {
        command.arg("-I").arg(root().join(dir));
    }
    command
}

/// nvcc, if a toolchain is available: `NVCC`, or the one that `cargo xtask setup` fetches.
pub(crate) fn nvcc() -> Option<Command> {
    let path = std::env::var_os("NVCC")
        .map(PathBuf::from)
        .unwrap_or_else(|| root().join(".toolchain/nvidia/cu13/bin/nvcc"));
    if !path.exists() {
        println!("skipped: no nvcc at {} (cargo xtask setup)", path.display());
        return None;
    }
    let mut command = Command::new(path);
    command.args(["-std=c++17", "-O2", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]);
    command.arg("-I").arg(root().join("csrc/include"));
    Some(command)
}

/// nvcc set up to build a program for every architecture of the kernels.
pub fn nvcc_program() -> Option<Command> {
    let mut command = nvcc()?;
    command.args(["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"]);
    let library = root().join(".toolchain/nvidia/cu13/lib");
    if library.exists() {
        command.arg("-L").arg(library);
    }
    Some(command)
}

/// Runs a program that needs a GPU, if there is one.
pub fn run_on_gpu(program: &Path) {
    if Path::new("/dev/nvidiactl").exists() {
        println!("{}", run(program, ""));
    } else {
        println!("compiled, not run: no NVIDIA GPU here");
    }
}

/// Runs a program on an input and returns its output.
pub(crate) fn run(program: &Path, input: &str) -> String {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("waited for");
    writer.join().expect("writes").expect("reads all of its input");
    assert!(output.status.success(), "{} fails: {}", program.display(), output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Fails at the first line that differs.
pub(crate) fn assert_same(have: &str, want: &str, label: &str) {
    for (i, (have, want)) in have.lines().zip(want.lines()).enumerate() {
        assert_eq!(have, want, "{label}: line {i}, compiled against model");
    }
    assert_eq!(have.lines().count(), want.lines().count(), "{label}: lines");
}

type TileSets = (BTreeSet<u32>, BTreeSet<u32>);

/// Rows and columns of the producer tiles whose elements consumer tile `(m, n)` reads at k-block `k`, each axis
/// separately, found by checking every tile of the grid.
fn producers(e: &EdgeNumbers, m: u32, n: u32, k: u32) -> TileSets {
    let (rows, cols) = if e.policy.width > 0 { (1, e.policy.slot_count) } else { e.policy.grid };
    let meets = |range: std::ops::Range<u32>, tile: u32, tiles: u32| -> BTreeSet<u32> {
        (0..tiles)
            .filter(|&t| !range.is_empty() && t * tile < range.end && range.start < (t + 1) * tile)
            .collect()
    };
    (
        meets(e.rows.range(e.tensor.0, m, n, k), e.tile.0, rows),
        meets(e.cols.range(e.tensor.1, m, n, k), e.tile.1, cols),
    )
}

/// The expected output of `dump_edge`: the Rust policy model, and footprints looked up tile by tile.
pub(crate) fn edge_dump(e: &EdgeNumbers, consumer: (u32, u32)) -> String {
    let mut out = String::new();
    let (slots, base) = (&e.policy, e.policy.slot_base);
    let (gm, gn) = slots.grid;
    let tiles = || (0..gm).flat_map(move |m| (0..gn).map(move |n| Tile { m, n }));
    // Slots of columns are found column by column.
    let posted = |tile: Tile| -> BTreeSet<u32> {
        if slots.width == 0 {
            return BTreeSet::from([slots.slot_of(tile)]);
        }
        let owner = |column: &u32| (1..gn).take_while(|part| part * slots.columns / gn <= *column).count();
        let own = (0..slots.columns).filter(|column| owner(column) == tile.n as usize);
        own.map(|column| column / slots.width).collect()
    };
    let posted: BTreeMap<Tile, BTreeSet<u32>> = tiles().map(|tile| (tile, posted(tile))).collect();
    for (tile, posted) in &posted {
        assert_eq!(slots.posted_by(*tile).collect::<BTreeSet<u32>>(), *posted, "the model itself: {slots:?}");
        write!(out, "slots {} {} =", tile.m, tile.n).expect("string");
        posted.iter().for_each(|slot| write!(out, " {}", base + slot).expect("string"));
        out.push('\n');
    }
    for slot in 0..slots.slot_count {
        let posts = posted.values().filter(|posted| posted.contains(&slot)).count();
        assert_eq!(slots.posts_of(slot), posts as u32, "the model itself: {slots:?}, slot {slot}");
        writeln!(out, "posts {} = {posts}", base + slot).expect("string");
    }
    let slots_of = |(rows, cols): &TileSets| -> BTreeMap<u32, u32> {
        rows.iter()
            .flat_map(|&m| cols.iter().map(move |&n| Tile { m, n }))
            .map(|tile| if slots.width > 0 { tile.n } else { slots.slot_of(tile) })
            .map(|slot| (base + slot, slots.posts_of(slot)))
            .collect()
    };
    for (m, n) in (0..consumer.0).flat_map(|m| (0..consumer.1).map(move |n| (m, n))) {
        for begin in [0, e.k_blocks / 2].into_iter().take(e.k_blocks.min(2) as usize) {
            let mut waits = 0;
            let mut before = None;
            for k in begin..e.k_blocks {
                let now = match e.wait_at {
                    WaitAt::Start if k > begin => continue,
                    // The smallest box around everything the item reads.
                    WaitAt::Start => (k..e.k_blocks)
                        .map(|k| producers(e, m, n, k))
                        .fold(TileSets::default(), |(rows, cols), (r, c)| (&rows | &r, &cols | &c)),
                    WaitAt::PerKBlock => producers(e, m, n, k),
                };
                let empty = now.0.is_empty() || now.1.is_empty();
                let now = if empty { TileSets::default() } else { now };
                // Compare a table's slots by their tiles.
                let again = match &before {
                    Some(seen) if e.policy.table.is_some() => *seen == now,
                    Some(seen) => slots_of(seen) == slots_of(&now),
                    None => false,
                };
                if !empty && !again {
                    waits += 1;
                    write!(out, "wait {m} {n} {begin} {k} =").expect("string");
                    slots_of(&now).iter().for_each(|(s, p)| write!(out, " {s}:{p}").expect("string"));
                    out.push('\n');
                }
                before = Some(now);
            }
            writeln!(out, "looks {m} {n} {begin} = {waits}").expect("string");
        }
    }
    out
}

/// Drops the lines with the k-loop's wait-check counts: for some policies they are a bound, not exact.
pub(crate) fn without_looks(text: &str) -> String {
    text.lines().filter(|l| !l.starts_with("looks ")).fold(String::new(), |out, l| out + l + "\n")
}

/// The expected output of `dump_order`.
pub(crate) fn order_dump(order: &Order, grid: (u32, u32)) -> String {
    (0..grid.0 * grid.1).fold(String::new(), |mut out, i| {
        let tile = order.tile_at(grid, i).expect("a tile for every place");
        writeln!(out, "tile {i} = {} {}", tile.m, tile.n).expect("string");
        out
    })
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().fold(numbers.len().to_string(), |out, n| format!("{out} {n}"))
}

/// An edge as `host_driver.cpp` reads it.
pub(crate) fn edge_input(e: &EdgeNumbers, consumer: (u32, u32)) -> String {
    let p = &e.policy;
    let (table, posts) = p.table.clone().unwrap_or_default();
    let operand = match e.operand {
        OperandKind::A => 0,
        OperandKind::B | OperandKind::Up => 1,
        OperandKind::Bias => 2,
        OperandKind::Residual => 3,
        _ => 4,
    };
    let wait_at = u32::from(e.wait_at == WaitAt::Start);
    let axis = |a: &Axis| format!("{} {} {} {} {}", a.m, a.n, a.k, a.offset, a.extent);
    format!(
        "edge {} {} {} {} {} {} {} {} {} {}\n{}\n{}\n{} {} {} {} {} {} {} {}\n{} {}\n{} {}\n",
        p.grid.0,
        p.grid.1,
        p.block.0,
        p.block.1,
        p.stride_n,
        p.slots_n,
        p.slot_base,
        p.slot_count,
        p.width,
        p.columns,
        list(&table),
        list(&posts),
        e.id,
        operand,
        wait_at,
        e.tile.0,
        e.tile.1,
        e.tensor.0,
        e.tensor.1,
        e.k_blocks,
        axis(&e.rows),
        axis(&e.cols),
        consumer.0,
        consumer.1
    )
}

/// An order as `host_driver.cpp` reads it.
pub(crate) fn order_input(order: &Order, grid: (u32, u32)) -> String {
    let kind = match order {
        Order::RowMajor => 0,
        Order::ColumnMajor => 1,
        Order::GroupedRows(_) => 2,
        Order::GroupedColumns(_) => 3,
        Order::Table(_) => 4,
    };
    let table = order.table(grid).unwrap_or_default();
    format!("order {kind} {} {} {}\n{}\n", grid.0, grid.1, order.group(), list(&table))
}
