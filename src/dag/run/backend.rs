//! The forms of a schedule on the GPU.

use std::sync::Arc;

use super::super::form::FormEdges;
use super::super::{Distribution, Form, Lane, Program, Refinement, Schedule};
use super::call::Call;
use super::error::Result;
use super::exec::Executable;
use super::plan::{GraphPlan, LanePlan};
use super::record::Bound;
use crate::device::{EdgeKind, Stream};

/// A distribution as lanes: streams keep their numbers, and the first is the one that launches are ordered in.
pub(super) fn lane_plan(distribution: &Distribution) -> LanePlan {
    let lane = |node: usize| distribution.stream[node] as usize;
    let priority = |lane: &Lane| match lane {
        Lane::Kernels { priority } => *priority,
        Lane::Copies(_) => 0,
    };
    let waits = distribution.waits.iter().chain(&distribution.gates);
    LanePlan {
        order: distribution.order.iter().map(|id| (id.index(), lane(id.index()))).collect(),
        waits: waits.map(|w| (w.before.index(), w.after.index())).collect(),
        priorities: distribution.lanes.iter().map(priority).collect(),
    }
}

/// The explicit graph of a form; `None` for forms that have none.
pub(super) fn graph_plan(program: &Program, schedule: &Schedule, form: Form) -> Option<GraphPlan> {
    if matches!(form, Form::Serial | Form::Streams | Form::AllStreams | Form::CapturedStreams) {
        return None;
    }
    let found = FormEdges::of(program, &schedule.dependences, schedule.plan(form), form);
    let kind = |early: bool| if early { EdgeKind::Programmatic } else { EdgeKind::Full };
    let edges = found.edges.iter().map(|&(before, after, early)| (before, after, kind(early))).collect();
    // One priority is none.
    let same = schedule.priority.windows(2).all(|pair| pair[0] == pair[1]);
    let priorities = if same { Vec::new() } else { schedule.priority.clone() };
    Some(GraphPlan { order: found.order, edges, priorities })
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
    match form {
        Form::Serial => {
            let plan = LanePlan::serial(program.ids().map(|id| id.index()));
            Executable::lanes(device, main, calls, &plan, false)
        }
        Form::CapturedStreams => {
            Executable::captured(device, main, calls, &lane_plan(schedule.plan(form)), false)
        }
        _ => Executable::lanes(device, main, calls, &lane_plan(schedule.plan(form)), false),
    }
}

impl Bound {
    /// [`executable`] of this program, refined as the schedule says where the form has programmatic edges.
    ///
    /// # Errors
    /// As [`executable`].
    pub fn executable(&self, main: &Arc<Stream>, schedule: &Schedule, form: Form) -> Result<Executable> {
        let plain = Refinement::default();
        let refinement = if form.is_programmatic() { &schedule.refinement } else { &plain };
        self.refined(main, schedule, form, refinement)
    }

    /// [`executable`] of this program with tiles that wait for tiles.
    ///
    /// # Errors
    /// [`super::Error::Unproved`] when a dependence would not be kept; as [`executable`].
    pub fn refined(
        &self,
        main: &Arc<Stream>,
        schedule: &Schedule,
        form: Form,
        refinement: &Refinement,
    ) -> Result<Executable> {
        if refinement.is_empty() {
            return executable(main, self.program(), self.calls(), schedule, form);
        }
        let calls = self.refined_calls(&schedule.dependences, refinement)?;
        calls.executable(main, self.program(), schedule, form)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{BufferId, Direction, LaunchConfig, Options, schedule};
    use super::super::record::Recording;
    use super::*;

    /// upload x; f(x -> y); g(x -> z); h(y, z -> w): a diamond behind a copy.
    fn diamond() -> (Program, Schedule) {
        let mut r = Recording::new("diamond");
        let x = r.filled("x", vec![0; 4]);
        let [y, z, w]: [BufferId; 3] = ["y", "z", "w"].map(|name| r.zeros(name, 4));
        r.copy(x, Direction::HostToDevice).expect("a valid node");
        let launch = LaunchConfig::linear(1, 32);
        for operands in
            [vec![r.read(x), r.write(y)], vec![r.read(x), r.write(z)], vec![r.read(y), r.read(z), r.write(w)]]
        {
            r.launch("k", launch, 20.0, &operands).expect("a valid node");
        }
        let program = r.program().clone();
        let found = schedule(&program, &Options::default());
        (program, found)
    }

    #[test]
    fn forms_have_the_edges_that_they_are_named_for() {
        use EdgeKind::{Full, Programmatic};
        let (program, schedule) = diamond();
        let edges = |form| {
            let mut edges = graph_plan(&program, &schedule, form).expect("a graph").edges;
            edges.sort_by_key(|e| (e.0, e.1));
            edges
        };
        let branches = [(0, 1, Full), (0, 2, Full), (1, 3, Full), (2, 3, Full)];
        assert_eq!(edges(Form::BranchGraph), branches);
        // Nothing is programmatic at a copy.
        let early = [(0, 1, Full), (0, 2, Full), (1, 3, Programmatic), (2, 3, Programmatic)];
        assert_eq!(edges(Form::BranchProgrammatic), early);
        assert_eq!(edges(Form::SerialGraph).len(), 3);
        for form in [Form::Serial, Form::Streams, Form::AllStreams, Form::CapturedStreams] {
            assert!(graph_plan(&program, &schedule, form).is_none(), "{}", form.name());
        }
        for form in Form::ALL {
            if let Some(plan) = graph_plan(&program, &schedule, form) {
                plan.predecessors(4).unwrap_or_else(|e| panic!("{}: {e}", form.name()));
                assert!(plan.priorities.is_empty(), "one zone has no priorities");
            }
        }
    }

    #[test]
    fn lanes_keep_streams_and_waits() {
        let (_, schedule) = diamond();
        let plan = lane_plan(&schedule.chosen);
        let steps = plan.steps(4).expect("a valid plan");
        assert_eq!(steps.lanes, schedule.chosen.streams());
        assert_eq!(plan.waits.len(), schedule.chosen.waits.len());
    }
}
