//! Bookkeeping for a host that hands out the items of a chain kernel at run time.
//!
//! A plan with drawn items has one list, ordered so that each item comes after everything it needs. Its proof uses
//! that order, and the assignment of items to workers, only to rule out a deadlock. A host that assigns items
//! dynamically preserves this with one rule: *an item is numbered only after all items it waits for, and is appended
//! to a worker's mailbox in number order.* Then the unfinished item with the lowest number has everything it needs:
//! items before it in its mailbox have lower numbers and are done, and a worker stays resident until it has finished
//! everything sent to it. So that item can run. The host cannot get stuck either: the first unnumbered item of a job's
//! list can always be numbered. Only this ledger creates a [`NumberedItem`].
//!
//! A *kind* is the smallest unit that can be requested: stages that read or write each other's outputs. Two kinds
//! never share a written tensor or a slot. A job is one run of a kind; the next job of that kind begins after the
//! previous one is done, like consecutive launches, and its epoch is the number of earlier jobs of its kind. So
//! semaphores behave as in runs of a plan with only that kind's stages, and jobs of different kinds may overlap.

use super::EdgeChoice;
use super::generated::Generated;
use super::parts::Place;
use super::program::{Event, TileProgram};
use super::{Candidate, Launch, Obligation, Plan, Refutation, Subject};
use crate::graph::{Graph, Stage, StageId};
use crate::schedule::{Hand, Part};
use crate::sync::Tile;

/// An item that may be sent: everything it needs has a lower number.
#[derive(Debug, PartialEq, Eq)]
pub struct NumberedItem {
    number: u64,
    item: u32,
    epoch: u32,
}

impl NumberedItem {
    /// Its number, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// Its index in the plan's sequence.
    pub fn item(&self) -> u32 {
        self.item
    }
    /// Index of its job among the jobs of its kind.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It belongs to no job yet, or its job has not numbered it yet.
    Open,
    Numbered,
    Done,
}

#[derive(Debug)]
struct Kind {
    items: Vec<u32>,
    /// Its words, as global indices.
    words: Vec<u32>,
    /// Jobs begun so far.
    jobs: u32,
    /// Unfinished items of the current job; 0 if there is none.
    left: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Ledger {
    stages: Vec<StageId>,
    /// For each item, the words it waits for and the posts each of them needs.
    needs: Vec<Vec<(u32, u32)>>,
    gives: Vec<Vec<(u32, u32)>>,
    kind_of: Vec<usize>,
    kinds: Vec<Kind>,
    /// Posts to each word by numbered items of the current job.
    posted: Vec<u32>,
    /// Posts to each word by finished items.
    filled: Vec<u32>,
    states: Vec<State>,
    numbered: u64,
}

impl Ledger {
    /// The ledger of a plan with whole tiles as items, drawn from one list.
    ///
    /// # Errors
    /// The plan has no such list.
    pub fn from_plan(plan: &Plan) -> Result<Ledger, Refutation> {
        let refuse = |why: &str| {
            let refutation = Refutation::new(Obligation::Progress, Subject::Pipeline, why);
            Err(refutation.help("plan for a chain kernel whose workers draw whole tiles"))
        };
        let Launch::Lists(schedule) = plan.launch() else {
            return refuse("a host can hand out the items of a chain kernel, and this plan has none");
        };
        let apart =
            |stage: &Stage| Some(format!("`{}` {}", stage.name, stage.op.unfit_beside_others()?.reason));
        if let Some(why) = plan.graph().stages.iter().find_map(apart) {
            return refuse(&why);
        }
        if schedule.mode != Hand::Drawn {
            return refuse(
                "the proof of static lists assumes a fixed worker for each item, and a host would choose anew",
            );
        }
        if schedule.sequence.iter().any(|item| item.part != Part::Whole) {
            return refuse("parts of a tile wait for each other, and a host hands out whole tiles");
        }
        let candidate = candidate_of(plan);
        let program = Generated::new(&candidate);
        let mut bases = Vec::new();
        let mut words = 0;
        for count in candidate.slot_counts() {
            bases.push(words);
            words += count;
        }
        let graph = plan.graph();
        let (mut needs, mut gives) = (Vec::new(), Vec::new());
        for item in &schedule.sequence {
            // Drawn items are single CTAs.
            let tile = Tile { m: item.m, n: item.n };
            let mut waits = Vec::new();
            program.holds(item.stage, tile, 0, &mut |event| {
                if let Event::Wait { edge, slot, value } = event {
                    waits.push((bases[edge] + slot, value));
                }
            });
            waits.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
            waits.dedup_by_key(|(word, _)| *word);
            needs.push(waits);
            let mut posts = Vec::new();
            let is_outgoing = |edge: &usize| graph.dependences[*edge].producer == item.stage;
            for edge in (0..graph.dependences.len()).filter(is_outgoing) {
                program.posts(edge, tile, &mut |slot, amount| posts.push((bases[edge] + slot, amount)));
            }
            gives.push(posts);
        }
        let of_stage = kinds_of(graph);
        let kind_of: Vec<usize> = schedule.sequence.iter().map(|item| of_stage[item.stage.0]).collect();
        let count = of_stage.iter().max().map_or(0, |last| last + 1);
        let kinds = (0..count).map(|kind| {
            let items: Vec<u32> =
                (0..kind_of.len() as u32).filter(|i| kind_of[*i as usize] == kind).collect();
            let mut words: Vec<u32> =
                items.iter().flat_map(|i| gives[*i as usize].iter().map(|(word, _)| *word)).collect();
            words.sort_unstable();
            words.dedup();
            Kind { items, words, jobs: 0, left: 0 }
        });
        let kinds = kinds.collect();
        Ok(Ledger {
            stages: schedule.sequence.iter().map(|item| item.stage).collect(),
            states: vec![State::Done; kind_of.len()],
            posted: vec![0; words as usize],
            filled: vec![0; words as usize],
            kinds,
            needs,
            gives,
            kind_of,
            numbered: 0,
        })
    }

