//! A model of a program on a device: nodes are fluids that share SMs, memory bandwidth and copy engines.
//!
//! A node alone runs at speed 1. Nodes of one priority that together demand more than is available slow down together;
//! those of lower priority get the rest. With `fair`, a zone that has fallen below half of its fair share (the device
//! divided by the number of active zones) is served first, up to a fair share, until it has caught up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cusync_gen::device::Profile;

use super::demand::Demand;
use super::dependence::Dependences;
use super::distribute::Distribution;
use super::form::{Form, FormEdges, StartDelays};
use super::program::{NodeId, Program};

/// The fraction of its fair share that a zone is guaranteed.
pub const SURE_SHARE: f64 = 0.5;

/// How far a zone may fall behind before it is served first, microseconds at full speed: without this, every zone
/// would be served first when the program begins.
pub const GRACE_US: f64 = 5.0;

/// A simulated run; times are in microseconds from the start of the host's first call.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// The start of each node.
    pub start: Vec<f64>,
    /// The end of each node.
    pub end: Vec<f64>,
    /// The end of each zone's last node.
    pub zone_end: Vec<f64>,
    /// The end of the program: when the device has noticed that its last node has ended.
    pub total_us: f64,
    /// Whether each node was served out of turn to keep its zone from starving.
    pub promoted: Vec<bool>,
}

impl Simulation {
    /// The same, stretched.
    pub(super) fn slowed(mut self, factor: f64) -> Simulation {
        let times = self.start.iter_mut().chain(&mut self.end).chain(&mut self.zone_end);
        times.for_each(|us| *us *= factor);
        self.total_us *= factor;
        self
    }
}

/// Simulates a form of a distribution. `fair` keeps zones of low priority from starving.
pub fn simulate(
    program: &Program,
    dependences: &Dependences,
    plan: &Distribution,
    form: Form,
    device: &Profile,
    fair: bool,
) -> Simulation {
    let edges = FormEdges::new(program, dependences, plan, form);
    simulate_edges(program, &edges, plan, form, device, fair)
}

/// The same, with the edges of the form.
pub(super) fn simulate_edges(
    program: &Program,
    edges: &FormEdges,
    plan: &Distribution,
    form: Form,
    device: &Profile,
    fair: bool,
) -> Simulation {
    let delays = StartDelays::new(program, plan, form, edges, device);
    let mut line = Machine::new(program, &delays, device, fair).run();
    line.total_us += delays.tail_us;
    line
}

struct Active {
    node: usize,
    zone: usize,
    priority: i32,
    left: f64,
    speed: f64,
    demand: [f64; 4],
}

/// State of a zone during a run.
#[derive(Clone, Copy, Default)]
struct Share {
    /// Service received beyond the guaranteed share, microseconds at full speed.
    credit: f64,
    /// Rate of change of `credit`.
    rate: f64,
    lagging: bool,
}

