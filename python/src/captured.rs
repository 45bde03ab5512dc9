//! Captured CUDA graphs, rescheduled.

use std::sync::{Arc, Mutex, PoisonError};

use cusync::dag::{AccessMode, Carrier, Form};
use cusync::device::{CapturedWork, Device, Graph, Stream};
use cusync::programs::{AddressAccess, AddressMap, Calls, Declaration, Executable};
use cusync_cli::embed::Failure;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::error::{argument, detached};

/// First address, one past the last, and 0 for a read, 1 for a write, 2 for both.
type Span = (u64, u64, u8);

/// The nodes that an operator captured, from the first to one past the last, and all its accesses.
type Operator = (usize, usize, Vec<Span>);

/// A captured graph as another graph.
#[pyclass(module = "cusync._cusync", frozen)]
pub(crate) struct Rescheduled {
    device: Device,
    executable: Mutex<Executable>,
    report: Facts,
}

#[derive(Clone, Copy, Default)]
struct Facts {
    /// Nodes with work.
    nodes: usize,
    /// Nodes of operators.
    stated: usize,
    /// Nodes that are ordered with all others.
    barriers: usize,
    /// Nodes that run at a time, at most.
    lanes: u32,
    form: &'static str,
    serial_us: f64,
    predicted_us: f64,
}

fn access((first, end, mode): &Span) -> AddressAccess {
    let mode = match mode {
        0 => AccessMode::Read,
        1 => AccessMode::Write,
        _ => AccessMode::ReadWrite,
    };
    AddressAccess { addresses: *first..*end, mode }
}

/// Forms to choose from: one by its name, or all that are graphs.
fn forms(name: Option<&str>) -> Result<Vec<Form>, Failure> {
    let Some(name) = name else {
        return Ok(Form::ALL.into_iter().filter(|form| form.carrier() == Carrier::Graph).collect());
    };
    let none = || argument(format!("there is no form `{name}`"), &format!("forms: {:?}", Form::ALL));
    Ok(vec![Form::named(name).ok_or_else(none)?])
}

fn adopt(
    device: &Device,
    graph: usize,
    memory: &[Span],
    operators: &[Operator],
    us: Option<&[f64]>,
) -> Result<(Calls, Facts), Failure> {
    // SAFETY: the caller keeps the graph, its memory and its kernels, and captures nothing meanwhile.
    let graph = unsafe { Graph::copy_of(device, graph as *mut _) }?;
    if let Some(us) = us.filter(|us| us.len() != graph.len()) {
        let (have, want) = (us.len(), graph.len());
        return Err(argument(
            format!("`us` has {have} times, and the graph {want} nodes"),
            "give one for each",
        ));
    }
    // Other orders do not say which node an operator has captured.
    let serial = graph.is_serial()?;
    let map = AddressMap::new(memory.iter().map(access));
    let mut facts = Facts::default();
    let calls = Calls::adopt(device, graph, |node| {
        let operator = operators.iter().find(|(first, end, _)| (*first..*end).contains(&node.index));
        let known =
            operator.filter(|_| serial).map(|(_, _, spans)| spans.iter().map(access).collect::<Vec<_>>());
        let accesses = map.accesses(device, node, known.as_deref().unwrap_or(&[]))?;
        if !matches!(node.work, CapturedWork::Empty) {
            facts.nodes += 1;
            facts.stated += usize::from(known.is_some());
            facts.barriers += usize::from(accesses.is_none());
        }
        Ok(Declaration { accesses, us: us.map(|us| us[node.index]), ..Declaration::default() })
    });
    Ok((calls?, facts))
}

#[pymethods]
impl Rescheduled {
    /// `memory`: pieces of memory that nodes share, constants as reads. `choice`: a form, and the most streams.
    #[new]
    fn new(
        py: Python<'_>,
        graph: usize,
        gpu: u32,
        memory: Vec<Span>,
        operators: Vec<Operator>,
        us: Option<Vec<f64>>,
        choice: (Option<&str>, Option<usize>),
    ) -> PyResult<Rescheduled> {
        detached(py, || {
            let device = Device::open(gpu)?;
            let (calls, facts) = adopt(&device, graph, &memory, &operators, us.as_deref())?;
            let (form, streams) = choice;
            let schedule = calls.schedule(&device, &forms(form)?, streams)?;
            let main = Arc::new(Stream::new(&device)?);
            let executable = calls.scheduled(&main, &schedule, schedule.form)?;
            let report = Facts {
                lanes: schedule.streams(schedule.form).iter().max().map_or(0, |last| last + 1),
                form: schedule.form.id(),
                serial_us: calls.program().nodes().iter().map(|node| node.us).sum(),
                predicted_us: schedule.predicted_us(),
                ..facts
            };
            Ok(Rescheduled { device, executable: Mutex::new(executable), report })
        })
    }

    /// Queues a run on a CUDA stream.
    fn replay(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        detached(py, || {
            // SAFETY: the caller gives a live stream of the GPU, which outlives this call.
            let stream = unsafe { Stream::from_raw(&self.device, stream as *mut _) };
            let executable = self.executable.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(executable.launch_on(&stream)?)
        })
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (facts, report) = (self.report, PyDict::new(py));
        report.set_item("nodes", facts.nodes)?;
        report.set_item("stated", facts.stated)?;
        report.set_item("barriers", facts.barriers)?;
        report.set_item("form", facts.form)?;
        report.set_item("lanes", facts.lanes)?;
        report.set_item("serial_us", facts.serial_us)?;
        report.set_item("predicted_us", facts.predicted_us)?;
        Ok(report)
    }
}

/// Nodes that a CUDA stream of a GPU has captured so far; 0 if it captures nothing.
#[pyfunction]
pub(crate) fn captured_nodes(py: Python<'_>, gpu: u32, stream: usize) -> PyResult<usize> {
    detached(py, || {
        let device = Device::open(gpu)?;
        // SAFETY: the caller gives a live stream of the GPU, which outlives this call.
        let stream = unsafe { Stream::from_raw(&device, stream as *mut _) };
        Ok(stream.captured_len()?)
    })
}
