//! Tensors in host memory, shared by workers.
//!
//! A tensor that a stage writes is an array of relaxed atomics: only semaphores order its reads after its
//! writes, exactly as on a GPU. A missing wait shows as poison or a stale value, not as undefined behavior.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering};

use cusync_gen::graph::{Element, Graph, Operand, Tensor, TensorId};

use super::error::CpuError;
use crate::element::Bits;
use crate::inputs::{Inputs, cached};

enum Storage {
    /// Never written: plain memory.
    Input(Arc<Vec<u16>>),
    /// Written by a stage.
    Shared(Vec<AtomicU16>),
    /// The memory of another tensor.
    Alias(TensorId),
    /// Lengths or page numbers, which may change between runs.
    Integers(Vec<AtomicI32>),
}

impl Inputs {
    /// [`Inputs::random`], refused before any allocation if the machine cannot hold the pipeline's tensors.
    ///
    /// # Errors
    /// [`CpuError::NoMemory`]; [`CpuError::TooFewPages`] if sequences would have to share pages that they
    /// append to.
    pub fn checked_random(graph: &Graph, seed: u64) -> Result<Self, CpuError> {
        ensure_memory(graph)?;
        match cached::too_few_pages(graph) {
            Some(why) => Err(CpuError::TooFewPages(why)),
            None => Ok(Inputs::random(graph, seed)),
        }
    }
}

/// All tensors of a pipeline.
pub(super) struct Memory {
    element: Element,
    tensors: Vec<(Storage, usize)>,
    /// Inputs that a stage overwrites: restored before each run.
    overwritten: Vec<(TensorId, Arc<Vec<u16>>)>,
    /// Tensors that persist from run to run: never poisoned.
    state: Vec<bool>,
}

