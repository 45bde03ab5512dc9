//! Caches to which runs append: their premises, owners and earlier runs.

use super::{ATTEND, PROJECT, among, planned, sound, source};
use crate::changed::only;
use cusync_gen::check::{Axiom, CacheContract, Candidate, How, Launch, Obligation, judge};
use cusync_gen::graph::{OperandKind, TensorId};

#[test]
fn what_a_cache_rests_on_is_a_premise() {
    for (pages, premise) in [("", false), (r#"pages: "P(B,S/64)","#, true)] {
        let mut c = planned(&source(5, (8, 2, 128), pages));
        let axioms = |c: &Candidate| Axiom::for_launch(&c.graph, &c.launch, 90);
        assert!(axioms(&c).contains(&Axiom::Runs), "who orders the runs is not the proof's to know");
        assert_eq!(axioms(&c).contains(&Axiom::Pages), premise, "{pages}");
        // A run on the host does not overlap with other runs.
        c.launch = Launch::stages(&c.graph, How::Host);
        let on_host = axioms(&c);
        assert_eq!((on_host.contains(&Axiom::Runs), on_host.contains(&Axiom::Pages)), (false, premise));
    }
}

/// A broken promise of a kernel about its cache, and how it is refuted.
type Case = (fn(&mut CacheContract), Obligation, &'static [&'static str]);

#[test]
fn what_lives_on_between_runs_is_read_behind_the_run_before() {
    let cases: [Case; 5] = [
        (
            |cache| cache.reads_wait = false,
            Obligation::Visible,
            &[
                "may read the last row of `K` before the run before it has appended",
                "streams the cache without waiting",
            ],
        ),
        (
            |cache| cache.lengths_each_run = false,
            Obligation::Replay,
            &["the lengths of `attend` are fixed when a graph is captured", "same rows of `K`"],
        ),
        (
            |cache| cache.new_from_run = false,
            Obligation::Reuse,
            &["`attend` may read the row of `K` that it appends before it is there"],
        ),
        (|cache| cache.parts_ordered = false, Obligation::Visible, &["may add a part that is not there yet"]),
        (|cache| cache.parts_recounted = false, Obligation::Replay, &["counted on from run to run"]),
    ];
    for (change, obligation, says) in cases {
        let mut c = sound();
        change(&mut c.contract.cache);
        only(&judge(&c), obligation, says);
    }
    // If runs do not overlap, the last row is available.
    let mut c = sound();
    (c.contract.overlap, c.contract.cache.reads_wait) = (false, false);
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn a_cache_belongs_to_one_stage() {
    let tensor = |c: &Candidate, name: &str| {
        TensorId(c.graph.tensors.iter().position(|t| t.name == name).expect("it is there"))
    };
    let replace = |c: &mut Candidate, stage: usize, kind: OperandKind, tensor: TensorId| {
        let mut operands = c.graph.stages[stage].operands.iter_mut();
        operands.find(|o| o.kind == kind).expect("it has").tensor = tensor;
    };
    // The projection adds the keys, or the values are the keys; other checks handle shapes.
    let mut c = sound();
    let keys = tensor(&c, "K");
    replace(&mut c, ATTEND, OperandKind::CachedValues, keys);
    only(&judge(&c), Obligation::Reuse, &["`attend` may read `K` while `attend` appends to it"]);
    let mut c = sound();
    let (keys, shape) = (tensor(&c, "K"), tensor(&c, "X"));
    (c.graph.tensors[keys.0].rows, c.graph.tensors[keys.0].cols) =
        (c.graph.tensors[shape.0].rows, c.graph.tensors[shape.0].cols);
    replace(&mut c, PROJECT, OperandKind::Residual, keys);
    let reuse = among(&judge(&c), Obligation::Reuse);
    assert!(reuse.contains("`project` may read `K` while `attend` appends to it"), "{reuse}");
}
