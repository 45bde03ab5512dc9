//! `progress` of a schedule: its lists are executed, without time, until they end or deadlock.

use std::collections::{HashMap, HashSet};

use crate::check::parts::{Parts, Place, describe};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::schedule::{Hand, Item, Schedule};
use crate::sync::Tile;

/// Maximum number of facts reported for a cycle; a longer one is truncated.
const MAX_FACTS: usize = 8;

/// Every worker is resident and every list ends.
pub(super) fn progress(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    let schedule = c.launch.work()?;
    not_resident(c, p, schedule).or_else(|| deferred_draw(c, schedule)).or_else(|| {
        let mut run = Run::new(c, p, schedule);
        run.all();
        run.stuck()
    })
}

/// The order in which the items of a schedule end when its lists are executed; `None` if they deadlock.
pub(in crate::check) fn order_of_ends(c: &Candidate, p: &dyn TileProgram) -> Option<Vec<u32>> {
    let schedule = c.launch.work()?;
    let mut run = Run::new(c, p, schedule);
    run.all();
    (run.ended.len() == schedule.sequence.len()).then_some(run.ended)
}

/// An order of a schedule's sequence in which every item comes after everything it waits for, with as few moves as
/// possible; `None` if there is none. A schedule built for the tiles that are read needs it if a policy waits for
/// more.
pub(in crate::check) fn linear_extension(c: &Candidate, p: &dyn TileProgram) -> Option<Vec<u32>> {
    let schedule = c.launch.work()?;
    // One worker per item, so an item runs as soon as its needs are met.
    let alone = (0..schedule.sequence.len() as u32).map(|i| vec![i]).collect();
    let mut run = Run::with_lists(c, p, schedule, alone);
    run.all();
    (run.ended.len() == schedule.sequence.len()).then_some(run.ended)
}

/// Maximum number of lists for which all co-resident subsets are explored.
const MAX_LISTS: usize = 10;

/// Whether all lists end with `fit` of them resident at a time, in any order of arrival. A finished list makes room
/// for any other.
fn ends_in_turns(c: &Candidate, p: &dyn TileProgram, schedule: &Schedule, fit: usize) -> bool {
    let busy: Vec<usize> = (0..schedule.lists.len()).filter(|w| !schedule.lists[*w].is_empty()).collect();
    if busy.len() <= fit {
        return true;
    }
    if busy.len() > MAX_LISTS || fit == 0 {
        return false;
    }
    let mut seen = HashSet::new();
    let mut open = vec![0u32];
    while let Some(begun) = open.pop() {
        if !seen.insert(begun) {
            continue;
        }
        let mut lists = vec![Vec::new(); schedule.lists.len()];
        let ours = |bit: &usize| begun & 1 << bit != 0;
        (0..busy.len()).filter(ours).for_each(|bit| lists[busy[bit]] = schedule.lists[busy[bit]].clone());
        let mut run = Run::with_lists(c, p, schedule, lists);
        run.all();
        let under_way = (0..busy.len()).filter(ours).filter(|bit| {
            let worker = busy[*bit];
            run.heads[worker].0 < schedule.lists[worker].len()
        });
        let under_way = under_way.count();
        if under_way == fit {
            return false;
        }
        open.extend((0..busy.len()).filter(|bit| !ours(bit)).map(|bit| begun | 1 << bit));
    }
    true
}

/// A worker without an SM never begins its list, while the workers that wait for it keep their SMs.
fn not_resident(c: &Candidate, p: &dyn TileProgram, schedule: &Schedule) -> Option<Refutation> {
    let (rows, cols) = schedule.cluster;
    let (workers, fit) = (schedule.lists.len() as u32, c.device.resident_clusters(rows * cols));
    // The resident workers draw all items.
    let enough = match schedule.mode {
        _ if fit == 0 => false,
        Hand::Drawn => true,
        Hand::Fixed => workers <= fit || ends_in_turns(c, p, schedule, fit as usize),
    };
    (!enough).then(|| {
        let refutation = Refutation::new(
            Obligation::Progress,
            Subject::Pipeline,
            format!("{workers} workers, of which {fit} are resident at once"),
        );
        refutation
            .fact(format!(
                "a worker is a cluster of {rows} x {cols} CTAs, each CTA fills one of the {} SMs of {}",
                c.device.sms, c.device.name
            ))
            .fact(format!("worker {fit} may have to wait for an SM that another worker gives back only when its list ends"))
            .help(format!("schedule for at most {fit} workers"))
    })
}