    /// Number of job kinds, in the order of their first stages.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The items of a kind, in an order in which they can be numbered.
    pub fn items(&self, kind: usize) -> &[u32] {
        self.kinds.get(kind).map_or(&[], |kind| &kind.items)
    }

    /// Number of stages that items may belong to.
    pub fn stages(&self) -> usize {
        self.stages.iter().map(|stage| stage.0 + 1).max().unwrap_or(0)
    }

    /// The stage of an item.
    pub fn stage_of(&self, item: u32) -> usize {
        self.stages.get(item as usize).map_or(0, |stage| stage.0)
    }

    /// The kind of an item.
    pub fn kind_of(&self, item: u32) -> Option<usize> {
        self.kind_of.get(item as usize).copied()
    }

    /// Whether no job of a kind is in progress.
    pub fn is_idle(&self, kind: usize) -> bool {
        self.kinds.get(kind).is_some_and(|kind| kind.left == 0)
    }

    /// Begins the next job of a kind and returns its epoch.
    ///
    /// # Errors
    /// There is no such kind, or its previous job is not done: its memory and semaphores are still in use.
    pub fn begin(&mut self, kind: usize) -> Result<u32, Refutation> {
        let about = |obligation, text: String| Err(Refutation::new(obligation, Subject::Pipeline, text));
        let Some(entry) = self.kinds.get_mut(kind) else {
            return about(Obligation::Order, format!("no kind {kind} of jobs"));
        };
        if entry.left > 0 {
            let left = entry.left;
            return about(
                Obligation::Reuse,
                format!("{left} items of the job of kind {kind} before it are not done"),
            );
        }
        entry.left = entry.items.len();
        entry.jobs = entry.jobs.wrapping_add(1);
        for word in &entry.words {
            (self.posted[*word as usize], self.filled[*word as usize]) = (0, 0);
        }
        entry.items.iter().for_each(|item| self.states[*item as usize] = State::Open);
        Ok(entry.jobs.wrapping_sub(1))
    }

    /// Whether an item can be numbered now.
    pub fn is_ready(&self, item: u32) -> bool {
        self.states.get(item as usize) == Some(&State::Open) && self.missing(item).is_none()
    }

    /// Returns how many of the words that an item waits for, in order, have received all their posts from finished
    /// items, and the number of words. The first `from` words are already known to be complete. An item with all of
    /// its words complete computes as soon as its worker reaches it.
    pub fn fed(&self, item: u32, from: usize) -> (usize, usize) {
        let needs = self.needs.get(item as usize).map_or(&[][..], Vec::as_slice);
        let full = |(word, want): &&(u32, u32)| self.filled[*word as usize] >= *want;
        (from + needs.iter().skip(from).take_while(full).count(), needs.len())
    }

