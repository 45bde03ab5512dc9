//! A pipeline with resolved dims and validated shapes, before tiles are chosen.

use super::{
    Dependence, Element, Footprint, Graph, MmaTile, Op, Operand, OperandKind, Partition, Stage, StageId,
    Tensor, TensorId, Tiles, Used, View,
};
use crate::device::{KernelShape, Operations, Profile};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::executor::Executor;
use crate::spec::StatedTile;
use crate::sync::{Order, Policy, WaitAt};

/// Maximum tiles of a stage: `check` enumerates them.
pub const MAX_TILES: u64 = 1 << 20;
/// Maximum (tile, k-block) pairs of a stage.
pub const MAX_K_BLOCKS: u64 = 1 << 24;
/// Maximum producer tiles in the footprints of one dependence, over all tiles and k-blocks of the consumer.
pub const MAX_FOOTPRINT_TILES: u128 = 1 << 26;

/// A pipeline with resolved dims. Stages are in topological order. Tiles are still open, so the automatic choice can
/// build many [`Graph`]s from it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Identifier.
    pub name: String,
    /// Element type of every tensor.
    pub element: Element,
    /// Dims with overrides applied, in spec order.
    pub dims: Vec<(String, u32)>,
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// Stages, producers before consumers.
    pub stages: Vec<ResolvedStage>,
    /// The spec's `sync` entries; at most one matches a dependence.
    pub edges: Vec<StatedEdge>,
}

/// A stage without its tile.
#[derive(Clone, Debug)]
pub struct ResolvedStage {
    /// Identifier.
    pub name: Spanned<String>,
    /// Operation.
    pub op: Op,
    /// Rows of the output.
    pub m: u32,
    /// Columns of the output.
    pub n: u32,
    /// Length of the reduction.
    pub k: u32,
    /// Reads, in the order of [`Stage::operands`].
    pub reads: Vec<Read>,
    /// The tensor written, and where the spec states it.
    pub out: Spanned<TensorId>,
    /// Grid, k-blocks and output tile of a custom stage; `None` for other stages.
    pub custom: Option<CustomShape>,
    /// Whether its user has given its kernel to the runtime.
    pub has_own_kernel: bool,
    /// CTAs that share one tile along k, and where that is stated; 1: no split.
    pub split_k: Spanned<u32>,
    /// Devices over which its products are summed: see [`Stage::devices`].
    pub devices: u32,
    /// MMA tile stated in the spec.
    pub stated_tile: Option<Spanned<StatedTile>>,
    /// Tile order stated in the spec.
    pub stated_order: Option<Spanned<Order>>,
}

/// A read of a stage.
#[derive(Clone, Debug)]
pub struct Read {
    /// Its role.
    pub kind: OperandKind,
    /// The tensor read.
    pub tensor: TensorId,
    /// The shape under which it is read, if that is not its own.
    pub view: Option<View>,
    /// Where the spec states it.
    pub span: Span,
    /// The footprint of a custom stage's read; other footprints follow from the tile.
    pub footprint: Option<Footprint>,
}

/// The fixed shape of a custom stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomShape {
    /// Tiles along M and N.
    pub grid: (u32, u32),
    /// k-blocks of one tile.
    pub k_blocks: u32,
    /// Output elements of one tile.
    pub tile: (u32, u32),
}

/// Statements of the spec about the dependences between two stages.
#[derive(Clone, Debug)]
pub struct StatedEdge {
    /// The whole entry.
    pub span: Span,
    /// Producer.
    pub producer: StageId,
    /// Consumer.
    pub consumer: StageId,
    /// Only this operand; `None`: all operands of the consumer that the producer writes.
    pub operand: Option<OperandKind>,
    /// Policy; `None`: automatic.
    pub policy: Option<Spanned<Policy>>,
    /// Where the consumer waits; `None`: automatic.
    pub wait_at: Option<Spanned<WaitAt>>,
}

