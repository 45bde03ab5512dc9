//! Dependences against an oracle that checks every byte separately.

use std::collections::{BTreeMap, BTreeSet};

use cusync_dag::{Access, AccessMode, DagError, Hazards, NodeId, Program, analyse};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::dense::layers;
use crate::{kernel, programs, tiny};

/// Whether node `i` reads and writes a byte.
fn touches(program: &Program, node: usize, buffer: usize, byte: u64) -> (bool, bool) {
    let here = program.nodes()[node]
        .accesses
        .iter()
        .filter(|a| a.buffer.index() == buffer && a.bytes.contains(&byte));
    here.fold((false, false), |(r, w), a| (r || a.mode != AccessMode::Write, w || a.mode != AccessMode::Read))
}

/// Directly from the definition: pairs that share a byte that at least one of them writes and no node between them
/// writes.
fn oracle(program: &Program) -> BTreeMap<(usize, usize), Hazards> {
    let mut edges: BTreeMap<(usize, usize), Hazards> = BTreeMap::new();
    let n = program.nodes().len();
    for (buffer, b) in program.buffers().iter().enumerate() {
        for byte in 0..b.bytes {
            let touch: Vec<_> = (0..n).map(|i| touches(program, i, buffer, byte)).collect();
            for after in 0..n {
                for before in 0..after {
                    let separated = (before + 1..after).any(|between| touch[between].1);
                    let (r, w) = (touch[after], touch[before]);
                    // Overwriting another node's result is a write after write, whatever was read before.
                    let why = [w.1 && r.0, w.0 && !w.1 && r.1, w.1 && r.1];
                    if !separated && why.contains(&true) {
                        let hazards = edges.entry((after, before)).or_default();
                        hazards.read_after_write |= why[0];
                        hazards.write_after_read |= why[1];
                        hazards.write_after_write |= why[2];
                    }
                }
            }
        }
    }
    edges
}

/// All pairs (after, before) that a path connects.
fn closure(n: usize, edges: &BTreeSet<(usize, usize)>) -> BTreeSet<(usize, usize)> {
    let mut paths = edges.clone();
    for through in 0..n {
        for after in (0..n).filter(|&after| paths.contains(&(after, through))).collect::<Vec<_>>() {
            let before: Vec<_> = paths.range((through, 0)..(through + 1, 0)).map(|edge| edge.1).collect();
            paths.extend(before.into_iter().map(|before| (after, before)));
        }
    }
    paths
}

#[test]
fn no_dependence_is_missed_and_none_is_spurious() {
    let count = programs(3000);
    let mut edges = 0;
    // Every tenth is dense.
    for seed in 0..count {
        let random = &mut SmallRng::seed_from_u64(seed);
        let program = if seed % 10 == 0 { layers(random) } else { tiny(random) };
        let found = analyse(&program);
        let expected = oracle(&program);
        let got: BTreeMap<_, _> =
            found.edges.iter().map(|e| ((e.after.index(), e.before.index()), e.hazards)).collect();
        assert_eq!(got, expected, "program {seed}");
        assert_eq!(got.len(), found.edges.len(), "program {seed}: an edge twice");
        edges += got.len();

        // The reduction implies every edge, and none of its edges is implied by the others.
        let n = program.nodes().len();
        let all = closure(n, &got.keys().copied().collect());
        let reduced: BTreeSet<_> =
            found.reduced_edges().map(|e| (e.after.index(), e.before.index())).collect();
        assert_eq!(closure(n, &reduced), all, "program {seed}");
        for &(after, before) in &reduced {
            let around = |via: usize| all.contains(&(after, via)) && all.contains(&(via, before));
            assert!(!(0..n).any(around), "program {seed}: {before} -> {after} is implied");
        }
        for after in 0..n {
            for before in 0..n {
                let reaches = found.reaches(NodeId(before as u32), NodeId(after as u32));
                assert_eq!(reaches, all.contains(&(after, before)), "program {seed}");
            }
        }
    }
    assert!(edges as u64 > count * 5, "the programs hardly collide: {edges} edges in {count}");
}

#[test]
fn ranges_that_only_touch_do_not_depend() {
    let mut program = Program::new("halves");
    let x = program.buffer("x", 100);
    let access = |bytes, mode| vec![Access { buffer: x, bytes, mode }];
    for (name, bytes, mode) in [
        ("low", 0..50, AccessMode::Write),
        ("high", 50..100, AccessMode::Write),
        ("reads_low", 0..50, AccessMode::Read),
        ("reads_both", 49..51, AccessMode::Read),
    ] {
        program.push(kernel(name, 1.0, access(bytes, mode))).expect("inside");
    }
    let edges: Vec<_> = analyse(&program).edges.iter().map(|e| (e.before.0, e.after.0)).collect();
    assert_eq!(edges, [(0, 2), (0, 3), (1, 3)]);
}

#[test]
fn bad_nodes_are_refused_with_their_names() {
    let mut program = Program::new("bad");
    let x = program.buffer("x", 16);
    let access = |bytes| vec![Access { buffer: x, bytes, mode: AccessMode::Read }];
    let refuse = |node| program.clone().push(node).expect_err("refused");
    let error = refuse(kernel("late", 1.0, access(8..17)));
    assert_eq!(
        error.to_string(),
        "`late` accesses bytes 8..17 of `x`, which has 16 bytes: state a range inside it that is not empty"
    );
    assert!(matches!(refuse(kernel("none", 1.0, access(8..8))), DagError::Range { .. }));
    for us in [f64::NAN, f64::INFINITY, -1.0, 1e308, 3.7e9] {
        assert!(matches!(refuse(kernel("nan", us, access(0..8))), DagError::Duration { .. }), "{us}");
    }
    let elsewhere = vec![Access { buffer: cusync_dag::BufferId(1), bytes: 0..1, mode: AccessMode::Read }];
    assert!(matches!(refuse(kernel("elsewhere", 1.0, elsewhere)), DagError::NoBuffer { .. }));
}