/// Box of `rows` x `cols` elements of a tensor, starting at `(row, col)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Box2 {
    pub(super) row: usize,
    pub(super) col: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Memory {
    pub(super) fn new(graph: &Graph, inputs: &Inputs) -> Result<Self, CpuError> {
        let root = |id: usize| {
            let mut at = id;
            while let Some(next) = graph.tensors[at].alias {
                at = next.0;
            }
            at
        };
        let written: Vec<bool> = {
            let mut written = vec![false; graph.tensors.len()];
            for (id, tensor) in graph.tensors.iter().enumerate() {
                written[root(id)] |= tensor.producer.is_some();
            }
            written
        };
        let mut overwritten = Vec::new();
        let mut tensors = Vec::with_capacity(graph.tensors.len());
        for (id, tensor) in graph.tensors.iter().enumerate() {
            let length = tensor.rows as usize * tensor.cols as usize;
            let bits = inputs.bits(TensorId(id));
            let storage = if root(id) != id {
                Storage::Alias(TensorId(root(id)))
            } else if let Some(integers) = inputs.integers(TensorId(id)) {
                Storage::Integers(integers.iter().map(|x| AtomicI32::new(*x)).collect())
            } else if tensor.state {
                let bits = bits.ok_or_else(|| CpuError::NoInput(tensor.name.clone()))?;
                Storage::Shared(bits.iter().map(|b| AtomicU16::new(*b)).collect())
            } else if written[id] {
                if let Some(bits) = bits {
                    overwritten.push((TensorId(id), Arc::clone(bits)));
                }
                Storage::Shared((0..length).map(|_| AtomicU16::new(0)).collect())
            } else {
                let bits = bits.filter(|b| b.len() == length);
                Storage::Input(Arc::clone(bits.ok_or_else(|| CpuError::NoInput(tensor.name.clone()))?))
            };
            tensors.push((storage, tensor.cols as usize));
        }
        let state = graph.tensors.iter().map(|t| t.state).collect();
        Ok(Memory { element: graph.element, tensors, overwritten, state })
    }

    /// Poisons all tensors that stages write, then restores the inputs among them.
    pub(super) fn reset(&self) {
        let poison = self.element.poison();
        for ((storage, _), state) in self.tensors.iter().zip(&self.state) {
            if let (Storage::Shared(cells), false) = (storage, state) {
                cells.iter().for_each(|c| c.store(poison, Ordering::Relaxed));
            }
        }
        for (id, bits) in &self.overwritten {
            let cells = self.shared(*id);
            cells.iter().zip(bits.iter()).for_each(|(c, &b)| c.store(b, Ordering::Relaxed));
        }
    }

    fn storage(&self, id: TensorId) -> &Storage {
        match &self.tensors[id.0].0 {
            Storage::Alias(root) => &self.tensors[root.0].0,
            own => own,
        }
    }

    fn shared(&self, id: TensorId) -> &[AtomicU16] {
        match self.storage(id) {
            Storage::Shared(cells) => cells,
            Storage::Input(_) | Storage::Alias(_) | Storage::Integers(_) => &[],
        }
    }

    /// Integers `first .. first + count` of an integer tensor; empty for other tensors.
    pub(super) fn integers(&self, id: TensorId, first: usize, count: usize) -> Vec<i32> {
        match self.storage(id) {
            Storage::Integers(all) => {
                all[first..first + count].iter().map(|x| x.load(Ordering::Relaxed)).collect()
            }
            Storage::Input(_) | Storage::Shared(_) | Storage::Alias(_) => Vec::new(),
        }
    }

    /// Replaces an input, or values that persist between runs; the caller has checked the length.
    pub(super) fn set_bits(&mut self, id: TensorId, bits: &Arc<Vec<u16>>) {
        if let Some((_, old)) = self.overwritten.iter_mut().find(|(overwritten, _)| *overwritten == id) {
            *old = Arc::clone(bits);
        }
        match &mut self.tensors[id.0].0 {
            Storage::Input(old) => *old = Arc::clone(bits),
            Storage::Shared(cells) => {
                cells.iter().zip(bits.iter()).for_each(|(c, b)| c.store(*b, Ordering::Relaxed));
            }
            Storage::Alias(_) | Storage::Integers(_) => {}
        }
    }

    /// Replaces the integers of a tensor; `false` if it has none, or another number of them.
    pub(super) fn set_integers(&self, id: TensorId, values: &[i32]) -> bool {
        match self.storage(id) {
            Storage::Integers(all) if all.len() == values.len() => {
                all.iter().zip(values).for_each(|(x, v)| x.store(*v, Ordering::Relaxed));
                true
            }
            Storage::Integers(_) | Storage::Input(_) | Storage::Shared(_) | Storage::Alias(_) => false,
        }
    }

    /// Widens a box of a tensor into `out`, with rows `at.cols` apart. The box must be inside the tensor.
    pub(super) fn load(&self, id: TensorId, at: Box2, out: &mut [f32]) {
        self.load_rows(id, self.tensors[id.0].1, at, out);
    }

    /// [`Self::load`] under the shape in which a stage reads an operand.
    pub(super) fn load_operand(&self, operand: &Operand, at: Box2, out: &mut [f32]) {
        let pitch = operand.view.map_or(self.tensors[operand.tensor.0].1, |view| view.cols as usize);
        self.load_rows(operand.tensor, pitch, at, out);
    }

    /// Widens a box of a tensor as rows of `pitch` elements.
    fn load_rows(&self, id: TensorId, pitch: usize, at: Box2, out: &mut [f32]) {
        let mut line = [0; 1024];
        for r in 0..at.rows {
            let from = (at.row + r) * pitch + at.col;
            let out = &mut out[r * at.cols..(r + 1) * at.cols];
            match self.storage(id) {
                Storage::Input(bits) => self.element.widen(&bits[from..from + at.cols], out),
                Storage::Integers(all) => {
                    let cells = &all[from..from + at.cols];
                    out.iter_mut().zip(cells).for_each(|(o, c)| *o = c.load(Ordering::Relaxed) as f32);
                }
                Storage::Shared(_) | Storage::Alias(_) => {
                    let cells = &self.shared(id)[from..from + at.cols];
                    for (cells, out) in cells.chunks(line.len()).zip(out.chunks_mut(line.len())) {
                        let bits = &mut line[..cells.len()];
                        bits.iter_mut().zip(cells).for_each(|(b, c)| *b = c.load(Ordering::Relaxed));
                        self.element.widen(bits, out);
                    }
                }
            }
        }
    }

    /// Rounds values as if stored to a tensor.
    pub(super) fn rounded(&self, values: &[f32], out: &mut [f32]) {
        let mut bits = vec![0; values.len()];
        self.element.round(values, &mut bits);
        self.element.widen(&bits, out);
    }

    /// Rounds `values` (rows `at.cols` apart) into a box of a tensor that a stage writes.
    pub(super) fn store(&self, id: TensorId, at: Box2, values: &[f32]) {
        let pitch = self.tensors[id.0].1;
        let mut line = [0; 1024];
        for r in 0..at.rows {
            let to = (at.row + r) * pitch + at.col;
            let cells = &self.shared(id)[to..to + at.cols];
            let values = &values[r * at.cols..(r + 1) * at.cols];
            for (cells, values) in cells.chunks(line.len()).zip(values.chunks(line.len())) {
                let bits = &mut line[..cells.len()];
                self.element.round(values, bits);
                cells.iter().zip(bits.iter()).for_each(|(c, &b)| c.store(b, Ordering::Relaxed));
            }
        }
    }
}

/// Bytes of the tensors, without aliases.
pub fn tensor_bytes(tensors: &[Tensor]) -> u64 {
    let own = tensors.iter().filter(|t| t.alias.is_none());
    own.map(|t| t.bytes()).fold(0, u64::saturating_add)
}

/// Tensors that take most of the memory, for a message: at most three, each at least a tenth of the total.
fn largest(tensors: &[Tensor]) -> String {
    let tenth = tensor_bytes(tensors) / 10;
    let mut large: Vec<&Tensor> =
        tensors.iter().filter(|t| t.alias.is_none() && t.bytes() >= tenth).collect();
    large.sort_by_key(|t| std::cmp::Reverse(t.bytes()));
    let shown = large.iter().take(3);
    shown
        .map(|t| format!("`{}` ({} x {}, {} MiB)", t.name, t.rows, t.cols, t.bytes() / MIB))
        .collect::<Vec<_>>()
        .join(", ")
}

const MIB: u64 = 1 << 20;

/// Refuses a pipeline that does not fit the machine's memory.
pub(super) fn ensure_memory(graph: &Graph) -> Result<(), CpuError> {
    let need = tensor_bytes(&graph.tensors);
    match available() {
        Some(free) if need > free => Err(CpuError::NoMemory {
            what: format!("pipeline `{}`", graph.name),
            need_mib: need / MIB,
            free_mib: free / MIB,
            largest: largest(&graph.tensors),
        }),
        _ => Ok(()),
    }
}

/// Free memory in bytes, if the system reports it.
pub(super) fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
