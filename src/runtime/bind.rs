//! Maps a plan's stages and a set's tensors to kernel arguments. This is the only place that describes the
//! stages of kernels, peers and references.

use cusync_gen::check::StageKernel;
use cusync_gen::graph::{
    Activation, Attend, Attention, DataType, Epilogue, Heads, Op, OperandKind, Rotated, Stage, StageId,
};
use cusync_gen::schedule::decode::rounds_in;

use super::desc::{activation_code, element_code};
use super::error::{Error, Result};
use super::one::OneKernel;
use super::pipeline::{Pipeline, Work};
use crate::device::{
    self, BoundStage, Deviations, KernelArgs, Role, Source, Synchronisation, alone_id, gemm_id,
};
use crate::ffi;

/// Incoming and outgoing edges of a stage.
type Edges = (Vec<ffi::cusync_edge>, Vec<ffi::cusync_policy>);

impl Pipeline {
    /// Stage `index` with a set's operands and no synchronization, as peers and references compute it.
    pub fn bound_stage(&self, set: usize, index: usize) -> Result<BoundStage> {
        let stage = &self.plan.graph().stages[index];
        let weights = match self.sets.get(set).and_then(|s| s.packed[index].clone()) {
            Some(packed) => Some(packed),
            None if !stage.op.has_kernel_tiles() => None,
            None => Some(self.operand(set, stage, OperandKind::B)?),
        };
        self.bind_stage(set, index, weights.map(Source::Matrix), Edges::default())
    }

    /// Arguments of the kernel that runs stage `index` alone, without synchronization.
    pub fn alone(&self, set: usize, index: usize) -> Result<KernelArgs> {
        let stage = self.bound_stage(set, index)?;
        Ok(match &self.shared.work {
            Work::Stages { chains, .. } if let Some(one) = &chains[index] => {
                self.whole(format!("stage {}", stage.name), one, vec![stage])
            }
            _ => {
                let launched = self.plan.launch().kernel(StageId(index));
                let alone = launched.is_some_and(|launched| launched.kernel == StageKernel::Alone);
                let deviations = if alone { self.deviations() } else { Deviations::default() };
                let args =
                    self.ordered(index, stage, false, Synchronisation { deviations, ..Default::default() });
                if alone { KernelArgs { id: alone_id(args.id.element), ..args } } else { args }
            }
        })
    }

    /// Arguments of the kernel that runs stage `index`, synchronized by semaphores.
    pub(super) fn tiled(&self, set: usize, index: usize) -> Result<KernelArgs> {
        let (waits, posts) = self.edges_of(index);
        let stage = BoundStage { waits, posts, ..self.bound_stage(set, index)? };
        let sync = match &self.shared.work {
            Work::Stages { semaphores, tickets, .. } => Synchronisation {
                semaphores: Some(semaphores.clone()),
                tickets: Some((tickets.clone(), index)),
                report: Some(self.shared.report.clone()),
                notes: self.shared.notes.clone(),
                timeout_ns: self.options.timeout_ns,
                deviations: self.deviations(),
                ..Synchronisation::default()
            },
            Work::One(_) => return Err(Error::Unsupported("one kernel runs all stages".into())),
        };
        Ok(self.ordered(index, stage, true, sync))
    }

    fn ordered(&self, index: usize, stage: BoundStage, drawn: bool, sync: Synchronisation) -> KernelArgs {
        let planned = &self.plan.graph().stages[index];
        KernelArgs {
            name: format!("stage {}", stage.name),
            id: gemm_id(self.plan.device().arch, stage.element, (planned.mma_tile.0, planned.mma_tile.1)),
            stages: vec![stage],
            work: device::Work::Order { order: self.shared.descriptors.orders[index], drawn },
            sync,
            tables: self.shared.descriptors.tables.clone(),
        }
    }

    /// Arguments of the kernel that runs all stages.
    pub(super) fn one_kernel(&self, set: usize, one: &OneKernel) -> Result<KernelArgs> {
        let (graph, shares) = (self.plan.graph(), self.plan.launch().shares());
        let mut stages = Vec::new();
        for (index, planned) in graph.stages.iter().enumerate() {
            match shares {
                Some(shares) => {
                    let edges = self.edges_of(index);
                    let weights =
                        planned.op.is_gemm().then(|| self.repacked_weights(set, index)).transpose()?;
                    let stage = self.bind_stage(set, index, weights, edges)?;
                    let rounds = rounds_in(planned, shares.workers());
                    stages.extend((0..rounds).map(|n| BoundStage { round: (n, rounds), ..stage.clone() }));
                }
                None => {
                    let (waits, posts) = self.edges_of(index);
                    stages.push(BoundStage { waits, posts, ..self.bound_stage(set, index)? });
                }
            }
        }
        Ok(self.whole(graph.name.clone(), one, stages))
    }

