//! Errors of a run on the host.

/// Error of the `cpu` executor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// A wait was never satisfied.
    #[error(
        "edge `{edge}` starved: stage `{stage}`, tile ({tile_m}, {tile_n}), k-block {k_block} waited for slot {slot} to \
         reach {want}, and it stayed at {have}\n  help: see `cusync explain` for what posts this slot"
    )]
    Starved {
        /// `producer -> consumer (tensor)`.
        edge: String,
        /// The stage that waited.
        stage: String,
        /// Its tile.
        tile_m: u32,
        /// Its tile.
        tile_n: u32,
        /// The k-block about to be loaded.
        k_block: u32,
        /// Index into the pipeline's semaphores.
        slot: u32,
        /// Value when the time ran out.
        have: u32,
        /// Value waited for.
        want: u32,
    },
    /// An input has no values, or the wrong number of them.
    #[error("input `{0}` has no values\n  help: give it rows x cols of them, with `Session::set_f32`")]
    NoInput(String),
    /// No such tensor.
    #[error("the pipeline has no tensor `{0}`")]
    NoTensor(String),
    /// The tensor has no integers, or another number of them.
    #[error("`{name}` takes {want} integers\n  help: the lengths and pages of a cache are set by name")]
    Integers {
        /// Name as given.
        name: String,
        /// Number of integers in the tensor; 0 if it has none.
        want: u64,
    },
    /// A cache has no room for a sequence. All other sequences of the run are correct.
    #[error(
        "stage `{stage}`, sequence {sequence}: {fault}\n  help: outputs of these sequences are zero and nothing of them was \
         appended; all others are right"
    )]
    Cache {
        /// The stage.
        stage: String,
        /// First sequence that was skipped.
        sequence: usize,
        /// Number that is out of range, and the other skipped sequences.
        fault: String,
    },
    /// A paged cache that is too small for random inputs.
    #[error("{0}")]
    TooFewPages(String),
    /// A run would append to a cache page that another sequence also uses. Nothing was run.
    #[error(
        "stage `{stage}`: page {page} is of sequence {sequence}, which appends to it, and of sequence {other}\n  help: give each \
         sequence a page of its own to append to; pages that are full may be shared"
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
    /// No such custom stage.
    #[error("the pipeline has no custom stage `{0}`")]
    NoCustomStage(String),
    /// A custom stage without code.
    #[error(
        "stage `{0}` is Custom: its arithmetic is not in the spec\n  help: run it from Rust, with `CpuPipeline::custom` \
         (examples/06_custom_stage.rs)"
    )]
    NoKernel(String),
    /// A schedule splits a stage whose arithmetic is unknown.
    #[error("stage `{0}` is Custom: its tiles cannot be split along k")]
    SplitCustom(String),
    /// A contribution to a split tile never arrived.
    #[error(
        "stage `{stage}`, tile ({tile_m}, {tile_n}) waited for the sums of slab {slab}, and no worker left them"
    )]
    StarvedSlab {
        /// The stage that waited.
        stage: String,
        /// Its tile.
        tile_m: u32,
        /// Its tile.
        tile_n: u32,
        /// The slab.
        slab: u32,
    },
    /// A device of a group never sent its sums of a tile.
    #[error(
        "stage `{stage}`, tile ({tile_m}, {tile_n}) of device {device} waited for the sums of device {from} in run {run}, and \
         they did not come\n  help: all devices of a group run equally often, at once"
    )]
    NoSums {
        /// The stage that waited.
        stage: String,
        /// Its tile.
        tile_m: u32,
        /// Its tile.
        tile_n: u32,
        /// The device that waited.
        device: u32,
        /// The device that did not send.
        from: u32,
        /// Number of the group's run, from 0.
        run: u32,
    },
    /// Another device of the group failed first, or did not send its sums.
    #[error("device {0} of the group failed, or did not run")]
    OtherDevice(u32),
    /// A plan for several devices runs alone.
    #[error(
        "stage `{stage}` is summed over {devices} devices, and no others run\n  help: run the plan as a `Group`"
    )]
    NoGroup {
        /// The stage.
        stage: String,
        /// Devices of the plan.
        devices: u32,
    },
    /// The machine has too little memory.
    #[error(
        "{what} needs {need_mib} MiB of host memory, {free_mib} MiB are free; most of it is for {largest}\n  help: choose \
         smaller dims for these"
    )]
    NoMemory {
        /// Requester.
        what: String,
        /// Required.
        need_mib: u64,
        /// Available.
        free_mib: u64,
        /// Tensors that take most of it, with their sizes.
        largest: String,
    },
    /// A worker panicked: a bug of a custom kernel or of this crate.
    #[error("a worker panicked: {0}")]
    Panicked(String),
}
