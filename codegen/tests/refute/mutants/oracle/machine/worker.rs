//! How a worker proceeds: its draws, loads and epilogues, and the points where it is held back.

use cusync_gen::check::StoreCompletion;
use rand::Rng;

use super::{At, Machine, Source, Worker, launches};
use crate::oracle::adversary::{Hold, Phase};
use crate::oracle::effect::Site;
use crate::oracle::program::Op;
use crate::oracle::room;

impl Machine<'_> {
    pub(super) fn held(&self, site: Site, phase: Phase) -> bool {
        let held = |h: Hold| (h.work, h.cta, h.phase) == (site.item, site.cta, phase);
        !self.released[site.run as usize - 1] && self.adversary.hold.is_some_and(held)
    }

    /// Gives a worker its next item; returns whether there is one.
    fn draw(&mut self, worker: usize) -> bool {
        let Worker { run, source, ref items, ref loaders, ref finishers, .. } = self.workers[worker];
        // A `cpu` executor thread works sequentially; a CTA loads ahead.
        let at = if !self.c.launch.on_gpu() { finishers } else { loaders };
        if at.iter().any(|a| a.item < items.len()) {
            return false;
        }
        if let Some(last) = items.last()
            && (0..self.ctas).any(|cta| self.held(Site { run, item: *last, cta }, Phase::Draw))
        {
            return false;
        }
        // Nor does a worker with a delayed epilogue draw: its later tiles would be delayed too.
        let held = |(cta, at): (usize, &At)| {
            let is_held = |item: &u32| {
                let site = Site { run, item: *item, cta };
                [Phase::Finisher, Phase::Given, Phase::Last].into_iter().any(|phase| self.held(site, phase))
            };
            items.get(at.item).is_some_and(is_held)
        };
        if finishers.iter().enumerate().any(held) {
            return false;
        }
        let state = &mut self.runs[run as usize - 1];
        let next = match source {
            Source::List => None,
            Source::Shared => self.shared.get(state.drawn).inspect(|_| state.drawn += 1).copied(),
            Source::Stage(s) => {
                let (ticket, tiles) = (state.tickets[s], &self.program.stages[s]);
                (ticket < tiles.len() * launches(self.c, s)).then(|| {
                    state.tickets[s] += 1;
                    tiles[ticket % tiles.len()]
                })
            }
        };
        self.workers[worker].items.extend(next);
        next.is_some()
    }

    fn exhausted(&self, worker: &Worker) -> bool {
        let state = &self.runs[worker.run as usize - 1];
        match worker.source {
            Source::List => true,
            Source::Shared => state.drawn >= self.shared.len(),
            Source::Stage(s) => state.tickets[s] >= self.program.stages[s].len() * launches(self.c, s),
        }
    }

    /// Advances a worker as far as possible or, when `short`, by a few steps; returns whether it moved.
    pub(super) fn turn(&mut self, worker: usize, short: bool) -> bool {
        let mut left = if short { self.rng.random_range(1..6) } else { usize::MAX };
        let mut any = false;
        let mut moved = true;
        while moved && left > 0 && self.fault.is_none() {
            moved = self.draw(worker);
            for cta in 0..self.ctas {
                let warps = self.program.warps;
                while left > 0
                    && ((0..warps).any(|warp| self.load(worker, cta, warp)) || self.finish(worker, cta))
                {
                    moved = true;
                    left -= 1;
                }
            }
            any |= moved;
        }
        let w = &self.workers[worker];
        let done = |at: &[At]| at.iter().all(|a| a.item == w.items.len());
        if done(&w.loaders) && done(&w.finishers) && self.exhausted(w) {
            if let Some(sm) = w.sm {
                let takes = if let Source::Stage(s) = w.source { self.takes[s] } else { room::WORKER };
                room::give(&mut self.room[sm], &takes);
            }
            self.workers[worker].ended = true;
            any = true;
        }
        any
    }

    fn load(&mut self, worker: usize, cta: usize, warp: usize) -> bool {
        let (w, program) = (&self.workers[worker], self.program);
        let number = cta * program.warps + warp;
        let at = w.loaders[number];
        let Some(&item) = w.items.get(at.item) else { return false };
        let site = Site { run: w.run, item, cta };
        if at.step == 0 && self.held(site, Phase::Loader) {
            return false;
        }
        let steps = program.work[item as usize].ctas[cta].loaders.get(warp);
        let next = match steps.and_then(|steps| steps.get(at.step)) {
            None => At { item: at.item + 1, ..At::default() },
            Some(op) if self.perform(op, site) => At { step: at.step + 1, ..at },
            Some(_) => return false,
        };
        self.workers[worker].loaders[number] = next;
        true
    }

    fn finish(&mut self, worker: usize, cta: usize) -> bool {
        let (w, program) = (&self.workers[worker], self.program);
        let mut at = w.finishers[cta];
        let Some(&item) = w.items.get(at.item) else { return false };
        let site = Site { run: w.run, item, cta };
        // CTAs of a cluster load for each other.
        if w.loaders.iter().any(|l| l.item <= at.item) {
            return false;
        }
        let work = &program.work[item as usize];
        let steps = &work.ctas[cta].finisher;
        let given = at.step > 0 && matches!(steps[at.step - 1], Op::SetFlag { .. });
        if at.step == 0 && self.held(site, Phase::Finisher)
            || work.ctas[cta].late.is_empty() && at.step + 1 == steps.len() && self.held(site, Phase::Last)
            || given && self.held(site, Phase::Given)
        {
            return false;
        }
        let ends = !steps.is_empty() || !work.ctas[cta].late.is_empty();
        if !std::mem::replace(&mut at.begun, true) && ends {
            self.fault = self.effects.begin_epilogue(site).err().or(self.fault);
        }
        match steps.get(at.step) {
            None => {
                at = At { item: at.item + 1, ..At::default() };
                if !work.ctas[cta].late.is_empty() {
                    self.late.push(site);
                }
            }
            Some(op) => {
                let last = matches!(op, Op::Store { .. } | Op::Post { .. } | Op::LookAtSlot { .. });
                if last && work.slices > 1 && !at.arrived {
                    at.arrived = true;
                    let tile = work.ctas[cta].tile.map_or(0, |t| (site.run - 1) * program.layout.tiles() + t)
                        as usize;
                    self.arrived[tile] += 1;
                    if self.arrived[tile] < work.slices {
                        at.step = steps.len();
                        self.workers[worker].finishers[cta] = at;
                        return true;
                    }
                }
                if matches!(op, Op::Post { .. }) {
                    self.complete(worker, cta);
                }
                let goes = match op {
                    Op::NextUnderWay => self.next_under_way(worker, cta),
                    op => self.perform(op, site),
                };
                if !goes {
                    self.workers[worker].finishers[cta] = at;
                    return false;
                }
                at.step += 1;
            }
        }
        self.workers[worker].finishers[cta] = at;
        true
    }
    /// A CTA that waits for its bulk stores before a post waits for all of them.
    fn complete(&mut self, worker: usize, cta: usize) {
        if self.c.contract.stores != StoreCompletion::BulkWait {
            return;
        }
        let (w, program) = (&self.workers[worker], self.program);
        let done = &w.items[..w.finishers[cta].item];
        let own = |site: &Site| (site.run, site.cta) == (w.run, cta) && done.contains(&site.item);
        let (own, others) = std::mem::take(&mut self.late).into_iter().partition(own);
        self.late = others;
        let own: Vec<Site> = own;
        for site in own {
            for op in &program.work[site.item as usize].ctas[site.cta].late {
                self.perform(op, site);
            }
        }
    }

    /// Whether the loads of the worker's next item are done, or there is no next item.
    fn next_under_way(&self, worker: usize, cta: usize) -> bool {
        let w = &self.workers[worker];
        let here = w.finishers[cta].item;
        if here + 1 < w.items.len() { w.loaders.iter().all(|l| l.item > here + 1) } else { self.exhausted(w) }
    }
}
