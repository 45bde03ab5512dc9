//! How much work `check` does, that it skips nothing that matters, and how long it takes.
//!
//! Times are meaningful only in a release build:
//!
//!     cargo test --release -p cusync-gen --test check_speed -- --ignored --nocapture --test-threads 1

#[path = "mutants/general.rs"]
mod general;
#[path = "mutants/plans.rs"]
#[allow(dead_code)]
mod plans;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cusync_gen::check::{
    Candidate, EdgeChoice, Event, Executor, Generated, How, Obligation, Strands, TileProgram, judge,
    judge_program,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Dependence, Graph, Resolved, StageId, gemm_chain};
use cusync_gen::sync::{Policy, Tile, WaitAt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A program with a change applied to each event; it reports its strands or does not.
struct Changed<'a, F> {
    program: &'a Generated<'a>,
    /// Maps an event to itself, a replacement, or nothing. Depends on the event alone, so alike tiles stay alike.
    change: F,
    tells: bool,
    /// Number of events that `check` asked for.
    walked: Cell<u64>,
}

impl<'a, F: Fn(Event) -> Option<Event>> Changed<'a, F> {
    fn new(program: &'a Generated<'a>, change: F, tells: bool) -> Self {
        Changed { program, change, tells, walked: Cell::new(0) }
    }

    fn pass(&self, event: Event, f: &mut dyn FnMut(Event)) {
        self.walked.set(self.walked.get() + 1);
        (self.change)(event).into_iter().for_each(f);
    }
}

impl<F: Fn(Event) -> Option<Event>> TileProgram for Changed<'_, F> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        self.program.posts(edge, tile, f);
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.program.events(stage, tile, slice, &mut |event| self.pass(event, f));
    }

    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        self.program.extent(graph, stage)
    }

    fn slices(&self, graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        self.program.slices(graph, stage, tile)
    }

    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<cusync_gen::check::Place> {
        self.program.place(stage, tile, slice)
    }

    fn stores(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(std::ops::Range<u32>, u32)) {
        self.program.stores(stage, tile, slice, &mut |units, of| {
            if let Some(Event::Store { units, of }) = (self.change)(Event::Store { units, of }) {
                f(units, of);
            }
        });
    }

    fn strands(&self) -> Option<&dyn Strands> {
        self.program.strands().filter(|_| self.tells)?;
        Some(self)
    }
}

impl<F: Fn(Event) -> Option<Event>> Strands for Changed<'_, F> {
    fn strand(&self, edge: usize, tile: Tile, slice: u32, from: u32, f: &mut dyn FnMut(Event)) {
        self.program.strand(edge, tile, slice, from, &mut |event| self.pass(event, f));
    }

    fn alike(&self, edge: usize, a: Tile, b: Tile) -> bool {
        self.program.alike(edge, a, b)
    }

    fn grows(&self, edge: usize, shorter: Tile, longer: Tile) -> Option<u32> {
        self.program.grows(edge, shorter, longer)
    }

    fn period(&self) -> (u32, u32) {
        self.program.period()
    }
}

/// Judges a candidate with and without skipping alike tiles; the verdicts must match word for word for every
/// obligation. Returns whether it is proved.
fn same_verdict(c: &Candidate, change: impl Fn(Event) -> Option<Event> + Copy) -> bool {
    let program = Generated::new(c);
    let classes = judge_program(c, &Changed::new(&program, change, true));
    let each = judge_program(c, &Changed::new(&program, change, false));
    assert_eq!(classes, each, "{c:?}");
    each.proved()
}

/// The tiles of a stage that have events.
fn tiles(program: &Generated, graph: &Graph, stage: StageId) -> impl Iterator<Item = Tile> + use<> {
    let (gm, gn) = program.extent(graph, stage);
    (0..gm).flat_map(move |m| (0..gn).map(move |n| Tile { m, n }))
}

