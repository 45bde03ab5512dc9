//! Maps a plan's stages and a set's tensors to kernel arguments. This is the only place that describes the
//! stages of kernels, peers and references.

use cusync_gen::check::StageKernel;
use cusync_gen::graph::{DataType, OperandKind, StageId};
use cusync_gen::schedule::decode::rounds_in;

use super::error::{Error, Result};
use super::one::OneKernel;
use super::pipeline::{LaunchWork, Pipeline};
use crate::device::{
    self, BoundStage, Deviations, KernelArgs, OperandSource, Synchronisation, alone_id, element_code, gemm_id,
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
            None if stage.operand(OperandKind::B).is_none() => None,
            None => Some(self.operand(set, stage, OperandKind::B)?),
        };
        self.bind_stage(set, index, weights.map(OperandSource::Matrix), Edges::default())
    }

    /// Arguments of the kernel that runs stage `index` alone, without synchronization.
    pub fn alone(&self, set: usize, index: usize) -> Result<KernelArgs> {
        let stage = self.bound_stage(set, index)?;
        Ok(match &self.shared.work {
            LaunchWork::Stages { chains, .. } if let Some(one) = &chains[index] => {
                self.whole(format!("stage {}", stage.stage.name), one, vec![stage])
            }
            _ => {
                let launched = self.plan.launch().kernel(StageId(index));
                let alone = launched.is_some_and(|launched| launched.kernel == StageKernel::Alone);
                let deviations = if alone { self.deviations() } else { Deviations::default() };
                let report = alone.then(|| self.shared.report.clone());
                let sync = Synchronisation { deviations, report, ..Default::default() };
                let args = self.ordered(index, stage, false, sync);
                if alone { KernelArgs { id: alone_id(args.id.element), ..args } } else { args }
            }
        })
    }

    /// Arguments of the kernel that runs stage `index`, synchronized by semaphores.
    pub(super) fn tiled(&self, set: usize, index: usize) -> Result<KernelArgs> {
        let (waits, posts) = self.edges_of(index);
        let stage = BoundStage { waits, posts, ..self.bound_stage(set, index)? };
        let sync = match &self.shared.work {
            LaunchWork::Stages { semaphores, tickets, .. } => Synchronisation {
                semaphores: Some(semaphores.clone()),
                tickets: Some((tickets.clone(), index)),
                report: Some(self.shared.report.clone()),
                notes: self.shared.notes.clone(),
                timeout_ns: self.options.timeout_ns,
                deviations: self.deviations(),
                ..Synchronisation::default()
            },
            LaunchWork::One(_) => return Err(Error::Unsupported("one kernel runs all stages".into())),
        };
        Ok(self.ordered(index, stage, true, sync))
    }

    fn ordered(&self, index: usize, stage: BoundStage, drawn: bool, sync: Synchronisation) -> KernelArgs {
        let ((m, n, _), element) = (stage.stage.mma_tile, element_code(stage.element));
        KernelArgs {
            name: format!("stage {}", stage.stage.name),
            id: gemm_id(self.plan.device().arch, element, (m, n)),
            stages: vec![stage],
            work: device::WorkDistribution::Order { order: self.shared.descriptors.orders[index], drawn },
            sync,
            scratch: self.shared.scratch.clone(),
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
                group: self.group.clone(),
                ..one.sync.clone()
            },
            scratch: None,
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

    fn repacked_weights(&self, set: usize, index: usize) -> Result<OperandSource> {
        let repacked = self.sets.get(set).and_then(|s| s.repacked[index].clone());
        let name = &self.plan.graph().stages[index].name;
        let unbound = || Error::Unbound { tensor: format!("the weights of {name}"), set };
        Ok(OperandSource::Repacked(repacked.ok_or_else(unbound)?))
    }

    /// A stage of the plan with its memory.
    fn bind_stage(
        &self,
        set: usize,
        index: usize,
        weights: Option<OperandSource>,
        (waits, posts): Edges,
    ) -> Result<BoundStage> {
        let graph = self.plan.graph();
        let stage = &graph.stages[index];
        let mut operands: Vec<_> = weights.into_iter().map(|weights| (OperandKind::B, weights)).collect();
        for operand in &stage.operands {
            match operand.kind {
                // The weights already contain both.
                OperandKind::B => continue,
                OperandKind::Up if stage.op.is_gated() => continue,
                // Query, key and value are columns of one matrix.
                OperandKind::Key | OperandKind::Value => continue,
                OperandKind::A
                | OperandKind::Query
                | OperandKind::Up
                | OperandKind::Bias
                | OperandKind::Residual
                | OperandKind::Gain
                | OperandKind::CachedKeys
                | OperandKind::CachedValues
                | OperandKind::Lengths
                | OperandKind::Pages
                | OperandKind::Rotary
                | OperandKind::QueryGain
                | OperandKind::KeyGain
                | OperandKind::Router
                | OperandKind::Down
                | OperandKind::Custom(_) => {}
            }
            let source = match graph.tensors[operand.tensor.0].data {
                DataType::Element => OperandSource::Matrix(self.memory(set, operand.tensor)?),
                DataType::Int32 => OperandSource::Integers(self.integers(set, operand.tensor)?),
            };
            operands.push((operand.kind, source));
        }
        Ok(BoundStage {
            stage: stage.clone(),
            element: graph.element,
            index: index as u32,
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

#[cfg(test)]
mod tests {
    use cusync_gen::check::Executor;
    use cusync_gen::choose;
    use cusync_gen::device::{Operation, Profile};
    use cusync_gen::graph::{Activation, Graph, Stage};

    use super::*;
    use crate::device::{takes_alone, words};
    use crate::runtime::{Overrides, resolve_text};

    const PROMPT: &str = r#"Pipeline(name: "p", dims: { "B": 3, "S": 65, "D": 64, "C": 2100 }, stages: [
        Attention(name: "attend", qkv: "QKV(B*S,12*D)", heads: 8, kv_heads: 2, sequences: "B", causal: CAUSAL, CACHE
            out: "A(B*S,8*D)"),
    ])"#;

    /// The request for a stage's own launch, with the pointer of some memory.
    fn request(stage: &Stage) -> ffi::cusync_stage {
        let data = std::ptr::without_provenance_mut::<std::ffi::c_void>(1 << 12);
        let mut raw = words::stage(stage).expect("a kernel");
        raw.out = data;
        // Queries, keys and values are one operand.
        let mut operands: Vec<_> = stage.operands.iter().map(|o| words::operand(o.kind, data)).collect();
        operands.dedup_by_key(|operand| operand.role);
        raw.operands[..operands.len()].copy_from_slice(&operands);
        raw.operand_count = operands.len() as u32;
        raw
    }

    /// Whether the library takes a stage's request, and none with a row of tiles too many. `None`: it cannot be asked.
    fn taken(graph: &Graph, operation: Operation) -> Option<bool> {
        let id = ffi::cusync_kernel_id {
            operations: 1 << operation as u32,
            ..alone_id(element_code(graph.element))
        };
        let raw = request(&graph.stages[0]);
        let taken = takes_alone(&id, &raw)?;
        let grid_m = raw.tiles.grid_m + 1;
        let other = ffi::cusync_stage { tiles: ffi::cusync_tiles { grid_m, ..raw.tiles }, ..raw };
        assert_eq!(takes_alone(&id, &other), Some(false), "a row of tiles too many");
        Some(taken)
    }

    /// [`taken`] for the only stage of a spec, as `serial` plans it: alone.
    fn takes_planned(source: &str, operation: Operation) -> Option<bool> {
        let h100 = Profile::named("h100").expect("it ships");
        let resolved = resolve_text(source, "p", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let chosen = choose::candidate(&resolved, h100, Executor::Serial).expect("a kernel of its own");
        assert_eq!(chosen.launch.kernels()[0].kernel, StageKernel::Alone);
        let taken = taken(&chosen.graph, operation);
        if taken.is_none() {
            println!("skipped: needs kernels, and no GPU");
        }
        taken
    }

    #[test]
    fn the_library_takes_the_planned_groups_of_channels() {
        for (images, side, channels, groups) in
            [(1, 64, 320, 32), (5, 7, 64, 8), (2, 9, 40, 40), (3, 1, 24, 8), (1, 512, 8, 1)]
        {
            let shape = format!("{images},{side},{side},{channels}");
            let source = format!(
                r#"Pipeline(name: "g", dims: {{}}, stages: [GroupNorm(name: "norm", input: "X({shape})", groups: {groups},
                    gain: "g({channels})", bias: "b({channels})", epilogue: Silu, out: "N({shape})")])"#
            );
            assert_ne!(takes_planned(&source, Operation::GroupNorm), Some(false), "{source}");
        }
    }

    #[test]
    fn the_library_takes_the_planned_convolutions_in_groups() {
        for (images, filter, out) in [
            ("8,56,56,144", r#"filter: "F(3,3,1,144)", groups: 144, padding: (1,1)"#, "8,56,56,144"),
            (
                "2,9,40,24",
                r#"filter: "F(2,4,1,24)", groups: 24, stride: (1,3), dilation: (3,2)"#,
                "2,6,12,24",
            ),
            ("1,20,20,16", r#"filter: "F(15,17,1,16)", groups: 16, padding: (7,8)"#, "1,20,20,16"),
            ("3,7,7,64", r#"filter: "F(3,3,8,128)", groups: 8, bias: "b(128)", epilogue: Relu"#, "3,5,5,128"),
        ] {
            let source = format!(
                r#"Pipeline(name: "g", dims: {{}}, stages: [
                    Conv2d(name: "conv", input: "X({images})", {filter}, out: "Y({out})")])"#
            );
            assert_ne!(takes_planned(&source, Operation::GroupedConv), Some(false), "{source}");
        }
    }

    #[test]
    fn the_library_takes_the_planned_experts() {
        for (rows, width, experts, inner, top_k) in
            [(1, 2048, 128, 768, 8), (32, 4096, 8, 14336, 2), (77, 136, 512, 72, 16), (5000, 64, 8, 8, 8)]
        {
            let source = format!(
                r#"Pipeline(name: "e", dims: {{ "M": {rows}, "H": {width}, "E": {experts}, "I": {inner} }}, stages: [
                    Experts(name: "experts", x: "X(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)",
                        down: "D(E*H,I)", top_k: {top_k}, residual: "R(M,H)", out: "Y(M,H)")])"#
            );
            assert_ne!(takes_planned(&source, Operation::Experts), Some(false), "{source}");
        }
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
                assert_eq!(chosen.launch.kernels()[0].kernel, StageKernel::Alone);
                let Some(taken) = taken(&chosen.graph, Operation::Attention) else {
                    println!("skipped: needs kernels, and no GPU");
                    return;
                };
                let stage = &chosen.graph.stages[0];
                assert!(taken, "{tokens} x {sequences} x {columns} causal: {causal} {cache}: {stage:?}");
            }
        }
    }

    #[test]
    fn operations_and_activations_have_the_numbers_of_the_c_abi() {
        let pairs = [
            (Operation::Gemm, ffi::CUSYNC_GEMM),
            (Operation::GatedGemm, ffi::CUSYNC_GATED_GEMM),
            (Operation::Conv2d, ffi::CUSYNC_CONV2D),
            (Operation::Attention, ffi::CUSYNC_ATTENTION),
            (Operation::Norm, ffi::CUSYNC_NORM),
            (Operation::Attend, ffi::CUSYNC_ATTEND),
            (Operation::Pool, ffi::CUSYNC_POOL),
            (Operation::GroupNorm, ffi::CUSYNC_GROUP_NORM),
            (Operation::InputNorm, ffi::CUSYNC_INPUT_NORM),
            (Operation::GroupedConv, ffi::CUSYNC_GROUPED_CONV),
            (Operation::Experts, ffi::CUSYNC_EXPERTS),
        ];
        for (operation, number) in pairs {
            assert_eq!(operation as u32, number, "{operation:?}");
        }
        let activations = [
            ffi::CUSYNC_IDENTITY,
            ffi::CUSYNC_GELU_TANH,
            ffi::CUSYNC_RELU,
            ffi::CUSYNC_SILU,
            ffi::CUSYNC_GELU_ERF,
            ffi::CUSYNC_QUICK_GELU,
            ffi::CUSYNC_SQUARED_RELU,
            ffi::CUSYNC_RELU6,
            ffi::CUSYNC_HARD_SWISH,
            ffi::CUSYNC_SIGMOID,
            ffi::CUSYNC_TANH,
        ];
        assert_eq!(Activation::ALL.map(|activation| activation.number()), activations.map(Some));
    }

    #[test]
    fn experts_have_the_limits_of_the_c_abi() {
        let (experts, chosen) = (ffi::CUSYNC_MAX_EXPERTS, ffi::CUSYNC_MAX_TOP_K);
        for (count, top_k, beyond) in [
            (experts, chosen, None),
            (experts + 8, chosen, Some((experts + 8, experts))),
            (experts, chosen + 1, Some((chosen + 1, chosen))),
        ] {
            let source = format!(
                r#"Pipeline(name: "e", dims: {{ "E": {count} }}, stages: [Experts(name: "mix", x: "X(8,16)", router: "S(8,E)",
                    gate: "G(E*8,16)", up: "U(E*8,16)", down: "D(E*16,8)", top_k: {top_k}, out: "Y(8,16)")])"#
            );
            let resolved =
                resolve_text(&source, "e", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
            let h100 = Profile::named("h100").expect("it ships");
            let numbers = choose::obstacle(&resolved, h100, Executor::Serial).map(|why| why.numbers);
            assert_eq!(numbers, beyond.map(|(count, most)| Some((count.into(), most.into()))), "{source}");
        }
    }
}
