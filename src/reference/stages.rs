//! Verifies a run stage by stage, each from the operands that it read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cusync_gen::graph::{DataType, Graph, OperandKind, Stage, TensorId};
use rayon::prelude::*;

use super::bound::{Accuracy, Expected, judge, judge_given, relative_l2};
use super::{CustomReference, Given, Matrix, Operands, ReferenceError, Sums, apply, changed, product, round};
use crate::element::Bits;
use crate::inputs::Inputs;

/// Access to the tensors of a pipeline.
pub(crate) trait TensorValues {
    /// Values of a tensor; integers are converted to numbers.
    fn tensor(&self, id: TensorId) -> Result<Matrix, ReferenceError>;

    /// The product of two tensors, or of matrices in their place.
    fn product(
        &self,
        left: (TensorId, Option<&Matrix>),
        right: (TensorId, Option<&Matrix>),
    ) -> Result<Sums, ReferenceError> {
        let matrix =
            |(id, own): (TensorId, Option<&Matrix>)| own.cloned().map_or_else(|| self.tensor(id), Ok);
        Ok(product(&matrix(left)?, &matrix(right)?))
    }

    /// Whether a stage's product is rounded before its epilogue.
    fn rounds_product(&self, _stage: &Stage) -> bool {
        false
    }
}

/// The tensors of a device, some of them replaced by matrices.
#[derive(Clone, Copy)]
struct DeviceTensors<'a> {
    values: &'a dyn TensorValues,
    instead: &'a HashMap<TensorId, Matrix>,
}

/// The tensors of a device, and those of all devices of its group.
struct GroupTensors<'a> {
    own: DeviceTensors<'a>,
    group: &'a [DeviceTensors<'a>],
}

impl DeviceTensors<'_> {
    fn product(&self, stage: &Stage, right: OperandKind) -> Result<Sums, ReferenceError> {
        let factor = |kind| -> Result<_, ReferenceError> {
            let operand = stage.operand(kind).ok_or_else(|| ReferenceError::Shape(stage.name.clone()))?;
            Ok((operand, self.instead.get(&operand.tensor)))
        };
        let ((rows, own), (weights, other)) = (factor(OperandKind::A)?, factor(right)?);
        // Memory has the tensor in its own shape only.
        let viewed = |view: cusync_gen::graph::View| -> Result<Matrix, ReferenceError> {
            let data = self.tensor(rows.tensor)?.data;
            Ok(Matrix { rows: view.rows as usize, cols: view.cols as usize, data })
        };
        let viewed = rows.view.map(viewed).transpose()?;
        self.values.product((rows.tensor, viewed.as_ref().or(own)), (weights.tensor, other))
    }

    fn tensor(&self, id: TensorId) -> Result<Matrix, ReferenceError> {
        self.instead.get(&id).cloned().map_or_else(|| self.values.tensor(id), Ok)
    }
}

impl Operands for GroupTensors<'_> {
    fn tensor(&self, id: TensorId) -> Result<Matrix, ReferenceError> {
        self.own.tensor(id)
    }

    fn product(&self, stage: &Stage, right: OperandKind) -> Result<Sums, ReferenceError> {
        if stage.devices == 1 {
            return self.own.product(stage, right);
        }
        let (devices, have) = (stage.devices, self.group.len());
        let (first, others) = self
            .group
            .split_first()
            .filter(|_| have == devices as usize)
            .ok_or_else(|| ReferenceError::Devices { stage: stage.name.clone(), devices, have })?;
        let mut sums = first.product(stage, right)?;
        for other in others {
            sums.add(&other.product(stage, right)?);
        }
        Ok(sums)
    }
}

/// The arithmetic of Custom stages.
#[derive(Clone, Copy)]
pub(super) struct Forms<'f, 'a> {
    /// Whole-matrix forms by stage.
    pub(super) known: &'f HashMap<String, CustomReference<'a>>,
    /// Whether results of the other Custom stages are taken as given; otherwise a form is missing.
    pub(super) takes_given: bool,
}

impl Forms<'_, '_> {
    fn is_given(&self, stage: &Stage) -> bool {
        self.takes_given && stage.op.is_custom() && !self.known.contains_key(&stage.name)
    }
}