    /// Arguments of a kernel that runs the given stages.
    fn whole(&self, name: String, one: &OneKernel, stages: Vec<BoundStage>) -> KernelArgs {
        KernelArgs {
            name,
            id: one.id,
            stages,
            work: one.work.clone(),
            sync: Synchronisation {
                notes: self.shared.notes.clone(),
                timeout_ns: self.options.timeout_ns,
                deviations: self.deviations(),
                ..one.sync.clone()
            },
            tables: self.shared.descriptors.tables.clone(),
        }
    }

    fn deviations(&self) -> Deviations {
        Deviations {
            starve: self.options.starve,
            skip_waits: self.options.skip_waits,
            stream_only: self.options.stream_only,
            delays: self.options.delays,
        }
    }

    fn repacked_weights(&self, set: usize, index: usize) -> Result<Source> {
        let repacked = self.sets.get(set).and_then(|s| s.repacked[index].clone());
        let name = &self.plan.graph().stages[index].name;
        let unbound = || Error::Unbound { tensor: format!("the weights of {name}"), set };
        Ok(Source::Repacked(repacked.ok_or_else(unbound)?))
    }

    /// Converts a stage of the plan to a stage of a kernel.
    fn bind_stage(
        &self,
        set: usize,
        index: usize,
        weights: Option<Source>,
        (waits, posts): Edges,
    ) -> Result<BoundStage> {
        let graph = self.plan.graph();
        let stage = &graph.stages[index];
        let (operation, epilogue) = operation_code(stage)?;
        let mut operands: Vec<_> = weights.into_iter().map(|weights| (Role::B, weights)).collect();
        for operand in &stage.operands {
            let role = match operand.kind {
                OperandKind::A => Role::A,
                OperandKind::Bias => Role::Bias,
                OperandKind::Residual => Role::Residual,
                OperandKind::Gain => Role::Gain,
                // The weights already contain both.
                OperandKind::B | OperandKind::Up => continue,
                // Query, key and value are columns of one matrix.
                OperandKind::Query => Role::A,
                OperandKind::Key | OperandKind::Value => continue,
                OperandKind::CachedKeys => Role::Keys,
                OperandKind::CachedValues => Role::Values,
                OperandKind::Lengths => Role::Lengths,
                OperandKind::Pages => Role::Pages,
                OperandKind::Rotary => Role::Rotary,
                OperandKind::Custom(_) => {
                    let why = format!("stage {} reads {:?}, which no kernel does", stage.name, operand.kind);
                    return Err(Error::Unsupported(why));
                }
            };
            let source = match graph.tensors[operand.tensor.0].data {
                DataType::Element => Source::Matrix(self.memory(set, operand.tensor)?),
                DataType::Int32 => Source::Integers(self.integers(set, operand.tensor)?),
            };
            operands.push((role, source));
        }
        let (heads, k) = heads_of(stage);
        let causal = matches!(&stage.op, Op::Attention(attention) if attention.causal);
        Ok(BoundStage {
            name: stage.name.clone(),
            operation,
            activation: activation_code(epilogue.activation),
            residual_first: epilogue.residual_first,
            images: images_of(stage),
            norm: norm_of(stage),
            tiles: tiles_of(stage),
            element: element_code(graph.element),
            index: index as u32,
            shape: (stage.m, stage.n, k),
            heads,
            causal,
            round: (0, 1),
            operands,
            out: self.memory(set, stage.out)?,
            waits,
            posts,
        })
    }

    /// Incoming and outgoing edges of stage `index`. In a decode kernel, edges that share slots are one.
    fn edges_of(&self, index: usize) -> Edges {
        let edges = || {
            let descriptors = self.plan.edges().iter().zip(&self.shared.descriptors.edges);
            descriptors.filter(|(_, edge)| edge.policy.slot_count > 0)
        };
        let waits = edges().filter(|(e, _)| e.dependence().consumer.0 == index).map(|(_, d)| *d);
        let posts = edges().filter(|(e, _)| e.dependence().producer.0 == index).map(|(_, d)| d.policy);
        let (mut waits, mut posts): Edges = (waits.collect(), posts.collect());
        waits.dedup_by_key(|edge| edge.policy.slot_base);
        posts.dedup_by_key(|policy| policy.slot_base);
        (waits, posts)
    }
}