/// The events of an edge in all slices of a tile, with the areas that its loads read.
fn of_edge(
    (c, program): (&Candidate, &Generated),
    edge: usize,
    tile: Tile,
    events: impl Fn(u32, &mut dyn FnMut(Event)),
) -> Vec<Vec<(Event, Vec<String>)>> {
    let d = &c.graph.dependences[edge];
    let stage = &c.graph.stages[d.consumer.0];
    let slices = program.slices(&c.graph, d.consumer, tile);
    let of_slice = |slice| {
        let mut list = Vec::new();
        events(slice, &mut |event| {
            let mut read = Vec::new();
            let ours = match &event {
                Event::Wait { edge: other, .. } => *other == edge,
                Event::Load { operand, k_block } => {
                    let tensor = &c.graph.tensors[stage.operands[*operand].tensor.0];
                    stage.reads(*operand, tensor, (tile.m, tile.n), *k_block, &mut |rows, cols| {
                        read.push(format!("{rows:?} {cols:?}"));
                    });
                    *operand == d.operand
                }
                Event::Multicast { operand, .. } => *operand == d.operand,
                _ => false,
            };
            if ours {
                list.push((event, read));
            }
        });
        list
    };
    (0..slices).map(of_slice).collect()
}

/// Checks a generated program's claims about its strands.
fn strands_are_as_they_say(c: &Candidate) {
    let program = Generated::new(c);
    for stage in (0..c.graph.stages.len()).map(StageId) {
        for tile in tiles(&program, &c.graph, stage) {
            for slice in 0..program.slices(&c.graph, stage, tile) {
                let (mut stated, mut found) = (Vec::new(), Vec::new());
                program.stores(stage, tile, slice, &mut |units, all| stated.push((units, all)));
                program.events(stage, tile, slice, &mut |event| match event {
                    Event::Store { units, of } => found.push((units, of)),
                    _ => assert!(found.is_empty(), "something behind a store of {c:?}"),
                });
                assert_eq!(stated, found, "stores of {tile:?} of stage {stage:?} of {c:?}");
                let holds = |from_strands: bool| {
                    // Waits and posts, in turn.
                    let (mut needs, mut all) = (BTreeSet::new(), Vec::new());
                    let mut note = |event: Event| match event {
                        Event::Wait { .. } | Event::Await { .. } => {
                            needs.insert(format!("{event:?}"));
                        }
                        Event::Contribute { slab } => all.push((std::mem::take(&mut needs), slab)),
                        _ => {}
                    };
                    if from_strands {
                        program.holds(stage, tile, slice, &mut note);
                    } else {
                        program.events(stage, tile, slice, &mut note);
                    }
                    (all, needs)
                };
                assert_eq!(holds(true), holds(false), "{tile:?} of stage {stage:?} of {c:?}");
            }
        }
    }
    if program.strands().is_none() {
        return;
    }
    for (edge, d) in c.graph.dependences.iter().enumerate() {
        let by = c.graph.stages[d.consumer.0].reads_by(d.operand);
        let all: Vec<Tile> = tiles(&program, &c.graph, d.consumer).collect();
        let whole =
            |tile| of_edge((c, &program), edge, tile, |slice, f| program.events(d.consumer, tile, slice, f));
        for (i, &tile) in all.iter().enumerate() {
            let events = whole(tile);
            let strand = |from| {
                of_edge((c, &program), edge, tile, |slice, f| program.strand(edge, tile, slice, from, f))
            };
            assert_eq!(strand(0), events, "edge {edge} at {tile:?} of {c:?}");
            // Compare arbitrary pairs of tiles, not only those that `check` compares.
            let other = all[i * 7 % all.len()];
            if let Some(from) = program.grows(edge, other, tile).filter(|_| other.n == tile.n && !by.0) {
                let grown = [whole(other).remove(0), strand(from).remove(0)].concat();
                assert_eq!(vec![grown], events, "edge {edge} from {other:?} to {tile:?} of {c:?}");
            }
            let reads_same = (other.m == tile.m || !by.0) && (other.n == tile.n || !by.1);
            if program.alike(edge, tile, other) && reads_same {
                assert_eq!(events, whole(other), "edge {edge} at {tile:?} and {other:?} of {c:?}");
            }
        }
    }
    for stage in (0..c.graph.stages.len()).map(StageId) {
        for tile in tiles(&program, &c.graph, stage) {
            for slice in 0..program.slices(&c.graph, stage, tile) {
                program.events(stage, tile, slice, &mut |event| {
                    if let Event::Wait { edge, .. } = event {
                        assert_eq!(c.graph.dependences[edge].consumer, stage, "{c:?}");
                    }
                });
            }
        }
    }
}