/// Result of a stage from its operands.
fn expected(
    graph: &Graph,
    stage: &Stage,
    view: &GroupTensors<'_>,
    forms: Forms<'_, '_>,
    given: Given,
) -> Result<Expected, ReferenceError> {
    let made = match forms.known.get(&stage.name).filter(|_| stage.op.is_custom()) {
        Some(form) => {
            let reads = stage.operands.iter().map(|operand| view.tensor(operand.tensor));
            // Its arithmetic is unknown.
            Expected::exact(form(&reads.collect::<Result<Vec<_>, _>>()?)).of_unknown_operands()
        }
        None => apply(stage, graph.element, view, given)?,
    };
    let (rows, cols) = (stage.m as usize, stage.n as usize);
    let Matrix { rows: have_rows, cols: have_cols, data } = &made.values;
    if (*have_rows, *have_cols, data.len()) != (rows, cols, rows * cols) {
        return Err(ReferenceError::Shape(stage.name.clone()));
    }
    Ok(made)
}

/// Every tensor that a stage writes or changes, for each device of a group; each result is rounded before the next
/// stage reads it. Given tensors, and all that follow from them, are left out.
pub(super) fn chain(
    graph: &Graph,
    group: &[&dyn TensorValues],
    forms: Forms<'_, '_>,
) -> Result<Vec<HashMap<TensorId, Matrix>>, ReferenceError> {
    let mut written = vec![HashMap::new(); group.len()];
    let mut unknown = Vec::new();
    for stage in &graph.stages {
        if forms.is_given(stage) || stage.operands.iter().any(|operand| unknown.contains(&operand.tensor)) {
            unknown.push(stage.out);
            continue;
        }
        let pairs = group.iter().zip(&written);
        let memories: Vec<_> =
            pairs.map(|(values, instead)| DeviceTensors { values: *values, instead }).collect();
        let make = |own: &DeviceTensors<'_>| -> Result<_, ReferenceError> {
            let view = GroupTensors { own: *own, group: &memories };
            let mut made = vec![(stage.out, expected(graph, stage, &view, forms, Given::default())?.values)];
            for (operand, after) in changes(stage, &view, true)? {
                made.push((operand, after.values));
            }
            Ok(made)
        };
        let made = memories.iter().map(make).collect::<Result<Vec<_>, _>>()?;
        for (written, made) in written.iter_mut().zip(made) {
            for (tensor, mut values) in made {
                round(graph.element, &mut values.data);
                written.insert(tensor, values);
            }
        }
    }
    Ok(written)
}

/// Changes of a stage to its caches, by tensor. `known`: the view has the caches as before the run.
fn changes(
    stage: &Stage,
    view: &GroupTensors<'_>,
    known: bool,
) -> Result<Vec<(TensorId, Expected)>, ReferenceError> {
    let both = [OperandKind::CachedKeys, OperandKind::CachedValues];
    let [keys, values] = both.map(|kind| view.of_stage(stage, kind));
    let (keys, values) = (keys?, values?);
    let before = keys.as_ref().zip(values.as_ref()).filter(|_| known).map(|(k, v)| [k, v]);
    let made = changed(stage, view, before)?;
    Ok(made
        .into_iter()
        .filter_map(|(kind, after)| stage.operand(kind).map(|operand| (operand.tensor, after)))
        .collect())
}

/// Results of a stage from operands that change from run to run.
struct Made {
    operands: Vec<Matrix>,
    /// Whether the result allows for a rounded product; pipelines that share a reference may differ in this.
    rounds_product: bool,
    out: Expected,
}

/// Stages of a pipeline, and the results of the whole pipeline from its inputs, for each device that runs it.
pub(crate) struct Stages<'a> {
    graph: Graph,
    custom: HashMap<String, CustomReference<'a>>,
    /// Whether results of Custom stages without a form are taken as given.
    takes_given: bool,
    chain: Vec<HashMap<TensorId, Matrix>>,
    /// Results of the last comparison: reused if operands and roundings are unchanged.
    made: Vec<Mutex<Vec<Option<Made>>>>,
}

impl<'a> Stages<'a> {
    /// Runs the pipeline by its definition. `group` holds the inputs of each device.
    pub(crate) fn new(
        graph: &Graph,
        group: &[&dyn TensorValues],
        custom: HashMap<String, CustomReference<'a>>,
        takes_given: bool,
    ) -> Result<Self, ReferenceError> {
        let chain = chain(graph, group, Forms { known: &custom, takes_given })?;
        let made = group.iter().map(|_| Mutex::new(graph.stages.iter().map(|_| None).collect())).collect();
        Ok(Stages { graph: graph.clone(), custom, takes_given, chain, made })
    }