/// A tile for every stage, as [`Stage::mma_tile`]; indexed by stage.
pub type TileAssignment = [(u32, u32, u32)];

impl Resolved {
    /// The spec's statement about a dependence, if any.
    pub fn stated_edge(&self, dependence: &Dependence) -> Option<&StatedEdge> {
        let kind = self.stages[dependence.consumer.0].reads.get(dependence.operand)?.kind;
        self.edges.iter().find(|edge| {
            edge.producer == dependence.producer
                && edge.consumer == dependence.consumer
                && edge.operand.is_none_or(|operand| operand == kind)
        })
    }

    /// One stage as a separate pipeline: outputs of other stages become inputs.
    pub fn only(&self, stage: StageId) -> Resolved {
        let mut one = self.stages[stage.0].clone();
        let used = Used::new(&self.tensors, one.reads.iter().map(|read| read.tensor).chain([one.out.value]));
        one.reads.iter_mut().for_each(|read| read.tensor = used.number(read.tensor));
        one.out.value = used.number(one.out.value);
        Resolved {
            name: self.name.clone(),
            element: self.element,
            dims: self.dims.clone(),
            tensors: used.tensors(&self.tensors, stage),
            stages: vec![one],
            edges: Vec::new(),
        }
    }

    /// The operations that a kernel for all stages must support.
    pub fn operations(&self) -> Operations {
        self.stages.iter().filter_map(|stage| stage.op.operation()).collect()
    }

    /// Whether a stage reads what another writes under another shape.
    pub(crate) fn awaits_views(&self) -> bool {
        let mut reads = self.stages.iter().flat_map(|stage| &stage.reads);
        reads.any(|read| read.view.is_some() && self.tensors[read.tensor.0].producer.is_some())
    }

    /// Keeps the tiles with whole rows of every tensor that the stage reads in shorter rows, if there are any: others
    /// wait for all of it.
    fn keep_whole_rows(&self, stage: &ResolvedStage, tiles: &mut Vec<MmaTile>) {
        let whole = |tile: &MmaTile| {
            stage.reads.iter().all(|read| {
                let tensor = &self.tensors[read.tensor.0];
                let parts = read.view.map_or(1, |view| (tensor.cols / view.cols).max(1));
                tensor.producer.is_none() || stage.op.rules().out_tile(*tile).0.is_multiple_of(parts)
            })
        };
        if tiles.iter().any(whole) {
            tiles.retain(whole);
        }
    }

    /// Tiles of all stages in one kernel with this MMA tile and this many workers. A stage with its own tiles gets the
    /// stated one, or the smallest kernel-compatible one for which every worker has at most one tile.
    pub fn tiles_in(&self, tile: MmaTile, workers: u32) -> Vec<MmaTile> {
        let tile_of = |stage: &ResolvedStage| match stage.op.rules().tiles(stage.n) {
            Tiles::Kernels(_) | Tiles::Own { of_kernel: true, .. } | Tiles::Stated => tile,
            Tiles::Own { list, .. } => {
                let stated =
                    |t: &MmaTile| stage.stated_tile.as_ref().is_none_or(|s| s.value.tile == (t.0, t.1));
                let mut list: Vec<MmaTile> = list.into_iter().filter(stated).collect();
                if list.iter().any(|t| stage.op.unfit(*t).is_none()) {
                    list.retain(|t| stage.op.unfit(*t).is_none());
                }
                self.keep_whole_rows(stage, &mut list);
                let few = |t: &&MmaTile| stage.m.div_ceil(t.0) * stage.n.div_ceil(t.1) <= workers;
                list.iter().find(few).or(list.last()).copied().unwrap_or(tile)
            }
        };
        self.stages.iter().map(tile_of).collect()
    }

    /// The first stage with a user kernel, for which no model predicts the cost.
    pub fn own_kernel(&self) -> Option<StageId> {
        self.stages.iter().position(|stage| stage.custom.is_some()).map(StageId)
    }

