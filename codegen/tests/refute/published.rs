//! Judges the MLP configurations that the original cuSync published for an A100 (`data/published_mlp_a100.csv`).
//!
//! A separate tile program describes their kernels, following the published semantics: the slot comes from the first
//! row of the consumer's tile; RowSync waits once; TileSync waits when k is a multiple of the producer's columns, once
//! before the first load and then before k-block i from i = stages - 1 on; a split-K slice begins mid-tensor.

use cusync_gen::check::{
    Candidate, EdgeChoice, Event, How, Obligation, StartGuarantee, TileProgram, judge_program, slice_k_blocks,
};
use cusync_gen::device::Profile;
use cusync_gen::graph::{
    Activation, Axis, Dependence, Element, Footprint, Graph, Op, Operand, OperandKind, Partition, Stage,
    StageId, Tensor, TensorId,
};
use cusync_gen::sync::{Policy, Tile, WaitAt};

#[derive(Clone, Debug)]
struct Row {
    model: String,
    m: u32,
    tile_sync: bool,
    tiles: [(u32, u32, u32); 2],
    stages: [u32; 2],
    split_k: [u32; 2],
    wait_kernel: bool,
}

fn rows() -> Vec<Row> {
    let text = include_str!("data/published_mlp_a100.csv");
    text.lines().skip(1).map(parse).collect()
}

fn parse(line: &str) -> Row {
    let cell: Vec<&str> = line.split(',').collect();
    let number = |i: usize| cell[i].parse().expect("a number");
    let tile = |i: usize| {
        let n: Vec<u32> = cell[i].split('x').map(|n| n.parse().expect("a number")).collect();
        (n[0], n[1], n[2])
    };
    Row {
        model: cell[0].into(),
        m: number(2),
        tile_sync: cell[3] == "tilesync",
        tiles: [tile(4), tile(5)],
        stages: [number(6), number(7)],
        split_k: [number(8), number(9)],
        wait_kernel: !cell[10].contains('W'),
    }
}

/// CTAs per A100 SM: limited by the ring's shared memory, and by registers at 255 per thread with 64 x 64 warp tiles.
fn occupancy(tile: (u32, u32, u32), stages: u32) -> u32 {
    let shared = stages * (tile.0 + tile.1) * tile.2 * 2;
    let warps = (tile.0 * tile.1 / 4096).max(4);
    (164 * 1024 / (shared + 1024)).min(8 / warps).max(1)
}

impl Row {
    /// Inner width that the second GEMM reduces over, and how many times it is read (gate and up side by side).
    fn inner(&self) -> (u32, u32) {
        if self.model == "gpt3" { (6144, 1) } else { (2816, 2) }
    }

    fn graph(&self) -> Graph {
        let hidden = if self.model == "gpt3" { 12288 } else { 8192 };
        let (inner, parts) = self.inner();
        let tensor = |name: &str, rows, cols, producer: Option<usize>| {
            Tensor::new(name, rows, cols, producer.map(StageId))
        };
        let stage = |i: usize, name: &str, op, n: u32, k: u32, operands, out| {
            let tile = self.tiles[i];
            Stage {
                name: name.into(),
                op,
                m: self.m,
                n,
                k,
                mma_tile: tile,
                partition: Partition::Tiles { rows: tile.0, cols: tile.1 },
                grid: (self.m.div_ceil(tile.0), n.div_ceil(tile.1)),
                k_blocks: k.div_ceil(tile.2),
                split_k: self.split_k[i],
                devices: 1,
                operands,
                out: TensorId(out),
            }
        };
        let read = |part: u32| Operand {
            kind: OperandKind::Custom(part as usize),
            tensor: TensorId(0),
            view: None,
            footprint: Footprint {
                rows: Axis { m: self.tiles[1].0 as i32, extent: self.tiles[1].0 as i32, ..Axis::default() },
                cols: Axis {
                    k: self.tiles[1].2 as i32,
                    offset: (part * inner) as i32,
                    extent: self.tiles[1].2 as i32,
                    ..Axis::default()
                },
            },
            sliding: None,
        };
        Graph {
            name: "published".into(),
            element: Element::F16,
            tensors: vec![tensor("Y", self.m, inner * parts, Some(0)), tensor("Z", self.m, hidden, Some(1))],
            stages: vec![
                stage(0, "gemm1", Op::Gemm(Activation::Identity.into()), inner * parts, hidden, vec![], 0),
                stage(1, "gemm2", Op::Custom, hidden, inner, (0..parts).map(read).collect(), 1),
            ],
            dependences: (0..parts as usize)
                .map(|operand| Dependence { producer: StageId(0), consumer: StageId(1), operand })
                .collect(),
            dims: vec![("M".into(), self.m)],
        }
    }

    fn candidate(&self) -> Candidate {
        let a100 = Profile::named("a100").expect("shipped").clone();
        let mut c = Candidate::new(self.graph(), a100, How::STREAMS);
        let policy = match (self.tile_sync, self.slot_columns()) {
            (false, _) => Policy::Row,
            (true, stride) => Policy::Strided(stride),
        };
        c.edges = vec![EdgeChoice { policy, wait_at: WaitAt::PerKBlock }; c.edges.len()];
        for (i, kernel) in c.launch.kernels_mut().iter_mut().enumerate() {
            kernel.ctas_per_sm = occupancy(self.tiles[i], self.stages[i]);
        }
        if !self.wait_kernel {
            *c.launch.how_mut().expect("stages") = How::Streams(StartGuarantee::None);
        }
        c
    }