/// The worker that draws the next item may draw one that needs, through others, its own deferred post.
fn deferred_draw(c: &Candidate, schedule: &Schedule) -> Option<Refutation> {
    let edge = (c.contract.deferred_post && schedule.mode == Hand::Drawn && !c.graph.dependences.is_empty())
        .then_some(0)?;
    Some(
        Refutation::new(
            Obligation::Progress,
            Subject::Edge(edge),
            "a post is held back until the next item is under way, and the next item is whichever is drawn",
        )
        .fact(format!(
            "a worker that draws both ends of {} one after the other waits for itself",
            c.edge_name(edge)
        ))
        .help("post before the next item waits, or use static lists"),
    )
}

/// A semaphore word that items wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Word {
    /// A slot, numbered over all edges.
    Slot(u32),
    /// The flag of a slab, and the CTA of the cluster that owns it.
    Flag(u32, u32),
}

/// A word, and the number of posts it must have received.
type Need = (Word, u32);

/// Progress of an item: its waits, then the slabs it contributes, then the slabs it awaits, then its posts.
struct Progress {
    /// The current needs.
    needs: Vec<Need>,
    /// The words it posts once `needs` are met, and its next needs. `None`: already posted.
    then: Option<(Vec<Word>, Vec<Need>)>,
}

/// Lists in execution. A worker's CTAs advance together, since they load for each other.
struct Run<'a> {
    c: &'a Candidate,
    p: &'a dyn TileProgram,
    schedule: &'a Schedule,
    parts: Parts,
    /// Each worker's items. In dynamic mode the sequence is executed as one list: see [`crate::check`].
    lists: Vec<Vec<u32>>,
    /// For each worker, the position of its next item in its list, and the progress of that item.
    heads: Vec<(usize, Option<Progress>)>,
    /// Unfinished items of each cluster tile, by stage.
    left: Vec<Vec<u32>>,
    /// The edges from each stage.
    edges: Vec<Vec<usize>>,
    /// The item with deferred posts of each worker.
    held: Vec<Option<u32>>,
    /// First slot of each edge.
    bases: Vec<u32>,
    /// Posts to each slot so far, and in a complete run.
    slots: Vec<(u32, u32)>,
    /// Slabs with a set flag, by CTA.
    flags: HashSet<(u32, u32)>,
    /// Workers that wait for a word.
    sleeping: HashMap<Word, Vec<usize>>,
    /// Workers to process.
    awake: Vec<usize>,
    /// Items in the order in which they ended.
    ended: Vec<u32>,
    /// Scratch buffer for the posts of a tile.
    posts: Vec<Need>,
}

impl<'a> Run<'a> {
    fn new(c: &'a Candidate, p: &'a dyn TileProgram, schedule: &'a Schedule) -> Run<'a> {
        let lists = match schedule.mode {
            Hand::Fixed => schedule.lists.clone(),
            Hand::Drawn => vec![(0..schedule.sequence.len() as u32).collect()],
        };
        Run::with_lists(c, p, schedule, lists)
    }

    fn with_lists(
        c: &'a Candidate,
        p: &'a dyn TileProgram,
        schedule: &'a Schedule,
        lists: Vec<Vec<u32>>,
    ) -> Run<'a> {
        let mut bases = Vec::new();
        let mut slots: Vec<(u32, u32)> = Vec::new();
        for (edge, count) in c.slot_counts().into_iter().enumerate() {
            let base = slots.len() as u32;
            bases.push(base);
            slots.resize(slots.len() + count as usize, (0, 0));
            for tile in super::grid_tiles(&c.graph.stages[c.graph.dependences[edge].producer.0]) {
                p.posts(edge, tile, &mut |slot, amount| {
                    if let Some(slot) = slots.get_mut((base + slot) as usize) {
                        slot.1 += amount;
                    }
                });
            }
        }
        let workers = lists.len();
        let parts = Parts::new(&c.graph, schedule);
        let mut edges = vec![Vec::new(); c.graph.stages.len()];
        for (edge, dependence) in c.graph.dependences.iter().enumerate() {
            edges[dependence.producer.0].push(edge);
        }
        Run {
            c,
            p,
            schedule,
            left: parts.counts(),
            edges,
            parts,
            lists,
            heads: (0..workers).map(|_| (0, None)).collect(),
            held: vec![None; workers],
            bases,
            slots,
            flags: HashSet::new(),
            sleeping: HashMap::new(),
            awake: (0..workers).rev().collect(),
            ended: Vec::new(),
            posts: Vec::new(),
        }
    }

