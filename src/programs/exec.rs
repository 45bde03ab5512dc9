//! Executables: a program with its streams, events or graph, launched any number of times.

use std::collections::BTreeSet;
use std::sync::Arc;

use cusync_dag::{Form, Join, KernelSchedule, LaunchPlan, LaunchStep, Launches, ProvedPlan, Steps};

use super::calls::{Call, Calls};
use super::error::{Error, Result};
use super::tiled::Watch;
use crate::device::{EdgeKind, Event, Graph, GraphExec, Stream};

/// A program that can be launched repeatedly. It keeps the program's memory alive, and its launches are
/// ordered one after the other.
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
        steps: Vec<LaunchStep>,
        programmatic: bool,
    },
    Graph(GraphExec),
}

impl Calls {
    /// Builds an executable for a proved plan; launches are queued on `main`.
    ///
    /// # Errors
    /// [`Error::OtherProgram`]; device errors.
    pub fn executable(&self, main: &Arc<Stream>, plan: &ProvedPlan) -> Result<Executable> {
        match plan.is_of(&self.program) {
            true => Executable::new(self, main, plan.launches()),
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
    fn new(calls: &Calls, main: &Arc<Stream>, launches: &Launches) -> Result<Executable> {
        let built = |how| {
            let (calls, watch) = (calls.calls.clone(), calls.watch.clone());
            Executable { main: main.clone(), how, calls, watch }
        };
        match launches {
            Launches::Graph { order, before, joins, priorities } => {
                Ok(built(How::Graph(graph(&calls.calls, main, order, before, joins, priorities)?)))
            }
            Launches::Streams { steps, programmatic, captured } => {
                let eager = built(eager(main, steps, *programmatic)?);
                if !captured {
                    return Ok(eager);
                }
                let exec = Graph::captured(main, || eager.enqueue())?.instantiate(main)?;
                Ok(built(How::Graph(exec)))
            }
        }
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
                        LaunchStep::Run { node, lane, chained } => {
                            self.calls[node].enqueue(stream(lane), *programmatic && chained)?;
                        }
                        LaunchStep::Record { event, lane } => stream(lane).record(&events[event])?,
                        LaunchStep::Wait { event, lane } => stream(lane).wait(&events[event])?,
                    }
                }
                Ok(())
            }
        }
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

/// Creates the streams; events are for ordering only (no time stamps) and are reused in every launch.
fn eager(main: &Stream, plan: &Steps, programmatic: bool) -> Result<How> {
    let device = main.device();
    let priorities = cuda_priorities(&plan.priorities, Stream::priorities(device)?);
    let stream = |p: &i32| Stream::with_priority(device, *p);
    let lanes = priorities.iter().map(stream).collect::<std::result::Result<_, _>>()?;
    let events = (0..plan.events).map(|_| Event::ordering(device)).collect::<std::result::Result<_, _>>()?;
    Ok(How::Eager { lanes, events, steps: plan.steps.clone(), programmatic })
}

/// A graph of explicit nodes and edges.
fn graph(
    calls: &[Call],
    main: &Stream,
    order: &[usize],
    before: &[Vec<(usize, bool)>],
    joins: &[Join],
    priorities: &[i32],
) -> Result<GraphExec> {
    let device = main.device();
    let mut priority: Vec<Option<i32>> = vec![None; calls.len()];
    if priorities.len() == calls.len() {
        let cuda = cuda_priorities(priorities, Stream::priorities(device)?);
        priority = cuda.into_iter().map(Some).collect();
    }
    let mut graph = Graph::new(device)?;
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
        });
    }
    Ok(graph.instantiate(main)?)
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
