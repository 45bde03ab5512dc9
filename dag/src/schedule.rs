//! From a program to its launch form, and the predicted times of all forms.

use std::collections::HashMap;

use cusync_gen::device::{DEVICES, Profile};

use super::admit::{Admission, Admit, Alone, admit};
use super::dependence::{Dependences, analyse};
use super::distribute::{Distribution, Lane, both};
use super::error::{DagError, Unproved};
use super::form::{Carrier, EdgeSource, Form, FormEdges};
use super::limit::{limited, limited_along};
use super::network::Network;
use super::plan::{GraphPlan, LaunchPlan, ProvedPlan, StreamPlan};
use super::program::{NodeId, Program};
use super::refine::{Refine, Refinement, refine};
use super::reuse::{LimitedArena, fit, fit_serial};
use super::simulate::{Simulation, simulate, simulate_edges};
use super::times::Times;

/// Numbers of streams tried below full concurrency.
const LIMITS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];

/// Predicted slowdown that is accepted for fewer streams: smaller differences are below the model's accuracy.
const TIE: f64 = 1.005;

/// Slowdown, relative to the model, of a program in which independent kernels share a stream: a kernel that ends
/// leaves SMs idle, which the fluid model always uses.
const SHARED: f64 = 1.12;

/// Predicted times within this factor of the fastest do not decide between forms: with 1.15 the choice is worse than the
/// best constant form on measured programs.
const CLOSE: f64 = 1.3;

/// Options of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleOptions {
    /// Maximum streams of kernels, and so of concurrent kernels, in whatever form is chosen; `None`: as many as help.
    pub streams: Option<usize>,
    /// Maximum bytes of all temporaries, in one arena; `None`: as many as concurrency asks for. Rendered programs
    /// allocate the arena. A recording keeps buffers of its own, and for it the limit only adds dependences.
    pub memory: Option<u64>,
    /// Forms to choose from.
    pub forms: Vec<Form>,
    /// The profile of the device.
    pub device: Profile,
    /// When tasks of lower priority may begin.
    pub admit: Admit,
}

impl Default for ScheduleOptions {
    /// Every form, on the first shipped device.
    fn default() -> Self {
        ScheduleOptions {
            streams: None,
            memory: None,
            forms: Form::ALL.to_vec(),
            device: DEVICES[0].clone(),
            admit: Admit::Model,
        }
    }
}

/// The predicted time of a form.
#[derive(Clone, Debug, PartialEq)]
pub struct FormPrediction {
    /// The form.
    pub form: Form,
    /// Its streams, those of copies included; of a graph, lanes ([`KernelSchedule::streams`]).
    pub streams: usize,
    /// Microseconds from the host's first call to the last node's end.
    pub us: f64,
    /// With several priorities, its harm: 0: none; 1: it slows the highest; 2: it starves others. Less harm wins over
    /// less time.
    pub harm: u8,
}

/// A program's schedule.
#[derive(Clone, Debug)]
pub struct KernelSchedule {
    /// The dependences.
    pub dependences: Dependences,
    /// The dependences with the gates that delay tasks of lower priority, and those that let temporaries reuse memory;
    /// streams and graphs are built from these.
    pub gated: Dependences,
    /// Levels and paths.
    pub times: Times,
    /// Full concurrency (as far as [`ScheduleOptions::streams`] allows), with the fewest waits.
    pub full: Distribution,
    /// The same in program order, with copies on the streams of their kernels: the lanes of graphs whose edges are
    /// dependences.
    pub written: Distribution,
    /// With no more streams than help; most forms use it.
    pub chosen: Distribution,
    /// The chosen form.
    pub form: Form,
    /// When tasks of lower priority begin; `None` if all have the same priority.
    pub admission: Option<Admission>,
    /// The priority of each node: that of its zone, or the highest of the program if a zone of low priority would
    /// otherwise starve.
    pub priority: Vec<i32>,
    /// Predicted times of the forms, simple ones first.
    pub predictions: Vec<FormPrediction>,
    /// The predicted timeline of the chosen form.
    pub timeline: Simulation,
    /// Nodes with tiles that wait for tiles, and nodes that trigger early, if the form has programmatic edges.
    pub refinement: Refinement,
    /// The reasons, one sentence each.
    pub why: Vec<String>,
    /// Places of temporaries within [`ScheduleOptions::memory`].
    fit: Option<LimitedArena>,
}

impl KernelSchedule {
    /// The stream of each node in a form, numbered from 0; of a graph, a lane in which edges order the nodes.
    pub fn streams(&self, form: Form) -> Vec<u32> {
        match lanes_of(form, &self.chosen, &self.written) {
            None => vec![0; self.priority.len()],
            Some(lanes) => lanes.stream.clone(),
        }
    }

