//! The worst order of a CTA's steps that its kernels' contract allows: a missing release, acquire, barrier or fence
//! makes steps happen late or early.

use cusync_gen::check::{Candidate, StoreCompletion};

use super::{Cta, Op};

/// Adds the posts, and puts the steps into the worst order that the kernels' contract allows.
pub(super) fn worst_order(c: &Candidate, mut cta: Cta, posts: Vec<Op>, inside: bool, slices: u32) -> Cta {
    let (contract, silent) = (&c.contract, posts.is_empty());
    let mut held = Vec::new();
    if contract.deferred_post && c.launch.work().is_some() && !posts.is_empty() {
        held.push(Op::NextUnderWay);
    }
    for post in posts {
        match post {
            Op::Post { slot, amount } if contract.plain_store_posts => {
                held.extend([Op::LookAtSlot { slot }, Op::OverwriteSlot { slot, amount }]);
            }
            post => held.push(post),
        }
    }
    let posts = if inside { held } else { Vec::new() };
    let host = !c.launch.on_gpu();
    if !host && (contract.stores == StoreCompletion::BulkWaitRead || !contract.post_releases) {
        let stores = take(&mut cta.finisher, |op| matches!(op, Op::Store { .. }));
        cta.finisher.extend(posts);
        // Of combined slices only the last stores; a kernel boundary completes all stores.
        let loose = c.launch.has_semaphores() && slices == 1;
        if loose { cta.late.extend(stores) } else { cta.finisher.extend(stores) }
    } else {
        cta.finisher.extend(posts);
    }
    // If nothing waits for a tile, its bulk stores are only known to have left shared memory.
    if !host && silent && c.launch.lists().is_some() && contract.stores == StoreCompletion::BulkWait {
        let stores = take(&mut cta.finisher, |op| matches!(op, Op::Store { .. }));
        cta.late.extend(stores);
    }
    if !host && (!contract.wait_acquires || contract.bulk_loads && !contract.proxy_fence) {
        for steps in cta.loaders.iter_mut().chain([&mut cta.finisher]) {
            steps.sort_by_key(|op| !matches!(op, Op::Load(_)));
        }
    }
    let slabs = &contract.slabs;
    if !host && (!slabs.barrier || !slabs.flag_releases) {
        cta.late.extend(take(&mut cta.finisher, |op| matches!(op, Op::Leave { .. })));
    }
    if !host && !slabs.flag_acquires {
        for at in 1..cta.finisher.len() {
            if matches!(cta.finisher[at], Op::Add { .. }) {
                cta.finisher.swap(at - 1, at);
            }
        }
    }
    cta
}

/// Removes the steps that match `which`.
fn take(steps: &mut Vec<Op>, which: impl Fn(&Op) -> bool) -> Vec<Op> {
    let (taken, left) = std::mem::take(steps).into_iter().partition(which);
    *steps = left;
    taken
}
