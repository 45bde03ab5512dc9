//! `progress` of a decode plan: all CTAs are run, without time, until they end or stand still.

use super::super::{Obligation, Refutation, Subject};
use super::DecodeEvent;
use super::judge::{Run, Steps, refute};
use crate::graph::StageId;

impl Run<'_> {
    /// See the head of [`super`].
    pub(super) fn progress(&self) -> Option<Refutation> {
        let (workers, fit) = (self.decode.workers, self.c.device.sms);
        if workers > fit {
            let message = format!("{workers} CTAs, of which {fit} are resident at once");
            return Some(
                Refutation::new(Obligation::Progress, Subject::Pipeline, message)
                    .fact(format!("CTA {fit} would begin when another has ended, which waits for its share"))
                    .help("plan for a CTA an SM"),
            );
        }
        if self.c.contract.deferred_post
            && let Some(reader) = self.decode.stages.iter().position(|s| s.producer.is_some())
        {
            let message = "the posts of a share are held back until the next stage is under way";
            return Some(
                refute(Obligation::Progress, reader, message)
                    .fact(format!(
                        "CTA 0 waits in `{}` for a tile that it has itself still to post",
                        self.name(reader)
                    ))
                    .help("post before the first wait of the next stage"),
            );
        }
        self.stuck()
    }

    /// The steps of a CTA in a stage: its warps one after the other. Those that bring activations all have to be done
    /// before the last, which computes, so their order does not matter.
    fn warps_of(&self, stage: usize, cta: usize) -> &[Steps] {
        let first = (stage * self.decode.workers as usize + cta) * self.warps;
        self.steps.get(first..first + self.warps).unwrap_or(&[])
    }

    /// Runs all CTAs, without time, until they end or stand still.
    fn stuck(&self) -> Option<Refutation> {
        let stages = self.decode.stages.len();
        let mut posted: Vec<Vec<u64>> = self.totals.iter().map(|t| vec![0; t.len()]).collect();
        // Whether a wait lets a CTA pass; a value beyond the posts of a run is for `count` to refute.
        let passes = |posted: &[Vec<u64>], stage: StageId, slot: u32, value: u32| {
            let of =
                |all: &[Vec<u64>]| all.get(stage.0).and_then(|s| s.get(slot as usize)).copied().unwrap_or(0);
            of(posted) >= u64::from(value).min(of(&self.totals))
        };
        // By CTA: stage, warp, step.
        let mut at = vec![(0, 0, 0); self.decode.workers as usize];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (cta, (stage, warp, step)) in at.iter_mut().enumerate() {
                while *stage < stages {
                    let Some(steps) = self.warps_of(*stage, cta).get(*warp) else {
                        (*stage, *warp) = (*stage + 1, 0);
                        continue;
                    };
                    let Some(event) = steps.events.get(*step) else {
                        (*warp, *step) = (*warp + 1, 0);
                        continue;
                    };
                    match event {
                        DecodeEvent::Wait { stage, slot, value }
                            if !passes(&posted, *stage, *slot, *value) =>
                        {
                            break;
                        }
                        DecodeEvent::Post { slot, amount } => {
                            if let Some(slot) = posted[*stage].get_mut(*slot as usize) {
                                *slot += u64::from(*amount);
                            }
                        }
                        _ => {}
                    }
                    (*step, moved) = (*step + 1, true);
                }
            }
        }
        // The one that is least far tells most.
        let (cta, (s, warp, step)) =
            at.iter().copied().enumerate().filter(|(_, (s, ..))| *s < stages).min_by_key(|(_, at)| *at)?;
        let DecodeEvent::Wait { stage, slot, .. } = self.warps_of(s, cta).get(warp)?.events.get(step)? else {
            return None;
        };
        let (reader, writer) = (self.name(s), self.name(stage.0));
        let message = format!("CTA {cta} waits in `{reader}` for column tile {slot} of `{writer}` for ever");
        let owner = self.steps.iter().find(|steps| {
            let posts = |e: &DecodeEvent| matches!(e, DecodeEvent::Post { slot: other, .. } if other == slot);
            steps.stage == stage.0 && steps.events.iter().any(posts)
        });
        let refutation = refute(Obligation::Progress, s, message);
        let refutation = match owner {
            Some(Steps { cta: owner, .. }) => {
                let place = self.name(at[*owner].0);
                refutation.fact(format!("CTA {owner} posts it in `{writer}`, and itself stands in `{place}`"))
            }
            None => refutation.fact("no CTA posts it"),
        };
        Some(refutation.help("wait only for stages that come before"))
    }
}
