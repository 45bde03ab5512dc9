//! Executables: a program with its streams, events or graph, launched any number of times.

use std::collections::BTreeSet;
use std::sync::Arc;

use cusync_dag::{Form, Join, KernelSchedule, LaunchPlan, LaunchStep, Launches, ProvedPlan, Steps};

use super::calls::{Call, Calls};
use super::error::{Error, Result};
use super::opaque::{OpaqueCall, Scratch};
use super::tiled::Watch;
use crate::device::{CopyCall, DeviceBuffer, EdgeKind, Event, Graph, GraphExec, KernelCall, Stream};

/// A program that can be launched repeatedly. It keeps the program's memory alive, and its launches are
/// ordered one after the other.
#[derive(Debug)]
pub struct Executable {
    main: Arc<Stream>,
    how: How,
    /// Keep the memory of the nodes alive.
    _calls: Arc<[Call]>,
    _scratch: Option<Scratch>,
    watch: Option<Arc<Watch>>,
}

/// What a caller lends to an executable. What is missing is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lent<'a> {
    /// Streams of lanes beside the main stream, which then have the priorities of these streams.
    pub streams: &'a [Arc<Stream>],
    /// Memory of workspaces: none, or as many as the plan needs.
    pub workspaces: &'a [Arc<DeviceBuffer<u8>>],
}

#[derive(Debug)]
enum How {
    /// Steps that the host queues; lane 0 is the main stream.
    Eager {
        work: Vec<Work>,
        lanes: Vec<Arc<Stream>>,
        events: Vec<Event>,
        steps: Vec<LaunchStep>,
        programmatic: bool,
    },
    Graph(GraphExec),
}

/// The work of a node on a stream.
#[derive(Debug)]
enum Work {
    Kernel(KernelCall),
    Copy(CopyCall),
    /// A captured opaque node, or a node of a captured graph.
    Child(GraphExec),
    /// The same, for streams that are themselves captured.
    Captured(Graph),
}

impl Work {
    /// Queues it. `programmatic` lets a kernel launch while the previous one in the stream ends.
    fn enqueue(&self, stream: &Stream, programmatic: bool) -> crate::device::Result<()> {
        match self {
            Work::Kernel(call) => stream.launch(call, programmatic),
            Work::Copy(call) => stream.copy(call),
            Work::Child(graph) => graph.launch(stream),
            Work::Captured(graph) => graph.join_capture(stream),
        }
    }
}

impl Calls {
    /// Builds an executable for a proved plan; launches are queued on `main`.
    ///
    /// # Errors
    /// [`Error::OtherProgram`]; device errors.
    pub fn executable(&self, main: &Arc<Stream>, plan: &ProvedPlan) -> Result<Executable> {
        self.executable_with(main, plan, &Lent::default())
    }

    /// The same with lent streams and workspaces. Opaque nodes are captured now, once.
    ///
    /// # Errors
    /// [`Error::OtherProgram`]; [`Error::Lent`] for workspaces; faults of callbacks; device errors.
    pub fn executable_with(&self, main: &Arc<Stream>, plan: &ProvedPlan, lent: &Lent) -> Result<Executable> {
        match plan.is_of(&self.program) {
            true => Executable::new(self, main, plan, lent),
            false => Err(Error::OtherProgram),
        }
    }

    /// Proves a plan and builds an executable for it.
    ///
    /// # Errors
    /// [`Error::Unproved`]; device errors.
    pub fn planned(&self, main: &Arc<Stream>, plan: impl Into<LaunchPlan>) -> Result<Executable> {
        self.executable(main, &plan.into().prove(&self.program)?)
    }

    /// [`Calls::planned`] for a form of the program's schedule.
    ///
    /// # Errors
    /// As [`Calls::planned`].
    pub fn scheduled(&self, main: &Arc<Stream>, schedule: &KernelSchedule, form: Form) -> Result<Executable> {
        self.planned(main, schedule.plan(&self.program, form))
    }
}

