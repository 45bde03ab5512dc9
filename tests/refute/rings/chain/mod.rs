//! The rings inside a CTA of a chain kernel, explored in every interleaving of its warps: no parity wait passes in the
//! wrong phase, no k-block is loaded before its producers are ready, a tile is posted once and after all of its stores,
//! and nothing deadlocks.
//!
//! The model follows the protocol of `csrc/kernels/chain`, party by party. Warp 1 hands out items and publishes through
//! one word how far operands may be loaded, whatever order waits are satisfied in elsewhere. The load warp fills the
//! operand ring, whose copies arrive in any order. Two warpgroups multiply, each at its own pace, and fill their own
//! staging rings. A store warp for each warpgroup drains its ring, counts the tile, and posts it if it is the second to
//! do so. The store warp loads a residual into a unit's buffer before the unit is computed, except for convolutions,
//! where the warpgroup loads it before it multiplies. A convolution's window serves the k-blocks of a class of taps
//! from its own buffer, which is refilled when the last of them has been multiplied. Barriers count phases without
//! wrapping here, so that a parity that matches in the wrong phase is detected.

mod cases;
mod moves;
mod steps;

const GROUPS: usize = 2;

/// Kinds of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A GEMM tile with this many k-blocks; each warpgroup finishes this many units, or none if it only contributes
    /// sums to others.
    Product { k_blocks: u8, units: u8, residual: Residual },
    /// A block of rows: one word from the wait warp, this many places of the operand ring or none, and one unit without
    /// contents. Rows loaded through the ring occupy all places of the staging ring.
    Rows { loads: u8 },
}

/// The party that loads a residual into each unit's buffer before the unit is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residual {
    Nobody,
    StoreWarps,
    /// The warpgroup itself, before it multiplies.
    Warpgroups,
}

impl Kind {
    /// k-blocks that the word counts.
    fn counted(self) -> u8 {
        match self {
            Kind::Product { k_blocks, .. } => k_blocks,
            Kind::Rows { .. } => 1,
        }
    }

    fn units(self) -> u8 {
        match self {
            Kind::Product { units, .. } => units,
            Kind::Rows { .. } => 1,
        }
    }
}

/// How a convolution loads: for each class of taps, the number of k-blocks that read its window; the number of window
/// buffers; and the number of k-blocks whose filters one copy loads if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Windows {
    classes: &'static [u8],
    buffers: usize,
    group: u8,
}

impl Windows {
    /// The number of k-blocks that read one window, from the k-th of an item on, and whether the k-th is the window's
    /// first.
    fn left(&self, k: u8) -> (u8, bool) {
        let mut place = k % self.classes.iter().sum::<u8>();
        for &taps in self.classes {
            if place < taps {
                return (taps - place, place == 0);
            }
            place -= taps;
        }
        unreachable!("a place is less than the sum")
    }
}

/// The items of a worker, and the sizes of its rings.
#[derive(Clone, Debug)]
struct Cta {
    items: Vec<Kind>,
    /// Places in the item ring, in the operand ring, and in a staging ring.
    work: u32,
    operands: u32,
    windows: Option<Windows>,
    staging: u32,
    /// Stores that may still read their buffers when the next is issued.
    lag: u8,
    /// Counters of stored tiles.
    counters: u32,
    /// How many k-blocks before the end of its current item the load warp draws the next one by ticket; `None` with
    /// lists.
    drawn: Option<u8>,
    /// The fault of a broken kernel.
    broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The load warp does not count the k-blocks of rows.
    RowsAreNotCounted,
    /// The word goes one k-block too far.
    WordTooFar,
    /// Store warps do not wait for a full buffer.
    StagedUnseen,
    /// They do not signal that a unit has no residual.
    NothingIsNotTold,
    /// A residual is loaded before its buffer has been read.
    BroughtEarly,
    /// One copy for a group of k-blocks is issued when the first of their places is free.
    GroupWaitsForFirst,
}

/// The position of each party in its own list of steps; these determine the state of all barriers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    dispatch: u8,
    load: u8,
    math: [u8; GROUPS],
    store: [u8; GROUPS],
    /// k-blocks whose waits are satisfied, k-blocks that have arrived, and tiles that have been posted.
    met: u8,
    here: u32,
    posted: u32,
}

/// A party's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Puts item i into its ring, once all readers have taken item i - work.
    Publish(u8),
    /// Publishes that this many k-blocks may be loaded, once their waits are satisfied.
    Word(u8),
    /// Draws the next item when asked to.
    Asked(u8),
    /// Takes item i from its ring.
    Take(u8),
    /// Takes a place in the operand ring for a k-block, the n-th of all loaded.
    Acquire(u8),
    /// Takes the places of several k-blocks when the last of them is free.
    AcquireAll {
        first: u8,
        last: u8,
        waits_for: u8,
    },
    /// The n-th k-block; its filter arrives with the copy for k-block `with`, so its own barrier expects no bytes.
    Follow {
        n: u8,
        with: u8,
    },
    /// Before k-block n, waits until the last k-block of the buffer's previous window has been multiplied.
    Overwrite {
        n: u8,
        last: u8,
    },
    /// Loads the n-th k-block once the word has reached it; its wait is number `met` of all waits.
    Load {
        n: u8,
        word: u8,
        met: u8,
    },
    /// Asks for the next item.
    Ask,
    /// Waits for the n-th k-block and multiplies it.
    Multiply(u8),
    /// Frees the n-th k-block.
    Free(u8),
    /// Waits for the word, as a row operation does.
    Ready {
        word: u8,
        met: u8,
    },
    /// Takes a place in the staging ring for its n-th unit and writes the unit.
    Stage(u8),
    Commit(u8),
    /// Loads the residual of the n-th unit into its buffer, or signals that it has none; waits for it.
    Bring(u8),
    Tell(u8),
    Add(u8),
    /// Waits for the n-th unit, then stores it; frees it.
    Send(u8),
    Sent(u8),
    /// Counts the t-th stored tile, and posts it if the other store warp has counted it too.
    Count(u8),
}

impl Cta {
    /// The number of k-blocks after the k-th of an item (the n-th of all) that its copy also loads: from the same
    /// window, in consecutive places.
    fn followers(&self, k: u8, k_blocks: u8, n: u8) -> u8 {
        let Some(windows) = self.windows else { return 0 };
        let group = windows.group;
        let fits = group <= windows.left(k).0
            && k + group <= k_blocks
            && u32::from(n) % self.operands + u32::from(group) <= self.operands;
        if fits { group - 1 } else { 0 }
    }
}

/// A CTA, and the steps of each party.
struct Model {
    cta: Cta,
    dispatch: Vec<Step>,
    load: Vec<Step>,
    math: Vec<Step>,
    store: Vec<Step>,
    /// k-blocks with waits; stored tiles.
    waits: u8,
    tiles: u8,
}
