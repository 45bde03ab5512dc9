//! Launches, and the placement of CTAs on SMs.

use cusync_gen::check::{How, Launch};
use cusync_gen::graph::StageId;
use cusync_gen::schedule::Hand;
use cusync_gen::schedule::decode::Decode;
use rand::Rng;
use rand::seq::SliceRandom;

use super::{At, Machine, Run, Source, Worker, launches};
use crate::oracle::adversary::Fit;
use crate::oracle::room::{self, Room};

impl Machine<'_> {
    pub(super) fn launch(&mut self) {
        let run = self.runs.len() as u32 + 1;
        let stages = self.program.stages.len();
        let mut state = Run { tickets: vec![0; stages], pending: vec![0; stages], ..Run::default() };
        match &self.c.launch {
            Launch::Lists(schedule) | Launch::Shares(Decode { work: schedule, .. }) => {
                state.lists = (0..schedule.lists.len()).collect();
                // Taken from the end.
                if self.adversary.lot.is_some() {
                    state.lists.shuffle(&mut self.rng);
                } else if !self.adversary.reverse {
                    state.lists.reverse();
                }
            }
            Launch::Stages { how: How::Host, .. } => {
                (0..self.adversary.workers).for_each(|_| self.spawn(run, Source::Shared, Vec::new(), None));
            }
            Launch::Stages { how: How::Streams(_) | How::Programmatic, .. } => {
                state.pending = self.program.stages.iter().map(|s| s.len() as u32).collect();
                // A stage that is launched twice, or never.
                for (s, pending) in state.pending.iter_mut().enumerate() {
                    *pending *= launches(self.c, s) as u32;
                }
            }
            Launch::Stages { how: How::Serial | How::Library, .. } => self.spawn_stage(run, 0),
        }
        self.runs.push(state);
    }

    fn spawn(&mut self, run: u32, source: Source, items: Vec<u32>, sm: Option<usize>) {
        let at = |each: usize| vec![At::default(); self.ctas * each];
        self.workers.push(Worker {
            run,
            source,
            items,
            loaders: at(self.program.warps),
            finishers: at(1),
            sm,
            ended: false,
        });
    }

    fn spawn_stage(&mut self, run: u32, place: usize) {
        if let Some(kernel) = self.c.launch.kernels().get(place) {
            for item in self.program.stages[kernel.stage.0].clone() {
                self.spawn(run, Source::List, vec![item], None);
            }
        }
    }

    /// Begins the next stage of a serial chain.
    pub(super) fn next_stage(&mut self) -> bool {
        if self.program.semaphores || self.c.launch.is_one_kernel() {
            return false;
        }
        let mut began = false;
        for run in 0..self.runs.len() {
            if self.runs[run].serial < self.c.launch.kernels().len() {
                self.runs[run].serial += 1;
                let place = self.runs[run].serial;
                began |= place < self.c.launch.kernels().len();
                self.spawn_stage(run as u32 + 1, place);
            }
        }
        began
    }

    pub(super) fn waiting(&self) -> bool {
        self.runs.iter().any(|r| !r.lists.is_empty() || r.pending.iter().any(|p| *p > 0))
    }

    /// Whether the start guarantee allows a CTA of a stage to be placed.
    fn may_start(&self, run: usize, stage: usize) -> bool {
        let position = |s: usize| self.c.launch.position(StageId(s));
        !self.c.launch.guarantees_starts()
            || self.c.graph.dependences.iter().filter(|d| d.consumer == StageId(stage)).all(|d| {
                position(d.producer.0) >= position(stage) || self.runs[run].pending[d.producer.0] == 0
            })
    }

    /// Places CTAs and workers while there is room.
    pub(super) fn place(&mut self) -> bool {
        let mut placed = false;
        for run in 0..self.runs.len() {
            while let Some(list) = self.runs[run].lists.last().copied()
                && let Some(sm) = self.fit(&room::WORKER)
            {
                self.runs[run].lists.pop();
                room::take(&mut self.room[sm], &room::WORKER);
                let schedule = self.c.launch.work().expect("lists are of a schedule");
                let (source, items) = match schedule.mode {
                    Hand::Fixed => (Source::List, schedule.lists[list].clone()),
                    Hand::Drawn => (Source::Shared, Vec::new()),
                };
                self.spawn(run as u32 + 1, source, items, Some(sm));
                placed = true;
            }
            loop {
                let mut ready: Vec<usize> = (0..self.runs[run].pending.len())
                    .filter(|s| self.runs[run].pending[*s] > 0 && self.may_start(run, *s))
                    .collect();
                if self.adversary.lot.is_some() {
                    ready.shuffle(&mut self.rng);
                } else if self.adversary.consumers_first {
                    ready.reverse();
                }
                let Some((stage, sm)) = ready.into_iter().find_map(|s| {
                    let takes = self.takes[s];
                    Some((s, self.fit(&takes)?))
                }) else {
                    break;
                };
                self.runs[run].pending[stage] -= 1;
                room::take(&mut self.room[sm], &self.takes[stage]);
                self.spawn(run as u32 + 1, Source::Stage(stage), Vec::new(), Some(sm));
                placed = true;
                if self.adversary.lot.is_some() && self.rng.random_ratio(1, 4) {
                    break;
                }
            }
        }
        placed
    }

    fn fit(&mut self, takes: &Room) -> Option<usize> {
        let fits = |(_, room): &(usize, &Room)| room::fits(room, takes);
        let all = || self.room.iter().enumerate().filter(fits);
        match self.adversary.fit {
            Fit::First => all().next().map(|(sm, _)| sm),
            Fit::Emptiest => all().max_by_key(|(_, room)| **room).map(|(sm, _)| sm),
            Fit::Fullest => all().min_by_key(|(_, room)| **room).map(|(sm, _)| sm),
            Fit::Any => {
                let fitting: Vec<usize> = all().map(|(sm, _)| sm).collect();
                (!fitting.is_empty()).then(|| fitting[self.rng.random_range(0..fitting.len())])
            }
        }
    }
}