/// Heads of an attention in the C ABI's form (default for other stages), and the reduction length, or the row
/// length that an attention with a cache reads.
fn heads_of(stage: &Stage) -> (ffi::cusync_heads, u32) {
    let raw = |heads: &Heads, capacity, pages: Option<u32>| ffi::cusync_heads {
        query_heads: heads.query,
        kv_heads: heads.kv,
        head_dim: heads.dim,
        capacity,
        pages: pages.unwrap_or(0),
    };
    match &stage.op {
        Op::Attend(Attend { heads, cache, .. }) => (raw(heads, cache.capacity, cache.pages), heads.columns()),
        Op::Attention(Attention { heads, cache, .. }) => {
            (raw(heads, cache.map_or(0, |cache| cache.capacity), None), stage.k)
        }
        Op::RotatedGemm(Rotated { heads, tokens }) => (raw(heads, *tokens, None), stage.k),
        Op::Gemm(_) | Op::GatedGemm | Op::Conv2d(_) | Op::Norm(_) | Op::Pool(_) | Op::Custom => {
            (ffi::cusync_heads::default(), stage.k)
        }
    }
}

/// C ABI code of a stage's operation, and its epilogue.
fn operation_code(stage: &Stage) -> Result<(u32, Epilogue)> {
    let none = Epilogue::from(Activation::Identity);
    match &stage.op {
        Op::Gemm(epilogue) => Ok((ffi::CUSYNC_GEMM, *epilogue)),
        Op::GatedGemm => Ok((ffi::CUSYNC_GATED_GEMM, none)),
        Op::RotatedGemm(_) => Ok((ffi::CUSYNC_GEMM, none)),
        Op::Conv2d(conv) => Ok((ffi::CUSYNC_CONV2D, conv.epilogue)),
        Op::Norm(_) => Ok((ffi::CUSYNC_NORM, none)),
        Op::Pool(_) => Ok((ffi::CUSYNC_POOL, none)),
        Op::Attend(_) => Ok((ffi::CUSYNC_ATTEND, none)),
        Op::Attention(_) => Ok((ffi::CUSYNC_ATTENTION, none)),
        Op::Custom => {
            let why = format!("stage {}: {} has no CUDA kernel yet", stage.name, stage.op.name());
            Err(Error::Unsupported(why))
        }
    }
}

/// The tiles that were planned and proved; those of a gated product count accumulators of gate and up.
fn tiles_of(stage: &Stage) -> ffi::cusync_tiles {
    let (rows, columns) = stage.out_tile();
    let per_column = if stage.op.is_gated() { 2 } else { 1 };
    ffi::cusync_tiles {
        rows,
        columns: columns * per_column,
        grid_m: stage.grid.0,
        grid_n: stage.grid.1,
        k_blocks: stage.k_blocks,
    }
}

/// Images of a convolution or pool; empty for other operations.
fn images_of(stage: &Stage) -> ffi::cusync_images {
    let (sliding, channels, mean) = match &stage.op {
        Op::Conv2d(conv) => (&conv.sliding, conv.channels, false),
        Op::Pool(pool) => (&pool.sliding, stage.n, pool.mean),
        Op::Gemm(_)
        | Op::GatedGemm
        | Op::RotatedGemm(_)
        | Op::Attention(_)
        | Op::Attend(_)
        | Op::Norm(_)
        | Op::Custom => {
            return Default::default();
        }
    };
    ffi::cusync_images {
        height: sliding.input.0,
        width: sliding.input.1,
        channels,
        out_height: sliding.output.0,
        out_width: sliding.output.1,
        filter_rows: sliding.filter.0,
        filter_cols: sliding.filter.1,
        stride_rows: sliding.stride.0,
        stride_cols: sliding.stride.1,
        padding_rows: sliding.padding.0,
        padding_cols: sliding.padding.1,
        mean: mean.into(),
    }
}