    /// Pairs of a node and one of lower priority that waits for it in the chosen form without depending on it. Serial
    /// forms keep the order of the code and have none.
    pub fn gates(&self) -> &[(NodeId, NodeId)] {
        let gates = self.admission.as_ref().map(|admission| &admission.gates[..]);
        gates.filter(|_| !self.form.is_serial()).unwrap_or_default()
    }

    /// Pairs of a node and a later one that waits for it only to reuse the memory of temporaries, in the chosen form.
    /// Serial forms keep the order of the code and have none.
    pub fn reuse(&self) -> &[(NodeId, NodeId)] {
        let reuse = self.fit.as_ref().map(|fit| &fit.reuse[..]);
        reuse.filter(|_| !self.form.is_serial()).unwrap_or_default()
    }

    /// The fastest of the other forms by prediction, among those with the least harm.
    pub fn runner_up(&self) -> Option<&FormPrediction> {
        let others = self.predictions.iter().filter(|p| p.form != self.form);
        others.min_by(|a, b| a.harm.cmp(&b.harm).then(a.us.total_cmp(&b.us)))
    }

    /// The launch plan of a form, for the program of this schedule. It must be proved before it is run.
    pub fn plan(&self, program: &Program, form: Form) -> LaunchPlan {
        let streams = &self.chosen;
        match form.carrier {
            Carrier::Graph => {
                // A single priority needs no list.
                let same = self.priority.windows(2).all(|pair| pair[0] == pair[1]);
                let priorities = if same { Vec::new() } else { self.priority.clone() };
                GraphPlan { priorities, ..GraphPlan::for_form(program, &self.gated, streams, form) }.into()
            }
            Carrier::Launches if form.is_serial() => StreamPlan::serial(0..program.nodes().len()).into(),
            Carrier::Launches => StreamPlan::from(streams).into(),
        }
    }

    /// The proved plan of a form, with its temporaries within [`ScheduleOptions::memory`].
    ///
    /// # Errors
    /// The first violation.
    pub fn prove(&self, program: &Program, form: Form) -> Result<ProvedPlan, Unproved> {
        let plan = self.plan(program, form);
        match self.fit.as_ref().filter(|_| !form.is_serial()) {
            Some(fit) => plan.prove_placed(program, &fit.arena),
            None => plan.prove(program),
        }
    }

    /// The predicted time of the chosen form, microseconds.
    pub fn predicted_us(&self) -> f64 {
        self.timeline.total_us
    }
}

/// Schedules a program. The same program and options give the same schedule.
///
/// # Errors
/// [`DagError::Memory`] if temporaries need more than [`ScheduleOptions::memory`] in each of the forms to choose from.
pub fn schedule(program: &Program, options: &ScheduleOptions) -> Result<KernelSchedule, DagError> {
    let dependences = analyse(program);
    let times = Times::new(program, &dependences);
    // Gates apply to every distribution, so they are decided first.
    let alone = Alone::new(program, &options.device);
    let admission =
        alone.as_ref().and_then(|alone| admit(program, alone, &dependences, &options.device, options.admit));
    let fair = admission.as_ref().is_some_and(|found| found.raised);
    let gated = dependences.gated(admission.as_ref().map_or(&[], |found| &found.gates));
    let memory = MemoryLimit::new(program, &gated, options)?;
    let gated = gated.gated(memory.fit.as_ref().map_or(&[], |fit| &fit.reuse));
    let order = Times::new(program, &gated);
    let most = options.streams.unwrap_or(usize::MAX);
    let (mut full, mut written) = both(program, &gated, &order);
    if kernel_streams(&full) > most {
        full = limited(program, &gated, &order, most);
    }
    let mut why = vec![concurrency(&gated, &full)];
    // The lanes of graphs whose edges are dependences; streams do not narrow these graphs.
    let width = kernel_streams(&written);
    if width > most {
        why.push(format!("branch and funnel graphs take {width} lanes, and at most {most} were asked for"));
        written = full.clone();
    }
    let chosen = cap(program, &gated, &order, &full, options, &mut why);
    why.extend(admission.as_ref().map(|found| found.reason(program)));
    let shared = kernel_streams(&chosen) < kernel_streams(&full);
    // With several priorities, no form is worth starving a task or slowing the highest.
    let mut shared_edges: HashMap<EdgeSource, FormEdges> = HashMap::new();
    let mut time = |form: Form| {
        let edges = shared_edges.entry(form.edges);
        let edges = edges.or_insert_with(|| FormEdges::new(program, &gated, &chosen, form));
        let line = simulate_edges(program, edges, &chosen, form, &options.device, fair);
        let harm = alone.as_ref().map_or(0, |alone| alone.harm(program, &line));
        (harm, if shared && form.edges == EdgeSource::Streams { line.slowed(SHARED) } else { line })
    };
    let narrow = |form: &Form| match form.edges {
        EdgeSource::Code => true,
        EdgeSource::Dependences | EdgeSource::Funnel => width <= most,
        EdgeSource::Streams => kernel_streams(&chosen) <= most,
    };
    let fits = |form: &Form| narrow(form) && memory.holds(*form);
    let mut predictions = Vec::new();
    let mut lines = Vec::new();
    for &form in Form::ALL.iter().filter(|form| options.forms.contains(form) && fits(form)) {
        let (harm, line) = time(form);
        let streams = lanes_of(form, &chosen, &written).map_or(1, Distribution::streams);
        predictions.push(FormPrediction { form, streams, us: line.total_us, harm });
        lines.push(line);
    }
    let best = choose(&predictions).map(|at| (predictions[at].form, lines.swap_remove(at)));
    // Without a form that fits, the limit is to blame only where it excludes a form that streams allow.
    let excluded = options.forms.iter().any(|form| narrow(form) && !memory.holds(*form));
    if let (None, true, Some(shortage)) = (&best, excluded, &memory.serial) {
        return Err(shortage.clone());
    }
    let (form, timeline) = best.unwrap_or_else(|| (Form::SERIAL, time(Form::SERIAL).1));
    why.extend(memory.reason().filter(|_| !form.is_serial()));
    why.push(format!("{:.1} us, of which the longest path is {:.1}", timeline.total_us, times.critical_us()));
    let mut refinement = Refinement::default();
    if form.is_programmatic() {
        refinement = refine(program, &dependences, &options.device, Refine::WherePays);
        why.extend(refined(program, &refinement));
    }
    let priority = priorities(program, &timeline);
    Ok(KernelSchedule {
        dependences,
        gated,
        times,
        full,
        written,
        chosen,
        form,
        admission,
        priority,
        predictions,
        timeline,
        refinement,
        why,
        fit: memory.fit,
    })
}