    /// Slot columns of TileSync: gate and up tiles of one column share a slot.
    fn slot_columns(&self) -> u32 {
        self.inner().0.div_ceil(self.tiles[0].1)
    }
}

struct Published<'a> {
    row: &'a Row,
    graph: Graph,
}

impl TileProgram for Published<'_> {
    fn posts(&self, _edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        let columns = self.row.slot_columns();
        f(if self.row.tile_sync { tile.m * columns + tile.n % columns } else { tile.m }, 1);
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        let row = self.row;
        let ks = slice_k_blocks(&self.graph.stages[stage.0], slice);
        let store = |f: &mut dyn FnMut(Event)| {
            // A slice without k-blocks has no CTA.
            if !ks.is_empty() {
                f(Event::Store { units: 0..1, of: 1 });
            }
        };
        if stage == StageId(0) {
            return store(f); // gemm1 waits for nothing
        }
        let edges = self.graph.dependences.len();
        let producer_row = tile.m * row.tiles[1].0 / row.tiles[0].0;
        let wait = |f: &mut dyn FnMut(Event), k: u32| {
            let column = k * row.tiles[1].2;
            for edge in 0..edges {
                if !row.tile_sync {
                    f(Event::Wait { edge, slot: producer_row, value: self.graph.stages[0].grid.1 });
                } else if column.is_multiple_of(row.tiles[0].1) {
                    let slot = producer_row * row.slot_columns() + column / row.tiles[0].1;
                    f(Event::Wait { edge, slot, value: row.inner().1 });
                }
            }
        };
        for (i, k) in ks.clone().enumerate() {
            if i == 0 || (row.tile_sync && i as u32 >= row.stages[1] - 1) {
                wait(f, k);
            }
            (0..edges).for_each(|operand| f(Event::Load { operand, k_block: k }));
        }
        store(f);
    }
}

fn judged(row: &Row) -> cusync_gen::check::Report {
    judge_program(&row.candidate(), &Published { row, graph: row.graph() })
}

#[test]
fn cover_is_refuted_exactly_where_waits_are_missing() {
    let rows = rows();
    assert_eq!(rows.len(), 68);
    for row in &rows {
        let missing = matches!((row.model.as_str(), row.m), ("gpt3", 1280 | 1536) | ("llama", 768));
        let report = judged(row);
        let cover = report.refutation(Obligation::Cover);
        assert_eq!(cover.is_some(), missing, "{row:?}: {cover:?}");
        if let Some(counterexample) = cover {
            assert!(counterexample.message.contains("before gemm1("), "{counterexample}");
        }
        for sound in [Obligation::Order, Obligation::Bounds, Obligation::Count, Obligation::Acyclic] {
            assert_eq!(report.refutation(sound), None, "{row:?}");
        }
    }
}

#[test]
fn a_missing_wait_is_shown_with_its_tile() {
    let row = parse("gpt3,a100,1536,rowsync,128x256x32,256x128x32,5,5,2,1,-");
    let counterexample = judged(&row).refutations[0].to_string();
    assert_eq!(
        counterexample,
        "cover: gemm2(0, 0) may read `Y` before gemm1(1, 0) has written it\n  \
         at k-block 0, gemm2(0, 0) loads rows 0..256, columns 0..32 of `Y`\n  \
         gemm1(1, 0) writes rows 128..256, columns 0..256\n  \
         it posts slot 1, which gemm2(0, 0) has not waited for up to all its 24 posts by then"
    );
}

#[test]
fn without_a_start_guarantee_progress_depends_on_the_waves() {
    for row in rows() {
        let progress = judged(&row).refutation(Obligation::Progress).cloned();
        let ctas = row.graph().stages[1].tiles() * row.split_k[1];
        if row.wait_kernel {
            assert_eq!(progress, None, "{row:?}");
        } else if ctas < 108 {
            assert_eq!(progress, None, "one SM always stays free: {row:?}");
        }
    }
    // The same rows without the wait kernel, at two or more waves.
    let mut waves_seen = 0;
    for mut row in rows() {
        row.wait_kernel = false;
        let c = row.candidate();
        let waves = f64::from(c.graph.stages[1].tiles() * row.split_k[1])
            / f64::from(108 * c.launch.kernels()[1].ctas_per_sm);
        if waves >= 2.0 {
            waves_seen += 1;
            assert!(judged(&row).refutation(Obligation::Progress).is_some(), "{waves} waves: {row:?}");
        }
    }
    assert!(waves_seen >= 20, "only {waves_seen} rows have two waves");
}

#[test]
fn a_slice_that_begins_inside_a_producer_tile_skips_its_wait() {
    // 192 k-blocks in 5 slices of 39: the second begins at column 1248, inside the tile of columns 1024..1280.
    let row = parse("gpt3,a100,64,tilesync,64x256x32,64x256x32,4,4,2,5,RN");
    let report = judged(&row);
    let counterexample = report.refutation(Obligation::Cover).expect("refuted");
    assert!(counterexample.story[0].contains("k-block 39, slice 1"), "{counterexample}");
}
