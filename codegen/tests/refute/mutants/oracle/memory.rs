//! Poisoned memory: every cell records its last writer and run. A cell is a rectangle that every access covers
//! completely or not at all, so this is as precise as tracking single elements.

use cusync_gen::graph::{Graph, OperandKind, StageId, TensorId};
use cusync_gen::sync::Tile;

use super::shapes::{self, Area};

/// Last writer of a cell: 0 for none (poison), 1 for the host, otherwise a tile in a run.
pub(crate) type Tag = u32;
pub(crate) const INPUT: Tag = 1;

/// A cell: its writer and, for a tile stored in units, the units stored.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    tag: Tag,
    units: u64,
}

/// Cells of a tensor's memory: a range of rows, a range of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    /// The tensor accessed; it may share another tensor's memory.
    pub(crate) tensor: TensorId,
    rows: (u32, u32),
    cols: (u32, u32),
}

impl Cells {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.0 >= self.rows.1 || self.cols.0 >= self.cols.1
    }
}

/// Boundaries of the accesses to one memory.
#[derive(Clone, Default)]
struct Cuts {
    rows: Vec<u32>,
    cols: Vec<u32>,
}

/// How tensors are split into cells, and the expected writer of each. Built once per program.
pub(crate) struct Layout {
    cuts: Vec<Cuts>,
    /// The memory of each tensor.
    memory: Vec<usize>,
    /// For each cell of a tensor, the number (from 0 over all stages) of the tile that writes it; `None` for an input.
    owner: Vec<Option<Vec<u32>>>,
    /// The number of each stage's first tile, and its tile count along N.
    first: Vec<(u32, u32)>,
    tiles: u32,
    /// Whether a tile writes nothing, as some shares with few columns do.
    empty: Vec<bool>,
}

impl Layout {
    /// `cluster`: CTAs along M and N that load for each other.
    pub(crate) fn new(graph: &Graph, cluster: (u32, u32)) -> Layout {
        let memory: Vec<usize> =
            (0..graph.tensors.len()).map(|t| shapes::memory_of(graph, TensorId(t)).0).collect();
        let mut cuts = vec![Cuts::default(); graph.tensors.len()];
        let mut cut = |tensor: TensorId, (rows, cols): Area| {
            let cuts: &mut Cuts = &mut cuts[memory[tensor.0]];
            cuts.rows.extend([rows.start, rows.end]);
            cuts.cols.extend([cols.start, cols.end]);
        };
        for (t, tensor) in graph.tensors.iter().enumerate() {
            cut(TensorId(t), (0..tensor.rows, 0..tensor.cols));
        }
        let (mut first, mut tiles, mut empty) = (Vec::new(), 0, Vec::new());
        for (s, stage) in graph.stages.iter().enumerate() {
            let (gm, gn) = shapes::grid(graph, StageId(s));
            first.push((tiles, gn));
            tiles += gm * gn;
            for tile in (0..gm).flat_map(|m| (0..gn).map(move |n| Tile { m, n })) {
                let (rows, cols) = shapes::written(graph, StageId(s), tile);
                empty.push(rows.is_empty() || cols.is_empty());
                cut(stage.out, (rows, cols));
                for (o, operand) in stage.operands.iter().enumerate() {
                    let ks = match shapes::in_epilogue(operand.kind) {
                        true => 1,
                        false => shapes::k_blocks(graph, StageId(s), tile),
                    };
                    let whole = shapes::tile_size(graph, StageId(s));
                    let sharers = if operand.kind == OperandKind::A { cluster.1 } else { cluster.0 };
                    let shared = matches!(operand.kind, OperandKind::A | OperandKind::B | OperandKind::Up);
                    for (k, part) in (0..ks).flat_map(|k| (0..sharers).map(move |part| (k, part))) {
                        for area in shapes::reads(graph, StageId(s), o, tile, k) {
                            if sharers > 1 && shared {
                                cut(
                                    operand.tensor,
                                    shapes::share(operand.kind, area.clone(), whole, (sharers, part)),
                                );
                            }
                            cut(operand.tensor, area);
                        }
                    }
                }
            }
        }
        for cuts in &mut cuts {
            for axis in [&mut cuts.rows, &mut cuts.cols] {
                axis.sort_unstable();
                axis.dedup();
            }
        }
        let mut layout = Layout { cuts, memory, owner: Vec::new(), first, tiles, empty };
        layout.owner = (0..graph.tensors.len()).map(|t| layout.owners(graph, TensorId(t))).collect();
        layout
    }

    fn owners(&self, graph: &Graph, tensor: TensorId) -> Option<Vec<u32>> {
        let stage = graph.tensors[tensor.0].producer?;
        let cuts = &self.cuts[self.memory[tensor.0]];
        let cells = cuts.rows.len().saturating_sub(1) * cuts.cols.len().saturating_sub(1);
        let mut owners = vec![u32::MAX; cells];
        let (gm, gn) = shapes::grid(graph, stage);
        for tile in (0..gm).flat_map(|m| (0..gn).map(move |n| Tile { m, n })) {
            let cells = self.cells(tensor, &shapes::written(graph, stage, tile));
            self.places(&cells).for_each(|place| owners[place] = self.tile(stage, tile));
        }
        Some(owners)
    }

