//! Small random sound plans of every kind.

use cusync_gen::check::{
    Candidate, CtaResources, EdgeChoice, Executor, How, KernelContract, Launch, StageLaunch, StartGuarantee,
};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, StageId, TensorId};
use cusync_gen::schedule::{Hand, Item, Part, Schedule, decode};
use cusync_gen::sync::{Order, Policy, Tile, WaitAt};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::general;

/// GEMMs only: every executor runs them. Dims are filled in.
const GEMMS: &[&str] = &[
    r#"Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
       Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),"#,
    r#"GatedGemm(name: "up", a: "X(M,H)", gate: "G(H,I)", up: "U(H,I)", out: "Y(M,I)"),
       Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", residual: "X(M,H)", out: "Z(M,H)"),"#,
    r#"Gemm(name: "one", a: "X(M,H)", b: "W1(H,H)", out: "P(M,H)"),
       Gemm(name: "two", a: "P(M,H)", b: "W2(H,I)", out: "Q(M,I)"),
       Gemm(name: "three", a: "Q(M,I)", b: "W3(I,H)", residual: "P(M,H)", out: "R(M,H)"),"#,
    r#"Gemm(name: "left", a: "X(M,H)", b: "W1(H,I)", out: "L(M,I)"),
       Gemm(name: "right", a: "V(I,H)", b: "W2(H,H)", out: "R(I,H)"),
       Gemm(name: "join", a: "L(M,I)", b: "R(I,H)", out: "Z(M,H)"),"#,
    r#"Gemm(name: "left", a: "X(M,H)", b: "W1(H,H)", out: "L(M,H)"),
       Gemm(name: "right", a: "X(M,H)", b: "W2(H,H)", out: "R(M,H)"),
       Gemm(name: "after", a: "L(M,H)", b: "W3(H,I)", out: "A(M,I)"),
       Gemm(name: "beside", a: "R(M,H)", b: "W4(H,I)", out: "B(M,I)"),"#,
];

/// Products of normalized rows, which only decode kernels run.
const NORMED: &str = r#"Gemm(name: "one", a: "X(M,H)", b: "W1(H,H)", input_norm: InputNorm(gain: "g1(H)", epsilon: 1e-5), out: "P(M,H)"),
       GatedGemm(name: "two", a: "P(M,H)", gate: "G(H,I)", up: "U(H,I)", input_norm: InputNorm(gain: "g2(H)", epsilon: 1e-5), out: "Q(M,I)"),
       Gemm(name: "three", a: "Q(M,I)", b: "W3(I,H)", residual: "P(M,H)", out: "R(M,H)"),"#;

/// A residual that no main loop reads, so a decode kernel does not announce it.
const UNANNOUNCED: &str = r#"Gemm(name: "one", a: "X(M,H)", b: "W1(H,I)", out: "P(M,I)"),
       Gemm(name: "two", a: "X(M,H)", b: "W2(H,I)", residual: "P(M,I)", out: "Q(M,I)"),"#;

/// With user kernels: a halo of rows and columns, and whole rows.
const CUSTOM: &[&str] = &[
    r#"Gemm(name: "before", a: "X(M,H)", b: "W0(H,I)", out: "Y(M,I)"),
       Custom(name: "blur", tile: (16, 16), writes: "N(M,I)",
           reads: [ Read(tensor: "Y(M,I)", rows: "16*m - 8..16*m + 24", cols: "16*n - 8..16*n + 24") ]),
       Gemm(name: "after", a: "N(M,I)", b: "W1(I,H)", out: "Z(M,H)"),"#,
    r#"Gemm(name: "before", a: "X(M,H)", b: "W0(H,I)", out: "Y(M,I)"),
       Custom(name: "norm", tile: (8, "I"), writes: "N(M,I)",
           reads: [ Read(tensor: "Y(M,I)", rows: "8*m..8*m + 8", cols: "0..I") ]),
       Gemm(name: "after", a: "N(M,I)", b: "W1(I,H)", out: "Z(M,H)"),"#,
];

pub(super) fn pick<T: Clone>(rng: &mut SmallRng, from: &[T]) -> T {
    from.choose(rng).cloned().expect("something to pick from")
}

