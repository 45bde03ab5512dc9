//! The protocols inside a CTA, explored in every interleaving of its warps, and the words between CTAs, under every
//! memory order.

mod attend;
mod chain;
mod decode;
mod mail;
mod memory;

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
