//! The protocols inside a CTA, explored in every interleaving of its warps, and the words between CTAs, under every
//! memory order.

mod attend;
mod chain;
mod decode;
mod mail;
mod memory;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Visits every state reachable from the default one; returns their number, or the fault in one of them. `end` judges
/// states that have no next one.
fn explore<S: Clone + Debug + Default + Eq + Hash>(
    model: &dyn Debug,
    next: impl Fn(&S, &mut Vec<S>) -> Result<(), String>,
    end: impl Fn(&S) -> Result<(), String>,
) -> Result<usize, String> {
    let mut seen = HashSet::from([S::default()]);
    let (mut open, mut reached) = (vec![S::default()], Vec::new());
    while let Some(state) = open.pop() {
        let mut found = next(&state, &mut reached);
        if found.is_ok() && reached.is_empty() {
            found = end(&state);
        }
        found.map_err(|fault| format!("{fault} at {state:?} of {model:?}"))?;
        open.extend(reached.drain(..).filter(|state| seen.insert(state.clone())));
    }
    Ok(seen.len())
}

fn stands_still(done: bool) -> Result<(), String> {
    if done { Ok(()) } else { Err("stands still".into()) }
}

/// The result of a parity wait for phase number `phase` when `over` phases have completed.
#[derive(PartialEq, Eq, Debug)]
enum Wait {
    Blocks,
    Passes,
    /// It passes too early, or blocks although the phase has completed.
    Wrong,
}

fn wait(phase: u32, over: u32) -> Wait {
    match (phase % 2 != over % 2, over == phase + 1) {
        (true, true) => Wait::Passes,
        (true, false) => Wait::Wrong,
        (false, _) if over > phase => Wait::Wrong,
        (false, _) => Wait::Blocks,
    }
}