    /// Notes that the user has given the kernel of a custom stage; `false` if there is no such stage.
    pub fn give_kernel(&mut self, name: &str) -> bool {
        let stage = self.stages.iter_mut().find(|stage| stage.name.value == name && stage.custom.is_some());
        stage.map(|stage| stage.has_own_kernel = true).is_some()
    }

    /// Whether every stage has its own kernel on a device; otherwise chain or decode kernels run some stages.
    pub fn own_kernels(&self, device: &Profile) -> bool {
        self.stages.iter().all(|stage| stage.op.has_kernel(device.arch, Executor::Streams))
    }

    /// The tiles that a stage can have on a device; never empty. They are the stated tile, or those of every separate
    /// kernel built for the device's architecture. A stage without such a kernel has the tiles of chain kernels and
    /// those of the `cpu` executor; a custom stage has exactly one.
    ///
    /// # Errors
    /// The stated tile is not one of them.
    pub fn kernel_candidates(
        &self,
        stage: StageId,
        device: &Profile,
    ) -> Result<Vec<(u32, u32, u32)>, Diagnostic> {
        let stage = &self.stages[stage.0];
        let (mut built, meaning): (Vec<MmaTile>, _) = match stage.op.rules().tiles(stage.n) {
            Tiles::Stated => {
                let tile = stage.custom.map_or((0, 0), |custom| custom.tile);
                return Ok(vec![(tile.0, tile.1, 1)]);
            }
            Tiles::Kernels(operation) => {
                (KernelShape::built(device.arch, operation).map(|k| k.tile).collect(), None)
            }
            Tiles::Own { mut list, meaning, .. } => {
                let of_device = |t: &MmaTile| {
                    let operation = stage.op.operation().into_iter();
                    operation
                        .flat_map(|operation| KernelShape::built(device.arch, operation))
                        .any(|k| k.tile == *t)
                };
                if list.iter().any(of_device) {
                    list.retain(of_device);
                }
                (list, Some(meaning))
            }
        };
        let Some(stated) = &stage.stated_tile else {
            if built.is_empty() {
                return Err(Diagnostic::new(
                    "no-kernel",
                    format!("no kernels are built for {}", device.name),
                )
                .at(stage.name.span, "this stage needs one"));
            }
            self.keep_whole_rows(stage, &mut built);
            return Ok(built);
        };
        let StatedTile { tile, k } = stated.value;
        let fits = |t: &MmaTile| (t.0, t.1) == tile && k.is_none_or(|k| k == t.2);
        let matching: Vec<_> = built.iter().copied().filter(fits).collect();
        if !matching.is_empty() {
            return Ok(matching);
        }
        let two = |(m, n): (u32, u32)| format!("({m}, {n})");
        let three = |(m, n, k): MmaTile| format!("({m}, {n}, {k})");
        let shown = k.map_or_else(|| two(tile), |k| three((tile.0, tile.1, k)));
        let list = |show: &dyn Fn(MmaTile) -> String| {
            built.iter().map(|tile| show(*tile)).collect::<Vec<_>>().join(", ")
        };
        let (message, note) = match meaning {
            Some(meaning) => (
                format!("the {} `{}` has no tile {shown}", stage.op.rules().noun(), stage.name.value),
                format!("tiles are {meaning}: {}", list(&three)),
            ),
            None => (
                format!("no kernel with tile {shown} is built for {}", device.name),
                format!("tiles of sm_{} kernels: {}", device.arch, list(&|t| two((t.0, t.1)))),
            ),
        };
        Err(Diagnostic::new("no-kernel", message)
            .at(stated.span, format!("stated for `{}`", stage.name.value))
            .note(note)
            .help("state one of them, or leave the tile out and it is chosen"))
    }

