//! What can go wrong between a plan and its results.

use cusync_gen::check::Executor;

use crate::device;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of a pipeline.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// From the layer below.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A wait timed out: the plan and what ran disagree.
    #[error(
        "edge {edge}: {consumer} tile ({}, {}) waited {waited_s:.1} s at k-block {k_block} for slot {slot}: have {have}, want {want} (SM {sm})\n  help: the producer never posted; if you changed a kernel or a policy, run `cusync check` again. The CUDA context is lost: start a new process",
        tile.0, tile.1
    )]
    Starved {
        /// `producer -> consumer (tensor)`.
        edge: String,
        /// The stage that waited.
        consumer: String,
        /// Its tile.
        tile: (u32, u32),
        /// Its k-block.
        k_block: u32,
        /// Slot in the pipeline's array.
        slot: u32,
        /// Value seen last.
        have: u32,
        /// Value waited for.
        want: u32,
        /// Streaming multiprocessor.
        sm: u32,
        /// The time limit, seconds.
        waited_s: f64,
    },
    /// A sequence that a cache has no room for. All others of the run are right, and the pipeline may run on.
    #[error(
        "stage {stage}, sequence {sequence}: {fault}\n  help: outputs of these sequences are zero and nothing of them was appended; all others are right"
    )]
    Cache {
        /// The stage.
        stage: String,
        /// Which sequence, the first of those that are left out.
        sequence: u32,
        /// What is out of range, and the others that are left out.
        fault: String,
    },
    /// A page of a cache to which a run would append while another sequence has it, too.
    #[error(
        "stage {stage}: page {page} is of sequence {sequence}, which appends to it, and of sequence {other}\n  help: give each sequence a page of its own to append to; pages that are full may be shared"
    )]
    SharedPage {
        /// The stage.
        stage: String,
        /// Which appends.
        sequence: usize,
        /// Which has the page, too.
        other: usize,
        /// Number of the page in the pool.
        page: i32,
    },
    /// An earlier failure left semaphores in an unknown state.
    #[error(
        "this pipeline failed before and cannot run again: {0}\n  help: make a new pipeline; after a trapped kernel, start a new process"
    )]
    Poisoned(String),
    /// A tensor without memory.
    #[error(
        "tensor {tensor} of set {set} is not bound\n  help: call `bind` for every input and weight before the first run"
    )]
    Unbound {
        /// Its name.
        tensor: String,
        /// The set of inputs.
        set: usize,
    },
    /// Memory with which the proof would not hold.
    #[error("{0}")]
    Bound(String),
    /// A name that the pipeline does not know, or whose memory is its own affair.
    #[error("{0} is no input, weight or result of this pipeline\n  help: those are {1}")]
    NotBindable(String, String),
    /// A plan used with an executor that it was not proved for.
    #[error(
        "the plan was proved for `{proved:?}`, not for `{asked:?}`\n  help: check the spec for that executor and make a pipeline of that plan"
    )]
    NotProved {
        /// Executor of the plan.
        proved: Executor,
        /// Executor asked for.
        asked: Executor,
    },
    /// A plan for another GPU.
    #[error(
        "the plan was proved for {plan}, this is {gpu}\n  help: prove it for this GPU (`Device::profile`, or `--device` on the command line)"
    )]
    OtherDevice {
        /// What the plan assumes.
        plan: String,
        /// What is there.
        gpu: String,
    },
    /// Jobs of a session that will not be over.
    #[error(
        "jobs {first} to {last} of this session were submitted and are not over: {why}\n  help: what jobs before them wrote is right; open a new session for these, in a new process after a trapped kernel"
    )]
    Unfinished {
        /// The first of them.
        first: u32,
        /// The last that was submitted.
        last: u32,
        /// What went wrong.
        why: String,
    },
    /// From host threads.
    #[error(transparent)]
    Host(#[from] super::cpu::CpuError),
    /// A spec that was refused, rendered with place and way out.
    #[error("{0}")]
    Refused(String),
    /// Something that the built-in executors cannot run.
    #[error("{0}")]
    Unsupported(String),
}

/// `x`, with the executor's name as the command line writes it.
pub fn executor_name(executor: Executor) -> &'static str {
    executor.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starved_edge_reads_as_a_sentence() {
        let error = Error::Starved {
            edge: "up -> down (Y)".into(),
            consumer: "down".into(),
            tile: (3, 17),
            k_block: 12,
            slot: 3,
            have: 5,
            want: 48,
            sm: 77,
            waited_s: 1.0,
        };
        assert!(error.to_string().starts_with(
            "edge up -> down (Y): down tile (3, 17) waited 1.0 s at k-block 12 for slot 3: have 5, want 48 (SM 77)"
        ));
    }
}
