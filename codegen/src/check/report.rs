//! Verdicts and counterexamples.

use std::fmt;

use super::parts::Place;
use crate::diagnostic::Diagnostic;
use crate::graph::{Resolved, StageId};

/// A proof obligation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Obligation {
    /// Each tile order visits each tile of its grid once.
    Order,
    /// Slots and footprints are inside their arrays.
    Bounds,
    /// Before a load, every producer tile in its footprint has been waited for.
    Cover,
    /// The posts of an epoch equal the wait value.
    Count,
    /// No wait can reach itself.
    Acyclic,
    /// In every reachable state, some CTA that can run holds an SM or will get one.
    Progress,
    /// No region is overwritten before its last reader is done.
    Reuse,
    /// Running again starts from a state equal to that of the first run.
    Replay,
    /// Both ends of an edge have the fences that their kind of store and load needs.
    Visible,
}

impl Obligation {
    /// All obligations, in report order.
    pub const ALL: [Obligation; 9] = [
        Obligation::Order,
        Obligation::Bounds,
        Obligation::Cover,
        Obligation::Count,
        Obligation::Acyclic,
        Obligation::Progress,
        Obligation::Reuse,
        Obligation::Replay,
        Obligation::Visible,
    ];

    /// The stable name.
    pub fn id(self) -> &'static str {
        match self {
            Obligation::Order => "order",
            Obligation::Bounds => "bounds",
            Obligation::Cover => "cover",
            Obligation::Count => "count",
            Obligation::Acyclic => "acyclic",
            Obligation::Progress => "progress",
            Obligation::Reuse => "reuse",
            Obligation::Replay => "replay",
            Obligation::Visible => "visible",
        }
    }
}

/// The part of the pipeline that a refutation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole pipeline.
    Pipeline,
    /// A stage.
    Stage(StageId),
    /// A dependence, by its index.
    Edge(usize),
    /// An item of a schedule.
    Item {
        /// Its stage.
        stage: StageId,
        /// Its position.
        place: Place,
    },
}

/// A counterexample to an obligation, with a readable explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation {
    /// The violated obligation.
    pub obligation: Obligation,
    /// The part of the pipeline concerned.
    pub subject: Subject,
    /// One sentence.
    pub message: String,
    /// The explanation: tiles, slots and numbers, one fact per line.
    pub story: Vec<String>,
    /// How to fix it.
    pub help: String,
}

impl Refutation {
    pub(super) fn new(obligation: Obligation, subject: Subject, message: impl Into<String>) -> Self {
        Refutation { obligation, subject, message: message.into(), story: Vec::new(), help: String::new() }
    }

    pub(super) fn fact(mut self, fact: impl Into<String>) -> Self {
        self.story.push(fact.into());
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// The refutation as an error that points into its spec.
    pub fn to_diagnostic(&self, resolved: &Resolved, dependences: &[crate::graph::Dependence]) -> Diagnostic {
        let mut diagnostic = Diagnostic::new(self.obligation.id(), &self.message);
        match self.subject {
            Subject::Pipeline => {}
            Subject::Item { stage, place } => {
                let name = &resolved.stages[stage.0].name;
                diagnostic = diagnostic.at(name.span, format!("{place} is of `{}`", name.value));
            }
            Subject::Stage(stage) => {
                let stage = &resolved.stages[stage.0];
                let order = stage.stated_order.as_ref().filter(|_| self.obligation == Obligation::Order);
                let span = order.map_or(stage.name.span, |order| order.span);
                diagnostic = diagnostic.at(span, format!("stage `{}`", stage.name.value));
            }
            Subject::Edge(edge) => {
                let dependence = &dependences[edge];
                let consumer = &resolved.stages[dependence.consumer.0];
                let producer = &resolved.stages[dependence.producer.0];
                let read = &consumer.reads[dependence.operand];
                let tensor = &resolved.tensors[read.tensor.0].name;
                let text = format!("`{}` reads `{tensor}` here", consumer.name.value);
                diagnostic = match resolved.stated_edge(dependence) {
                    Some(stated) => {
                        let span = stated.policy.as_ref().map_or(stated.span, |policy| policy.span);
                        diagnostic.at(span, "stated here").also(read.span, text)
                    }
                    None => diagnostic.at(read.span, text),
                }
                .also(producer.out.span, format!("`{}` writes it", producer.name.value));
            }
        }
        for fact in &self.story {
            diagnostic = diagnostic.note(fact);
        }
        if self.help.is_empty() { diagnostic } else { diagnostic.help(&self.help) }
    }
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obligation.id(), self.message)?;
        for fact in &self.story {
            write!(f, "\n  {fact}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refutation {}

/// The verdict on each obligation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Refutations, at most one per obligation; in a complete report, an obligation without one is proved.
    pub refutations: Vec<Refutation>,
    /// Whether every obligation was judged. An inconsistent candidate is refuted at its first fault, and the other
    /// obligations are not judged.
    pub complete: bool,
}

impl Report {
    /// Adds the verdict on a stage that was judged as the only one of its graph.
    pub(super) fn add(&mut self, stage: StageId, alone: Report) {
        self.complete &= alone.complete;
        for refutation in alone.refutations {
            let subject = match refutation.subject {
                Subject::Item { place, .. } => Subject::Item { stage, place },
                Subject::Pipeline | Subject::Stage(_) | Subject::Edge(_) => Subject::Stage(stage),
            };
            if self.refutation(refutation.obligation).is_none() {
                self.refutations.push(Refutation { subject, ..refutation });
            }
        }
        self.refutations.sort_by_key(|refutation| refutation.obligation);
    }

    /// Whether everything is proved.
    pub fn proved(&self) -> bool {
        self.complete && self.refutations.is_empty()
    }

    /// The counterexample to an obligation; `None` if it is proved or was not judged.
    pub fn refutation(&self, obligation: Obligation) -> Option<&Refutation> {
        self.refutations.iter().find(|r| r.obligation == obligation)
    }
}
