//! Decode plans process few tokens, so weights are repacked once into the order in which each SM streams
//! them.
//!
//! Repacked weights belong to a set of inputs, like bound tensors: [`Pipeline::prepare`] creates them unless
//! [`Pipeline::bind_repacked`] supplied them. Afterward only verification reads the originals, and
//! [`Pipeline::release_originals`] drops them. Binding a weight again repacks it.

use std::sync::Arc;

use cusync_gen::graph::{Graph, Op, OperandKind, Stage};
use cusync_gen::schedule::decode::{is_in_pairs, parts_of};

use super::error::{Error, Result};
use super::pipeline::Pipeline;
use crate::device::RepackedWeights;

/// Weights of a stage: operand B, or gate and up if gated.
fn is_weight(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::B | OperandKind::Up)
}

/// Tensors that only repacking reads. Results have no readers, and are no weights.
fn originals(graph: &Graph) -> Vec<usize> {
    let reads =
        |tensor: usize| graph.stages.iter().flat_map(|s| &s.operands).filter(move |o| o.tensor.0 == tensor);
    let weight =
        |tensor: &usize| reads(*tensor).next().is_some() && reads(*tensor).all(|o| is_weight(o.kind));
    (0..graph.tensors.len()).filter(weight).collect()
}

impl Pipeline {
    /// Binds repacked weights of stage `name` in place of the tensors. They must have as many parts as the
    /// plan cuts the stage's output into, or half as many if pairs of workers run the stage. Call it after
    /// binding the tensors, if you bind them at all.
    ///
    /// # Errors
    /// The plan is not a decode plan, or has no such stage.
    pub fn bind_repacked(&mut self, set: usize, name: &str, weights: Arc<RepackedWeights>) -> Result<()> {
        let found = self.plan.graph().stages.iter().position(|s| s.name == name);
        let Some(stage) = found.filter(|_| self.plan.launch().shares().is_some()) else {
            return Err(Error::Unsupported(format!(
                "{name} is not a stage of a decode plan of this pipeline"
            )));
        };
        let slot = self.set_mut(set)?;
        slot.repacked[stage] = Some(weights);
        slot.changed();
        Ok(())
    }

    /// Repacked weights of stage `name`, once the pipeline is prepared; other pipelines may share them.
    pub fn repacked(&self, set: usize, name: &str) -> Option<Arc<RepackedWeights>> {
        let stage = self.plan.graph().stages.iter().position(|s| s.name == name)?;
        self.sets.get(set)?.repacked[stage].clone()
    }

    /// Takes the repacked weights of another pipeline, such as one for another number of rows, for every stage that has
    /// none and cuts its output into as many parts. Returns whether every stage then has its weights.
    ///
    /// # Errors
    /// One of the two is no decode plan.
    pub fn share_repacked(&mut self, set: usize, other: &Pipeline) -> Result<bool> {
        let (Some(ours), Some(_)) = (self.plan.launch().shares(), other.plan.launch().shares()) else {
            return Err(Error::Unsupported("only decode plans have repacked weights".into()));
        };
        let workers = ours.workers();
        let mut complete = true;
        self.set_mut(set)?;
        for index in 0..self.plan.graph().stages.len() {
            let stage = &self.plan.graph().stages[index];
            if self.sets[set].repacked[index].is_some() || !stage.operands.iter().any(|o| is_weight(o.kind)) {
                continue;
            }
            let (name, parts) = (stage.name.clone(), self.layout_parts(stage, workers));
            match other.repacked(0, &name).filter(|weights| weights.parts() == parts) {
                Some(weights) => self.bind_repacked(set, &name, weights)?,
                None => complete = false,
            }
        }
        Ok(complete)
    }

    /// Repacked weights of a set's stages.
    pub fn all_repacked(&self, set: usize) -> impl Iterator<Item = &Arc<RepackedWeights>> {
        self.sets.get(set).into_iter().flat_map(|set| set.repacked.iter().flatten())
    }

    /// Parts into which the weights of a stage are laid out.
    fn layout_parts(&self, stage: &Stage, workers: u32) -> u32 {
        if is_in_pairs(self.plan.graph(), stage, workers) { workers / 2 } else { parts_of(stage, workers) }
    }

    /// Repacks the weights of a decode plan and drops the originals; their memory is freed when the last other
    /// reference goes. Later calls that need the originals, such as the reference, are refused.
    ///
    /// # Errors
    /// A weight is not bound, or memory is short.
    pub fn release_originals(&mut self) -> Result<()> {
        let Some(workers) = self.plan.launch().shares().map(|shares| shares.workers()) else {
            return Ok(());
        };
        self.main.synchronize()?;
        (0..self.sets.len()).try_for_each(|set| self.repack(set, workers))?;
        let weights = originals(self.plan.graph());
        for set in &mut self.sets {
            weights.iter().for_each(|&tensor| set.bound[tensor] = None);
            set.packed.iter_mut().for_each(|packed| *packed = None);
        }
        Ok(())
    }

    /// Repacks the weights of a set that have not been repacked yet, and waits until that is done.
    pub(super) fn repack(&mut self, set: usize, workers: u32) -> Result<()> {
        for index in 0..self.plan.graph().stages.len() {
            if self.sets[set].repacked[index].is_some() {
                continue;
            }
            let stage = &self.plan.graph().stages[index];
            if !stage.operands.iter().any(|o| is_weight(o.kind)) {
                continue;
            }
            let weights = self.operand(set, stage, OperandKind::B)?;
            let up = stage.op.is_gated().then(|| self.operand(set, stage, OperandKind::Up));
            let up = up.transpose()?;
            let size = (stage.k, stage.n);
            let parts = self.layout_parts(stage, workers);
            let gain =
                matches!(stage.op, Op::NormedGemm(_)).then(|| self.operand(set, stage, OperandKind::Gain));
            let gain = gain.transpose()?;
            let gain = gain.as_deref().map(|gain| (gain, self.plan.graph().element));
            let repacked = RepackedWeights::new(&weights, up.as_deref(), gain, size, parts, &self.main)?;
            self.main.synchronize()?;
            self.sets[set].repacked[index] = Some(Arc::new(repacked));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::Executor;
    use cusync_gen::choose;
    use cusync_gen::device::Profile;

    use super::*;
    use crate::runtime::{Overrides, resolve_text};

    #[test]
    fn results_and_gains_are_no_originals_of_laid_out_weights() {
        let spec = r#"Pipeline(name: "p", dims: { "M": 4, "H": 256, "I": 512 }, stages: [
            GatedGemm(name: "gate_up", a: "X(M,H)", gate: "Wg(H,I)", up: "Wu(H,I)", out: "Y(M,I)",
                input_norm: InputNorm(gain: "g(H)")),
            Gemm(name: "down", a: "Y(M,I)", b: "Wd(I,H)", residual: "X(M,H)", out: "Z(M,H)"),
        ])"#;
        let resolved = resolve_text(spec, "p", &Overrides::default()).expect("valid");
        let profile = Profile::named("h100").expect("it ships");
        let plan = choose::plan(&resolved, profile, Executor::Fused).expect("proved");
        assert!(plan.launch().shares().is_some());
        let graph = plan.graph();
        let names: Vec<_> =
            originals(graph).into_iter().map(|tensor| graph.tensors[tensor].name.as_str()).collect();
        assert_eq!(names, ["Wg", "Wu", "Wd"]);
    }
}
