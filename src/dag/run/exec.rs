//! Executables: a program with its streams, events or graph, launched any number of times.

use std::sync::Arc;

use super::call::Call;
use super::error::Result;
use super::plan::{GraphPlan, LanePlan, Step, Steps, cuda_priorities};
use super::tiled::Watch;
use crate::device::{Device, Event, Graph, GraphExec, Stream};

/// Something that can be launched again and again. It keeps the program's memory, and launches are ordered one after
/// the other.
#[derive(Debug)]
pub struct Executable {
    main: Arc<Stream>,
    how: How,
    calls: Arc<[Call]>,
    watch: Option<Arc<Watch>>,
}

#[derive(Debug)]
enum How {
    /// Steps that the host queues; lane 0 is the main stream.
    Eager {
        lanes: Vec<Stream>,
        events: Vec<Event>,
        steps: Vec<Step>,
        programmatic: bool,
    },
    Graph(GraphExec),
}

impl Executable {
    /// Queues nodes on streams. Events order only (they take no time stamps) and are used anew in every launch; streams
    /// are made here. `programmatic`: a kernel that directly follows another in its lane begins to launch while that one
    /// ends; all kernels must then be built for it.
    pub fn lanes(
        device: &Device,
        main: &Arc<Stream>,
        calls: &Arc<[Call]>,
        plan: &LanePlan,
        programmatic: bool,
    ) -> Result<Executable> {
        let mut ours = plan.priorities.clone();
        let lanes = plan.order.iter().map(|&(_, lane)| lane + 1).max().unwrap_or(1);
        ours.resize(lanes, 0);
        let mut priorities = cuda_priorities(&ours, Stream::priorities(device)?);
        let mut plan = plan.clone();
        // The main stream stands for the first lane, unless lanes differ in priority: then it only forks and joins.
        if priorities.iter().any(|p| *p != priorities[0]) {
            plan.order.iter_mut().for_each(|(_, lane)| *lane += 1);
        } else {
            priorities.remove(0);
        }
        let Steps { steps, events, .. } = plan.steps(calls.len())?;
        let stream = |p: &i32| Stream::with_priority(device, *p);
        let lanes = priorities.iter().map(stream).collect::<std::result::Result<_, _>>()?;
        let events = (0..events).map(|_| Event::ordering(device)).collect::<std::result::Result<_, _>>()?;
        let how = How::Eager { lanes, events, steps, programmatic };
        Ok(Executable { main: main.clone(), how, calls: calls.clone(), watch: None })
    }

    /// A graph of explicit nodes and edges. An edge from or to a copy is always a full one.
    pub fn graph(
        device: &Device,
        main: &Arc<Stream>,
        calls: &Arc<[Call]>,
        plan: &GraphPlan,
    ) -> Result<Executable> {
        let before = plan.predecessors(calls.len())?;
        let mut priorities: Vec<Option<i32>> = vec![None; calls.len()];
        if plan.priorities.len() == calls.len() {
            let of = cuda_priorities(&plan.priorities, Stream::priorities(device)?);
            priorities = of.into_iter().map(Some).collect();
        }
        let mut graph = Graph::new(device)?;
        let mut nodes = vec![None; calls.len()];
        for &node in &plan.order {
            let after: Vec<_> =
                before[node].iter().filter_map(|&(first, kind)| Some((nodes[first]?, kind))).collect();
            nodes[node] = Some(match &calls[node] {
                Call::Kernel(call) => graph.add_kernel(call, &after, priorities[node])?,
                Call::Copy(call) => graph.add_copy(call, &after)?,
            });
        }
        let exec = graph.instantiate(main)?;
        Ok(Executable { main: main.clone(), how: How::Graph(exec), calls: calls.clone(), watch: None })
    }

    /// What [`Executable::lanes`] queues, captured into a graph.
    pub fn captured(
        device: &Device,
        main: &Arc<Stream>,
        calls: &Arc<[Call]>,
        plan: &LanePlan,
        programmatic: bool,
    ) -> Result<Executable> {
        let eager = Executable::lanes(device, main, calls, plan, programmatic)?;
        let graph = Graph::captured(main, || eager.enqueue())?;
        let exec = graph.instantiate(main)?;
        Ok(Executable { main: main.clone(), how: How::Graph(exec), calls: calls.clone(), watch: None })
    }

    /// Captures the nodes in order on one stream, as a user's serial code would be, without making it ready to launch.
    pub fn serial_graph(main: &Stream, calls: &[Call]) -> Result<Graph> {
        Ok(Graph::captured(main, || calls.iter().try_for_each(|call| call.enqueue(main, false)))?)
    }

    /// The same, whose faults name the waits for tiles that caused them.
    pub(super) fn watched(self, watch: Arc<Watch>) -> Executable {
        Executable { watch: Some(watch), ..self }
    }

    /// Queues one run on the main stream.
    pub fn launch(&self) -> Result<()> {
        Ok(self.enqueue()?)
    }

    fn enqueue(&self) -> crate::device::Result<()> {
        match &self.how {
            How::Graph(exec) => exec.launch(&self.main),
            How::Eager { lanes, events, steps, programmatic } => {
                let stream = |lane: usize| if lane == 0 { &*self.main } else { &lanes[lane - 1] };
                for step in steps {
                    match *step {
                        Step::Run { node, lane, chained } => {
                            self.calls[node].enqueue(stream(lane), *programmatic && chained)?;
                        }
                        Step::Record { event, lane } => stream(lane).record(&events[event])?,
                        Step::Wait { event, lane } => stream(lane).wait(&events[event])?,
                    }
                }
                Ok(())
            }
        }
    }

    /// Where it is queued.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.main
    }

    /// Waits for what was queued.
    pub fn synchronize(&self) -> Result<()> {
        let ended = self.main.synchronize();
        match self.watch.as_ref().and_then(|watch| watch.late()) {
            Some(late) => Err(late),
            None => Ok(ended?),
        }
    }
}