    /// Compares every tensor that a stage has written or changed on a device of a group. `before` holds its caches as
    /// before the run, if known. A tensor that another stage has overwritten since cannot be compared; its readers are verified
    /// from the expected values instead, with a wider bound.
    pub(crate) fn compare(
        &self,
        group: &[&dyn TensorValues],
        device: usize,
        before: Option<&dyn TensorValues>,
    ) -> Result<Vec<Accuracy>, ReferenceError> {
        let Stages { graph, custom, takes_given, chain, made } = self;
        let forms = Forms { known: custom, takes_given: *takes_given };
        let (memory, chain) = (group[device], &chain[device]);
        let mut made = made[device].lock().unwrap_or_else(PoisonError::into_inner);
        let (none, mut lost) = (HashMap::new(), HashMap::new());
        // Devices of a group overwrite no tensors, so none of theirs has another value instead.
        let group: Vec<DeviceTensors<'_>> =
            group.iter().map(|values| DeviceTensors { values: *values, instead: &none }).collect();
        let mut list = Vec::new();
        for (index, (stage, made)) in graph.stages.iter().zip(made.iter_mut()).enumerate() {
            let overwritten = |tensor| self.overwritten(tensor, index);
            if forms.is_given(stage) {
                // Nothing else could stand for a tensor that is gone.
                if self.overwritten(stage.out, index + 1) {
                    return Err(ReferenceError::NoCustom(stage.name.clone()));
                }
                let found = memory.tensor(stage.out)?;
                list.extend(judge_given(&graph.tensors[stage.out.0].name, &found.data, found.cols));
                continue;
            }
            let instead = stage
                .operands
                .iter()
                .filter(|o| overwritten(o.tensor))
                .filter_map(|o| lost.get(&o.tensor).map(|values: &Matrix| (o.tensor, values.clone())));
            let instead: HashMap<_, _> = instead.collect();
            let view =
                GroupTensors { own: DeviceTensors { values: memory, instead: &instead }, group: &group };
            let changing = stage.operands.iter().map(|o| o.tensor).filter(|tensor| self.is_changing(*tensor));
            let mut operands =
                changing.clone().map(|tensor| view.tensor(tensor)).collect::<Result<Vec<_>, _>>()?;
            if stage.devices > 1 {
                for other in group.iter() {
                    let theirs = changing.clone().map(|tensor| other.values.tensor(tensor));
                    operands.extend(theirs.collect::<Result<Vec<_>, _>>()?);
                }
            }
            let rounds_product = memory.rounds_product(stage);
            let known = made
                .as_ref()
                .filter(|made| made.operands == operands && made.rounds_product == rounds_product);
            if known.is_none() {
                let given = Given { appended: true, rounds_product };
                let mut out = expected(graph, stage, &view, forms, given)?;
                if !instead.is_empty() {
                    out = out.of_unknown_operands();
                }
                *made = Some(Made { operands, rounds_product, out });
            }
            let Some(Made { out, .. }) = made else { continue };
            let verdict = |tensor: TensorId, after: &Expected| -> Result<Accuracy, ReferenceError> {
                let found = memory.tensor(tensor)?.data;
                let judged = judge(&graph.tensors[tensor.0].name, graph.element, &found, after);
                let whole = chain.get(&tensor).map(|values| relative_l2(&found, &values.data));
                Ok(Accuracy {
                    end_to_end: whole.filter(|_| before.is_some() || tensor == stage.out),
                    ..judged
                })
            };
            if self.overwritten(stage.out, index + 1) {
                let mut values = out.values.clone();
                round(graph.element, &mut values.data);
                lost.insert(stage.out, values);
            } else {
                list.push(verdict(stage.out, out)?);
            }
            // The new tokens are computed from the current QKV, the rest is unchanged.
            let caches = match before {
                Some(before) => {
                    let now = stage.operands.iter().filter(|o| o.kind.is_activation());
                    let now = now.map(|o| Ok((o.tensor, memory.tensor(o.tensor)?)));
                    let instead = now.collect::<Result<HashMap<_, _>, ReferenceError>>()?;
                    let own = DeviceTensors { values: before, instead: &instead };
                    changes(stage, &GroupTensors { own, group: &[] }, true)?
                }
                None => {
                    let own = DeviceTensors { values: memory, instead: &none };
                    changes(stage, &GroupTensors { own, group: &[] }, false)?
                }
            };
            for (tensor, after) in caches {
                list.push(verdict(tensor, &after)?);
            }
        }
        Ok(list)
    }

