//! Gates for tasks of lower priority, which limit how much they slow the highest-priority tasks.
//!
//! A GPU does not preempt running work and serves memory to all kernels alike, so priorities alone do not keep a task
//! from being slowed by others. Gates do: the first nodes of the other tasks wait for a node of the highest-priority
//! tasks. The later that node, the less the tasks overlap. Among the gates with which the highest tasks keep their
//! time and no other task falls below its guaranteed share, the one with the smallest total time is chosen. If no gate
//! keeps a task from starving, its nodes are raised.

use super::dependence::{Dependences, analyse};
use super::distribute::all_concurrency;
use super::form::Form;
use super::program::{NodeId, Program, ZoneId};
use super::simulate::{SURE_SHARE, Simulation, simulate};
use super::times::Times;
use cusync_gen::device::Profile;

/// Maximum time of the highest-priority tasks together, relative to their time without the others.
pub const MOST_SLOWDOWN: f64 = 1.05;

/// Maximum number of gates tried.
const TRIED: usize = 24;

/// The form in which gates are compared: every other form has at least its edges.
const FORM: Form = Form::BRANCH_GRAPH;

/// When tasks of lower priority may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Admit {
    /// After the node that the model finds best.
    #[default]
    Model,
    /// Immediately.
    Free,
    /// After this node of a highest-priority task.
    After(NodeId),
}

/// A gate and its predicted effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// The node after which tasks of lower priority begin; `None`: immediately.
    pub after: Option<NodeId>,
    /// Pairs of that node and a first node of the other tasks, which it holds back.
    pub gates: Vec<(NodeId, NodeId)>,
    /// End of the highest-priority tasks, relative to their end without the others.
    pub slowdown: f64,
    /// Minimum over the other tasks of their time alone divided by their time together, in units of a fair share
    /// (the device divided by the number of tasks).
    pub share: f64,
    /// Whether nodes of tasks that would starve are served out of turn.
    pub raised: bool,
    /// End of the whole program, microseconds.
    pub total_us: f64,
}

impl Admission {
    /// The admission as a sentence.
    pub(super) fn reason(&self, program: &Program) -> String {
        let begin = self.after.map_or("at once".into(), |id| format!("after {}", program.node(id).name));
        let raised = if self.raised { "; nodes of tasks that would starve are raised" } else { "" };
        format!(
            "tasks of lower priority begin {begin}: the highest take {:.2} of their time alone, the others at least {:.2} \
             of a fair share{raised}",
            self.slowdown, self.share
        )
    }

    fn keeps_shares(&self) -> bool {
        self.share >= SURE_SHARE
    }

    /// Whether it is better than another: first by keeping shares, then by slowdown, then by total time.
    fn beats(&self, other: &Admission) -> bool {
        let quick = |a: &Admission| a.slowdown <= MOST_SLOWDOWN;
        match (self.keeps_shares(), other.keeps_shares()) {
            (true, true) => match (quick(self), quick(other)) {
                (true, true) => self.total_us < other.total_us,
                (false, false) => self.slowdown < other.slowdown,
                (own, _) => own,
            },
            (false, false) => self.share > other.share,
            (own, _) => own,
        }
    }
}

/// Times of tasks without the others.
pub(super) struct Alone {
    zones: Vec<ZoneId>,
    top: i32,
    /// The end of the highest-priority tasks without the others.
    highest_us: f64,
    /// The end of each zone without the others; 0 for zones without nodes.
    zone_us: Vec<f64>,
}

impl Alone {
    /// `None` if all tasks have the same priority.
    pub(super) fn new(program: &Program, device: &Profile) -> Option<Alone> {
        let zone_of = |node: &super::Node| node.zone;
        let mut zones: Vec<ZoneId> = program.nodes().iter().map(zone_of).collect();
        zones.sort_unstable_by_key(|z| z.index());
        zones.dedup();
        let priority = |z: &ZoneId| program.zones()[z.index()].priority;
        let top = zones.iter().map(priority).max()?;
        if zones.iter().all(|z| priority(z) == top) {
            return None;
        }
        let end = |keep: &dyn Fn(ZoneId) -> bool| {
            let task = program.only(keep);
            let dependences = analyse(&task);
            let plan = all_concurrency(&task, &dependences, &Times::new(&task, &dependences));
            simulate(&task, &dependences, &plan, FORM, device, false).total_us
        };
        let mut zone_us = vec![0.0; program.zones().len()];
        for zone in &zones {
            zone_us[zone.index()] = end(&|z| z == *zone);
        }
        let highest_us = end(&|z| priority(&z) == top);
        Some(Alone { zones, top, highest_us, zone_us })
    }