/// The forms that keep temporaries within a limit.
struct MemoryLimit {
    /// Without a limit, or if only serial forms keep it: none.
    fit: Option<LimitedArena>,
    /// Whether forms other than serial ones keep the limit.
    concurrent: bool,
    /// Why serial forms do not keep it.
    serial: Option<DagError>,
}

impl MemoryLimit {
    fn new(
        program: &Program,
        gated: &Dependences,
        options: &ScheduleOptions,
    ) -> Result<MemoryLimit, DagError> {
        let Some(limit) = options.memory else {
            return Ok(MemoryLimit { fit: None, concurrent: true, serial: None });
        };
        let serial = fit_serial(program, limit).err();
        if options.forms.iter().all(|form| form.is_serial()) {
            return serial.map_or(Ok(MemoryLimit { fit: None, concurrent: false, serial: None }), Err);
        }
        let found = fit(program, gated, &Times::new(program, gated), &options.device, limit);
        let memory = MemoryLimit { fit: found.as_ref().ok().cloned(), concurrent: found.is_ok(), serial };
        let held = options.forms.iter().any(|&form| memory.holds(form));
        found.err().filter(|_| !held).map_or(Ok(memory), Err)
    }

    fn holds(&self, form: Form) -> bool {
        if form.is_serial() { self.serial.is_none() } else { self.concurrent }
    }

    fn reason(&self) -> Option<String> {
        let fit = self.fit.as_ref()?;
        Some(format!(
            "memory: temporaries take {} bytes, for which {} dependences are added",
            fit.arena.bytes,
            fit.reuse.len()
        ))
    }
}

/// The place of the form to take: of those with the least harm that are predicted within [`CLOSE`] of the fastest of
/// these, that of least risk. Closer predictions do not decide: with costs fitted to all other programs, the fastest by
/// prediction was worse than the best constant form.
fn choose(predictions: &[FormPrediction]) -> Option<usize> {
    let least = predictions.iter().map(|p| p.harm).min()?;
    let harmless = || (0..predictions.len()).filter(|&at| predictions[at].harm == least);
    let fastest = harmless().map(|at| predictions[at].us).min_by(f64::total_cmp)?;
    let risk = |form: Form| Form::BY_RISK.into_iter().position(|other| other == form);
    harmless()
        .filter(|&at| predictions[at].us <= fastest * CLOSE)
        .min_by_key(|&at| risk(predictions[at].form))
}