    /// Whether a stage numbered `from` or later overwrites the memory of another stage's tensor.
    fn overwritten(&self, tensor: TensorId, from: usize) -> bool {
        let tensors = &self.graph.tensors;
        let root = |mut id: TensorId| {
            while let Some(next) = tensors[id.0].alias {
                id = next;
            }
            id
        };
        let made = tensors[tensor.0].producer.is_some();
        made && self.graph.stages[from..].iter().any(|s| s.out != tensor && root(s.out) == root(tensor))
    }

    /// Whether a tensor may change in the next run.
    fn is_changing(&self, tensor: TensorId) -> bool {
        let tensor = &self.graph.tensors[tensor.0];
        tensor.producer.is_some() || tensor.state || tensor.data == DataType::Int32
    }
}

/// Tensors that a run has written or changed, by name.
type Found<'a> = dyn Fn(&str) -> Option<Vec<f32>> + 'a;

/// Inputs of a pipeline, and results of an executor on the host.
pub(super) struct HostMemory<'a> {
    graph: &'a Graph,
    inputs: &'a Inputs,
    found: Option<&'a Found<'a>>,
}

impl<'a> HostMemory<'a> {
    pub(super) fn inputs(graph: &'a Graph, inputs: &'a Inputs) -> Self {
        HostMemory { graph, inputs, found: None }
    }
}

impl TensorValues for HostMemory<'_> {
    fn tensor(&self, id: TensorId) -> Result<Matrix, ReferenceError> {
        let tensor = &self.graph.tensors[id.0];
        let (rows, cols) = (tensor.rows as usize, tensor.cols as usize);
        let missing = || ReferenceError::NoInput(tensor.name.clone());
        let matrix = |data| Ok(Matrix { rows, cols, data });
        if let Some(found) = self.found.filter(|_| tensor.producer.is_some() || tensor.state) {
            return matrix(found(&tensor.name).filter(|data| data.len() == rows * cols).ok_or_else(missing)?);
        }
        if let Some(numbers) = self.inputs.integers(id) {
            return matrix(numbers.iter().map(|x| *x as f32).collect());
        }
        let bits = self.inputs.bits(id).ok_or_else(missing)?;
        let mut data = vec![0.0; bits.len()];
        const CHUNK: usize = 1 << 16;
        let chunks = data.par_chunks_mut(CHUNK).zip(bits.par_chunks(CHUNK));
        chunks.for_each(|(out, bits)| self.graph.element.widen(bits, out));
        matrix(data)
    }
}

/// Verifies runs of one pipeline and its inputs on the host.
pub struct Judge<'a> {
    stages: Stages<'a>,
    /// The inputs of each device.
    inputs: Vec<&'a Inputs>,
}

impl<'a> Judge<'a> {
    /// Runs the pipeline by its definition. `custom`: whole-matrix forms of its custom stages.
    ///
    /// # Errors
    /// An input has no values, or a custom stage has no form.
    pub fn new(
        graph: &Graph,
        inputs: &'a Inputs,
        custom: HashMap<String, CustomReference<'a>>,
    ) -> Result<Self, ReferenceError> {
        Judge::with_devices(graph, vec![inputs], custom)
    }

    /// [`Judge::new`] for a pipeline that several devices run, with the inputs of each.
    ///
    /// # Errors
    /// As [`Judge::new`]; also if there are inputs for another number of devices.
    pub fn with_devices(
        graph: &Graph,
        inputs: Vec<&'a Inputs>,
        custom: HashMap<String, CustomReference<'a>>,
    ) -> Result<Self, ReferenceError> {
        let memories: Vec<_> = inputs.iter().map(|inputs| HostMemory::inputs(graph, inputs)).collect();
        let memories: Vec<&dyn TensorValues> = memories.iter().map(|m| m as &dyn TensorValues).collect();
        Ok(Judge { stages: Stages::new(graph, &memories, custom, false)?, inputs })
    }

