//! The tensors of a pipeline: memory that callers bind, in sets, and the memory of results.

use std::ops::Range;
use std::sync::Arc;

use cusync_gen::graph::{DataType, Graph, Operand, OperandKind, Stage, TensorId};

use super::bound;
use super::error::{Error, Result};
use super::outputs;
use super::pipeline::{Integers, Pipeline, Set, TensorBuffer};
use crate::device::{DeviceBuffer, Plain};
use crate::element::transposed;

/// Whether a run loads a tensor before it waits for earlier runs: the weights of a product.
fn constant(graph: &Graph, tensor: usize) -> bool {
    let weight = |o: &Operand| o.tensor.0 == tensor && matches!(o.kind, OperandKind::B | OperandKind::Up);
    graph.stages.iter().any(|s| s.operands.iter().any(weight))
}

/// Whether two buffers are the same memory: kernels, which have its address, stay.
fn same<T: Plain>(before: Option<&Arc<DeviceBuffer<T>>>, after: Option<&Arc<DeviceBuffer<T>>>) -> bool {
    before.map(|buffer| buffer.addresses()) == after.map(|buffer| buffer.addresses())
}

impl Pipeline {
    /// Binds an input, a weight or a result in set 0.
    pub fn bind(&mut self, name: &str, tensor: TensorBuffer) -> Result<()> {
        self.bind_in(0, name, tensor)
    }

    /// Binds an input, a weight or a result in a set. Sets are numbered from 0; naming the next number
    /// creates that set. A result that shares no memory with other tensors is written in place; unbound
    /// results use memory of the pipeline. Derived copies are made when a set is first used: gate and up
    /// weights of a gated GEMM are interleaved, all weights of a decode plan are repacked, and `library` may
    /// transpose weights. Bind weights again after changing them. Tensors that are neither operand B nor gain, and
    /// are bound to the memory that they have, cost nothing, also while a graph is captured.
    ///
    /// Weights that the spec keeps as N x K (`layout: NK`) are copied and transposed, through the host, by this
    /// call, so they must have their values before it; the memory is not used afterwards.
    pub fn bind_in(&mut self, set: usize, name: &str, tensor: TensorBuffer) -> Result<()> {
        let index = self.bindable(name, DataType::Element, tensor.len())?;
        let shape = &self.plan.graph().tensors[index];
        if !shape.transposed {
            return self.bind_read(set, name, tensor);
        }
        let mut bits = vec![0; tensor.len()];
        self.device().synchronize()?;
        tensor.download(&mut bits)?;
        let bits = transposed(&bits, shape.caller_shape().1 as usize);
        self.bind_read(set, name, Arc::new(DeviceBuffer::from_slice(self.device(), &bits, name)?))
    }

    /// [`Pipeline::bind_in`] for memory in the shape in which stages read it.
    pub(crate) fn bind_read(&mut self, set: usize, name: &str, tensor: TensorBuffer) -> Result<()> {
        let index = self.bindable(name, DataType::Element, tensor.len())?;
        let graph = self.plan.graph();
        self.may_bind(set, name, Some(index), constant(graph, index), &*tensor)?;
        if graph.tensors[index].producer.is_some() || graph.tensors[index].state {
            tensor.written_by_runs();
        }
        // Packed forms of the old weights, and of those that an old gain multiplied, are stale.
        let laid_out = |kind| matches!(kind, OperandKind::B | OperandKind::Up | OperandKind::Gain);
        let uses = |s: &Stage| s.operands.iter().any(|o| o.tensor.0 == index && laid_out(o.kind));
        let stale: Vec<usize> =
            graph.stages.iter().enumerate().filter(|(_, s)| uses(s)).map(|(i, _)| i).collect();
        let slot = self.set_mut(set)?;
        let before = slot.bound[index].replace(tensor);
        if stale.is_empty() && same(before.as_ref(), slot.bound[index].as_ref()) {
            return Ok(());
        }
        slot.changed();
        for stage in stale {
            slot.packed[stage] = None;
            slot.repacked[stage] = None;
        }
        Ok(())
    }

    /// Forgets the memory bound to a tensor of set 0: it may be bound to another tensor, or be freed.
    ///
    /// # Errors
    /// There is no such input or result.
    pub fn unbind(&mut self, name: &str) -> Result<()> {
        let index = self.open_tensor(name)?;
        let slot = self.set_mut(0)?;
        (slot.bound[index], slot.integers[index]) = (None, None);
        slot.changed();
        Ok(())
    }

    /// Binds lengths or page numbers in set 0: see [`Pipeline::bind_integers_in`].
    pub fn bind_integers(&mut self, name: &str, tensor: Integers) -> Result<()> {
        self.bind_integers_in(0, name, tensor)
    }

    /// Binds lengths or page numbers in a set. Kernels read them in every run, so writes to their memory
    /// between runs, in stream order, affect the next run; values out of range are detected then.
    pub fn bind_integers_in(&mut self, set: usize, name: &str, tensor: Integers) -> Result<()> {
        let index = self.bindable(name, DataType::Int32, tensor.len())?;
        self.may_bind(set, name, Some(index), false, &*tensor)?;
        let slot = self.set_mut(set)?;
        let before = slot.integers[index].replace(tensor);
        if !same(before.as_ref(), slot.integers[index].as_ref()) {
            slot.changed();
        }
        Ok(())
    }

