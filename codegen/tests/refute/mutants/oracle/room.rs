//! An SM's resources, and the resources that a CTA of each kernel takes: shared memory, registers, threads, CTAs.

use cusync_gen::check::{Candidate, CtaResources};
use cusync_gen::graph::StageId;
use rand::Rng;
use rand::rngs::SmallRng;

/// One number per resource.
pub(super) type Room = [u64; 4];

/// A worker of a kernel that does not share its SMs.
pub(super) const WORKER: Room = [0, 0, 0, 1];

pub(super) fn of_sm(c: &Candidate) -> Room {
    [c.device.shared_per_sm.into(), 65536, c.device.threads_per_sm.into(), c.device.ctas_per_sm.into()]
}

/// Resources of a CTA of each stage. If a launch states only how many CTAs fit an SM, the kernels are drawn to match
/// that number, each limited by a different resource; without randomness, each takes as much of every resource as that
/// number allows.
pub(super) fn takes(c: &Candidate, mut lot: Option<&mut SmallRng>) -> Vec<Room> {
    let sm = of_sm(c);
    let stated = |CtaResources { shared, registers, threads }: CtaResources| {
        [u64::from(shared), u64::from(registers), u64::from(threads), 1]
    };
    let mut drawn = |fit: u64| match &mut lot {
        None => [sm[0] / fit, sm[1] / fit, sm[2] / fit, 1],
        Some(rng) => {
            let short = rng.random_range(0..3);
            let mut one = |r: usize| {
                let (less, most) = (sm[r] / (fit + 1) + 1, sm[r] / fit);
                if r == short { rng.random_range(less..=most.max(less)) } else { rng.random_range(0..=most) }
            };
            [one(0), one(1), one(2), 1]
        }
    };
    (0..c.graph.stages.len())
        .map(|s| match c.launch.kernel(StageId(s)) {
            Some(kernel) => kernel.takes.map_or_else(|| drawn(kernel.ctas_per_sm.max(1).into()), stated),
            None => WORKER,
        })
        .collect()
}

pub(super) fn fits(room: &Room, takes: &Room) -> bool {
    room.iter().zip(takes).all(|(room, takes)| takes <= room)
}

pub(super) fn take(room: &mut Room, takes: &Room) {
    room.iter_mut().zip(takes).for_each(|(room, takes)| *room -= takes);
}

pub(super) fn give(room: &mut Room, takes: &Room) {
    room.iter_mut().zip(takes).for_each(|(room, takes)| *room += takes);
}