    /// Compares every tensor that a stage has written, and every cache that it has appended to, with the
    /// result expected from its operands. `found`: contents after a run on the inputs, by name.
    ///
    /// # Errors
    /// A tensor is not found.
    pub fn compare(&self, found: &dyn Fn(&str) -> Option<Vec<f32>>) -> Result<Vec<Accuracy>, ReferenceError> {
        self.compare_device(0, &|_, name| found(name))
    }

    /// [`Judge::compare`] for a device of a group. `found`: contents by device and name.
    ///
    /// # Errors
    /// As [`Judge::compare`].
    pub fn compare_device(
        &self,
        device: usize,
        found: &dyn Fn(usize, &str) -> Option<Vec<f32>>,
    ) -> Result<Vec<Accuracy>, ReferenceError> {
        let found: Vec<_> = (0..self.inputs.len()).map(|d| move |name: &str| found(d, name)).collect();
        let before = |d: usize| HostMemory::inputs(&self.stages.graph, self.inputs[d]);
        let after = |(d, found)| HostMemory { found: Some(found as &Found<'_>), ..before(d) };
        let memories: Vec<_> = found.iter().enumerate().map(after).collect();
        let memories: Vec<&dyn TensorValues> = memories.iter().map(|m| m as &dyn TensorValues).collect();
        self.stages.compare(&memories, device, Some(&before(device)))
    }
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::Executor;
    use cusync_gen::device::Profile;
    use cusync_gen::sync::Tile;

    use super::super::bound::Wrong;
    use super::*;
    use crate::runtime::cpu::{CpuOptions, CpuPipeline, Region};
    use crate::runtime::{Overrides, plan_text};

    #[test]
    fn stages_around_a_given_tensor_are_compared_and_it_must_hold_numbers() {
        let source = r#"Pipeline(name: "own", dims: { "M": 24 }, stages: [
            Gemm(name: "before", a: "X(M,16)", b: "W(16,16)", out: "Y(M,16)"),
            Custom(name: "own", tile: (8, 16), writes: "N(M,16)",
                reads: [Read(tensor: "Y(M,16)", rows: "8*m..8*m + 8", cols: "0..16")]),
            Gemm(name: "after", a: "N(M,16)", b: "V(16,16)", out: "Z(M,16)"),
        ])"#;
        let h200 = Profile::named("h200").expect("it ships");
        let plan = plan_text(source, "own", &Overrides::default(), h200, Executor::Cpu).expect("proved");
        let graph = plan.graph();
        let inputs = Inputs::checked_random(graph, 7).expect("small");
        let halve = |_: Tile, _: u32, reads: &[Region], out: &mut Region| {
            out.data.iter_mut().zip(&reads[0].data).for_each(|(out, x)| *out = 0.5 * x);
        };
        let pipeline = CpuPipeline::new(&plan, &inputs, CpuOptions::default()).expect("small");
        let mut pipeline = pipeline.custom("own", halve).expect("a custom stage");
        pipeline.run().expect("it runs");

        let memory = HostMemory::inputs(graph, &inputs);
        let unknown = Stages::new(graph, &[&memory], HashMap::new(), false);
        assert!(matches!(unknown, Err(ReferenceError::NoCustom(_))));
        let stages = Stages::new(graph, &[&memory], HashMap::new(), true).expect("taken as given");
        let compare = |spoil: bool| {
            let found = |name: &str| {
                let mut values = pipeline.tensor(name).ok()?;
                if spoil && name == "N" {
                    values[3 * 16 + 5] = f32::NAN;
                }
                Some(values)
            };
            let after = HostMemory { found: Some(&found), ..HostMemory::inputs(graph, &inputs) };
            stages.compare(&[&after], 0, Some(&memory)).expect("all tensors are there")
        };
        let judged = compare(false);
        let names: Vec<&str> = judged.iter().map(|judged| judged.tensor.as_str()).collect();
        assert_eq!(names, ["Y", "Z"]);
        assert!(judged.iter().all(|judged| judged.verified), "{judged:?}");
        assert!(judged[0].end_to_end.is_some() && judged[1].end_to_end.is_none(), "{judged:?}");
        let judged = compare(true);
        assert_eq!(judged[1].wrong, Some(Wrong::NoNumber(3, 5)), "{judged:?}");
        assert!(judged[1].to_string().contains("N(3, 5) is no number"), "{}", judged[1]);
    }
}
