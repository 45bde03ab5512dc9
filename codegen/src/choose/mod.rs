//! Automatic choice of tiles, tile orders, policies and the place of waits, from the model alone: nothing is run.
//!
//! All statements of the spec are kept. The rest is searched in two steps: tiles by the time of each stage alone (a
//! few of the best for each), then orders and policies together by the simulated time of the whole chain.
//!
//! ```
//! use cusync_gen::check::Executor;
//! use cusync_gen::{choose, device::Profile, graph::gemm_chain};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let chain = gemm_chain("chain", 8, &[1024, 1024, 1024]);
//! let best = choose::usual_executor(&chain, h200);
//! let plan = choose::plan(&chain, h200, best)?;
//! let serial = choose::plan(&chain, h200, Executor::Serial)?;
//! let us = |plan: &cusync_gen::check::Plan| plan.predicted().map(|times| times.synchronised_us);
//! assert!(us(&plan) <= us(&serial));
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

pub mod against;
mod chain;
pub mod comparison;
mod config;
mod decode;
mod in_turn;
mod obstacles;
mod search;
pub mod space;

pub use chain::{ChainOverride, chain};
pub use config::{ChainConfig, Config, EdgeConfig, StageConfig, StageExecutor};
pub use decode::decode;
pub use in_turn::in_turn;
pub use obstacles::{fallback, obstacle, obstacles, one_by_one, usual_executor};

use std::cell::OnceCell;

use crate::check::{
    Candidate, Choice, Executor, How, Plan, Prediction, Report, StartGuarantee, check, judge,
};
use crate::device::Profile;
use crate::diagnostic::Diagnostic;
use crate::graph::{Resolved, StageId};
use crate::obstacle::Obstacle;
use crate::sync::{Order, Policy, WaitAt};
use search::{Found, Overlapped};

/// Chooses and proves a plan.
///
/// # Errors
/// A statement of the spec that no kernel or no proof allows, with its location.
pub fn plan(resolved: &Resolved, device: &Profile, executor: Executor) -> Result<Plan, Diagnostic> {
    prove(resolved, candidate(resolved, device, executor)?)
}

/// Proves a choice.
///
/// # Errors
/// The first refutation, pointing into the spec.
pub fn prove(resolved: &Resolved, candidate: Candidate) -> Result<Plan, Diagnostic> {
    let dependences = candidate.graph.dependences.clone();
    check(candidate).map_err(|refutation| refutation.to_diagnostic(resolved, &dependences))
}

/// Chooses a candidate without proving it: the input that [`plan`] would judge.
///
/// # Errors
/// Why the executor cannot run it: see [`obstacle`].
pub fn candidate(resolved: &Resolved, device: &Profile, executor: Executor) -> Result<Candidate, Diagnostic> {
    Choices::new(resolved, device).candidate(executor).clone()
}

/// The choices for a pipeline on a device, one per executor. Each is made once, on first use, and shared intermediate
/// results are cached too.
pub struct Choices {
    resolved: Resolved,
    device: Profile,
    /// Candidates in the order of [`Executor::ALL`].
    made: [OnceCell<Result<Candidate, Diagnostic>>; Executor::ALL.len()],
    one_by_one: OnceCell<Result<Found, Obstacle>>,
    overlapped: OnceCell<Result<Found, Obstacle>>,
    on_host: OnceCell<Result<Found, Obstacle>>,
}

impl Choices {
    /// Starts without any choices made.
    pub fn new(resolved: &Resolved, device: &Profile) -> Choices {
        Choices {
            resolved: resolved.clone(),
            device: device.clone(),
            made: Default::default(),
            one_by_one: OnceCell::new(),
            overlapped: OnceCell::new(),
            on_host: OnceCell::new(),
        }
    }

    /// The pipeline.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Tiles simulated by the searches so far.
    pub fn simulated(&self) -> u64 {
        let searches = [&self.one_by_one, &self.overlapped, &self.on_host];
        let found = searches.into_iter().filter_map(|search| search.get()?.as_ref().ok());
        found.map(|found| found.simulated).sum()
    }

    /// The cached result of [`candidate`].
    #[allow(clippy::missing_errors_doc)]
    pub fn candidate(&self, executor: Executor) -> &Result<Candidate, Diagnostic> {
        self.made[executor as usize].get_or_init(|| self.make(executor))
    }