/// The distribution with a form's lanes; `None`: one lane.
fn lanes_of<'a>(form: Form, chosen: &'a Distribution, written: &'a Distribution) -> Option<&'a Distribution> {
    match form.edges {
        EdgeSource::Code => None,
        EdgeSource::Streams => Some(chosen),
        EdgeSource::Dependences | EdgeSource::Funnel => Some(written),
    }
}

fn concurrency(dependences: &Dependences, full: &Distribution) -> String {
    let mut waits = format!("{} waits", full.wait_count());
    if !full.joins.is_empty() {
        waits += &format!(" ({} joins)", full.joins.len());
    }
    let next: HashMap<usize, usize> = full.neighbours().collect();
    let follows = |(&before, &after): (&usize, &usize)| {
        dependences.reduced.of_node(after).binary_search(&(before as u32)).is_ok()
    };
    format!(
        "full concurrency: {} streams, {waits}; {} nodes follow one that they depend on",
        full.streams(),
        next.iter().filter(|&pair| follows(pair)).count(),
    )
}

/// Refined and unrefined nodes, one sentence each.
fn refined(program: &Program, refinement: &Refinement) -> Vec<String> {
    let mut why = Vec::new();
    let early = refinement.nodes.iter().filter(|node| node.early).count();
    if early > 0 {
        why.push(format!(
            "{early} kernels let the next begin to launch before they wait: there is room for its CTAs"
        ));
    }
    if let Some(first) = refinement.edges.first() {
        let gain: f64 = refinement.edges.iter().map(|tile| tile.gain_us).sum();
        let name = |id| &program.node(id).name;
        why.push(format!(
            "{} kernels wait for tiles of those before them, at most {} a CTA ({} -> {} first), on {} edges: {gain:.1} us less",
            refinement.refined(),
            refinement.most_waits(),
            name(first.edge.before),
            name(first.edge.after),
            refinement.edges.len(),
        ));
    }
    let mut kept: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    for (id, reason) in &refinement.kept {
        kept.entry(reason).or_default().push(&program.node(*id).name);
    }
    let kept = kept.iter().map(|(reason, names)| {
        format!("{} kernels with tiles wait for whole kernels ({} first): {reason}", names.len(), names[0])
    });
    why.extend(kept);
    why
}

fn kernel_streams(plan: &Distribution) -> usize {
    plan.lanes.iter().filter(|lane| matches!(lane, Lane::Kernels { .. })).count()
}

/// The fewest streams without a predicted loss: SMs and memory bandwidth limit the gain of more.
fn cap(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
    full: &Distribution,
    options: &ScheduleOptions,
    why: &mut Vec<String>,
) -> Distribution {
    let time = |plan: &Distribution| {
        simulate(program, dependences, plan, Form::LANES, &options.device, false).total_us
    };
    let most = kernel_streams(full);
    let mut best = (time(full), full.clone());
    let all_us = best.0;
    // A stream runs one node at a time, so numbers that are too small are ruled out without a trial.
    let busiest_us = busiest_us(program);
    let edges = Network::shared(&dependences.reduced);
    // From few to many, until more streams no longer help.
    let mut tried: Vec<(f64, Distribution)> = Vec::new();
    for limit in LIMITS.into_iter().filter(|&limit| limit < most) {
        if busiest_us / limit as f64 > all_us * TIE {
            continue;
        }
        let plan = limited_along(program, dependences, &edges, times, limit);
        let us = time(&plan);
        let done = us <= all_us * TIE && tried.last().is_some_and(|(before, _)| us * TIE >= *before);
        tried.push((us, plan));
        if done {
            break;
        }
    }
    let least = tried.iter().map(|(us, _)| *us).fold(all_us, f64::min);
    if let Some(found) = tried.into_iter().find(|(us, _)| *us <= least * TIE) {
        best = found;
    }
    let now = kernel_streams(&best.1);
    if now < most {
        why.push(format!(
            "{now} of {most} streams: {:.1} us against {all_us:.1} with all of them; SMs and memory bandwidth are shared",
            best.0
        ));
    }
    best.1
}

/// The largest sum of kernel times within one priority, microseconds.
fn busiest_us(program: &Program) -> f64 {
    let mut sums = std::collections::BTreeMap::new();
    for id in program.ids().filter(|&id| program.node(id).kernel().is_some()) {
        *sums.entry(program.priority(id)).or_insert(0.0) += program.node(id).us;
    }
    sums.into_values().fold(0.0, f64::max)
}

fn priorities(program: &Program, timeline: &Simulation) -> Vec<i32> {
    let top = program.zones().iter().map(|z| z.priority).max().unwrap_or(0);
    let priority = |(id, &promoted): (NodeId, &bool)| if promoted { top } else { program.priority(id) };
    program.ids().zip(&timeline.promoted).map(priority).collect()
}