    fn all(&mut self) {
        while let Some(worker) = self.awake.pop() {
            self.advance(worker);
        }
    }

    /// Runs a worker's list as far as possible.
    fn advance(&mut self, worker: usize) {
        while let Some(&item) = self.lists[worker].get(self.heads[worker].0) {
            let mut progress = self.heads[worker].1.take().unwrap_or_else(|| self.begin(item));
            loop {
                while let Some(&need) = progress.needs.last() {
                    if self.satisfied(need) {
                        progress.needs.pop();
                        continue;
                    }
                    self.heads[worker].1 = Some(progress);
                    return self.sleeping.entry(need.0).or_default().push(worker);
                }
                let Some((given, needs)) = progress.then.take() else { break };
                given.into_iter().for_each(|word| self.tell(word, 1));
                progress.needs = needs;
            }
            self.heads[worker].0 += 1;
            self.ended.push(item);
            if let Some(before) = self.held[worker].take() {
                self.post(before);
            }
            if self.c.contract.deferred_post && self.schedule.sequence[item as usize].part.finishes() {
                self.held[worker] = Some(item);
            } else {
                self.post(item);
            }
        }
        if let Some(last) = self.held[worker].take() {
            self.post(last);
        }
    }

    /// The CTAs of an item: tile, and index in the cluster.
    fn ctas(&self, item: u32) -> impl Iterator<Item = (Tile, u32)> + use<> {
        let (item, (rows, cols)) = (self.schedule.sequence[item as usize], self.schedule.cluster);
        (0..rows * cols)
            .map(move |cta| (Tile { m: item.m * rows + cta / cols, n: item.n * cols + cta % cols }, cta))
    }

    /// Index of an item among those of its tile.
    fn slice(&self, item: u32) -> u32 {
        let first = self.ctas(item).next().map_or(Tile { m: 0, n: 0 }, |(tile, _)| tile);
        let items = self.parts.items(self.schedule.sequence[item as usize].stage, first);
        items.iter().position(|i| *i == item).unwrap_or(0) as u32
    }

    fn begin(&self, item: u32) -> Progress {
        let (stage, slice) = (self.schedule.sequence[item as usize].stage, self.slice(item));
        let (mut needs, mut given, mut then) = (Vec::new(), Vec::new(), Vec::new());
        for (tile, cta) in self.ctas(item) {
            let gave = given.len();
            self.p.holds(stage, tile, slice, &mut |event| {
                let need = match event {
                    Event::Wait { edge, slot, value } => (Word::Slot(self.bases[edge] + slot), value),
                    Event::Await { slab } => (Word::Flag(slab, cta), 1),
                    Event::Contribute { slab } => return given.push(Word::Flag(slab, cta)),
                    Event::Load { .. }
                    | Event::Multicast { .. }
                    | Event::Warp { .. }
                    | Event::Add { .. }
                    | Event::Store { .. } => return,
                };
                if given.len() > gave { &mut then } else { &mut needs }.push(need);
            });
        }
        for needs in [&mut needs, &mut then] {
            // A few ascending runs, which this sort detects.
            needs.sort();
            needs.dedup();
            // The last need is checked first, so a list stops at the need it would reach first.
            needs.reverse();
        }
        Progress { needs, then: Some((given, then)) }
    }

    /// A wait value beyond the posts of a run is rejected by `count`.
    fn satisfied(&self, (word, value): Need) -> bool {
        match word {
            Word::Slot(slot) => {
                self.slots.get(slot as usize).is_none_or(|(posts, total)| *posts >= value.min(*total))
            }
            Word::Flag(slab, cta) => self.flags.contains(&(slab, cta)),
        }
    }

    /// The posts of a tile, by all CTAs of the cluster.
    fn each_post(&self, item: u32, f: &mut dyn FnMut(Word, u32)) {
        let stage = self.schedule.sequence[item as usize].stage;
        let (gm, gn) = self.c.graph.stages[stage.0].grid;
        for (tile, _) in self.ctas(item).filter(|(t, _)| t.m < gm && t.n < gn) {
            for &edge in &self.edges[stage.0] {
                self.p.posts(edge, tile, &mut |slot, amount| f(Word::Slot(self.bases[edge] + slot), amount));
            }
        }
    }