/// A graph with separate tiles for each stage, or the same tiles for all.
fn graph(rng: &mut SmallRng, stages: &str, same: Option<(u32, u32, u32)>) -> Graph {
    let dim = |rng: &mut SmallRng| {
        if same.is_some_and(|t| t.0 >= 64) { pick(rng, &[128, 256]) } else { pick(rng, &[32, 48, 40]) }
    };
    let dims = [dim(rng), dim(rng), dim(rng)];
    let tile = |rng: &mut SmallRng| {
        same.unwrap_or_else(|| {
            pick(rng, &[(16, 16, 16), (32, 16, 8), (16, 32, 16), (32, 32, 16), (16, 16, 24)])
        })
    };
    lowered(stages, dims, || tile(rng))
}

fn lowered(stages: &str, dims: [u32; 3], mut tile: impl FnMut() -> (u32, u32, u32)) -> Graph {
    let text = format!(
        r#"Pipeline(name: "p", dims: {{ "M": {}, "H": {}, "I": {} }}, stages: [{stages}])"#,
        dims[0], dims[1], dims[2]
    );
    let resolved = cusync_gen::spec::parse(&text, "p").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let tiles: Vec<(u32, u32, u32)> = resolved.stages.iter().map(|_| tile()).collect();
    resolved.graph(&tiles).expect("small grids")
}

/// A policy for a producer's grid; `images`: for the input of a convolution.
fn policy(rng: &mut SmallRng, (gm, gn): (u32, u32), images: bool) -> Policy {
    if images && rng.random_ratio(1, 3) {
        return Policy::ConvHalo;
    }
    match rng.random_range(0..6) {
        0 | 1 => Policy::Tile,
        2 => Policy::Row,
        3 => Policy::Batched { rows: rng.random_range(1..3), cols: rng.random_range(1..4) },
        4 => Policy::Strided(rng.random_range(1..4)),
        _ => {
            let slots = rng.random_range(1..=gm * gn);
            let mut table: Vec<u32> = (0..gm * gn).map(|i| i % slots).collect();
            table.shuffle(rng);
            Policy::Table(table)
        }
    }
}

fn order(rng: &mut SmallRng, (gm, gn): (u32, u32)) -> Order {
    match rng.random_range(0..5) {
        0 => Order::RowMajor,
        1 => Order::ColumnMajor,
        2 => Order::GroupedRows(2),
        3 => Order::GroupedColumns(2),
        _ => {
            let mut tiles: Vec<Tile> = (0..gm).flat_map(|m| (0..gn).map(move |n| Tile { m, n })).collect();
            tiles.shuffle(rng);
            Order::Table(tiles)
        }
    }
}

/// The last stage's output reuses the memory of an earlier output with its shape, if there is one.
fn share_memory(graph: &mut Graph) {
    let output = |graph: &Graph, s: usize| graph.stages[s].out;
    let shape = |graph: &Graph, t: TensorId| (graph.tensors[t.0].rows, graph.tensors[t.0].cols);
    let last = output(graph, graph.stages.len() - 1);
    let older = (0..graph.stages.len() - 1)
        .map(|s| output(graph, s))
        .find(|t| shape(graph, *t) == shape(graph, last));
    graph.tensors[last.0].alias = older;
}

/// Items stage by stage, some tiles split along k into contributions and a finisher or into shares, dealt at random.
fn schedule(rng: &mut SmallRng, graph: &Graph, cluster: (u32, u32), workers: u32, mode: Hand) -> Schedule {
    let mut lists = vec![Vec::new(); workers as usize];
    let (mut sequence, mut slabs) = (Vec::new(), 0);
    let most = cusync_gen::schedule::units(&graph.stages[0]).min(2);
    for (s, stage) in graph.stages.iter().enumerate() {
        let (rows, cols) = (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1));
        let mut tiles: Vec<(u32, u32)> = (0..rows).flat_map(|m| (0..cols).map(move |n| (m, n))).collect();
        if rng.random() {
            tiles.shuffle(rng);
        }
        for (m, n) in tiles {
            let k_end = stage.k_blocks;
            let whole = Item { stage: StageId(s), m, n, k_begin: 0, k_end, part: Part::Whole };
            let cut = if k_end > 1 && rng.random_ratio(1, 4) { rng.random_range(1..k_end) } else { 0 };
            let part = |k_begin, k_end, part| Item { k_begin, k_end, part, ..whole };
            let first_worker = rng.random_range(0..workers);
            let mut give = |sequence: &mut Vec<Item>, item, worker: u32| {
                lists[(worker % workers) as usize].push(sequence.len() as u32);
                sequence.push(item);
            };
            if cut == 0 {
                give(&mut sequence, whole, first_worker);
            } else if most > 1 && workers > 1 && mode == Hand::Fixed && rng.random() {
                let share = |part| Part::Share { first: slabs, parts: 2, part };
                give(&mut sequence, part(0, cut, share(0)), first_worker);
                give(&mut sequence, part(cut, k_end, share(1)), first_worker + 1);
                slabs += 2;
            } else {
                give(&mut sequence, part(0, cut, Part::Contribute { slab: slabs }), first_worker);
                let second = rng.random_range(0..workers);
                give(&mut sequence, part(cut, k_end, Part::Finish { first: slabs, slabs: 1 }), second);
                slabs += 1;
            }
        }
    }
    Schedule { cluster, mode, sequence, lists, slabs, predicted_us: 0.0 }
}