    /// Gives an item of a job in progress the next number.
    ///
    /// # Errors
    /// It already has a number, its kind has no job in progress, or an item it waits for has no number.
    pub fn number(&mut self, item: u32) -> Result<NumberedItem, Refutation> {
        let at = item as usize;
        let Some(state) = self.states.get(at).copied() else {
            let text = format!("item {item}, of {}", self.states.len());
            return Err(Refutation::new(Obligation::Bounds, Subject::Pipeline, text));
        };
        let subject = Subject::Item { stage: self.stages[at], place: Place { worker: None, index: item } };
        match state {
            State::Open => {}
            State::Numbered => {
                return Err(Refutation::new(
                    Obligation::Order,
                    subject,
                    "it has been handed out in this job",
                ));
            }
            State::Done => {
                return Err(Refutation::new(Obligation::Order, subject, "no job that it is of is under way"));
            }
        }
        if let Some((word, have, want)) = self.missing(item) {
            let text = "it would be handed out before what it waits for";
            let fact = format!("word {word} has {have} of {want} posts by items that have been handed out");
            let help = "hand out the items of a job in the order of the list";
            return Err(Refutation::new(Obligation::Progress, subject, text).fact(fact).help(help));
        }
        for &(word, amount) in &self.gives[at] {
            self.posted[word as usize] += amount;
        }
        self.states[at] = State::Numbered;
        let number = self.numbered;
        self.numbered += 1;
        Ok(NumberedItem { number, item, epoch: self.kinds[self.kind_of[at]].jobs.wrapping_sub(1) })
    }

    /// Records that an item is done; returns true if its job is done, too.
    ///
    /// # Errors
    /// It had no number.
    pub fn done(&mut self, item: u32) -> Result<bool, Refutation> {
        if self.states.get(item as usize) != Some(&State::Numbered) {
            let text = format!("item {item} is done, which was never handed out");
            return Err(Refutation::new(Obligation::Order, Subject::Pipeline, text));
        }
        self.states[item as usize] = State::Done;
        for &(word, amount) in &self.gives[item as usize] {
            self.filled[word as usize] += amount;
        }
        let kind = &mut self.kinds[self.kind_of[item as usize]];
        kind.left -= 1;
        Ok(kind.left == 0)
    }

    /// A word that the item waits for and that numbered items do not fill: the word, its posts, and the posts it
    /// needs.
    fn missing(&self, item: u32) -> Option<(u32, u32, u32)> {
        let short = |(word, want): &&(u32, u32)| self.posted[*word as usize] < *want;
        let (word, want) = *self.needs[item as usize].iter().find(short)?;
        Some((word, self.posted[word as usize], want))
    }
}

/// The candidate that a plan was made from.
fn candidate_of(plan: &Plan) -> Candidate {
    let edge = |e: &super::EdgePlan| EdgeChoice { policy: e.policy.clone(), wait_at: e.wait_at() };
    let edges = plan.edges.iter().map(edge).collect();
    Candidate { edges, ..Candidate::launched(plan.graph.clone(), plan.device.clone(), plan.launch.clone()) }
}

/// The kind of each stage. Tensors that share memory count as one.
fn kinds_of(graph: &Graph) -> Vec<usize> {
    let root = |mut tensor: usize| {
        while let Some(owner) = graph.tensors[tensor].alias {
            tensor = owner.0;
        }
        tensor
    };
    let mut kind: Vec<usize> = (0..graph.stages.len()).collect();
    let written: Vec<usize> = (0..graph.tensors.len())
        .filter(|t| graph.tensors[*t].producer.is_some() || graph.tensors[*t].state)
        .collect();
    for tensor in written {
        let touches = |stage: usize| {
            let writes = graph
                .tensors
                .iter()
                .enumerate()
                .any(|(t, other)| root(t) == root(tensor) && other.producer == Some(StageId(stage)));
            writes || graph.stages[stage].operands.iter().any(|o| root(o.tensor.0) == root(tensor))
        };
        let together: Vec<usize> = (0..kind.len()).filter(|s| touches(*s)).map(|s| kind[s]).collect();
        let Some(first) = together.iter().min().copied() else { continue };
        kind.iter_mut().filter(|k| together.contains(k)).for_each(|k| *k = first);
    }
    let mut names: Vec<usize> = kind.clone();
    names.sort_unstable();
    names.dedup();
    kind.iter().map(|k| names.binary_search(k).unwrap_or(0)).collect()
}
