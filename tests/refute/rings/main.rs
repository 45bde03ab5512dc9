//! The protocols inside a CTA, explored in every interleaving of its warps, and the words between CTAs in every order of memory.

mod attend;
mod chain;
mod decode;
mod mail;
mod memory;

/// What a wait for a parity does when the phase that it means has this number and so many phases are over.
#[derive(PartialEq, Eq, Debug)]
enum Wait {
    Blocks,
    Passes,
    /// It passes and should not, or blocks though the phase is over.
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