impl Executable {
    /// Builds launches that were proved for the program of these calls.
    fn new(calls: &Calls, main: &Arc<Stream>, plan: &ProvedPlan, lent: &Lent) -> Result<Executable> {
        // Only opaque nodes need a stream for their capture, and workspaces.
        let opaque = calls.calls.iter().any(|call| matches!(call, Call::Opaque(_)));
        let (device, nodes) = (main.device(), calls.calls.len());
        let scratch = || Scratch::new(device, nodes, plan.workspaces(), lent.workspaces, &calls.memory);
        let scratch = opaque.then(scratch).transpose()?;
        let priority = node_priorities(plan.launches(), nodes, main)?;
        let capture = |node: usize, call: &OpaqueCall| match &scratch {
            Some(scratch) => call.capture(scratch, &calls.program, node, priority[node]),
            None => unreachable!("a program with an opaque node has workspaces"),
        };
        let how = match plan.launches() {
            Launches::Graph { order, before, joins, .. } => {
                How::Graph(graph(&calls.calls, main, order, before, joins, &priority, capture)?)
            }
            Launches::Streams { steps, programmatic, captured } => {
                let graph = |graph: Graph| match captured {
                    true => Ok(Work::Captured(graph)),
                    false => Ok(Work::Child(graph.instantiate(main)?)),
                };
                let work = |(node, call): (usize, &Call)| match call {
                    Call::Kernel(call) => Ok(Work::Kernel(call.clone())),
                    Call::Copy(call) => Ok(Work::Copy(call.clone())),
                    Call::Opaque(call) => graph(capture(node, call)?),
                    Call::Adopted(call) => graph(call.alone(device)?),
                };
                let work = calls.calls.iter().enumerate().map(work).collect::<Result<_>>()?;
                let eager = eager(main, steps, *programmatic, work, lent.streams)?;
                match captured {
                    // The main stream may be the default stream, which cannot be captured.
                    true => {
                        let first = Stream::new(device)?;
                        How::Graph(Graph::captured(&first, || eager.enqueue(&first))?.instantiate(main)?)
                    }
                    false => eager,
                }
            }
        };
        let (_calls, watch) = (calls.calls.clone(), calls.watch.clone());
        Ok(Executable { main: main.clone(), how, _calls, _scratch: scratch, watch })
    }

    /// Queues one run on the main stream.
    pub fn launch(&self) -> Result<()> {
        self.launch_on(&self.main)
    }

    /// Queues one run on another stream of the same GPU. Runs must still follow each other, by events for example.
    pub fn launch_on(&self, stream: &Stream) -> Result<()> {
        Ok(self.how.enqueue(stream)?)
    }

    /// The stream on which runs are queued.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.main
    }

    /// Waits for all queued runs.
    pub fn synchronize(&self) -> Result<()> {
        let ended = self.main.synchronize();
        match self.watch.as_ref().and_then(|watch| watch.late()) {
            Some(late) => Err(late),
            None => Ok(ended?),
        }
    }
}