/// A plan with an error in its waits.
fn mistaken(rng: &mut SmallRng, c: &Candidate) -> Candidate {
    let mut wrong = c.clone();
    let edge = rng.random_range(0..c.edges.len());
    let d = c.graph.dependences[edge].clone();
    let (rows, cols) = c.graph.stages[d.producer.0].out_tile();
    let footprint = &mut wrong.graph.stages[d.consumer.0].operands[d.operand].footprint;
    let axis = if rng.random() { &mut footprint.rows } else { &mut footprint.cols };
    match rng.random_range(0..7) {
        0 => axis.extent -= rng.random_range(1..=rows as i32),
        1 => axis.offset += rng.random_range(-1..=1) * rows as i32,
        2 => axis.offset += rng.random_range(-1..=1) * cols as i32,
        3 => axis.m += rng.random_range(-2..=2),
        4 => axis.n += rng.random_range(-2..=2),
        5 => axis.k += rng.random_range(-2..=2),
        _ => wrong.edges[edge].wait_at = WaitAt::Start,
    }
    wrong
}

/// Draws a plan that has edges.
fn drawn(rng: &mut SmallRng) -> Candidate {
    loop {
        let mut c = plans::draw(rng);
        // Above the SM count for which all placements are explored: that exploration is slow and irrelevant here.
        c.device.sms = c.device.sms.max(17);
        if !c.edges.is_empty() {
            return c;
        }
    }
}

#[test]
fn tiles_are_alike_only_where_they_do_the_same() {
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..60 {
        let c = drawn(&mut rng);
        strands_are_as_they_say(&c);
        strands_are_as_they_say(&mistaken(&mut rng, &c));
    }
    for (_, resolved) in shipped(false) {
        for policy in policies() {
            strands_are_as_they_say(&overlapped(&resolved, &policy, WaitAt::PerKBlock));
        }
    }
}

#[test]
fn nothing_is_passed_over_that_matters() {
    let mut rng = SmallRng::seed_from_u64(4);
    let (mut proved, mut refuted) = (0, 0);
    let mut count = |verdict| *if verdict { &mut proved } else { &mut refuted } += 1;
    for _ in 0..40 {
        let base = drawn(&mut rng);
        for _ in 0..4 {
            let c = if rng.random() { base.clone() } else { mistaken(&mut rng, &base) };
            count(same_verdict(&c, Some));
            // One slot of an edge: no wait, a smaller value, or a wait for another slot.
            let (edge, slot) = (rng.random_range(0..c.edges.len()), rng.random_range(0..6));
            let by = rng.random_range(0..3);
            count(same_verdict(&c, |event| match event {
                Event::Wait { edge: e, slot: s, value } if (e, s) == (edge, slot) => match by {
                    0 => None,
                    1 => Some(Event::Wait { edge, slot, value: value - 1 }),
                    _ => Some(Event::Wait { edge, slot: slot + 1, value }),
                },
                other => Some(other),
            }));
        }
    }
    for (_, resolved) in shipped(false) {
        let base = overlapped(&resolved, &Policy::Row, WaitAt::PerKBlock);
        count(same_verdict(&base, Some));
        (0..2).for_each(|_| count(same_verdict(&mistaken(&mut rng, &base), Some)));
    }
    assert!(proved > 50 && refuted > 50, "{proved} proved, {refuted} refuted");
}

