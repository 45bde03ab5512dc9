//! Third-party GEMMs, stage after stage in a CUDA graph: the baselines that tile synchronization must beat.

use std::sync::Arc;

use cusync_gen::graph::{Activation, Op, OperandKind, TensorId};

use super::{Error, Result};
use cusync::device::{BoundStage, CublasLt, Device, DeviceBuffer, Stream, StreamK, helpers};
use cusync::measure::GraphVariant;
use cusync::runtime::verify::{Accuracy, Reference};
use cusync::runtime::{Pipeline, TensorBuffer, element_code};

/// A peer's GEMM, ready to launch: D = act(A B), or D = A B if it cannot fuse the activation.
pub trait PeerGemm {
    /// Queues one run.
    fn launch(&mut self, stream: &Stream) -> cusync::device::Result<()>;
    /// Whether `launch` applies the requested activation.
    fn fuses_activation(&self) -> bool;
}

impl PeerGemm for StreamK {
    fn launch(&mut self, stream: &Stream) -> cusync::device::Result<()> {
        StreamK::launch(self, stream)
    }
    fn fuses_activation(&self) -> bool {
        true
    }
}

impl PeerGemm for CublasLt {
    fn launch(&mut self, stream: &Stream) -> cusync::device::Result<()> {
        CublasLt::launch(self, stream)
    }
    fn fuses_activation(&self) -> bool {
        true
    }
}

/// Creates a peer's GEMM from a stage; the flag tells whether no stage writes its weights.
pub(super) type MakePeer<'a> = &'a mut dyn FnMut(&Device, BoundStage, bool) -> Result<Box<dyn PeerGemm>>;

/// A GEMM and, if the peer cannot fuse, the kernel that follows it.
struct Step {
    gemm: Box<dyn PeerGemm>,
    after: After,
}

enum After {
    Nothing,
    /// (product, result, activation)
    Activate(TensorBuffer, TensorBuffer, Activation),
    /// (packed product, result, (rows, columns) of the result, activation of the gate)
    Gate(TensorBuffer, TensorBuffer, (u32, u32), Activation),
}

/// All stages for every weight set, with separate buffers.
pub struct PeerChain {
    sets: Vec<Vec<Step>>,
    outputs: Vec<(TensorId, TensorBuffer)>,
    element: u32,
}

impl PeerChain {
    /// Builds the chain on the inputs of a prepared pipeline.
    ///
    /// # Errors
    /// Refuses stages that peers do not compute: those with bias or residual operands.
    pub(super) fn new(pipeline: &Pipeline, make: MakePeer<'_>) -> Result<PeerChain> {
        let (graph, device) = (pipeline.plan().graph(), pipeline.device());
        let element = element_code(graph.element);
        let mut outputs: Vec<(TensorId, TensorBuffer)> = Vec::new();
        let mut products: Vec<TensorBuffer> = Vec::new();
        for stage in &graph.stages {
            let columns = if stage.op.is_gated() { 2 * stage.n } else { stage.n };
            let new = |columns: u32| {
                DeviceBuffer::new(device, stage.m as usize * columns as usize, &stage.name).map(Arc::new)
            };
            outputs.push((stage.out, new(stage.n)?));
            products.push(new(columns)?);
        }
        let mut sets = Vec::new();
        for set in 0..pipeline.sets() {
            let mut steps = Vec::new();
            for (index, stage) in graph.stages.iter().enumerate() {
                let mut args = pipeline.bound_stage(set, index)?;
                if args.matrix(OperandKind::Bias).is_some() || args.matrix(OperandKind::Residual).is_some() {
                    return Err(Error::Argument(format!(
                        "stage {}: the peers of the benchmark compute no bias and no residual",
                        stage.name
                    )));
                }
                let source = stage.operand(OperandKind::A);
                let own = source.and_then(|o| outputs.iter().find(|(t, _)| *t == o.tensor));
                if let Some((_, own)) = own {
                    args.set(OperandKind::A, own.clone());
                }
                let result = outputs[index].1.clone();
                let (activation, gated) = (stage.op.epilogue().activation, stage.op.is_gated());
                // A gated stage is one product with gate and up side by side, followed by its activation.
                args.stage.n = args.packed_columns();
                args.stage.op = Op::Gemm(if gated { Activation::Identity } else { activation }.into());
                args.out = if gated { products[index].clone() } else { result.clone() };
                let weights = stage.operand(OperandKind::B);
                let constant = weights.is_some_and(|b| graph.tensors[b.tensor.0].producer.is_none());
                let mut gemm = make(device, args.clone(), constant)?;
                let mut after = After::Nothing;
                if gated {
                    after = After::Gate(products[index].clone(), result, (stage.m, stage.n), activation);
                } else if activation != Activation::Identity && !gemm.fuses_activation() {
                    args.out = products[index].clone();
                    args.stage.op = Op::Gemm(Activation::Identity.into());
                    gemm = make(device, args, constant)?;
                    after = After::Activate(products[index].clone(), result, activation);
                }
                steps.push(Step { gemm, after });
            }
            sets.push(steps);
        }
        Ok(PeerChain { sets, outputs, element })
    }

    fn enqueue(&mut self, set: usize, stream: &Stream) -> Result<()> {
        for step in &mut self.sets[set] {
            step.gemm.launch(stream)?;
            match &step.after {
                After::Nothing => {}
                After::Activate(x, d, activation) => {
                    helpers::activate(x, d, *activation, self.element, stream)?;
                }
                After::Gate(x, d, size, gate) => {
                    helpers::gated_activation(x, d, *size, *gate, self.element, stream)?;
                }
            }
        }
        Ok(())
    }

    /// Runs set 0 on poisoned outputs and compares. `pipeline`: owner of the inputs.
    pub(super) fn verify(&mut self, reference: &Reference, pipeline: &Pipeline) -> Result<Vec<Accuracy>> {
        let stream = pipeline.stream();
        for (_, output) in &self.outputs {
            output.fill_bytes(0xFF, stream)?;
        }
        self.enqueue(0, stream)?;
        stream.synchronize()?;
        Ok(reference.compare_outputs(pipeline, &self.outputs)?)
    }

    /// Captures `rounds` runs of every set, the sets in rotation.
    pub(super) fn into_graph(mut self, device: &Device, rounds: usize) -> Result<GraphVariant<PeerChain>> {
        let stream = Stream::new(device)?;
        let sets = self.sets.len();
        let graph =
            stream.capture(|| (0..rounds * sets).try_for_each(|run| self.enqueue(run % sets, &stream)))?;
        Ok(GraphVariant { graph, stream, owner: self })
    }
}