    /// The candidate with the best prediction among those the device runs, preferring proved ones, and its report.
    ///
    /// # Errors
    /// No executor runs it.
    pub fn best(&self) -> Result<(Candidate, Report), Diagnostic> {
        let made: Vec<_> = space::executors(&self.device).into_iter().map(|e| self.candidate(e)).collect();
        let us = |c: &Candidate| c.predicted_us().unwrap_or(f64::INFINITY);
        let mut candidates: Vec<&Candidate> = made.iter().filter_map(|made| made.as_ref().ok()).collect();
        candidates.sort_by(|a, b| us(a).total_cmp(&us(b)));
        let mut fastest = None;
        for candidate in candidates {
            let report = judge(candidate);
            if report.proved() {
                return Ok((candidate.clone(), report));
            }
            fastest.get_or_insert((candidate.clone(), report));
        }
        fastest.ok_or_else(|| {
            // If not even the host can run it, a statement is at fault.
            let stated = obstacles::unplanned(&self.resolved, &self.device, Executor::Cpu).is_some();
            let refused = made.into_iter().find_map(|made| made.clone().err()).filter(|_| stated);
            let note = fallback(&self.resolved, &self.device).map(|(_, note)| note);
            let nothing = || note.unwrap_or_else(|| "no executor runs this pipeline".into());
            refused.unwrap_or_else(|| Diagnostic::new("no-kernel", nothing()))
        })
    }

    fn make(&self, executor: Executor) -> Result<Candidate, Diagnostic> {
        let (resolved, device) = (&self.resolved, &self.device);
        let refused = |why: Obstacle| why.to_diagnostic(resolved, executor, usual_executor(resolved, device));
        if let Some(why) = obstacles::unplanned(resolved, device, executor) {
            return Err(refused(why));
        }
        let how = match executor.how() {
            None if executor == Executor::Copilot => return decode(resolved, device),
            None => return self.fused(),
            Some(how @ (How::Serial | How::Library)) if !resolved.own_kernels(device) => {
                return in_turn(resolved, device, how, |_| ChainOverride::default());
            }
            Some(how) => how,
        };
        let found = search::search(resolved, device, how, |how| self.tiled(how)).map_err(refused)?;
        let mut best = found.best;
        // Without a kernel, or with only a user's kernel, nothing has a predicted time on the device.
        if !resolved.own_kernels(device) || resolved.own_kernel().is_some() {
            best.predicted = None;
            best.choices = explain(resolved, &best, &search::Alternatives::default());
        } else {
            best.choices = explain(resolved, &best, &found.alternatives);
        }
        Ok(best)
    }

    /// The best tiles for a launch method.
    fn tiled(&self, how: How) -> &Result<Found, Obstacle> {
        let made = match how {
            How::Host => &self.on_host,
            How::Serial | How::Library => &self.one_by_one,
            How::Streams(_) | How::Programmatic => &self.overlapped,
        };
        made.get_or_init(|| search::search_tiles(&self.resolved, &self.device, how))
    }

    /// The decode kernel if there is one and it is predicted to be faster, otherwise a chain kernel.
    fn fused(&self) -> Result<Candidate, Diagnostic> {
        let (resolved, device) = (&self.resolved, &self.device);
        let us = |c: &Candidate| c.launch.predicted_us();
        let mut best = match (decode(resolved, device), chain(resolved, device, ChainOverride::default())) {
            (Ok(few), Ok(many)) => {
                let (mut better, other, name) = if us(&few) <= us(&many) {
                    (few, many, "a chain kernel")
                } else {
                    (many, few, "a decode kernel")
                };
                if let (Some(choice), Some(us)) = (better.choices.first_mut(), us(&other)) {
                    choice.alternatives.insert(0, (name.into(), us));
                }
                better
            }
            (Ok(few), Err(_)) => few,
            (Err(_), many) => many?,
        };
        // A serial chain has its own tiles and kernels; if one is missing, there is no reference time.
        let serial = self.candidate(Executor::Serial).as_ref().ok().and_then(|serial| serial.predicted);
        best.predicted =
            serial.zip(us(&best)).map(|(p, us)| Prediction { serial_us: p.serial_us, synchronised_us: us });
        Ok(best)
    }
}