    /// The graph with these tiles, one per stage.
    ///
    /// # Errors
    /// A grid is too large to check, a stated policy table does not fit the grid, or `tiles` has the wrong length.
    pub fn graph(&self, tiles: &TileAssignment) -> Result<Graph, Diagnostic> {
        if tiles.len() != self.stages.len() {
            let message = format!("{} tiles for {} stages", tiles.len(), self.stages.len());
            return Err(Diagnostic::new("tile-count", message));
        }
        let tiled = self.stages.iter().zip(tiles);
        let tiled = tiled.map(|(stage, &tile)| stage.with_tile(tile, &self.tensors));
        let stages = tiled.collect::<Result<Vec<_>, _>>()?;
        let graph = Graph {
            name: self.name.clone(),
            element: self.element,
            tensors: self.tensors.clone(),
            dependences: derive_dependences(&self.tensors, &stages),
            stages,
            dims: self.dims.clone(),
        };
        self.check_footprints(&graph)?;
        self.check_stated_tables(&graph)?;
        Ok(graph)
    }

    /// Limits footprints so that `check` can enumerate dependences in reasonable time.
    fn check_footprints(&self, graph: &Graph) -> Result<(), Diagnostic> {
        for dependence in &graph.dependences {
            let tiles = graph.footprint_tiles(dependence);
            if tiles > MAX_FOOTPRINT_TILES {
                let consumer = &self.stages[dependence.consumer.0];
                let producer = &self.stages[dependence.producer.0].name.value;
                let message = format!("`{}` reads {tiles} tiles of `{producer}`", consumer.name.value);
                return Err(Diagnostic::new("footprint-too-large", message)
                    .at(consumer.reads[dependence.operand].span, "counted over all tiles and k-blocks")
                    .note(format!("at most {MAX_FOOTPRINT_TILES} can be checked"))
                    .help("use larger tiles, smaller footprints or fewer k-blocks"));
            }
        }
        Ok(())
    }

    /// Checks that a stated policy table has an entry for each tile of the producer's grid and a stated order stays
    /// inside its grid.
    fn check_stated_tables(&self, graph: &Graph) -> Result<(), Diagnostic> {
        for (stated, stage) in self.stages.iter().zip(&graph.stages) {
            let Some(Spanned { value: Order::Table(table), span }) = &stated.stated_order else {
                continue;
            };
            let (gm, gn) = stage.grid;
            let outside = table.iter().find(|tile| tile.m >= gm || tile.n >= gn);
            if table.len() != stage.tiles() as usize || outside.is_some() {
                let fault = outside.map_or_else(
                    || format!("{} entries", table.len()),
                    |tile| format!("an entry ({}, {})", tile.m, tile.n),
                );
                return Err(Diagnostic::new(
                    "order-table",
                    format!("the order of `{}` has {fault}", stage.name),
                )
                .at(*span, format!("the grid has {gm} x {gn} tiles"))
                .help("name each tile of the grid once"));
            }
        }
        for edge in &self.edges {
            let Some(Spanned { value: Policy::Table(table), span }) = &edge.policy else { continue };
            let producer = &graph.stages[edge.producer.0];
            if table.len() != producer.tiles() as usize {
                let (gm, gn) = producer.grid;
                let message = format!("the table has {} entries for {} tiles", table.len(), producer.tiles());
                return Err(Diagnostic::new("table-length", message)
                    .at(*span, format!("`{}` has {gm} x {gn} tiles", producer.name))
                    .help("give one slot number a tile, row by row"));
            }
        }
        Ok(())
    }
}