/// Parameters of a normalization; empty for other operations.
fn norm_of(stage: &Stage) -> ffi::cusync_norm {
    match &stage.op {
        Op::Norm(norm) => ffi::cusync_norm { centred: u32::from(norm.centred), epsilon: norm.epsilon },
        Op::Gemm(_)
        | Op::GatedGemm
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::Attention(_)
        | Op::Attend(_)
        | Op::Pool(_)
        | Op::Custom => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::Executor;
    use cusync_gen::choose;
    use cusync_gen::device::{Operation, Profile};

    use super::*;
    use crate::device::takes_alone;
    use crate::runtime::{Overrides, resolve_text};

    const PROMPT: &str = r#"Pipeline(name: "p", dims: { "B": 3, "S": 65, "D": 64, "C": 2100 }, stages: [
        Attention(name: "attend", qkv: "QKV(B*S,12*D)", heads: 8, kv_heads: 2, sequences: "B", causal: CAUSAL, CACHE
            out: "A(B*S,8*D)"),
    ])"#;

    /// The request for a stage's own launch, with the pointer of some memory.
    fn request(stage: &Stage) -> ffi::cusync_stage {
        let ((operation, _), (heads, k)) = (operation_code(stage).expect("a kernel"), heads_of(stage));
        let causal = matches!(&stage.op, Op::Attention(attention) if attention.causal);
        let rows = k.min(ffi::CUSYNC_PROMPT_TOKENS);
        let (first, step) = if causal { (rows, rows) } else { (k, 0) };
        let data = std::ptr::without_provenance_mut::<std::ffi::c_void>(1 << 12);
        let mut raw = ffi::cusync_stage {
            operation,
            m: stage.m,
            n: stage.n,
            k: ffi::cusync_depth { first, step, most: k },
            tiles: tiles_of(stage),
            heads,
            out: data,
            ..Default::default()
        };
        let mut roles = vec![ffi::CUSYNC_OPERAND_A];
        if heads.capacity > 0 {
            roles.extend([ffi::CUSYNC_OPERAND_KEYS, ffi::CUSYNC_OPERAND_VALUES]);
        }
        for (to, role) in raw.operands.iter_mut().zip(&roles) {
            *to = ffi::cusync_operand { data, role: *role, read_at: ffi::CUSYNC_READ_IN_K_LOOP };
        }
        raw.operand_count = roles.len() as u32;
        raw
    }

    /// The library accepts the planned tiles of sequences of any length, and no others.
    #[test]
    fn the_library_takes_the_planned_tiles_of_prompts() {
        let h100 = Profile::named("h100").expect("it ships");
        let cache = r#"cache: Cache(keys: "K(B,2,C,D)", values: "V(B,2,C,D)"),"#;
        for (tokens, sequences, columns) in [1, 17, 64, 65, 100, 128, 197, 200, 256, 900, 2048]
            .into_iter()
            .flat_map(|tokens| [(tokens, 1, 64), (tokens, 3, 64), (tokens, 3, 128)])
        {
            for (causal, cache) in [("false", ""), ("true", ""), ("true", cache)] {
                let source = PROMPT.replace("CAUSAL", causal).replace("CACHE", cache);
                let dims = [("S", tokens), ("B", sequences), ("D", columns)];
                let dims = dims.map(|(name, size)| (name.to_owned(), size)).to_vec();
                let overrides = Overrides { dims, ..Overrides::default() };
                let resolved = resolve_text(&source, "p", &overrides).unwrap_or_else(|e| panic!("{e}"));
                let chosen =
                    choose::candidate(&resolved, h100, Executor::Serial).expect("a kernel of its own");
                let stage = &chosen.graph.stages[0];
                assert_eq!(chosen.launch.kernels()[0].kernel, StageKernel::Alone);
                let id = ffi::cusync_kernel_id {
                    operations: 1 << ffi::CUSYNC_ATTENTION,
                    ..alone_id(element_code(chosen.graph.element))
                };
                let raw = request(stage);
                let Some(taken) = takes_alone(&id, &raw) else {
                    println!("skipped: needs kernels, and no GPU");
                    return;
                };
                assert!(
                    taken,
                    "{tokens} x {sequences} x {columns} causal: {causal} {cache}: {:?}",
                    raw.tiles
                );
                let grid_m = raw.tiles.grid_m + 1;
                let other = ffi::cusync_stage { tiles: ffi::cusync_tiles { grid_m, ..raw.tiles }, ..raw };
                assert_eq!(takes_alone(&id, &other), Some(false), "a row of tiles too many");
            }
        }
    }

    #[test]
    fn operations_have_the_numbers_of_the_c_abi() {
        let pairs = [
            (Operation::Gemm, ffi::CUSYNC_GEMM),
            (Operation::GatedGemm, ffi::CUSYNC_GATED_GEMM),
            (Operation::Conv2d, ffi::CUSYNC_CONV2D),
            (Operation::Attention, ffi::CUSYNC_ATTENTION),
            (Operation::Norm, ffi::CUSYNC_NORM),
            (Operation::Attend, ffi::CUSYNC_ATTEND),
            (Operation::Pool, ffi::CUSYNC_POOL),
        ];
        for (operation, number) in pairs {
            assert_eq!(operation as u32, number, "{operation:?}");
        }
    }
}