    /// A tile's number over all stages.
    pub(crate) fn tile(&self, stage: StageId, tile: Tile) -> u32 {
        let (first, gn) = self.first[stage.0];
        first + tile.m * gn + tile.n
    }

    /// Whether a tile writes nothing.
    pub(crate) fn is_empty(&self, tile: u32) -> bool {
        self.empty[tile as usize]
    }

    /// Number of tiles over all stages.
    pub(crate) fn tiles(&self) -> u32 {
        self.tiles
    }

    /// The tag that a tile writes in run `run`, counted from 1.
    pub(crate) fn tag(&self, run: u32, tile: u32) -> Tag {
        1 + (run - 1) * self.tiles + tile + 1
    }

    pub(crate) fn cells(&self, tensor: TensorId, (rows, cols): &Area) -> Cells {
        let cuts = &self.cuts[self.memory[tensor.0]];
        let at = |cuts: &[u32], x: u32| cuts.partition_point(|c| *c < x) as u32;
        Cells {
            tensor,
            rows: (at(&cuts.rows, rows.start), at(&cuts.rows, rows.end)),
            cols: (at(&cuts.cols, cols.start), at(&cuts.cols, cols.end)),
        }
    }

    /// Indices of the cells that lie completely inside an area.
    pub(crate) fn within(
        &self,
        tensor: TensorId,
        (rows, cols): &Area,
        inside: impl Fn(&std::ops::Range<u32>, &std::ops::Range<u32>) -> bool,
    ) -> Vec<usize> {
        let cuts = &self.cuts[self.memory[tensor.0]];
        let width = cuts.cols.len().saturating_sub(1);
        let whole = |cuts: &[u32], range: &std::ops::Range<u32>| -> Vec<usize> {
            cuts.windows(2)
                .enumerate()
                .filter(|(_, w)| inside(range, &(w[0]..w[1])))
                .map(|(i, _)| i)
                .collect()
        };
        let across = whole(&cuts.cols, cols);
        whole(&cuts.rows, rows).iter().flat_map(|r| across.iter().map(move |c| r * width + c)).collect()
    }

    /// Individual cells, as indices into the tensor's memory.
    pub(crate) fn places(&self, cells: &Cells) -> impl Iterator<Item = usize> + use<> {
        let width = self.cuts[self.memory[cells.tensor.0]].cols.len().saturating_sub(1) as u32;
        let (rows, cols) = (cells.rows, cells.cols);
        (rows.0..rows.1).flat_map(move |r| (cols.0..cols.1).map(move |c| (r * width + c) as usize))
    }
}

/// Contents of the cells.
#[derive(Clone)]
pub(crate) struct Memory {
    cells: Vec<Vec<Cell>>,
}

impl Memory {
    /// Inputs hold their data; everything else is poison.
    pub(crate) fn poisoned(graph: &Graph, layout: &Layout) -> Memory {
        let cells_of = |t: usize| {
            let cuts = &layout.cuts[t];
            let input = graph.tensors[t].producer.is_none();
            let cell = Cell { tag: if input { INPUT } else { 0 }, units: u64::MAX };
            vec![cell; cuts.rows.len().saturating_sub(1) * cuts.cols.len().saturating_sub(1)]
        };
        Memory { cells: (0..graph.tensors.len()).map(cells_of).collect() }
    }

    /// Whether every cell holds the value that its reader in run `run` expects. If several parts share a tile, a part
    /// reads only the units `own` that it stores itself; `sibling` is the tag of that tile.
    pub(crate) fn holds(
        &self,
        layout: &Layout,
        cells: &Cells,
        run: u32,
        sibling: Option<(Tag, u64)>,
    ) -> bool {
        let memory = &self.cells[layout.memory[cells.tensor.0]];
        let owner = layout.owner[cells.tensor.0].as_ref();
        layout.places(cells).all(|place| {
            let want = owner.map_or(INPUT, |owner| layout.tag(run, owner[place]));
            memory[place] == Cell { tag: want, units: u64::MAX }
                || sibling
                    .is_some_and(|(tag, own)| memory[place].tag == tag && memory[place].units & own == 0)
        })
    }

    /// Stores units of a tile; `all` of them complete it.
    pub(crate) fn store(&mut self, layout: &Layout, cells: &Cells, tag: Tag, units: u64, all: u64) {
        let memory = &mut self.cells[layout.memory[cells.tensor.0]];
        for place in layout.places(cells) {
            let cell = &mut memory[place];
            let before = if cell.tag == tag { cell.units } else { 0 };
            let now = before | units;
            *cell = Cell { tag, units: if now & all == all { u64::MAX } else { now } };
        }
    }
}