/// The next token of a few sequences through its projections and an attention with a cache.
fn generation(rng: &mut SmallRng) -> Graph {
    let (query, kv, dim) =
        pick(rng, &[(1, 1, 64), (2, 1, 64), (2, 2, 64), (3, 1, 64), (2, 2, 96), (1, 1, 80), (2, 1, 80)]);
    let (batch, hidden) = (rng.random_range(1..5), pick(rng, &[64, 72]));
    let residual = pick(rng, &["X(B,E)", "R(B,E)"]);
    let text = format!(
        r#"Pipeline(name: "p", dims: {{ "B": {batch}, "E": {hidden}, "HQ": {query}, "HKV": {kv}, "D": {dim} }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "W(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
            Attention(name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV",
                cache: Cache(keys: "K(B,HKV,96,D)", values: "V(B,HKV,96,D)", lengths: "n(B)"), out: "A(B,HQ*D)"),
            Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", residual: "{residual}", out: "Z(B,E)"),
        ])"#
    );
    let resolved = cusync_gen::spec::parse(&text, "p").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let tile = (16, 16, decode::COLUMN_TILE);
    resolved.graph(&[tile, (1, query / kv * dim, 96), tile]).expect("small grids")
}

/// A decode kernel with few workers. Some shares of narrow stages are empty.
fn decode(rng: &mut SmallRng) -> Candidate {
    let mut device = Profile::named("h200").expect("shipped").clone();
    device.sms = rng.random_range(3..12);
    if rng.random_ratio(1, 3) {
        let (graph, plan) = decode::decode(&generation(rng), &device).expect("a decode plan");
        return Candidate::launched(graph, device, Launch::Shares(plan));
    }
    // With two workers, some stages of these widths take several rounds.
    let rounds = rng.random_ratio(1, 6);
    if rounds {
        device.sms = 2;
    }
    let widths: &[u32] = if rounds { &[72, 264, 520] } else { &[8, 72, 128, 136, 200] };
    let dims = [pick(rng, &[8, 16]), pick(rng, widths), pick(rng, widths)];
    let plans = GEMMS
        .iter()
        .chain([&UNANNOUNCED, &NORMED])
        .map(|stages| lowered(stages, dims, || (16, 16, decode::COLUMN_TILE)));
    let plans: Vec<_> = plans.filter_map(|graph| decode::decode(&graph, &device).ok()).collect();
    let (graph, plan) = pick(rng, &plans);
    let mut c = Candidate::launched(graph, device, Launch::Shares(plan));
    c.device.sms += rng.random_range(0..3);
    c
}

/// Draws how many CTAs of a kernel fit an SM: either the number alone, or the resources of a CTA.
pub(crate) fn occupy(
    rng: &mut SmallRng,
    device: &Profile,
    kernel: &mut StageLaunch,
    fit: std::ops::Range<u32>,
) {
    if rng.random() {
        (kernel.ctas_per_sm, kernel.takes) = (rng.random_range(fit), None);
        return;
    }
    let shared = rng.random_range(8..device.shared_per_sm / 1024 + 1) * 1024;
    let threads = pick(rng, &[128, 256, 384]);
    let registers = threads * pick(rng, &[64, 128, 168]);
    let most = [device.shared_per_sm / shared, device.threads_per_sm / threads, 65536 / registers];
    kernel.ctas_per_sm = most.into_iter().min().expect("three resources");
    kernel.takes = Some(CtaResources { shared, registers, threads });
}