/// Shipped specs.
const SPECS: [(&str, &str); 31] = [
    ("two_gemms", include_str!("../../../policies/two_gemms.ron")),
    ("chain3", include_str!("../../../policies/chain3.ron")),
    ("diamond", include_str!("../../../policies/diamond.ron")),
    ("gpt3_mlp", include_str!("../../../policies/gpt3_mlp.ron")),
    ("llama65_mlp", include_str!("../../../policies/llama65_mlp.ron")),
    ("llama3_70b_mlp", include_str!("../../../policies/llama3_70b_mlp.ron")),
    ("gpt3_attention", include_str!("../../../policies/gpt3_attention.ron")),
    ("llama65_attention", include_str!("../../../policies/llama65_attention.ron")),
    ("llama3_70b_attention", include_str!("../../../policies/llama3_70b_attention.ron")),
    ("gpt3_generate", include_str!("../../../policies/gpt3_generate.ron")),
    ("llama65_generate", include_str!("../../../policies/llama65_generate.ron")),
    ("llama3_70b_generate", include_str!("../../../policies/llama3_70b_generate.ron")),
    ("gpt3_layer", include_str!("../../../policies/gpt3_layer.ron")),
    ("llama65_layer", include_str!("../../../policies/llama65_layer.ron")),
    ("llama3_70b_layer", include_str!("../../../policies/llama3_70b_layer.ron")),
    ("gpt3_prompt_layer", include_str!("../../../policies/gpt3_prompt_layer.ron")),
    ("llama65_prompt_layer", include_str!("../../../policies/llama65_prompt_layer.ron")),
    ("llama3_70b_prompt_layer", include_str!("../../../policies/llama3_70b_prompt_layer.ron")),
    ("llama65_norm_mlp", include_str!("../../../policies/llama65_norm_mlp.ron")),
    ("resnet_layer", include_str!("../../../policies/resnet_layer.ron")),
    ("vgg_layer", include_str!("../../../policies/vgg_layer.ron")),
    ("resnet38_layer1", include_str!("../../../policies/resnet38_layer1.ron")),
    ("resnet38_layer2", include_str!("../../../policies/resnet38_layer2.ron")),
    ("resnet38_layer3", include_str!("../../../policies/resnet38_layer3.ron")),
    ("resnet38_layer4", include_str!("../../../policies/resnet38_layer4.ron")),
    ("resnet38_body", include_str!("../../../policies/resnet38_body.ron")),
    ("vgg19_block1", include_str!("../../../policies/vgg19_block1.ron")),
    ("vgg19_block2", include_str!("../../../policies/vgg19_block2.ron")),
    ("vgg19_block3", include_str!("../../../policies/vgg19_block3.ron")),
    ("vgg19_block4", include_str!("../../../policies/vgg19_block4.ron")),
    ("vgg19_body", include_str!("../../../policies/vgg19_body.ron")),
];

/// The shipped pipelines: at M = 4096 tokens, or at least as many pixels; or small.
fn shipped(large: bool) -> Vec<(&'static str, Resolved)> {
    let resolve = |(name, source)| {
        let spec = cusync_gen::spec::parse(source, name).expect("a shipped spec");
        let size = |dim: &str| match (dim, large) {
            ("B", true) => 32,
            ("B", false) => 1,
            (_, true) => 4096,
            (_, false) => 200,
        };
        let batch = spec.resolve(&[]).expect("sound").dims[0].0.clone();
        let resolved = spec.resolve(&[(batch.clone(), size(&batch))]).expect("sound");
        (name, resolved)
    };
    SPECS.map(resolve).into()
}

fn policies() -> [Policy; 5] {
    [Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided(12), Policy::ConvHalo]
}

/// A pipeline with overlapping stages, whether or not that helps, in tiles of 128 x 128 if available.
fn overlapped(resolved: &Resolved, policy: &Policy, wait_at: WaitAt) -> Candidate {
    let device = Profile::named("h200").expect("shipped");
    let tile = |i| {
        let shapes = resolved.kernel_candidates(StageId(i), device).expect("kernels");
        *shapes.iter().find(|t| (t.0, t.1) == (128, 128)).unwrap_or(&shapes[0])
    };
    let tiles: Vec<_> = (0..resolved.stages.len()).map(tile).collect();
    let mut c = Candidate::new(resolved.graph(&tiles).expect("small"), device.clone(), How::STREAMS);
    c.edges.fill(EdgeChoice { policy: policy.clone(), wait_at });
    c
}

/// The last stage's output reuses the memory of the first stage's output, which has the same shape.
fn in_shared_memory(resolved: &Resolved) -> Candidate {
    let mut c = overlapped(resolved, &Policy::Row, WaitAt::PerKBlock);
    let (first, last) = (c.graph.stages[0].out, c.graph.stages[c.graph.stages.len() - 1].out);
    c.graph.tensors[last.0].alias = Some(first);
    c
}

/// The attention block of LLaMA-65B with this many tokens, in tiles of 64 queries and steps of 64 tokens.
fn long_attention(tokens: u64) -> Candidate {
    let source = include_str!("../../../policies/llama65_attention.ron");
    let spec = cusync_gen::spec::parse(source, "llama65_attention").expect("a shipped spec");
    let resolved = spec.resolve(&[(String::from("S"), tokens)]).expect("sound");
    overlapped(&resolved, &Policy::Row, WaitAt::PerKBlock)
}