/// One decision per line, with its reason.
fn explain(resolved: &Resolved, c: &Candidate, alternatives: &search::Alternatives) -> Vec<Choice> {
    let mut choices = Vec::new();
    for (i, stage) in c.graph.stages.iter().enumerate() {
        let stated = resolved.stages[i].stated_tile.is_some();
        if resolved.stages[i].custom.is_none() {
            let slots = c.device.sms * c.launch.ctas_per_sm(StageId(i));
            choices.push(Choice {
                subject: format!("tile of {}", stage.name),
                decision: format!("{} x {} x {}", stage.mma_tile.0, stage.mma_tile.1, stage.mma_tile.2),
                stated,
                reason: format!(
                    "{} tiles on {slots} CTA slots are {:.2} waves",
                    stage.tiles(),
                    f64::from(stage.tiles()) / f64::from(slots)
                ),
                alternatives: alternatives.tiles.get(i).cloned().unwrap_or_default(),
            });
        }
        choices.push(Choice {
            subject: format!("order of {}", stage.name),
            decision: c.launch.order(StageId(i)).to_string(),
            stated: resolved.stages[i].stated_order.is_some(),
            reason: order_reason(c.launch.order(StageId(i))).into(),
            alternatives: if i == 0 { alternatives.orders.clone() } else { Vec::new() },
        });
    }
    for (edge, dependence) in c.graph.dependences.iter().enumerate() {
        let stated = resolved.stated_edge(dependence);
        let slots = c.edges[edge].policy.on(c.graph.stages[dependence.producer.0].grid).slot_count;
        choices.push(Choice {
            subject: format!("policy of {}", c.edge_name(edge)),
            decision: c.edges[edge].policy.to_string(),
            stated: stated.is_some_and(|s| s.policy.is_some()),
            reason: format!("{slots} slots; {}", policy_reason(&c.edges[edge].policy)),
            alternatives: alternatives.policies.clone(),
        });
        choices.push(Choice {
            subject: format!("wait of {}", c.edge_name(edge)),
            decision: match c.edges[edge].wait_at {
                WaitAt::PerKBlock => "before the first k-block of each new slot".into(),
                WaitAt::Start => "once, before the first k-block".into(),
            },
            stated: stated.is_some_and(|s| s.wait_at.is_some()),
            reason: c.graph.stages[dependence.consumer.0].operands[dependence.operand]
                .kind
                .wait_reason()
                .into(),
            alternatives: Vec::new(),
        });
    }
    if let (Some(overlapped), Some(predicted)) = (alternatives.overlapped, c.predicted) {
        let gain = |us: f64| (predicted.serial_us / us - 1.0) * 100.0;
        let (gain, alternatives) = match overlapped {
            Overlapped::Us(us) => {
                let name = "overlapped by tile semaphores".to_owned();
                (format!("is predicted to gain {:.1} %", gain(us)), vec![(name, us)])
            }
            Overlapped::AtLeastUs(us) => (format!("can gain {:.1} % at most", gain(us)), Vec::new()),
        };
        choices.push(Choice {
            subject: "coupling".into(),
            decision: "kernel boundaries, no overlap".into(),
            stated: false,
            reason: format!(
                "overlap {gain}, too little to be sure of; state a policy to overlap all the same"
            ),
            alternatives,
        });
    } else if c.launch.guarantees_starts() && !c.graph.dependences.is_empty() {
        let mut without = c.clone();
        without.launch.how_mut().into_iter().for_each(|how| *how = How::Streams(StartGuarantee::None));
        let needed = check(without).err();
        choices.push(Choice {
            subject: "start guarantee".into(),
            decision: "consumers start when every producer CTA has".into(),
            stated: false,
            reason: match needed {
                Some(refutation) => format!("without it {}", refutation.message),
                None => "not needed for progress here, but it keeps SMs for the producers and costs no node"
                    .into(),
            },
            alternatives: Vec::new(),
        });
    }
    choices
}

fn order_reason(order: &Order) -> &'static str {
    match order {
        Order::RowMajor => "whole rows are done as early as they can be",
        Order::ColumnMajor => "whole columns are done as early as they can be",
        Order::GroupedRows(_) => "rows are done early, and a group of them reads each weight tile once",
        Order::GroupedColumns(_) => {
            "columns are done early, and a group of them reads each activation tile once"
        }
        Order::Table(_) => "stated tile by tile",
    }
}

fn policy_reason(policy: &Policy) -> &'static str {
    match policy {
        Policy::Tile => "a consumer goes on as soon as the one tile that it needs is there",
        Policy::Row => "one wait a tile; producer rows are done together anyway",
        Policy::Batched { .. } => "several tiles share a wait",
        Policy::Strided(_) => "tiles a fixed stride apart share a wait",
        Policy::ConvHalo => "one wait a row of tiles, as the rows of the filter come to need it",
        Policy::Table(_) => "your own map",
        Policy::Columns { .. } => "every share of the columns waits for all others",
        Policy::Own => "the worker that reads an element has written it",
    }
}
