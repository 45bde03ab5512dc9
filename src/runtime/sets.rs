//! Random inputs and weights, shared by several pipelines of one shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use cusync_gen::graph::{Graph, OperandKind, PAGE, TensorId};

use super::error::{Error, Result};
use super::pipeline::{Integers, Pipeline, TensorBuffer};
use crate::device::{Device, DeviceBuffer, RepackedWeights, Stream, element_code, helpers};
use crate::inputs::sequences::appended;
use crate::inputs::{Values, cached, weight_scale};

/// Sets of inputs. Each set has its own weights and attention caches, so that rotating among sets keeps them
/// out of the L2 cache; all sets share the other inputs (activations, biases, residuals, lengths).
#[derive(Clone, Debug)]
pub struct InputSets {
    sets: Vec<Set>,
}

#[derive(Clone, Debug)]
struct Set {
    tensors: Vec<(String, TensorBuffer)>,
    /// Lengths and pages of caches.
    integers: Vec<(String, Integers)>,
    /// Interleaved gate and up weights of each gated stage.
    packed: Vec<(String, TensorBuffer)>,
    /// Weights of each stage, repacked for one number of workers.
    repacked: Vec<(String, Arc<RepackedWeights>)>,
}

impl InputSets {
    /// Creates `sets` sets of random inputs for a graph.
    pub fn random(graph: &Graph, device: &Device, sets: usize, seed: u32) -> Result<InputSets> {
        if let Some(why) = cached::too_few_pages(graph) {
            return Err(Error::Unsupported(why));
        }
        let stream = Stream::new(device)?;
        let element = element_code(graph.element);
        let mut made: Vec<Set> = Vec::new();
        for set in 0..sets {
            let (mut tensors, mut integers) = (Vec::new(), Vec::new());
            for (index, tensor) in graph.tensors.iter().enumerate().filter(|(_, t)| t.producer.is_none()) {
                // Caches are read like weights: once per run, and too large to stay in the L2 cache.
                let weight = weight_scale(graph, TensorId(index));
                if let (None, false, Some(first)) = (weight, tensor.state, made.first()) {
                    tensors.extend(first.tensors.iter().find(|(n, _)| *n == tensor.name).cloned());
                    integers.extend(first.integers.iter().find(|(n, _)| *n == tensor.name).cloned());
                    continue;
                }
                match cached::values(graph, TensorId(index), seed.into()) {
                    Some(Values::Integers(numbers)) => {
                        let buffer = DeviceBuffer::from_slice(device, &numbers, &tensor.name)?;
                        integers.push((tensor.name.clone(), Arc::new(buffer)));
                        continue;
                    }
                    Some(Values::Bits(bits)) => {
                        let buffer = DeviceBuffer::from_slice(device, &bits, &tensor.name)?;
                        tensors.push((tensor.name.clone(), Arc::new(buffer)));
                        continue;
                    }
                    None => {}
                }
                let len = tensor.elements() as usize;
                let buffer = DeviceBuffer::new(device, len, &tensor.name)?;
                let seed = seed.wrapping_add((set * graph.tensors.len() + index) as u32);
                helpers::fill_random(&buffer, element, weight.unwrap_or(1.0), seed, &stream)?;
                tensors.push((tensor.name.clone(), Arc::new(buffer)));
            }
            let packed = pack(graph, &tensors, device, &stream)?;
            made.push(Set { tensors, integers, packed, repacked: Vec::new() });
        }
        stream.synchronize()?;
        Ok(InputSets { sets: made })
    }

    /// Fills the cache of every sequence with the number of tokens assumed by time predictions, less the new
    /// one.
    ///
    /// # Errors
    /// A cache has too few pages for this many tokens of every sequence, or memory is short.
    pub fn fill_caches(&mut self, graph: &Graph, device: &Device) -> Result<()> {
        for (tensor, lengths) in expected_lengths(graph)? {
            let name = &graph.tensors[tensor.0].name;
            self.put_integers(name, &Arc::new(DeviceBuffer::from_slice(device, &lengths, name)?));
        }
        Ok(())
    }

    /// Replaces lengths or page numbers in every set.
    pub fn put_integers(&mut self, name: &str, values: &Integers) {
        let named = self.sets.iter_mut().flat_map(|set| &mut set.integers).filter(|(n, _)| n == name);
        named.for_each(|(_, old)| *old = values.clone());
    }

