//! The forms of a schedule on the GPU.

use std::sync::Arc;

use super::super::{Distribution, Form, Lane, Program, Schedule};
use super::call::Call;
use super::error::Result;
use super::exec::Executable;
use super::plan::{GraphPlan, LanePlan};
use super::record::Bound;
use crate::device::{EdgeKind, Stream};

/// Full, or programmatic where both ends are kernels that were built for it.
fn kind(program: &Program, programmatic: bool, before: usize, after: usize) -> EdgeKind {
    let built = |node: usize| program.nodes()[node].kernel().is_some_and(|k| k.programmatic);
    if programmatic && built(before) && built(after) { EdgeKind::Programmatic } else { EdgeKind::Full }
}

/// A distribution as lanes: streams keep their numbers, and the first is the one that launches are ordered in.
pub(super) fn lane_plan(distribution: &Distribution) -> LanePlan {
    let lane = |node: usize| distribution.stream[node] as usize;
    let priority = |lane: &Lane| match lane {
        Lane::Kernels { priority } => *priority,
        Lane::Copies(_) => 0,
    };
    LanePlan {
        order: distribution.order.iter().map(|id| (id.index(), lane(id.index()))).collect(),
        waits: distribution.waits.iter().map(|w| (w.before.index(), w.after.index())).collect(),
        priorities: distribution.lanes.iter().map(priority).collect(),
    }
}

/// The graph of a form; `None` for forms that are not graphs.
pub(super) fn graph_plan(program: &Program, schedule: &Schedule, form: Form) -> Option<GraphPlan> {
    let distribution = &schedule.chosen;
    let early = form.is_programmatic();
    let kind = |(a, b): (usize, usize)| (a, b, kind(program, early, a, b));
    let order: Vec<usize> = distribution.order.iter().map(|id| id.index()).collect();
    let pairs: Vec<(usize, usize)> = match form {
        Form::Serial | Form::Streams => return None,
        Form::SerialGraph | Form::SerialProgrammatic => order.windows(2).map(|w| (w[0], w[1])).collect(),
        Form::BranchGraph | Form::BranchProgrammatic => {
            schedule.dependences.reduced_edges().map(|e| (e.before.index(), e.after.index())).collect()
        }
        Form::LaneGraph | Form::LaneProgrammatic => {
            let mut last = vec![None; distribution.streams()];
            let mut pairs = Vec::new();
            for &node in &order {
                let last = &mut last[distribution.stream[node] as usize];
                pairs.extend(last.map(|before| (before, node)));
                *last = Some(node);
            }
            pairs.extend(distribution.waits.iter().map(|w| (w.before.index(), w.after.index())));
            pairs
        }
    };
    // One priority is none.
    let same = schedule.priority.windows(2).all(|pair| pair[0] == pair[1]);
    let priorities = if same { Vec::new() } else { schedule.priority.clone() };
    Some(GraphPlan { order, edges: pairs.into_iter().map(kind).collect(), priorities })
}

/// Builds a form of a program's schedule from the work of its nodes; launches are queued on `main`.
///
/// # Errors
/// [`super::Error::Plan`] when the schedule or the calls are of another program; device faults.
pub fn executable(
    main: &Arc<Stream>,
    program: &Program,
    calls: &Arc<[Call]>,
    schedule: &Schedule,
    form: Form,
) -> Result<Executable> {
    let device = main.device();
    if let Some(plan) = graph_plan(program, schedule, form) {
        return Executable::graph(device, main, calls, &plan);
    }
    let plan = match form {
        Form::Serial => LanePlan::serial(program.ids().map(|id| id.index())),
        _ => lane_plan(&schedule.chosen),
    };
    Executable::lanes(device, main, calls, &plan, false)
}

impl Bound {
    /// [`executable`] of this program.
    ///
    /// # Errors
    /// As [`executable`].
    pub fn executable(&self, main: &Arc<Stream>, schedule: &Schedule, form: Form) -> Result<Executable> {
        executable(main, self.program(), self.calls(), schedule, form)
    }
}
