//! Decode plans: few tokens, so the weights are laid out anew, once, in the order in which each SM streams them.
//!
//! What is laid out belongs to a set of inputs, beside the tensors that were bound: [`Pipeline::prepare`] makes it of
//! them where [`Pipeline::bind_relaid`] has not brought it. The originals are then read no more, except to verify, and
//! [`Pipeline::release_originals`] lets go of them. Binding a weight again lays it out again.

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::graph::{Op, OperandKind, Stage};
use cusync_gen::schedule::decode::Decode;

use super::desc::{activation_code, element_code};
use super::error::{Error, Result};
use super::pipeline::Pipeline;
use crate::device::{
    DecodeArgs, DecodeMemory, DecodeMode, DecodeStage, DecodeTuning, DecodeWeights, Device, DeviceBuffer,
    Report,
};
use crate::ffi;

/// Made once a pipeline; the kernels of all its sets of inputs share it.
#[derive(Debug)]
pub(super) struct Shares {
    plan: Decode,
    memory: DecodeMemory,
    pub(super) trace: Option<Arc<DeviceBuffer<ffi::cusync_trace>>>,
}

impl Shares {
    pub(super) fn new(
        plan: &Plan,
        decode: &Decode,
        device: &Device,
        report: Arc<Report>,
        traced: bool,
    ) -> Result<Shares> {
        let (workers, slots) = (decode.workers as usize, plan.slot_count().max(1) as usize);
        let memory = DecodeMemory {
            semaphores: Arc::new(DeviceBuffer::zeroed(device, slots, "semaphores")?),
            epochs: Arc::new(DeviceBuffer::zeroed(device, workers, "run counts")?),
            report,
        };
        let records = workers * decode.stages.len();
        let trace = traced.then(|| DeviceBuffer::zeroed(device, records, "trace records")).transpose()?;
        Ok(Shares { plan: decode.clone(), memory, trace: trace.map(Arc::new) })
    }
}

/// The weights of a stage: operand B or, gated, gate and up.
fn is_weight(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::B | OperandKind::Up)
}

impl Pipeline {
    /// Binds the weights of stage `name` as a decode plan streams them, in place of the tensors themselves: laid out for
    /// as many workers as the plan has. Call it after binding those, if at all.
    ///
    /// # Errors
    /// The plan is not a decode plan, or has no such stage.
    pub fn bind_relaid(&mut self, set: usize, name: &str, weights: Arc<DecodeWeights>) -> Result<()> {
        let found = self.plan.graph().stages.iter().position(|s| s.name == name);
        let Some(stage) = found.filter(|_| self.plan.launch().shares().is_some()) else {
            return Err(Error::Unsupported(format!(
                "{name} is not a stage of a decode plan of this pipeline"
            )));
        };
        let slot = self.set_mut(set)?;
        slot.relaid[stage] = Some(weights);
        slot.kernels = None;
        Ok(())
    }

    /// The weights of stage `name` as a decode plan streams them, once the pipeline is prepared: other pipelines may share
    /// them.
    pub fn relaid(&self, set: usize, name: &str) -> Option<Arc<DecodeWeights>> {
        let stage = self.plan.graph().stages.iter().position(|s| s.name == name)?;
        self.sets.get(set)?.relaid[stage].clone()
    }

    /// Lets go of weights that a decode plan has laid out anew: their memory is free as soon as nobody else holds them. What
    /// needs the originals, such as the reference, is refused afterwards.
    ///
    /// # Errors
    /// See [`Pipeline::prepare`].
    pub fn release_originals(&mut self) -> Result<()> {
        self.prepare()?;
        if self.plan.launch().shares().is_none() {
            return Ok(());
        }
        let graph = self.plan.graph();
        let weight = |tensor: usize| {
            let mut reads = graph.stages.iter().flat_map(|s| &s.operands).filter(|o| o.tensor.0 == tensor);
            reads.all(|o| is_weight(o.kind))
        };
        let weights: Vec<usize> = (0..graph.tensors.len()).filter(|&t| weight(t)).collect();
        for set in &mut self.sets {
            weights.iter().for_each(|&tensor| set.bound[tensor] = None);
            set.packed.iter_mut().for_each(|packed| *packed = None);
        }
        Ok(())
    }

    /// Lays out the weights of a set that are not yet, and waits until that is done.
    pub(super) fn relay(&mut self, set: usize, workers: u32) -> Result<()> {
        for index in 0..self.plan.graph().stages.len() {
            if self.sets[set].relaid[index].is_some() {
                continue;
            }
            let stage = &self.plan.graph().stages[index];
            let weights = self.operand(set, stage, OperandKind::B)?;
            let up = (stage.op == Op::GatedGemm).then(|| self.operand(set, stage, OperandKind::Up));
            let up = up.transpose()?;
            let size = (stage.k, stage.n);
            let relaid = DecodeWeights::new(&weights, up.as_deref(), size, workers, &self.main)?;
            self.main.synchronize()?;
            self.sets[set].relaid[index] = Some(Arc::new(relaid));
        }
        Ok(())
    }

    /// Arguments of the decode kernel with a set's operands.
    pub(super) fn decode_args(&self, set: usize, shares: &Shares) -> Result<DecodeArgs> {
        let decode = &shares.plan;
        let graph = self.plan.graph();
        let stages = (0..graph.stages.len()).map(|index| self.decode_stage(set, index, decode));
        let options = &self.options;
        Ok(DecodeArgs {
            name: graph.name.clone(),
            element: element_code(graph.element),
            m: graph.stages.first().map_or(0, |s| s.m),
            width: decode.width,
            stages: stages.collect::<Result<_>>()?,
            memory: shares.memory.clone(),
            tuning: DecodeTuning::default(),
            mode: match options {
                o if o.stream_only => DecodeMode::StreamOnly,
                o if o.starve => DecodeMode::Starve,
                o if o.skip_waits => DecodeMode::SkipWaits,
                _ => DecodeMode::Run,
            },
            timeout_ns: options.timeout_ns,
            trace: shares.trace.clone(),
            delays: options.delays,
        })
    }

    fn decode_stage(&self, set: usize, index: usize, decode: &Decode) -> Result<DecodeStage> {
        let (stage, planned) = (&self.plan.graph().stages[index], &decode.stages[index]);
        let relaid = self.sets.get(set).and_then(|s| s.relaid[index].clone());
        let unbound = || Error::Unbound { tensor: format!("the weights of {}", stage.name), set };
        let optional = |kind| {
            let present = stage.operands.iter().any(|o| o.kind == kind);
            present.then(|| self.operand(set, stage, kind)).transpose()
        };
        Ok(DecodeStage {
            name: stage.name.clone(),
            weights: relaid.ok_or_else(unbound)?,
            a: self.operand(set, stage, OperandKind::A)?,
            d: self.memory(set, stage.out)?,
            bias: optional(OperandKind::Bias)?,
            residual: optional(OperandKind::Residual)?,
            activation: activation_code(stage.op.activation()),
            producer: planned.producer.map(|p| p.0 as u32),
            slot_base: planned.slot_base,
            stage: index as u32,
            edge: self.edge_of_a(index, stage),
        })
    }

    /// The edge that a stage's operand A waits for; past the last where it waits for none.
    fn edge_of_a(&self, index: usize, stage: &Stage) -> u32 {
        let edges = self.plan.edges();
        let found = edges.iter().position(|e| {
            let d = e.dependence();
            d.consumer.0 == index && stage.operands[d.operand].kind == OperandKind::A
        });
        found.unwrap_or(edges.len()) as u32
    }
}