struct Machine<'a> {
    program: &'a Program,
    delays: &'a StartDelays<'a>,
    demands: Vec<[f64; 4]>,
    missing: Vec<u32>,
    ready: Vec<f64>,
    /// Nodes with no unfinished predecessors, by possible start time: the bits of non-negative floats sort like their
    /// values.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    active: Vec<Active>,
    zones: Vec<Share>,
    resident: usize,
    fair: bool,
    interference: f64,
    line: Simulation,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, delays: &'a StartDelays<'a>, device: &Profile, fair: bool) -> Self {
        let n = program.nodes().len();
        let zones = program.zones().len();
        let mut machine = Machine {
            program,
            demands: program.nodes().iter().map(|node| Demand::new(node, device).parts()).collect(),
            delays,
            missing: delays.network.into().to_vec(),
            ready: delays.release.clone(),
            queue: BinaryHeap::new(),
            active: Vec::new(),
            zones: vec![Share { credit: GRACE_US, ..Share::default() }; zones],
            resident: device.programs.resident_kernels.max(1),
            fair: fair && zones > 1,
            interference: if zones > 1 { device.programs.interference } else { 0.0 },
            line: Simulation {
                start: vec![0.0; n],
                end: vec![0.0; n],
                zone_end: vec![0.0; zones],
                total_us: 0.0,
                promoted: vec![false; n],
            },
        };
        for node in 0..n {
            if machine.missing[node] == 0 {
                machine.enqueue(node);
            }
        }
        machine
    }

    fn enqueue(&mut self, node: usize) {
        self.queue.push(Reverse((self.ready[node].to_bits(), node)));
    }

    /// When the next node can start.
    fn next_at(&self) -> Option<f64> {
        self.queue.peek().map(|next| f64::from_bits(next.0.0))
    }

    /// Takes a node that can start by now.
    fn pop(&mut self, now: f64) -> Option<usize> {
        self.next_at().filter(|at| *at <= now)?;
        self.queue.pop().map(|next| next.0.1)
    }

    fn run(self) -> Simulation {
        match self.zones.len() {
            0 | 1 => self.run_alike(),
            _ => self.run_zones(),
        }
    }

    /// All nodes have one zone, so they run at the same speed at any time: a node ends when the work that every active
    /// node has done since the start has grown by its own.
    fn run_alike(mut self) -> Simulation {
        let (mut now, mut done) = (0.0, 0.0);
        let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut asked = [0.0; 4];
        loop {
            while ends.len() < self.resident
                && let Some(node) = self.pop(now)
            {
                self.line.start[node] = now;
                let end: f64 = done + self.program.nodes()[node].us;
                ends.push(Reverse((end.to_bits(), node)));
                asked.iter_mut().zip(self.demands[node]).for_each(|(sum, own)| *sum += own);
            }
            let Some(&Reverse((first, _))) = ends.peek() else {
                // Nothing is asked for now; this drops errors of rounding.
                asked = [0.0; 4];
                let Some(at) = self.next_at() else { return self.line };
                now = f64::max(now, at);
                continue;
            };
            let speed =
                asked.iter().filter(|sum| **sum > 0.0).fold(1.0, |speed: f64, sum| speed.min(1.0 / sum));
            let mut step = (f64::from_bits(first) - done) / speed;
            if ends.len() < self.resident
                && let Some(at) = self.next_at()
            {
                step = step.min(at - now);
            }
            now += step;
            done += step * speed;
            while let Some(&Reverse((end, node))) = ends.peek()
                && f64::from_bits(end) - done <= 1e-9
            {
                ends.pop();
                asked.iter_mut().zip(self.demands[node]).for_each(|(sum, own)| *sum -= own);
                self.end(node, now);
            }
        }
    }

    fn run_zones(mut self) -> Simulation {
        let mut now = 0.0;
        loop {
            while self.active.len() < self.resident
                && let Some(node) = self.pop(now)
            {
                self.begin(node, now);
            }
            if self.active.is_empty() {
                let Some(at) = self.next_at() else { return self.line };
                now = f64::max(now, at);
                continue;
            }
            self.set_speeds();
            let mut step = self.active.iter().map(|a| a.left / a.speed).fold(f64::INFINITY, f64::min);
            if self.active.len() < self.resident
                && let Some(at) = self.next_at()
            {
                step = step.min(at - now);
            }
            // Stop at the time when a zone would fall behind.
            let falling = |z: &&Share| !z.lagging && z.rate < 0.0 && z.credit > 0.0;
            if self.fair {
                step = self.zones.iter().filter(falling).map(|z| z.credit / -z.rate).fold(step, f64::min);
            }
            now += step;
            self.advance(now, step);
        }
    }

    fn begin(&mut self, node: usize, now: f64) {
        let this_node = &self.program.nodes()[node];
        self.line.start[node] = now;
        self.active.push(Active {
            node,
            zone: this_node.zone.index(),
            priority: self.program.priority(NodeId::from(node)),
            left: this_node.us,
            speed: 1.0,
            demand: self.demands[node],
        });
    }

    fn advance(&mut self, now: f64, step: f64) {
        for zone in &mut self.zones {
            zone.credit = (zone.credit + zone.rate * step).max(0.0);
            // Values below rounding count as 0; otherwise the clock would not advance.
            zone.credit = if zone.credit < 1e-9 { 0.0 } else { zone.credit };
        }
        let mut i = 0;
        while i < self.active.len() {
            let active = &mut self.active[i];
            active.left -= active.speed * step;
            if active.left > 1e-9 {
                i += 1;
                continue;
            }
            let node = self.active.swap_remove(i).node;
            self.end(node, now);
        }
    }

    /// Ends a node, and lets those that only waited for it start.
    fn end(&mut self, node: usize, now: f64) {
        let zone = self.program.nodes()[node].zone.index();
        self.line.end[node] = now;
        self.line.total_us = f64::max(self.line.total_us, now);
        self.line.zone_end[zone] = f64::max(self.line.zone_end[zone], now);
        let (delays, ready, queue) = (self.delays, &mut self.ready, &mut self.queue);
        let nodes = self.line.end.len();
        delays.network.done(node, &mut self.missing, &mut |before, after, free| {
            let end = if before < nodes { now } else { ready[before] };
            ready[after] = f64::max(ready[after], end + delays.delay_us(before, after));
            if free && after < nodes {
                queue.push(Reverse((ready[after].to_bits(), after)));
            }
        });
    }

    /// Sets the speed of every active node.
    fn set_speeds(&mut self) {
        let mut left = [1.0; 4];
        // Nodes served first, then the others by priority.
        self.active.sort_unstable_by_key(|a| (std::cmp::Reverse(a.priority), a.node));
        let mut served = 0;
        if self.fair {
            served = self.serve_lagging(&mut left);
        }
        for group in self.active[served..].chunk_by_mut(|a, b| a.priority == b.priority) {
            serve(group, &mut left, 1.0);
        }
        if self.interference > 0.0 {
            self.interfere();
        }
        if self.fair {
            self.set_rates();
        }
    }

    /// Slows every node by the device usage of other zones.
    fn interfere(&mut self) {
        let mut had = vec![0.0; self.zones.len()];
        for a in &self.active {
            had[a.zone] += a.speed * f64::max(a.demand[0], a.demand[1]);
        }
        let all: f64 = had.iter().sum();
        for a in &mut self.active {
            a.speed /= 1.0 + self.interference * (all - had[a.zone]).min(1.0);
        }
    }

    /// Serves the zones without credit up to a fair share each; returns the number of their nodes.
    fn serve_lagging(&mut self, left: &mut [f64; 4]) -> usize {
        let present = |active: &[Active], zone: usize| active.iter().any(|a| a.zone == zone);
        let working = (0..self.zones.len()).filter(|&z| present(&self.active, z)).count();
        let top = self.active.iter().map(|a| a.priority).max();
        for z in 0..self.zones.len() {
            let below = self.active.iter().any(|a| a.zone == z && Some(a.priority) < top);
            self.zones[z].lagging = below && self.zones[z].credit <= 0.0;
        }
        let zones = &self.zones;
        self.active.sort_by_key(|a| (!zones[a.zone].lagging, if zones[a.zone].lagging { a.zone } else { 0 }));
        let count = self.active.iter().filter(|a| zones[a.zone].lagging).count();
        for group in self.active[..count].chunk_by_mut(|a, b| a.zone == b.zone) {
            serve(group, left, 1.0 / working as f64);
            group.iter().for_each(|a| self.line.promoted[a.node] = true);
        }
        count
    }

    /// How fast zones gain on their guaranteed share.
    fn set_rates(&mut self) {
        let zones = self.zones.len();
        let mut totals = vec![[0.0; 4]; zones];
        let mut speed = vec![None; zones];
        for a in &self.active {
            totals[a.zone].iter_mut().zip(a.demand).for_each(|(t, d)| *t += d);
            let slowest: &mut Option<f64> = &mut speed[a.zone];
            *slowest = Some(slowest.map_or(a.speed, |s| s.min(a.speed)));
        }
        let working = speed.iter().flatten().count().max(1) as f64;
        for ((zone, total), speed) in self.zones.iter_mut().zip(&totals).zip(&speed) {
            let alone = total.iter().map(|&t| 1.0 / t.max(1.0)).fold(1.0, f64::min);
            // An idle zone saves no credit for later, or it could starve others with it.
            zone.rate = speed.map_or(0.0, |speed| speed - SURE_SHARE * alone / working);
            zone.credit = if speed.is_some() { zone.credit } else { zone.credit.min(GRACE_US) };
        }
    }
}

/// Serves nodes at equal speed, limited by the remaining capacity and by a share of the whole.
fn serve(group: &mut [Active], left: &mut [f64; 4], share: f64) {
    let mut speed: f64 = 1.0;
    for (r, left) in left.iter().enumerate() {
        let asked: f64 = group.iter().map(|a| a.demand[r]).sum();
        if asked > 0.0 {
            speed = speed.min(left.min(share).max(0.0) / asked);
        }
    }
    for a in group {
        a.speed = speed;
        left.iter_mut().zip(a.demand).for_each(|(left, d)| *left -= speed * d);
    }
}