/// A plan that the list scheduler or the automatic choice could have made, but small.
pub(crate) fn draw(rng: &mut SmallRng) -> Candidate {
    if rng.random_ratio(1, 8) {
        return decode(rng);
    }
    let executors = [
        Executor::Streams,
        Executor::Streams,
        Executor::Programmatic,
        Executor::Cpu,
        Executor::Serial,
        Executor::Fused,
        Executor::Fused,
        Executor::Fused,
    ];
    let executor = pick(rng, &executors);
    let fused = executor == Executor::Fused;
    let mut graph = if fused && rng.random_ratio(1, 3) {
        // Lists with tiles of several sizes are checked the same way.
        match rng.random_range(0..8) {
            0 => general::convolutions(rng),
            1 => general::pool(rng),
            2 => general::attention(rng),
            3 => general::groups(rng),
            4 => general::grouped(rng),
            5 => general::heads(rng),
            6 => general::experts(rng),
            _ => general::normalisation(rng),
        }
    } else if fused {
        let (stages, tile) = (pick(rng, GEMMS), pick(rng, &[(16, 16, 16), (32, 32, 16), (128, 128, 64)]));
        graph(rng, stages, Some(tile))
    } else {
        match rng.random_range(0..19) {
            0..4 => {
                let stages = pick(rng, GEMMS);
                graph(rng, stages, None)
            }
            4 | 5 => {
                let stages = pick(rng, CUSTOM);
                graph(rng, stages, None)
            }
            6 | 7 => general::convolutions(rng),
            8 | 9 => general::attention(rng),
            10 => general::pool(rng),
            11 => general::groups(rng),
            12 => general::grouped(rng),
            13 | 14 => general::heads(rng),
            15 | 16 => general::experts(rng),
            _ => general::normalisation(rng),
        }
    };
    if rng.random_ratio(1, 4) {
        share_memory(&mut graph);
    }
    if !fused && rng.random_ratio(1, 4) {
        let at = rng.random_range(0..graph.stages.len());
        let stage = &mut graph.stages[at];
        stage.split_k = rng.random_range(1..=stage.k_blocks);
    }
    let mut device = Profile::named("h200").expect("shipped").clone();
    device.sms = rng.random_range(6..30);
    // A chain kernel gets its lists last.
    let mut c = Candidate::new(graph, device, executor.how().unwrap_or(How::Serial));
    let grid = |e: usize| c.graph.stages[c.graph.dependences[e].producer.0].grid;
    let images = |e: usize| {
        let d = &c.graph.dependences[e];
        c.graph.stages[d.consumer.0].operands[d.operand].sliding.is_some()
    };
    c.edges = (0..c.edges.len())
        .map(|e| EdgeChoice {
            policy: policy(rng, grid(e), images(e)),
            wait_at: if rng.random() { WaitAt::PerKBlock } else { WaitAt::Start },
        })
        .collect();
    for kernel in c.launch.kernels_mut() {
        kernel.order = order(rng, c.graph.stages[kernel.stage.0].grid);
    }
    let device = c.device.clone();
    c.launch.kernels_mut().iter_mut().for_each(|kernel| occupy(rng, &device, kernel, 1..4));
    match executor {
        Executor::Streams | Executor::Programmatic if rng.random_ratio(1, 3) => {
            *c.launch.how_mut().expect("stages") = How::Streams(StartGuarantee::None);
            c.device.sms = rng.random_range(3..60);
        }
        Executor::Streams if rng.random_ratio(1, 8) => *c.launch.how_mut().expect("stages") = How::Serial,
        Executor::Fused => {
            c.contract = KernelContract::of_chain_kernels(90);
            let cluster = pick(rng, &[(1, 1), (1, 1), (1, 1), (2, 1), (1, 2)]);
            let mode = if cluster == (1, 1) && rng.random_ratio(1, 3) { Hand::Drawn } else { Hand::Fixed };
            c.contract.deferred_post = mode == Hand::Fixed && rng.random_ratio(1, 5);
            let most = c.device.resident_clusters(cluster.0 * cluster.1).clamp(1, 9);
            let workers = rng.random_range(most.min(3)..=most);
            c.launch = Launch::Lists(schedule(rng, &c.graph, cluster, workers, mode));
            cusync_gen::check::linearise(&mut c);
        }
        _ => {}
    }
    c
}