/// Sixteen GEMMs of 62 500 tiles each, with 250 k-blocks, or with a hundredth of the tiles.
fn long_chain(large: bool, policy: &Policy) -> Candidate {
    let tiles = if large { (500, 125) } else { (50, 13) };
    let widths = [tiles.1 * 128; 17];
    overlapped(&gemm_chain("long", tiles.0 * 128, &widths), policy, WaitAt::PerKBlock)
}

/// `check` spends its time on events. It skips a tile that behaves like another.
#[test]
fn few_events_are_walked() {
    let walked = |c: &Candidate, tells| {
        let program = Generated::new(c);
        let counted = Changed::new(&program, Some, tells);
        assert_eq!(judge_program(c, &counted).refutations, []);
        counted.walked.get()
    };
    for policy in [Policy::Row, Policy::Tile] {
        let mlp = shipped(true).into_iter().find(|(name, _)| *name == "gpt3_mlp").expect("shipped").1;
        let c = overlapped(&mlp, &policy, WaitAt::PerKBlock);
        // 3072 tiles of 96 k-blocks wait and load; `check` visits each of the 32 rows of tiles once.
        let events = walked(&c, true);
        assert!(events <= 32 * (96 + 48), "{events} events under {policy:?}");
        assert!(walked(&c, false) >= 3072 * 96);
        let c = long_chain(false, &policy);
        let tiles: u64 = c.graph.stages.iter().map(|s| u64::from(s.tiles())).sum();
        let events = walked(&c, true);
        assert!(events <= 3 * tiles, "{events} events for {tiles} tiles under {policy:?}");
    }
    // If a plan is wrong at its end, reporting that does not walk it from the start again.
    let c = long_chain(false, &Policy::Row);
    let (program, last) = (Generated::new(&c), c.edges.len() - 1);
    let change = |event| match event {
        Event::Wait { edge, slot: 49, .. } if edge == last => None,
        other => Some(other),
    };
    let wrong = Changed::new(&program, change, true);
    let refutations = judge_program(&c, &wrong).refutations;
    let messages: Vec<&str> = refutations.iter().map(|r| r.message.as_str()).collect();
    assert_eq!(messages, ["g15(49, 0) may read `X15` before g14(49, 0) has written it"]);
    // Two passes: find the fault, then build the message and rule out every other guarantee.
    let tiles: u64 = c.graph.stages.iter().map(|s| u64::from(s.tiles())).sum();
    assert!(wrong.walked.get() <= 5 * tiles, "{} events for {tiles} tiles", wrong.walked.get());
    // A residual belongs to its tile alone and does not prevent other parts from being alike.
    let diamond = shipped(true).into_iter().find(|(name, _)| *name == "diamond").expect("shipped").1;
    let c = overlapped(&diamond, &Policy::Tile, WaitAt::PerKBlock);
    let (tiles, rows) = (u64::from(c.graph.stages[2].tiles()), u64::from(c.graph.stages[2].grid.0));
    let events = walked(&c, true);
    assert!(events <= 2 * tiles + rows * (32 + 16), "{events} events");
}

/// A causal attention over many tokens: `check` visits the steps of a column of tiles once, not once per tile.
#[test]
fn a_causal_mask_costs_no_square_of_the_sequence() {
    let walked = |tokens| {
        let c = long_attention(tokens);
        let program = Generated::new(&c);
        let counted = Changed::new(&program, Some, true);
        assert_eq!(judge_program(&c, &counted).refutations, []);
        counted.walked.get()
    };
    let (short, long) = (walked(4096), walked(32768));
    assert!(long <= 8 * short, "{short} events for 4096 tokens, {long} for 32768");
    // Per head and step: one load and possibly one wait, for keys and for values; one query block per tile; and the
    // rows of the projection.
    let (steps, tiles, rows) = (8 * 32768 / 64, 8 * 32768 / 64, 32768 / 128);
    assert!(long <= 4 * steps + 2 * tiles + rows * (8 + 16), "{long} events");
}