    /// Index of the input or result of that name, if it can be bound.
    fn open_tensor(&self, name: &str) -> Result<usize> {
        let graph = self.plan.graph();
        let tensors = &graph.tensors;
        let alone =
            |id: TensorId| tensors[id.0].alias.is_none() && tensors.iter().all(|t| t.alias != Some(id));
        let open = |i: usize| {
            tensors[i].producer.is_none() || outputs(graph).any(|id| id == TensorId(i) && alone(id))
        };
        tensors.iter().position(|t| t.name == name).filter(|&i| open(i)).ok_or_else(|| {
            let known: Vec<_> =
                (0..tensors.len()).filter(|&i| open(i)).map(|i| tensors[i].name.as_str()).collect();
            Error::NotBindable(name.into(), known.join(", "))
        })
    }

    /// Index of the input or result of that name, which must take `have` elements of this kind.
    fn bindable(&self, name: &str, data: DataType, have: usize) -> Result<usize> {
        let index = self.open_tensor(name)?;
        let tensors = &self.plan.graph().tensors;
        if tensors[index].data != data {
            let (is, with) = match tensors[index].data {
                DataType::Element => ("of the element type", "`bind`"),
                DataType::Int32 => ("of int32", "`bind_integers`"),
            };
            return Err(Error::Unsupported(format!("{name} is a tensor {is}: bind it with {with}")));
        }
        let want = tensors[index].elements() as usize;
        if have != want {
            return Err(crate::device::Error::Length { what: name.into(), have, want }.into());
        }
        Ok(index)
    }

    /// Binds interleaved gate and up weights of stage `name` ([`helpers::pack_gated`]) in place of the two
    /// tensors. Call it after binding the tensors, if you bind them at all.
    pub fn bind_packed(&mut self, set: usize, name: &str, packed: TensorBuffer) -> Result<()> {
        let found = self.plan.graph().stages.iter().position(|s| s.name == name && s.op.is_gated());
        let Some(stage) = found else {
            return Err(Error::Unsupported(format!("{name} is not a gated stage of this pipeline")));
        };
        self.may_bind(set, &format!("the packed weights of {name}"), None, true, &packed)?;
        let slot = self.set_mut(set)?;
        slot.packed[stage] = Some(packed);
        slot.changed();
        Ok(())
    }

    /// Checks memory that is about to be bound against the proof: see [`bound`].
    fn may_bind<T: Plain>(
        &self,
        set: usize,
        name: &str,
        index: Option<usize>,
        constant: bool,
        tensor: &DeviceBuffer<T>,
    ) -> Result<()> {
        let tensors = &self.plan.graph().tensors;
        fn taken<T: Plain>(
            list: &[Option<Arc<DeviceBuffer<T>>>],
        ) -> impl Iterator<Item = (usize, Range<usize>)> {
            list.iter().enumerate().filter_map(|(i, tensor)| Some((i, tensor.as_ref()?.addresses())))
        }
        let none = Set::default();
        let bound = self.sets.get(set).unwrap_or(&none);
        let all = taken(&self.shared.outputs).chain(taken(&bound.bound)).chain(taken(&bound.integers));
        let known = all.filter(|(i, _)| Some(*i) != index).map(|(i, bytes)| bound::Known {
            name: tensors[i].name.clone(),
            bytes,
            written: tensors[i].producer.is_some() || tensors[i].state,
        });
        let new = bound::New { name, bytes: tensor.addresses(), constant, output: tensor.is_written() };
        bound::conflict(&new, &known.collect::<Vec<_>>())
            .map_or(Ok(()), |conflict| Err(Error::Bound(conflict)))
    }

    pub(super) fn set_mut(&mut self, set: usize) -> Result<&mut Set> {
        let (tensors, stages) = (self.plan.graph().tensors.len(), self.plan.graph().stages.len());
        let have = self.sets.len();
        if set > have {
            return Err(Error::Unsupported(format!("set {set} was bound before set {have}")));
        }
        if set == have {
            self.sets.push(Set {
                bound: vec![None; tensors],
                integers: vec![None; tensors],
                packed: vec![None; stages],
                repacked: vec![None; stages],
                ..Set::default()
            });
        }
        Ok(&mut self.sets[set])
    }

    /// Memory of a tensor: the pipeline's output, or the memory bound in a set. That of weights which the spec keeps as
    /// N x K is K x N.
    pub fn tensor(&self, set: usize, name: &str) -> Result<TensorBuffer> {
        let tensors = &self.plan.graph().tensors;
        let index = tensors.iter().position(|t| t.name == name);
        let index = index.ok_or_else(|| Error::Unsupported(format!("this pipeline has no tensor {name}")))?;
        self.memory(set, TensorId(index))
    }

    pub(super) fn memory(&self, set: usize, tensor: TensorId) -> Result<TensorBuffer> {
        let bound = self.sets.get(set).and_then(|s| s.bound[tensor.0].clone());
        bound
            .or_else(|| self.shared.outputs[tensor.0].clone())
            .ok_or_else(|| Error::Unbound { tensor: self.plan.graph().tensors[tensor.0].name.clone(), set })
    }

    /// Memory of a tensor of lengths or page numbers, as bound in a set.
    pub(super) fn integers(&self, set: usize, tensor: TensorId) -> Result<Integers> {
        let bound = self.sets.get(set).and_then(|s| s.integers[tensor.0].clone());
        bound.ok_or_else(|| Error::Unbound { tensor: self.plan.graph().tensors[tensor.0].name.clone(), set })
    }

    pub(super) fn operand(&self, set: usize, stage: &Stage, kind: OperandKind) -> Result<TensorBuffer> {
        let operand = stage.operand(kind).ok_or_else(|| {
            Error::Unsupported(format!("stage {} has no operand of kind {kind:?}", stage.name))
        })?;
        self.memory(set, operand.tensor)
    }
}
