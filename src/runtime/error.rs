//! Errors between a plan and its results.

use cusync_gen::check::Executor;

use crate::device;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of a pipeline.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Error of the device layer.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A wait timed out: the run did not follow the plan.
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
    /// Another GPU of a group did not send its sums in time.
    #[error(
        "stage {stage}: device {device} waited {waited_s:.1} s for the sums of device {sender}, row {row}, column {column}: this is run {want}, and their place has {}\n  help: see what device {sender} reports: it has not begun this run, or failed in it. The CUDA context is lost: start a new process",
        if *have == 0 { "none".to_owned() } else { format!("those of run {have}") }
    )]
    NoSums {
        /// The stage that waited.
        stage: String,
        /// The device that waited.
        device: usize,
        /// The device that did not send.
        sender: u32,
        /// Row of the first sum that is missing.
        row: u32,
        /// Its column.
        column: u32,
        /// Number of the run that last wrote this place, from 1; 0: no run did. Alternate runs use two sets of places.
        have: u32,
        /// The run that waited.
        want: u32,
        /// The time limit, seconds.
        waited_s: f64,
    },
    /// A cache has no room for a sequence. All other sequences are correct, and the pipeline may run again.
    #[error(
        "stage {stage}, sequence {sequence}: {fault}\n  help: outputs of these sequences are zero and nothing of them was appended; all others are right"
    )]
    Cache {
        /// The stage.
        stage: String,
        /// First sequence that was skipped.
        sequence: u32,
        /// Number that is out of range, and the other skipped sequences.
        fault: String,
    },
    /// A run would append to a cache page that another sequence also uses.
    #[error(
        "stage {stage}: page {page} is of sequence {sequence}, which appends to it, and of sequence {other}\n  help: give each sequence a page of its own to append to; pages that are full may be shared"
    )]
    SharedPage {
        /// The stage.
        stage: String,
        /// Sequence that appends.
        sequence: usize,
        /// Other sequence that uses the page.
        other: usize,
        /// Page number in the pool.
        page: i32,
    },
    /// An earlier failure left semaphores in an unknown state.
    #[error(
        "this pipeline failed before and cannot run again: {0}\n  help: make a new pipeline; after a trapped kernel, start a new process"
    )]
    Poisoned(String),
    /// A tensor has no memory.
    #[error(
        "tensor {tensor} of set {set} is not bound\n  help: call `bind` for every input and weight before the first run"
    )]
    Unbound {
        /// Its name.
        tensor: String,
        /// The set of inputs.
        set: usize,
    },
    /// Bound memory violates the proof.
    #[error("{0}")]
    Bound(String),
    /// The pipeline has no such tensor, or allocates its memory itself.
    #[error("{0} is not an input, weight or result of this pipeline\n  help: those are {1}")]
    NotBindable(String, String),
    /// A plan was used with an executor that it was not proved for.
    #[error(
        "the plan was proved for `{proved:?}`, not for `{asked:?}`\n  help: check the spec for that executor and make a pipeline of that plan"
    )]
    NotProved {
        /// Executor of the plan.
        proved: Executor,
        /// Requested executor.
        asked: Executor,
    },
    /// The plan was proved for another GPU.
    #[error(
        "the plan was proved for {plan}, this is {gpu}\n  help: prove it for this GPU (`Device::profile`, or `--device` on the command line)"
    )]
    OtherDevice {
        /// GPU that the plan assumes.
        plan: String,
        /// GPU in this machine.
        gpu: String,
    },
    /// Jobs of a session that will never finish.
    #[error(
        "jobs {first} to {last} of this session were submitted and are not over: {why}\n  help: what jobs before them wrote is right; open a new session for these, in a new process after a trapped kernel"
    )]
    Unfinished {
        /// First unfinished job.
        first: u32,
        /// Last submitted job.
        last: u32,
        /// Cause.
        why: String,
    },
    /// A Custom stage without a kernel.
    #[error(
        "stage `{0}` is Custom, and has no kernel\n  help: give it one: `Pipeline::set_kernel`, or `cusync run --kernel {0}=FILE.cu`"
    )]
    NoKernel(String),
    /// Error of the host executor.
    #[error(transparent)]
    Host(#[from] super::cpu::CpuError),
    /// A refused spec, rendered with its location and a suggested fix.
    #[error("{0}")]
    Refused(String),
    /// The built-in executors cannot run this.
    #[error("{0}")]
    Unsupported(String),
}

/// Name of the executor as the command line writes it.
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