/// Each stage reads the outputs of the two stages before it, so the number of paths grows like the Fibonacci numbers.
#[test]
fn a_deep_residual_stack_is_judged_in_no_time() {
    let mut spec = String::from("Pipeline(name: \"stack\", dims: {\"M\": 128, \"H\": 64}, stages: [\n");
    for i in 0..64 {
        let (a, residual) = (format!("X{i}"), format!("X{}", i.max(1) - 1));
        spec += &format!(
            "Gemm(name: \"g{i}\", a: \"{a}(M,H)\", b: \"W{i}(H,H)\", residual: \"{residual}(M,H)\", out: \"X{}(M,H)\"),\n",
            i + 1
        );
    }
    let resolved =
        cusync_gen::spec::parse(&(spec + "])"), "stack").expect("sound").resolve(&[]).expect("sound");
    let mut c = overlapped(&resolved, &Policy::Tile, WaitAt::PerKBlock);
    let begin = now();
    assert_eq!(judge(&c).refutations, []);
    // The first stage reads the last stage's output: the longest possible cycle.
    let last = c.graph.stages[63].out;
    c.graph.stages[0].operands[0].tensor = last;
    c.graph.dependences.insert(0, Dependence { producer: StageId(63), consumer: StageId(0), operand: 0 });
    c.edges.insert(0, c.edges[0].clone());
    let refutations = judge(&c).refutations;
    let cycle = refutations.iter().find(|r| r.obligation == Obligation::Acyclic).expect("a cycle");
    assert_eq!(cycle.message, "`g0` waits for itself");
    assert!(now() - begin < Duration::from_secs(5), "{:?}", now() - begin);
}

/// CPU time of this thread, which does all the work; other load on the machine does not count. Wall time if the system
/// does not report it.
fn now() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = BEGIN.get_or_init(Instant::now);
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = schedstat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| begin.elapsed(), Duration::from_nanos)
}

/// The mean over as many runs as fit in a tenth of a second, which is many ticks of the system clock.
fn mean(f: impl Fn()) -> Duration {
    let begin = now();
    let mut runs = 0;
    while runs < 1 || now() - begin < Duration::from_millis(100) {
        f();
        runs += 1;
    }
    (now() - begin) / runs
}