    /// Binds every set to a pipeline of the same graph. Keeps and shares the weights that a decode plan
    /// repacks: pass pipelines with the same number of workers.
    pub fn bind_decode(&mut self, pipeline: &mut Pipeline) -> Result<()> {
        self.bind(pipeline)?;
        let names: Vec<String> = pipeline.plan().graph().stages.iter().map(|s| s.name.clone()).collect();
        for (index, set) in self.sets.iter().enumerate() {
            for (stage, weights) in &set.repacked {
                pipeline.bind_repacked(index, stage, weights.clone())?;
            }
        }
        pipeline.prepare()?;
        for (index, set) in self.sets.iter_mut().enumerate() {
            let laid = names.iter().filter_map(|n| Some((n.clone(), pipeline.repacked(index, n)?)));
            set.repacked = laid.collect();
        }
        Ok(())
    }

    /// Binds every set to a pipeline of the same graph.
    pub fn bind(&self, pipeline: &mut Pipeline) -> Result<()> {
        for (index, set) in self.sets.iter().enumerate() {
            for (name, tensor) in &set.tensors {
                pipeline.bind_read(index, name, tensor.clone())?;
            }
            for (name, tensor) in &set.integers {
                pipeline.bind_integers_in(index, name, tensor.clone())?;
            }
            for (stage, packed) in &set.packed {
                pipeline.bind_packed(index, stage, packed.clone())?;
            }
        }
        Ok(())
    }
}

/// Tensors of lengths, with the number of tokens that time predictions assume for each sequence, less the new
/// ones: the minimum over all attentions that read them.
fn expected_lengths(graph: &Graph) -> Result<BTreeMap<TensorId, Vec<i32>>> {
    let mut all = BTreeMap::<TensorId, Vec<i32>>::new();
    for stage in &graph.stages {
        let (Some(tokens), Some(operand)) = (stage.op.expected(), stage.operand(OperandKind::Lengths)) else {
            continue;
        };
        let (sequences, new) = appended(stage).unwrap_or((stage.m, 1));
        let pool = stage.op.cache().and_then(|cache| cache.pages);
        if let Some(pages) = pool.filter(|_| cached::room(stage) < Some(tokens)) {
            let need = sequences * tokens.div_ceil(PAGE);
            return Err(Error::Unsupported(format!(
                "stage {}: {tokens} tokens of each of {sequences} sequences take {need} pages, and the pool has {pages}\n  help: \
                 give the cache {need} pages or more, or state `expected`, the tokens that a sequence has",
                stage.name
            )));
        }
        let length = tokens.saturating_sub(new) as i32;
        let lengths = all.entry(operand.tensor).or_insert_with(|| vec![length; sequences as usize]);
        lengths.iter_mut().for_each(|known| *known = length.min(*known));
    }
    Ok(all)
}

fn pack(
    graph: &Graph,
    tensors: &[(String, TensorBuffer)],
    device: &Device,
    stream: &Stream,
) -> Result<Vec<(String, TensorBuffer)>> {
    let mut packed = Vec::new();
    for stage in graph.stages.iter().filter(|s| s.op.is_gated()) {
        let find = |kind| {
            let operand = stage.operand(kind)?;
            let name = &graph.tensors[operand.tensor.0].name;
            tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t)
        };
        let (Some(gate), Some(up)) = (find(OperandKind::B), find(OperandKind::Up)) else {
            return Err(Error::Unsupported(format!(
                "stage {}: gate and up weights must be inputs of the pipeline",
                stage.name
            )));
        };
        let name = format!("packed weights of {}", stage.name);
        let both = DeviceBuffer::new(device, gate.len() + up.len(), &name)?;
        helpers::pack_gated(gate, up, &both, stage.k, stage.n, stream)?;
        packed.push((stage.name.clone(), Arc::new(both)));
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_filled_with_pages_of_ones_own_or_not_at_all() {
        let lengths = |pool: u32, expected: &str| {
            let source = format!(
                r#"Pipeline(name: "p", dims: {{}}, stages: [
                    Attention(name: "a", qkv: "QKV(4,192)", heads: 1, pages: "P(4,3)", {expected} out: "A(4,64)",
                        cache: Cache(keys: "K({pool},1,64,64)", values: "V({pool},1,64,64)", lengths: "n(4)"))])"#
            );
            let resolved =
                cusync_gen::spec::parse(&source, "test").and_then(|s| s.resolve(&[])).expect("valid");
            let graph = resolved.graph(&[(1, 64, 192)]).expect("valid");
            expected_lengths(&graph).map(|all| all.into_values().collect::<Vec<_>>())
        };
        assert_eq!(lengths(12, ""), Ok(vec![vec![191; 4]]));
        assert_eq!(lengths(9, r#"expected: "128","#), Ok(vec![vec![127; 4]]));
        let text = lengths(9, "").expect_err("9 pages of 12").to_string();
        assert!(text.contains("take 12 pages, and the pool has 9"), "{text}");
    }
}