    fn is_top(&self, program: &Program, zone: ZoneId) -> bool {
        program.zones()[zone.index()].priority == self.top
    }

    /// The harm of a simulated run: 0: none; 1: it slows the highest-priority tasks; 2: it starves others.
    pub(super) fn harm(&self, program: &Program, line: &Simulation) -> u8 {
        match self.judge(program, line) {
            (_, share) if share < SURE_SHARE => 2,
            (slowdown, _) => u8::from(slowdown > MOST_SLOWDOWN),
        }
    }

    /// Slowdown of the highest-priority tasks, and the minimum share of the others.
    fn judge(&self, program: &Program, line: &Simulation) -> (f64, f64) {
        let (mut highest, mut share) = (0.0, f64::INFINITY);
        for &zone in &self.zones {
            let end = line.zone_end[zone.index()];
            if self.is_top(program, zone) {
                highest = f64::max(highest, end);
            } else if end > 0.0 {
                share = f64::min(share, self.zone_us[zone.index()] / end * self.zones.len() as f64);
            }
        }
        (highest / self.highest_us, share)
    }
}

/// Decides when tasks of lower priority begin.
pub(super) fn admit(
    program: &Program,
    alone: &Alone,
    dependences: &Dependences,
    device: &Profile,
    how: Admit,
) -> Option<Admission> {
    let try_one = |after: Option<NodeId>, raised: bool| {
        let gates = after.map_or(Vec::new(), |id| gates_after(program, dependences, alone, id));
        let gated = dependences.gated(&gates);
        let plan = all_concurrency(program, &gated, &Times::new(program, &gated));
        let line = simulate(program, &gated, &plan, FORM, device, raised);
        let (slowdown, share) = alone.judge(program, &line);
        Admission { after, gates, slowdown, share, raised, total_us: line.total_us }
    };
    let tried: Vec<Option<NodeId>> = match how {
        Admit::Free => vec![None],
        Admit::After(id) => vec![Some(id).filter(|id| id.index() < program.nodes().len())],
        Admit::Model => candidates(program, dependences, alone),
    };
    let best = |raised: bool| {
        let all = tried.iter().map(|&after| try_one(after, raised));
        all.reduce(|best, next| if next.beats(&best) { next } else { best })
    };
    let plain = best(false)?;
    if plain.keeps_shares() {
        return Some(plain);
    }
    best(true).map(|raised| if raised.beats(&plain) { raised } else { plain })
}

/// No gate, and nodes of the highest-priority tasks by their earliest end.
fn candidates(program: &Program, dependences: &Dependences, alone: &Alone) -> Vec<Option<NodeId>> {
    let times = Times::new(program, dependences);
    let mut nodes: Vec<NodeId> =
        program.ids().filter(|&id| alone.is_top(program, program.node(id).zone)).collect();
    nodes.sort_by(|a, b| times.end[a.index()].total_cmp(&times.end[b.index()]).then(a.cmp(b)));
    let step = nodes.len().div_ceil(TRIED).max(1);
    // Always include the last node: after it, nothing overlaps.
    let last = nodes.last().copied();
    let spaced = nodes.into_iter().step_by(step).filter(|id| Some(*id) != last).map(Some);
    std::iter::once(None).chain(spaced).chain(last.map(Some)).collect()
}

