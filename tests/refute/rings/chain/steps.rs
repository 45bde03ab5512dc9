//! The steps of each party of a CTA, item by item.

use super::{Broken, Cta, Kind, Model, Residual, Step};

/// The steps of each party so far.
struct Steps {
    cta: Cta,
    dispatch: Vec<Step>,
    load: Vec<Step>,
    math: Vec<Step>,
    store: Vec<Step>,
    /// Counts of k-blocks with waits, k-blocks loaded, k-blocks counted by the load warp, units and stored tiles.
    met: u8,
    n: u8,
    counted: u8,
    unit: u8,
    tiles: u8,
    /// The last k-block of each window.
    windows: Vec<u8>,
}

impl Model {
    pub(super) fn new(cta: Cta) -> Model {
        let items = cta.items.clone();
        let (dispatch, load, math, store, windows) = (vec![], vec![], vec![], vec![], vec![]);
        let (met, n, counted, unit, tiles) = (0, 0, 0, 0, 0);
        let mut steps = Steps { cta, dispatch, load, math, store, met, n, counted, unit, tiles, windows };
        for (i, kind) in (0..).zip(items) {
            steps.hand_out(i, kind);
            match kind {
                Kind::Product { k_blocks, units, residual } => {
                    steps.bring_first(units, residual);
                    steps.multiply(k_blocks);
                }
                Kind::Rows { loads } => steps.rows(loads),
            }
            steps.store(kind);
        }
        let Steps { cta, dispatch, load, math, store, met, tiles, .. } = steps;
        Model { cta, dispatch, load, math, store, waits: met, tiles }
    }
}

impl Steps {
    fn is_broken(&self, broken: Broken) -> bool {
        self.cta.broken == Some(broken)
    }

    fn hand_out(&mut self, i: u8, kind: Kind) {
        self.dispatch.push(Step::Publish(i));
        let (met, reach) = (self.met, u8::from(self.is_broken(Broken::WordTooFar)));
        self.dispatch.extend((1..=kind.counted()).map(|k| Step::Word(met + k + reach)));
        self.dispatch.extend(self.cta.drawn.map(|_| Step::Asked(i)));
        for party in [&mut self.load, &mut self.math, &mut self.store] {
            party.push(Step::Take(i));
        }
    }

    /// Residuals that the warpgroups load before they multiply.
    fn bring_first(&mut self, units: u8, residual: Residual) {
        if residual != Residual::Warpgroups || units == 0 {
            return;
        }
        self.math.push(Step::Ready { word: self.counted + 1, met: self.met + 1 });
        for u in self.unit..self.unit + units {
            let waits = !self.is_broken(Broken::BroughtEarly);
            self.math.extend(waits.then_some(Step::Stage(u)));
            self.math.push(Step::Bring(u));
        }
    }

    /// The k-blocks of a product.
    fn multiply(&mut self, k_blocks: u8) {
        let n = self.n;
        let ask = self.cta.drawn.map(|early| k_blocks.saturating_sub(early + 1));
        let mut left = 0;
        for k in 0..k_blocks {
            // The position of a k-block in a group that began before it.
            let follows = left > 0;
            left = if follows { left - 1 } else { self.cta.followers(k, k_blocks, n + k) };
            self.math.push(Step::Multiply(n + k));
            // A k-block is freed when the next one is in progress.
            self.math.extend((k > 0).then(|| Step::Free(n + k - 1)));
            if follows {
                let with = self.load.iter().rev().find_map(|step| match step {
                    Step::Load { n, .. } => Some(*n),
                    _ => None,
                });
                self.load.extend(with.map(|with| Step::Follow { n: n + k, with }));
            } else {
                self.load_group(k, k_blocks, left);
            }
            self.load.extend(ask.filter(|at| *at == k).map(|_| Step::Ask));
        }
        self.math.push(Step::Free(n + k_blocks - 1));
        self.n += k_blocks;
        self.counted += k_blocks;
    }

    /// Loads the k-th k-block of a product, and `group` after it with the same copy.
    fn load_group(&mut self, k: u8, k_blocks: u8, group: u8) {
        let (first, last) = (self.n + k, self.n + k + group);
        let waits_for = if self.is_broken(Broken::GroupWaitsForFirst) { first } else { last };
        self.load.push(match group {
            0 => Step::Acquire(first),
            _ => Step::AcquireAll { first, last, waits_for },
        });
        if let Some((w, (left, true))) = self.cta.windows.map(|w| (w, w.left(k))) {
            let held = self.windows.len().checked_sub(w.buffers).map(|w| self.windows[w]);
            self.load.extend(held.map(|last| Step::Overwrite { n: first, last }));
            self.windows.push(self.n + k_blocks.min(k + left) - 1);
        }
        let all = k + group + 1;
        self.load.push(Step::Load { n: first, word: self.counted + all, met: self.met + all });
    }

    fn rows(&mut self, loads: u8) {
        let (unit, met) = (self.unit, self.met + 1);
        self.math.push(Step::Stage(unit));
        for at in self.n..self.n + loads {
            self.load.extend([Step::Acquire(at), Step::Load { n: at, word: self.counted + 1, met }]);
            // The buffer of another unit, for the duration of the item.
            self.math.extend((at == self.n).then_some(Step::Stage(unit + 1)));
            self.math.extend([Step::Multiply(at), Step::Free(at)]);
        }
        self.n += loads;
        self.load.extend(self.cta.drawn.map(|_| Step::Ask));
        self.math.extend((loads == 0).then_some(Step::Ready { word: met, met }));
        self.math.push(Step::Commit(unit));
        self.counted += u8::from(!self.is_broken(Broken::RowsAreNotCounted));
    }

    /// The units of an item, from the warpgroups to the store warps.
    fn store(&mut self, kind: Kind) {
        let (unit, units) = (self.unit, kind.units());
        let adds = matches!(kind, Kind::Product { residual: Residual::StoreWarps, .. });
        let ahead = if adds { units.min(self.cta.staging as u8) } else { 0 };
        if ahead > 0 {
            let word = self.met + kind.counted();
            self.store.push(Step::Ready { word, met: word });
            self.store.extend((unit..unit + ahead).map(Step::Bring));
        }
        let mut sent = unit;
        for u in unit..unit + units {
            if matches!(kind, Kind::Product { .. }) {
                self.math.push(Step::Stage(u));
                self.math.extend(adds.then_some(Step::Add(u)));
                self.math.push(Step::Commit(u));
            }
            self.store.push(Step::Send(u));
            let tells = !adds && !self.is_broken(Broken::NothingIsNotTold);
            self.store.extend(tells.then_some(Step::Tell(u)));
            let brings = Some(u + ahead).filter(|next| adds && *next < unit + units);
            let early = self.is_broken(Broken::BroughtEarly);
            self.store.extend(brings.filter(|_| early).map(Step::Bring));
            // After the last store, and before a residual load, all stores must have read their buffers.
            let all = u + 1 == unit + units || brings.is_some();
            let read = if all { u + 1 } else { (u + 1).saturating_sub(self.cta.lag) };
            self.store.extend((sent..read).map(Step::Sent));
            sent = sent.max(read);
            self.store.extend(brings.filter(|_| !early).map(Step::Bring));
        }
        if units > 0 {
            self.store.push(Step::Count(self.tiles));
            self.tiles += 1;
        }
        self.unit += units;
        self.met += kind.counted();
    }
}
