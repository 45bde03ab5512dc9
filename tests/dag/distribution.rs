//! Streams and waits: nothing missing, nothing superfluous, and as few waits as any distribution has.

use std::collections::BTreeSet;

use cusync::bench::dag::suite::{Size, case_with_copies};
use cusync::dag::{
    Access, Dependences, Direction, Distribution, Lane, Mode, Node, NodeId, Program, RandomDag, Times, Work,
    ZoneId, all_concurrency, analyse, as_written, limited,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::{kernel, programs, tiny};

/// Pairs (before, after) that streams and waits bring into order.
fn implied(plan: &Distribution) -> BTreeSet<(u32, u32)> {
    let n = plan.order.len();
    let mut before = vec![vec![false; n]; n];
    let mut last = vec![None; plan.streams()];
    for &id in &plan.order {
        let i = id.index();
        let stream = last[plan.stream[i] as usize].replace(id);
        let waits = plan.waits.iter().filter(|w| w.after == id).map(|w| w.before);
        for b in stream.into_iter().chain(waits).collect::<Vec<NodeId>>() {
            before[i][b.index()] = true;
            let of_b = before[b.index()].clone();
            before[i].iter_mut().zip(of_b).for_each(|(i, b)| *i |= b);
        }
    }
    let pairs = (0..n).flat_map(|i| (0..n).map(move |b| (b, i)));
    pairs.filter(|&(b, i)| before[i][b]).map(|(b, i)| (b as u32, i as u32)).collect()
}

/// Everything that holds of every distribution.
fn sound(program: &Program, dependences: &Dependences, plan: &Distribution, what: &str) {
    let mut position = vec![usize::MAX; program.nodes().len()];
    for (at, id) in plan.order.iter().enumerate() {
        assert_eq!(std::mem::replace(&mut position[id.index()], at), usize::MAX, "{what}: issued twice");
    }
    assert!(!position.contains(&usize::MAX), "{what}: not issued");
    let order = implied(plan);
    for edge in &dependences.edges {
        assert!(position[edge.before.index()] < position[edge.after.index()], "{what}: issued too early");
        assert!(order.contains(&(edge.before.0, edge.after.0)), "{what}: {edge:?} is not kept");
    }
    for wait in &plan.waits {
        let mut less = plan.clone();
        less.waits.retain(|w| w != wait);
        assert_ne!(implied(&less), order, "{what}: {wait:?} is superfluous");
        assert_ne!(plan.stream[wait.before.index()], plan.stream[wait.after.index()], "{what}");
    }
    assert!(plan.stream.iter().all(|&s| (s as usize) < plan.streams()), "{what}");
}

/// The fewest reduced edges between streams over all ways of putting nodes that are in order anyway on one stream.
fn fewest_waits(dependences: &Dependences, n: usize) -> usize {
    fn place(dependences: &Dependences, streams: &mut Vec<Vec<u32>>, next: u32, n: u32, best: &mut usize) {
        if next == n {
            let of = |id: NodeId| streams.iter().position(|s| s.contains(&id.0));
            let waits = dependences.reduced_edges().filter(|e| of(e.before) != of(e.after)).count();
            *best = waits.min(*best);
            return;
        }
        for i in 0..=streams.len() {
            if i == streams.len() {
                streams.push(Vec::new());
            }
            if streams[i].iter().all(|&other| dependences.reaches(NodeId(other), NodeId(next))) {
                streams[i].push(next);
                place(dependences, streams, next + 1, n, best);
                streams[i].pop();
            }
            if streams.last().is_some_and(Vec::is_empty) {
                streams.pop();
            }
        }
    }
    let mut best = usize::MAX;
    place(dependences, &mut Vec::new(), 0, n as u32, &mut best);
    best
}

#[test]
fn all_concurrency_is_kept_with_the_fewest_waits() {
    let mut waits = 0;
    for seed in 0..programs(2000) {
        let program = tiny(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let plan = all_concurrency(&program, &dependences, &Times::of(&program, &dependences));
        sound(&program, &dependences, &plan, &format!("program {seed}"));
        let all: BTreeSet<_> = program
            .ids()
            .flat_map(|a| program.ids().map(move |b| (a, b)))
            .filter(|&(a, b)| dependences.reaches(a, b))
            .map(|(a, b)| (a.0, b.0))
            .collect();
        assert_eq!(implied(&plan), all, "program {seed}: concurrency is lost");
        let written = as_written(&program, &dependences, &Times::of(&program, &dependences));
        sound(&program, &dependences, &written, &format!("program {seed} as written"));
        assert!(written.order.is_sorted(), "program {seed}: not in the order of the code");
        assert_eq!(implied(&written), all, "program {seed} as written: concurrency is lost");
        assert_eq!(written.waits.len(), plan.waits.len(), "program {seed}: both have the fewest");
        if program.nodes().len() <= 8 {
            let fewest = fewest_waits(&dependences, program.nodes().len());
            assert_eq!(plan.waits.len(), fewest, "program {seed}");
            waits += fewest;
        }
        assert_eq!(plan, all_concurrency(&program, &dependences, &Times::of(&program, &dependences)));
    }
    assert!(waits > 100, "the programs hardly need waits: {waits}");
}

#[test]
fn fewer_streams_are_sound_too() {
    for seed in 0..programs(1000) {
        let program = tiny(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let times = Times::of(&program, &dependences);
        for streams in 1..=3 {
            let plan = limited(&program, &dependences, &times, streams);
            sound(&program, &dependences, &plan, &format!("program {seed}, {streams} streams"));
            assert!(plan.streams() <= streams);
            assert!(streams > 1 || plan.waits.is_empty());
        }
    }
}

#[test]
fn kernels_are_spread_evenly() {
    // 24 kernels of 10 us on 4 streams: 6 each.
    let mut program = Program::new("even");
    for i in 0..24 {
        program.push(kernel(&format!("k{i}"), 10.0, Vec::new())).expect("good");
    }
    let dependences = analyse(&program);
    let plan = limited(&program, &dependences, &Times::of(&program, &dependences), 4);
    let mut count = [0; 4];
    plan.stream.iter().for_each(|&s| count[s as usize] += 1);
    assert_eq!(count, [6; 4]);
}

#[test]
fn a_copy_is_issued_early_on_a_stream_of_its_own() {
    // The data of the third kernel are copied while the first two run.
    let mut program = Program::new("prefetch");
    let (x, y) = (program.buffer("x", 64), program.buffer("y", 64));
    program.push(kernel("one", 10.0, vec![program.whole(x, Mode::ReadWrite)])).expect("good");
    program.push(kernel("two", 10.0, vec![program.whole(x, Mode::ReadWrite)])).expect("good");
    let copy = Work::Copy { direction: Direction::HostToDevice, bytes: 64 };
    let accesses = vec![Access { buffer: y, bytes: 0..64, mode: Mode::Write }];
    let copy = Node { name: "copy".into(), work: copy, accesses, us: 8.0, zone: ZoneId(0) };
    let copy = program.push(copy).expect("good");
    let three = vec![program.whole(x, Mode::ReadWrite), program.whole(y, Mode::Read)];
    let three = program.push(kernel("three", 10.0, three)).expect("good");
    let dependences = analyse(&program);
    let plan = all_concurrency(&program, &dependences, &Times::of(&program, &dependences));
    assert!(plan.order[..2].contains(&copy), "the copy is issued with the first kernel: {:?}", plan.order);
    assert_eq!(plan.lanes[plan.stream[copy.index()] as usize], Lane::Copies(Direction::HostToDevice));
    let waits: Vec<_> = plan.waits.iter().map(|w| (w.before, w.after)).collect();
    assert_eq!(waits, [(copy, three)]);
}

#[test]
fn random_programs_are_as_asked_for_and_reproducible() {
    for (kernels, width) in [(10, 1), (100, 6), (1000, 12)] {
        let shape = RandomDag { kernels, width, ..RandomDag::default() };
        let program = shape.program(7).expect("within limits");
        assert_eq!(program, shape.program(7).expect("within limits"));
        assert_ne!(program, shape.program(8).expect("within limits"));
        assert_eq!(program.nodes().len(), kernels);
        assert!(program.nodes().iter().all(|n| (1.0..=50.0).contains(&n.us)));
        let dependences = analyse(&program);
        let times = Times::of(&program, &dependences);
        let plan = all_concurrency(&program, &dependences, &times);
        assert!(plan.streams() <= 2 * width, "{} streams at width {width}", plan.streams());
        assert!(times.issue_order(&program).len() == kernels && (width > 1) == (plan.streams() > 1));
    }
}

#[test]
fn as_written_a_copy_stands_with_its_kernel() {
    let recording = case_with_copies("VEC", Size::Small).expect("in the suite").expect("valid").recording;
    let program = recording.program();
    let dependences = analyse(program);
    let times = Times::of(program, &dependences);
    // Two uploads, each with its kernel; then a kernel for both and a download.
    let written = as_written(program, &dependences, &times);
    sound(program, &dependences, &written, "as written");
    assert_eq!((written.streams(), written.waits.len()), (2, 1), "{written:?}");
    let engines = all_concurrency(program, &dependences, &times);
    assert!(engines.waits.len() > written.waits.len(), "copies on streams of their own need waits");
}