/// From a node to every first node of lower-priority tasks that it does not depend on.
fn gates_after(
    program: &Program,
    dependences: &Dependences,
    alone: &Alone,
    before: NodeId,
) -> Vec<(NodeId, NodeId)> {
    let held = |&after: &NodeId| {
        let lower = !alone.is_top(program, program.node(after).zone);
        lower
            && dependences.reduced.of_node(after.index()).is_empty()
            && after != before
            && !dependences.reaches(after, before)
    };
    program.ids().filter(held).map(|after| (before, after)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{
        AccessMode, Kernel, KernelSchedule, LaunchConfig, Node, NodeWork, ScheduleOptions, schedule,
    };
    use cusync_gen::device::DEVICES;

    use super::*;

    /// A chain of kernels that fill `part` of 1056 CTAs.
    fn chain(kernels: usize, us: f64, ctas: u32) -> Program {
        let mut program = Program::new("chain");
        let x = program.buffer("x", 64);
        for k in 0..kernels {
            let kernel = Kernel { programmatic: true, ..Kernel::new(LaunchConfig::linear(ctas, 256), &[]) };
            let accesses = vec![program.whole(x, AccessMode::ReadWrite)];
            let node = Node::new(format!("k{k}"), NodeWork::Kernel(kernel), accesses, us);
            program.push(node).expect("a valid node");
        }
        program
    }

    fn scheduled(tasks: &[(&Program, i32)], admit: Admit) -> (Program, KernelSchedule) {
        let merged = Program::merge("together", tasks).expect("small");
        let found =
            schedule(&merged, &ScheduleOptions { admit, ..ScheduleOptions::default() }).expect("no limit");
        (merged, found)
    }

    #[test]
    fn the_highest_keeps_its_time_and_the_others_their_share() {
        let (high, low) = (chain(10, 10.0, 500), chain(10, 5.0, 1056));
        for tasks in [[(&high, 2), (&low, 1)], [(&low, 1), (&high, 2)]] {
            let (_, free) = scheduled(&tasks, Admit::Free);
            let (_, model) = scheduled(&tasks, Admit::Model);
            let (free, model) =
                (free.admission.expect("two priorities"), model.admission.expect("two priorities"));
            assert!(free.slowdown > MOST_SLOWDOWN, "{free:?}");
            assert!(model.slowdown <= MOST_SLOWDOWN && model.share >= SURE_SHARE, "{model:?}");
            assert!(model.after.is_some() && !model.raised, "{model:?}");
        }
    }

    #[test]
    fn a_gate_that_starves_is_not_chosen() {
        // The high task is 50 times as long: the low one must not wait for its end.
        let (high, low) = (chain(100, 10.0, 500), chain(4, 5.0, 1056));
        let (program, found) = scheduled(&[(&high, 2), (&low, 1)], Admit::Model);
        let model = found.admission.clone().expect("two priorities");
        assert!(model.share >= SURE_SHARE, "{model:?}");
        let (_, last) = scheduled(&[(&high, 2), (&low, 1)], Admit::After(NodeId(99)));
        assert!(last.admission.expect("two priorities").share < SURE_SHARE);
        assert_eq!(found.priority.len(), program.nodes().len());
    }

    #[test]
    fn gates_close_no_cycle_and_hold_the_others_back() {
        let (high, low) = (chain(6, 10.0, 500), chain(5, 5.0, 1056));
        // The lower task comes first in the code, but its nodes are still issued after the gate.
        let (program, found) = scheduled(&[(&low, 1), (&high, 2)], Admit::After(NodeId(7)));
        let plan = &found.chosen;
        let gates = &found.admission.as_ref().expect("two priorities").gates;
        assert_eq!(*gates, [(NodeId(7), NodeId(0))]);
        assert!(plan.waits.iter().any(|w| (w.before, w.after) == gates[0]), "{:?}", plan.waits);
        let place = |id: NodeId| plan.order.iter().position(|o| *o == id).expect("issued");
        assert_eq!(plan.order.len(), program.nodes().len());
        assert!(place(NodeId(7)) < place(NodeId(0)));
        for edge in found.dependences.edges.iter() {
            assert!(place(edge.before) < place(edge.after));
        }
        let line = simulate(&program, &found.gated, plan, FORM, &DEVICES[0], false);
        assert!(line.start[0] >= line.end[7]);
    }

    #[test]
    fn what_the_highest_waits_for_is_not_held_back() {
        let mut program = Program::new("shared");
        let x = program.buffer("x", 64);
        let low = program.zone("low", 0);
        let high = program.zone("high", 1);
        for (k, zone) in [low, high, high, low].into_iter().enumerate() {
            let mut node = chain(1, 5.0, 100).nodes()[0].clone();
            node.name = format!("k{k}");
            node.zone = zone;
            node.accesses = if k < 3 { vec![program.whole(x, AccessMode::ReadWrite)] } else { Vec::new() };
            program.push(node).expect("a valid node");
        }
        let found = schedule(
            &program,
            &ScheduleOptions { admit: Admit::After(NodeId(2)), ..ScheduleOptions::default() },
        )
        .expect("no limit");
        assert_eq!(found.admission.expect("two priorities").gates, [(NodeId(2), NodeId(3))]);
        assert_eq!(found.chosen.order.len(), 4);
    }

    #[test]
    fn one_priority_needs_no_gate() {
        let (a, b) = (chain(3, 5.0, 100), chain(3, 5.0, 100));
        assert!(scheduled(&[(&a, 1), (&b, 1)], Admit::Model).1.admission.is_none());
    }
}