fn verdict(c: &Candidate) -> Duration {
    mean(|| assert_eq!(judge(c).refutations, []))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Peak memory of this process, in bytes.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_shipped_pipeline_is_checked_in_less_than_50_ms_and_chosen_in_a_second() {
    let device = Profile::named("h200").expect("shipped");
    for (name, resolved) in shipped(true) {
        // A body has up to 37 stages.
        let (most_ms, chosen_ms) = match name {
            // Proofs may take 100 ms for a layer, 50 ms for a chain.
            _ if name.ends_with("_prompt_layer") => (100, 1000),
            _ if name.ends_with("_body") => (200, 2000),
            _ if name.starts_with("resnet") || name.starts_with("vgg") => (50, 200),
            _ => (50, 1000),
        };
        let mut worst: (Duration, String) = (Duration::ZERO, String::new());
        let mut judged = |c: &Candidate, label: String| {
            let time = verdict(c);
            println!("{name}, {label}: {:.2} ms", ms(time));
            if time > worst.0 {
                worst = (time, label);
            }
        };
        for executor in
            [Executor::Cpu, Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Fused]
        {
            // The work of `cusync check`, without reading the spec and printing the verdict.
            let whole = mean(|| {
                if let Ok(c) = choose::candidate(&resolved, device, executor) {
                    judge(&c);
                }
            });
            println!("{name}, {executor:?}, choice and verdict: {:.0} ms", ms(whole));
            // Plans for host threads consider every tile that any GPU supports.
            let most = if executor == Executor::Cpu { chosen_ms.max(1000) } else { chosen_ms };
            assert!(cfg!(debug_assertions) || whole.as_millis() < most, "{name} {executor:?}: {whole:?}");
            match choose::candidate(&resolved, device, executor) {
                Ok(c) if c.launch.has_semaphores() => judged(&c, format!("{executor:?} as chosen")),
                Ok(c) => judged(&c, format!("{executor:?} as chosen, kernel boundaries")),
                Err(refused) => println!("{name}, {executor:?}: {refused:?}"),
            }
        }
        for (policy, wait_at) in
            policies().into_iter().flat_map(|p| [(p.clone(), WaitAt::PerKBlock), (p, WaitAt::Start)])
        {
            judged(&overlapped(&resolved, &policy, wait_at), format!("overlapped {policy:?} {wait_at:?}"));
        }
        if name == "chain3" {
            judged(&in_shared_memory(&resolved), "its output in the memory of its first stage's".into());
        }
        // Judging time for a program that does not report alike tiles.
        let c = overlapped(&resolved, &Policy::Tile, WaitAt::PerKBlock);
        let program = Generated::new(&c);
        let each =
            mean(|| assert_eq!(judge_program(&c, &Changed::new(&program, Some, false)).refutations, []));
        println!("{name}, overlapped Tile PerKBlock, each tile by itself: {:.2} ms", ms(each));
        println!("{name}: at most {:.2} ms, {}", ms(worst.0), worst.1);
        assert!(cfg!(debug_assertions) || each.as_millis() < most_ms, "{name}: {each:?}");
        assert!(cfg!(debug_assertions) || worst.0.as_millis() < most_ms, "{name}: {worst:?}");
    }
}

/// The dims at which each kind of pipeline is compared with published times.
fn workloads(name: &str) -> Vec<Vec<(String, u64)>> {
    const TOKENS: [u64; 18] =
        [1, 8, 32, 37, 64, 128, 200, 256, 512, 768, 1000, 1024, 1280, 1536, 1792, 2048, 3072, 4096];
    const IMAGES: [u64; 9] = [1, 4, 8, 12, 16, 20, 24, 28, 32];
    let dim = |name: &str, size: u64| (name.to_owned(), size);
    let generates = |b| [512, 2048].map(|s| vec![dim("B", b), dim("S", s)]);
    match name {
        _ if name.ends_with("_attention") || name.ends_with("_prompt_layer") => {
            [512, 1024, 2048].map(|s| vec![dim("S", s)]).into()
        }
        _ if ["_generate", "gpt3_layer", "llama65_layer", "llama3_70b_layer"]
            .iter()
            .any(|e| name.ends_with(e)) =>
        {
            [1, 4, 32].into_iter().flat_map(generates).collect()
        }
        "resnet_layer" | "vgg_layer" => {
            let shapes = [(56, 64), (28, 128), (14, 256), (7, 512)];
            let dims_of = |b| shapes.map(|(hw, c)| vec![dim("B", b), dim("HW", hw), dim("C", c)]);
            IMAGES.into_iter().flat_map(dims_of).collect()
        }
        _ if name.starts_with("resnet") || name.starts_with("vgg") => {
            IMAGES.map(|b| vec![dim("B", b)]).into()
        }
        _ => TOKENS.map(|m| vec![dim("M", m)]).into(),
    }
}

/// The minimum wall time of a few runs: other load only adds time, and thread time has ticks as long as some of these
/// runs.
fn least(f: impl Fn()) -> Duration {
    let one = |_| {
        let begin = Instant::now();
        f();
        begin.elapsed()
    };
    (0..7).map(one).min().expect("seven runs")
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_workload_is_judged_in_10_ms_and_64_stages_in_100() {
    let device = Profile::named("h200").expect("shipped");
    let executors =
        [Executor::Cpu, Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Fused];
    let mut late = Vec::new();
    let (mut judged, mut longest) = (0, Duration::ZERO);
    let mut time = |label: String, resolved: &Resolved, executor, most_ms| {
        let Ok(c) = choose::candidate(resolved, device, executor) else { return };
        let took = least(|| assert_eq!(judge(&c).refutations, []));
        (judged, longest) = (judged + 1, longest.max(took));
        if took > Duration::from_millis(most_ms) / 2 {
            println!("{label}, {executor:?}: {:.1} ms", ms(took));
        }
        if took > Duration::from_millis(most_ms) {
            late.push(format!("{label}, {executor:?}: {took:?}"));
        }
    };
    for (name, source) in SPECS {
        let spec = cusync_gen::spec::parse(source, name).expect("a shipped spec");
        for dims in workloads(name) {
            let resolved = spec.resolve(&dims).expect("sound");
            for executor in executors {
                time(format!("{name} {dims:?}"), &resolved, executor, 10);
            }
        }
    }
    for (m, width) in [(8, 8192), (256, 4096), (4096, 1024)] {
        let resolved = gemm_chain("64 stages", m, &[width; 65]);
        for executor in executors {
            time(format!("64 stages of {m} x {width}"), &resolved, executor, 100);
        }
    }
    println!("{judged} plans, at most {:.1} ms", ms(longest));
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:#?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_batch_of_convolutions_is_chosen_in_200_ms_and_checked_in_50() {
    let device = Profile::named("h200").expect("shipped");
    let mut late = Vec::new();
    for (name, source) in
        SPECS.iter().filter(|(name, _)| name.starts_with("resnet") || name.starts_with("vgg"))
    {
        let spec = cusync_gen::spec::parse(source, name).expect("a shipped spec");
        let (chosen_ms, judged_ms) = if name.ends_with("_body") { (2000, 200) } else { (200, 50) };
        let mut longest = [(Duration::ZERO, String::new()), (Duration::ZERO, String::new())];
        for dims in workloads(name) {
            let resolved = spec.resolve(&dims).expect("sound");
            let choice = || choose::candidate(&resolved, device, Executor::Fused).expect("a choice");
            let candidate = choice();
            let times = [
                least(|| assert!(!choice().graph.stages.is_empty())),
                least(|| assert_eq!(judge(&candidate).refutations, [])),
            ];
            for ((most, took), limit) in longest.iter_mut().zip(times).zip([chosen_ms, judged_ms]) {
                if took > most.0 {
                    *most = (took, format!("{dims:?}"));
                }
                if took > Duration::from_millis(limit) {
                    late.push(format!("{name} {dims:?}: {took:?}"));
                }
            }
        }
        let [(chosen, chosen_of), (judged, judged_of)] = longest;
        println!(
            "{name}: chosen in at most {:.0} ms, {chosen_of}; judged in {:.1} ms, {judged_of}",
            ms(chosen),
            ms(judged)
        );
    }
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:#?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn attention_of_long_prompts_is_chosen_and_checked_in_time_and_100_mb() {
    let device = Profile::named("h200").expect("shipped");
    println!(
        "verdict of 32768 tokens: {:.0} ms",
        ms(least(|| assert!(judge(&long_attention(32768)).proved())))
    );
    // The second case once took 12 s and 2 GB.
    let mut late = Vec::new();
    for (name, tokens, most_ms) in [("llama65_attention", 32_768, 300), ("gpt3_attention", 131_072, 2000)] {
        let (_, source) = SPECS.iter().find(|(ships, _)| *ships == name).expect("it ships");
        let spec = cusync_gen::spec::parse(source, name).expect("a shipped spec");
        let resolved = spec.resolve(&[(String::from("S"), tokens)]).expect("sound");
        let whole = least(|| {
            let c = choose::candidate(&resolved, device, Executor::Cpu).expect("a choice");
            assert_eq!(judge(&c).refutations, []);
        });
        let peak = peak_bytes();
        println!(
            "{name}, {tokens} tokens: choice and verdict {:.0} ms, {:?} MiB",
            ms(whole),
            peak.map(|b| b >> 20)
        );
        if whole > Duration::from_millis(most_ms) {
            late.push(format!("{name}: {whole:?}"));
        }
        assert!(peak.is_none_or(|bytes| bytes < 100_000_000), "{name}: {peak:?} bytes");
    }
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn a_million_tiles_are_checked_in_less_than_2_s() {
    for policy in [Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 4 }] {
        let c = long_chain(true, &policy);
        assert_eq!(c.graph.stages.iter().map(|s| s.tiles()).sum::<u32>(), 1_000_000);
        let time = verdict(&c);
        let peak = peak_bytes();
        println!("{policy:?}: {:.0} ms, {:?} MiB", ms(time), peak.map(|b| b >> 20));
        assert!(cfg!(debug_assertions) || time.as_secs_f64() < 2.0, "{policy:?}: {time:?}");
        assert!(peak.is_none_or(|bytes| bytes < 1_000_000_000), "{peak:?} bytes");
    }
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn aliases_of_a_chain_kernel_of_8192_tokens_are_judged_in_a_second() {
    let device = Profile::named("h200").expect("shipped");
    let resolved = gemm_chain("alias", 8192, &[8192, 8192, 8192, 8192]);
    let mut c = choose::chain(&resolved, device, Default::default()).expect("a chain kernel");
    let (first, last) = (c.graph.stages[0].out, c.graph.stages[2].out);
    c.graph.tensors[last.0].alias = Some(first);
    let tiles: u32 = c.graph.stages.iter().map(|s| s.tiles()).sum();
    let begin = now();
    let report = judge(&c);
    let took = now() - begin;
    println!("{tiles} tiles, {:?}: {:.0} ms", report.refutations, ms(took));
    assert!(cfg!(debug_assertions) || took.as_millis() < 1000, "{took:?}");
}