impl How {
    fn enqueue(&self, main: &Stream) -> crate::device::Result<()> {
        match self {
            How::Graph(exec) => exec.launch(main),
            How::Eager { work, lanes, events, steps, programmatic } => {
                let stream = |lane: usize| if lane == 0 { main } else { &*lanes[lane - 1] };
                for step in steps {
                    match *step {
                        LaunchStep::Run { node, lane, chained } => {
                            work[node].enqueue(stream(lane), *programmatic && chained)?;
                        }
                        LaunchStep::Record { event, lane } => stream(lane).record(&events[event])?,
                        LaunchStep::Wait { event, lane } => stream(lane).wait(&events[event])?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Creates the streams; events are for ordering only (no time stamps) and are reused in every launch.
fn eager(
    main: &Stream,
    plan: &Steps,
    programmatic: bool,
    work: Vec<Work>,
    lent: &[Arc<Stream>],
) -> Result<How> {
    let device = main.device();
    let priorities = cuda_priorities(&plan.priorities, Stream::priorities(device)?);
    let stream = |(lane, p): (usize, &i32)| match lent.get(lane) {
        Some(lent) => Ok(lent.clone()),
        None => Stream::with_priority(device, *p).map(Arc::new),
    };
    let lanes = priorities.iter().enumerate().map(stream).collect::<std::result::Result<_, _>>()?;
    let events = (0..plan.events).map(|_| Event::ordering(device)).collect::<std::result::Result<_, _>>()?;
    Ok(How::Eager { work, lanes, events, steps: plan.steps.clone(), programmatic })
}

/// A graph of explicit nodes and edges.
fn graph(
    calls: &[Call],
    main: &Stream,
    order: &[usize],
    before: &[Vec<(usize, bool)>],
    joins: &[Join],
    priority: &[Option<i32>],
    capture: impl Fn(usize, &OpaqueCall) -> Result<Graph>,
) -> Result<GraphExec> {
    let mut graph = Graph::new(main.device())?;
    let mut nodes = vec![None; calls.len()];
    let kind = |programmatic| if programmatic { EdgeKind::Programmatic } else { EdgeKind::Full };
    // The joins that each node waits for; the first node of a join adds it.
    let (mut passes, mut added) = (vec![Vec::new(); calls.len()], vec![None; joins.len()]);
    for (id, join) in joins.iter().enumerate() {
        join.after.iter().for_each(|&after| passes[after].push(id));
    }
    for &node in order {
        let after = before[node].iter().filter_map(|&(first, early)| Some((nodes[first]?, kind(early))));
        let mut after: Vec<_> = after.collect();
        for &id in &passes[node] {
            let join = match added[id] {
                Some(join) => join,
                None => {
                    let ends =
                        joins[id].before.iter().filter_map(|&first| Some((nodes[first]?, EdgeKind::Full)));
                    *added[id].insert(graph.add_join(&ends.collect::<Vec<_>>())?)
                }
            };
            after.push((join, EdgeKind::Full));
        }
        nodes[node] = Some(match &calls[node] {
            Call::Kernel(call) => graph.add_kernel(call, &after, priority[node])?,
            Call::Copy(call) => graph.add_copy(call, &after)?,
            Call::Opaque(call) => graph.add_child(&capture(node, call)?, &after)?,
            Call::Adopted(call) => call.add(&mut graph, &after)?,
        });
    }
    Ok(graph.instantiate(main)?)
}

/// The CUDA priority of each node; `None`: the default.
fn node_priorities(launches: &Launches, nodes: usize, main: &Stream) -> Result<Vec<Option<i32>>> {
    let range = || Stream::priorities(main.device());
    let mut found = vec![None; nodes];
    match launches {
        Launches::Graph { priorities, .. } if priorities.len() == nodes => {
            found = cuda_priorities(priorities, range()?).into_iter().map(Some).collect();
        }
        Launches::Graph { .. } => {}
        Launches::Streams { steps, .. } => {
            let lanes = cuda_priorities(&steps.priorities, range()?);
            for step in &steps.steps {
                if let LaunchStep::Run { node, lane, .. } = *step {
                    found[node] = lane.checked_sub(1).map(|lane| lanes[lane]);
                }
            }
        }
    }
    Ok(found)
}

/// Converts our priorities to CUDA priorities: larger numbers of ours map to lower CUDA numbers, within
/// `least..=greatest` (0 to -5 on Hopper). Ranks count, not distances; if there are more ranks than
/// priorities, the lowest ranks share one.
fn cuda_priorities(ours: &[i32], (least, greatest): (i32, i32)) -> Vec<i32> {
    let ranks: BTreeSet<i32> = ours.iter().copied().collect();
    let cuda_priority = |priority: &i32| {
        let above = ranks.iter().filter(|&r| r > priority).count() as i32;
        // With a single rank, all stay at the default.
        if ranks.len() < 2 { least } else { (greatest + above).min(least) }
    };
    ours.iter().map(cuda_priority).collect()
}

#[cfg(test)]
mod tests {
    use super::cuda_priorities;

    #[test]
    fn priorities_keep_their_ranks() {
        assert_eq!(cuda_priorities(&[3, 1, 2], (0, -5)), [-5, -3, -4]);
        assert_eq!(cuda_priorities(&[7, 7], (0, -5)), [0, 0]);
        assert_eq!(cuda_priorities(&[9, 8, 7], (0, -1)), [-1, 0, 0]);
    }
}