impl ResolvedStage {
    fn with_tile(&self, mma_tile: (u32, u32, u32), tensors: &[Tensor]) -> Result<Stage, Diagnostic> {
        let op = self.op.tiled(mma_tile);
        let rules = op.rules();
        let (rows, cols) = self.custom.map_or_else(|| rules.out_tile(mma_tile), |c| c.tile);
        if rows == 0 || cols == 0 || mma_tile.2 == 0 {
            return Err(Diagnostic::new("zero-tile", format!("tile {mma_tile:?} of `{}`", self.name.value))
                .at(self.name.span, "a tile has at least one element"));
        }
        if !rules.takes(mma_tile, self.n) {
            let message = format!("the {} `{}` has no tile {mma_tile:?}", rules.noun(), self.name.value);
            let diagnostic = Diagnostic::new("no-kernel", message).at(self.name.span, "asked for its tiles");
            return Err(match rules.tiles(self.n) {
                Tiles::Own { meaning, .. } => diagnostic.help(format!("a tile is {meaning}")),
                Tiles::Stated | Tiles::Kernels(_) => diagnostic,
            });
        }
        let partition = Partition::Tiles { rows, cols };
        let grid = partition.grid((self.m, self.n));
        let k_blocks = self.custom.map_or_else(|| rules.k_blocks(self.k, mma_tile), |c| c.k_blocks);
        let tiles = u64::from(grid.0) * u64::from(grid.1);
        let taps = rules.taps_of_k_block(mma_tile);
        let steps = tiles.saturating_mul(u64::from(k_blocks)).saturating_mul(u64::from(taps));
        if tiles > MAX_TILES || steps > MAX_K_BLOCKS {
            let (of_taps, counted) =
                if taps > 1 { (format!(" of {taps} taps"), "taps") } else { (String::new(), "k-blocks") };
            let message = format!("`{}` has {tiles} tiles of {k_blocks} k-blocks{of_taps}", self.name.value);
            return Err(Diagnostic::new("grid-too-large", message)
                .at(self.name.span, format!("{} x {} in tiles of {:?}", self.m, self.n, (rows, cols)))
                .note(format!("at most {MAX_TILES} tiles and {MAX_K_BLOCKS} {counted} can be checked"))
                .help("use larger tiles or smaller dims"));
        }
        if self.split_k.value > k_blocks {
            let message = format!("`{}` is split {} ways along k", self.name.value, self.split_k.value);
            return Err(Diagnostic::new("split-k", message)
                .at(self.split_k.span, format!("a tile has {k_blocks} k-blocks"))
                .help(format!("split at most {k_blocks} ways")));
        }
        let operands = self
            .reads
            .iter()
            .map(|read| {
                let stated = read.footprint.map(|stated| (stated, None));
                let known = stated.or_else(|| rules.footprint(read.kind, mma_tile));
                let known = match read.view {
                    None => known,
                    Some(view) => known.and_then(|(footprint, _)| {
                        Some((view.footprint(&footprint, &tensors[read.tensor.0])?, None))
                    }),
                };
                let (footprint, sliding) = known.ok_or_else(|| {
                    Diagnostic::new(
                        "bad-footprint",
                        format!("a footprint of `{}` leaves 32 bits", self.name.value),
                    )
                    .at(read.span, "too large in elements")
                    .help("use smaller factors")
                })?;
                Ok(Operand { kind: read.kind, tensor: read.tensor, view: read.view, footprint, sliding })
            })
            .collect::<Result<_, Diagnostic>>()?;
        Ok(Stage {
            name: self.name.value.clone(),
            op,
            m: self.m,
            n: self.n,
            k: self.k,
            mma_tile,
            partition,
            grid,
            k_blocks,
            split_k: self.split_k.value,
            devices: self.devices,
            operands,
            out: self.out.value,
        })
    }
}

/// Every read of a stage's output is a dependence.
fn derive_dependences(tensors: &[Tensor], stages: &[Stage]) -> Vec<Dependence> {
    let mut dependences = Vec::new();
    for (consumer, stage) in stages.iter().enumerate() {
        for (operand, read) in stage.operands.iter().enumerate() {
            if let Some(producer) = tensors[read.tensor.0].producer {
                dependences.push(Dependence { producer, consumer: StageId(consumer), operand });
            }
        }
    }
    dependences
}