    /// Records the end of an item. The last part of a tile to end completes the tile's posts: a wait covers the whole
    /// tile, so earlier posts of other parts make no difference.
    fn post(&mut self, item: u32) {
        let Item { stage, m, n, .. } = self.schedule.sequence[item as usize];
        let left = self.parts.number(stage, (m, n)).and_then(|tile| self.left[stage.0].get_mut(tile));
        // Items outside their grid are rejected by `bounds`.
        let Some(left) = left else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let mut posts = std::mem::take(&mut self.posts);
            self.each_post(item, &mut |word, amount| posts.push((word, amount)));
            posts.drain(..).for_each(|(word, amount)| self.tell(word, amount));
            self.posts = posts;
        }
    }

    /// Updates a word and wakes the workers that wait for it.
    fn tell(&mut self, word: Word, amount: u32) {
        match word {
            Word::Slot(slot) => {
                if let Some(count) = self.slots.get_mut(slot as usize) {
                    count.0 += amount;
                }
            }
            Word::Flag(slab, cta) => {
                self.flags.insert((slab, cta));
            }
        }
        self.awake.extend(self.sleeping.remove(&word).into_iter().flatten());
    }

    /// A worker's current item, and the word it waits for.
    fn waits_at(&self, worker: usize) -> Option<(u32, Word)> {
        let (at, progress) = &self.heads[worker];
        let item = *self.lists[worker].get(*at)?;
        Some((item, progress.as_ref()?.needs.last()?.0))
    }

    /// An item that would change a word and has not yet: its worker and its position in that worker's list.
    fn provider(&self, word: Word) -> Option<(usize, usize)> {
        let gives = |item: u32| match word {
            Word::Slot(_) => {
                let mut posted = false;
                self.each_post(item, &mut |other, _| posted |= other == word);
                self.schedule.sequence[item as usize].part.finishes() && posted
            }
            Word::Flag(..) => self.begin(item).then.is_some_and(|(given, _)| given.contains(&word)),
        };
        (0..self.lists.len()).find_map(|worker| {
            let list = &self.lists[worker];
            // A deferred post counts as not made.
            let first = self.heads[worker].0 - usize::from(self.held[worker].is_some());
            (first..list.len()).find(|at| gives(list[*at])).map(|at| (worker, at))
        })
    }

    /// After the run: the cycle of unfinished lists that wait for each other.
    fn stuck(&self) -> Option<Refutation> {
        let places = crate::check::parts::places(self.schedule);
        let place_and_name = |item: u32| -> (Place, String) {
            let name = describe(&self.c.graph, self.schedule.cluster, &self.schedule.sequence[item as usize]);
            (places[item as usize], name)
        };
        let mut at = (0..self.lists.len()).find(|w| self.waits_at(*w).is_some())?;
        let mut path: Vec<(usize, String)> = Vec::new();
        let mut nobody = false;
        while path.iter().all(|(worker, _)| *worker != at) {
            let (item, word) = self.waits_at(at)?;
            let (place, name) = place_and_name(item);
            let Some((next, index)) = self.provider(word) else {
                path.push((at, format!("{place}, {name}, waits for what no item posts")));
                nobody = true;
                break;
            };
            let (wanted_place, wanted) = place_and_name(self.lists[next][index]);
            let (head, _) = self.heads[next];
            let how = match (index.cmp(&head), self.schedule.mode) {
                (std::cmp::Ordering::Greater, Hand::Fixed) => format!(", behind item {head} of that list"),
                (std::cmp::Ordering::Greater, Hand::Drawn) => ", which is drawn later".into(),
                (std::cmp::Ordering::Less, _) => {
                    ", which holds its posts back until the next item is under way".into()
                }
                (std::cmp::Ordering::Equal, _) => String::new(),
            };
            path.push((at, format!("{place}, {name}, waits for {wanted}: {wanted_place}{how}")));
            at = next;
        }
        // Drop the path that leads into the cycle.
        let first =
            if nobody { path.len() - 1 } else { path.iter().position(|(w, _)| *w == at).unwrap_or(0) };
        let cycle = &path[first..];
        let (item, _) = self.waits_at(cycle.first()?.0)?;
        let (place, name) = place_and_name(item);
        let subject = Subject::Item { stage: self.schedule.sequence[item as usize].stage, place };
        let message = format!("{place}, {name}, waits forever");
        let mut refutation = Refutation::new(Obligation::Progress, subject, message);
        for (_, fact) in cycle.iter().take(MAX_FACTS) {
            refutation = refutation.fact(fact);
        }
        if cycle.len() > MAX_FACTS {
            refutation = refutation.fact(format!(
                "and {} more, back to worker {}",
                cycle.len() - MAX_FACTS,
                cycle[0].0
            ));
        }
        Some(refutation.help("order every list so that items come after those that they need"))
    }
}
