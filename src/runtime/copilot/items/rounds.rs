//! The rounds of a session of items: each takes note of finished items, begins jobs, and gives items to
//! workers with room.

use std::collections::VecDeque;
use std::time::Duration;

use cusync_gen::check::Ledger;

use super::super::notes::Sent;
use super::{Items, refused};
use crate::device::Letter;
use crate::runtime::error::Result;

/// The host's view of a worker.
#[derive(Debug, Default)]
pub(super) struct Worker {
    /// Number of its last word.
    pub(super) sent: u32,
    /// Unfinished items that were sent to it.
    items: VecDeque<Out>,
    /// Start and expected end of its work as far as the host knows: when it could compute its first item (it
    /// had turned to it and the dependences were done), and when it is expected to run out.
    since: Option<(Duration, Duration)>,
    /// How many of the words that its first item waits for are known to be full.
    fed: usize,
    /// Whether it has begun the current launch.
    here: bool,
}

/// An item that a worker has.
#[derive(Clone, Copy, Debug)]
struct Out {
    item: u32,
    epoch: u32,
    at: Duration,
}

impl Worker {
    /// Notes that it can compute its first item, if that is not known yet.
    fn note_fed(&mut self, ledger: &Ledger, paces: &[Pace], now: Duration) {
        let Some(first) = self.items.front().filter(|_| self.since.is_none()) else { return };
        let (fed, needed) = ledger.fed(first.item, self.fed);
        self.fed = fed;
        if fed == needed {
            let takes = self.items.iter().map(|out| paces[ledger.stage_of(out.item)].0).sum::<Duration>();
            self.since = Some((now, now + takes));
        }
    }
}

/// Time per item of a stage, as the host sees it. Underestimates rather than overestimates: an item may look
/// slow only because the host noticed its end late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace(Duration);

impl Pace {
    fn learn(&mut self, took: Duration) {
        let Pace(usual) = *self;
        self.0 = match took < usual || usual.is_zero() {
            true => (usual + took) / if usual.is_zero() { 1 } else { 2 },
            false => usual + (took - usual) / 16,
        };
    }
}

/// A job under way.
#[derive(Debug)]
pub(super) struct Active {
    kind: usize,
    first: bool,
    /// Number of items handed out.
    next: usize,
}

impl Items<'_> {
    /// One round: finished items, jobs that can begin, workers with room, and whether the kernel is present.
    pub(super) fn pump(&mut self) -> Result<()> {
        // Read before the finished items: when a kernel leaves, it has finished all items that it took, and
        // the next one gets the rest.
        let gone = self.taker.boxes()?.left() == self.launches;
        let now = self.noting.now();
        self.look(now)?;
        self.begin()?;
        if !gone {
            return self.hand_out(now);
        }
        if self.unfinished() > 0 {
            self.launches = self.launches.wrapping_add(1);
            // Workers of the next launch announce themselves: some may get no SM for a while.
            self.workers.iter_mut().for_each(|worker| worker.here = false);
            let begin = self.noting.now();
            self.taker.launch(self.launches)?;
            self.noting.launched(begin);
        }
        Ok(())
    }

    /// Records items that workers have finished.
    fn look(&mut self, now: Duration) -> Result<()> {
        let boxes = self.taker.boxes()?;
        let mut over = false;
        for (at, worker) in self.workers.iter_mut().enumerate().filter(|(_, worker)| !worker.items.is_empty())
        {
            let left = worker.sent.wrapping_sub(boxes.done(at)) as usize;
            // If several items ended at once, their individual times are unknown.
            let one = worker.items.len() == left + 1;
            while worker.items.len() > left {
                let Some(Out { item, epoch, at: sent }) = worker.items.pop_front() else { break };
                if let Some((since, _)) = worker.since.take().filter(|_| one) {
                    self.paces[self.ledger.stage_of(item)].learn(now.saturating_sub(since));
                }
                worker.fed = 0;
                // Stamped after the look: the item had ended by then.
                let seen = self.noting.stamp(now);
                self.noting.sent(Sent { at: sent, seen, worker: at as u32, item, epoch });
                if self.ledger.done(item).map_err(refused)? {
                    let kind = self.ledger.kind_of(item).unwrap_or(0);
                    self.running[kind] = None;
                    over = true;
                }
            }
        }
        if over {
            let open = |number: u32| {
                self.waiting.iter().any(|(other, ..)| *other == number)
                    || self.running.contains(&Some(number))
            };
            self.noting.seen(|number| !open(number));
        }
        Ok(())
    }

    /// Begins the first waiting job of each kind that has none running.
    fn begin(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(&(number, kind, first)) = self.waiting.get(at) {
            if self.running[kind].is_some() {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.ledger.begin(kind).map_err(refused)?;
            self.running[kind] = Some(number);
            let behind = |active: &Active| active.first || !first;
            let place = self.active.iter().take_while(|active| behind(active)).count();
            self.active.insert(place, Active { kind, first, next: 0 });
        }
        Ok(())
    }

    /// Gives the next items to present workers that have room and will run out soon, least loaded first.
    fn hand_out(&mut self, now: Duration) -> Result<()> {
        if self.active.is_empty() {
            return Ok(());
        }
        let boxes = self.taker.boxes()?;
        for room in 1..=self.handing.ahead as usize {
            for (at, worker) in
                self.workers.iter_mut().enumerate().filter(|(_, worker)| worker.items.len() < room)
            {
                if let Some(lead) = self.handing.lead.filter(|_| !worker.items.is_empty()) {
                    worker.note_fed(&self.ledger, &self.paces, now);
                    // An item that waits for others may wait long, and items sent behind it wait with it.
                    if worker.since.is_none_or(|(_, until)| until > now + lead) {
                        continue;
                    }
                }
                let Some(job) = self.active.first_mut() else { return Ok(()) };
                if !worker.here {
                    worker.here = boxes.here(at) == self.launches;
                    if !worker.here {
                        continue;
                    }
                }
                let list = self.ledger.items(job.kind);
                let (item, last) = (list[job.next], job.next + 1 == list.len());
                job.next += 1;
                let entry = self.ledger.number(item).map_err(refused)?;
                worker.sent = worker.sent.wrapping_add(1);
                let out = Out { item, epoch: entry.epoch(), at: self.noting.stamp(now) };
                if let Some((_, until)) = &mut worker.since {
                    *until += self.paces[self.ledger.stage_of(item)].0;
                }
                worker.items.push_back(out);
                boxes.post(at, worker.sent, Letter { item: Some(entry.item()), epoch: entry.epoch() });
                if last {
                    self.active.remove(0);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stage_takes_is_learnt_at_once_and_forgotten_slowly() {
        let us = Duration::from_micros;
        let mut pace = Pace::default();
        for (took, want) in [(80, 80), (40, 60), (76, 61), (1, 31)] {
            pace.learn(us(took));
            assert_eq!(pace.0, us(want), "behind {took} us");
        }
    }
}
