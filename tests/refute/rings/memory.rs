//! The words through which warps and CTAs hand data to each other, under every outcome that release and acquire allow: loom runs each
//! model in all interleavings, with every value that a load may return, and says where data are touched by two that are not
//! ordered. The other models here take memory for sequential and look at parities instead.
//!
//! A wait looks once, and its thread gives up where that is too early: an execution in which it looks later is one of those that are
//! run. That nothing stands still is for the other models.
//!
//! Each model is passed with the orders that the kernels use, and fails with any of them relaxed, so a model can fail. Data that
//! threads of a warpgroup store, or a bulk copy brings, are one cell; that a bulk store is complete behind the full wait, and what a proxy
//! fence does, are the vendor's and not of this memory model.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

/// Memory whose readers and writers have to be ordered.
#[derive(Debug, Default)]
struct Data(UnsafeCell<()>);

impl Data {
    fn store(&self) {
        self.0.with_mut(|_| ());
    }

    fn load(&self) {
        self.0.with(|_| ());
    }
}

/// As devices compare slots: by signed difference.
fn reached(have: u32, want: u32) -> bool {
    have.wrapping_sub(want) as i32 >= 0
}

fn wait_reached(word: &AtomicU32, want: u32, look: Ordering) -> Option<()> {
    reached(word.load(look), want).then_some(())
}

/// A barrier of shared memory, whose phases end with so many arrivals; waits are for a parity.
#[derive(Debug)]
struct Phases {
    arrived: AtomicU32,
    of: u32,
}

impl Phases {
    fn new(of: u32) -> Phases {
        Phases { arrived: AtomicU32::new(0), of }
    }

    fn arrive(&self, order: Ordering) {
        self.arrived.fetch_add(1, order);
    }

    /// Passes where the phase of this parity is over, or is the one before the first.
    fn wait(&self, parity: u32, look: Ordering) -> Option<()> {
        (self.arrived.load(look) / self.of % 2 != parity).then_some(())
    }
}

/// Whether a model has no execution that goes wrong. Some of them have to come to their ends: `None` is one that gave up.
fn holds(model: impl Fn() -> Option<()> + Sync + Send + 'static) -> bool {
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = ends.clone();
    let run = std::panic::AssertUnwindSafe(|| {
        loom::model(move || {
            let ended = usize::from(model().is_some());
            counted.fetch_add(ended, std::sync::atomic::Ordering::Relaxed);
        });
    });
    let sound = std::panic::catch_unwind(run).is_ok();
    assert!(!sound || ends.load(std::sync::atomic::Ordering::Relaxed) > 0, "no execution came to its end");
    sound
}

/// A thread that may give up.
fn spawn(party: impl FnOnce() -> Option<()> + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        party();
    })
}

/// A model holds with the orders of the kernels, and not with any one of them relaxed.
fn needs_each_order<const N: usize>(sound: [Ordering; N], model: impl Fn([Ordering; N]) -> bool) {
    assert!(model(sound), "the kernels' own orders {sound:?}");
    for place in 0..N {
        let mut weak = sound;
        weak[place] = Relaxed;
        assert!(!model(weak), "nothing goes wrong with {weak:?}");
    }
}

/// Two tiles share a slot, which stands before a wrap.
#[test]
fn a_slot_of_two_tiles() {
    needs_each_order([Release, Acquire], |[post, look]| {
        holds(move || {
            let before = u32::MAX;
            let tiles = Arc::new([Data::default(), Data::default()]);
            let slot = Arc::new(AtomicU32::new(before));
            for tile in 0..2 {
                let (tiles, slot) = (tiles.clone(), slot.clone());
                thread::spawn(move || {
                    tiles[tile].store();
                    slot.fetch_add(1, post);
                });
            }
            wait_reached(&slot, before.wrapping_add(2), look)?;
            tiles.iter().for_each(Data::load);
            Some(())
        })
    });
}

/// A wait warp looks at a slot, and tells the load warp through a word. Slots count on from run to run: the second run's wait is for
/// the second run's post, though nothing is cleared. A run begins when the kernels of the one before have ended.
#[test]
fn a_word_releases_loads_in_two_runs() {
    needs_each_order([Release, Acquire, Release, Acquire], |[post, look, set, read]| {
        holds(move || {
            let (tile, slot) = (Arc::new(Data::default()), Arc::new(AtomicU32::new(0)));
            for run in 1..=2 {
                let word = Arc::new(AtomicU32::new(0));
                let (theirs, posted) = (tile.clone(), slot.clone());
                let producer = thread::spawn(move || {
                    theirs.store();
                    posted.fetch_add(1, post);
                });
                let (seen, ready) = (slot.clone(), word.clone());
                let waits = spawn(move || {
                    wait_reached(&seen, run, look)?;
                    ready.swap(1, set);
                    Some(())
                });
                wait_reached(&word, 1, read)?;
                tile.load();
                producer.join().expect("it ends");
                waits.join().expect("it ends");
            }
            Some(())
        })
    });
}

/// The ring of operands, of items, and of staged units: one warp fills, others read at their own pace and give back.
fn ring(
    readers: usize,
    places: u32,
    blocks: u32,
    [fill, full, free, empty]: [Ordering; 4],
    early: bool,
) -> bool {
    holds(move || {
        let ring: Arc<Vec<(Data, Phases, Phases)>> = Arc::new(
            (0..places).map(|_| (Data::default(), Phases::new(1), Phases::new(readers as u32))).collect(),
        );
        for _ in 0..readers {
            let ring = ring.clone();
            spawn(move || {
                for block in 0..blocks {
                    let (data, filled, freed) = &ring[(block % places) as usize];
                    filled.wait(block / places % 2, full)?;
                    data.load();
                    freed.arrive(free);
                }
                Some(())
            });
        }
        for block in 0..blocks {
            let (data, filled, freed) = &ring[(block % places) as usize];
            // The producer begins in the other parity: the first places are free. A broken one waits for none.
            if !early {
                freed.wait(1 - block / places % 2, empty)?;
            }
            data.store();
            filled.arrive(fill);
        }
        Some(())
    })
}

#[test]
fn rings_between_warps() {
    for readers in 1..=2 {
        needs_each_order([Release, Acquire, Release, Acquire], |orders| ring(readers, 1, 3, orders, false));
    }
    assert!(ring(1, 2, 5, [Release, Acquire, Release, Acquire], false));
    assert!(
        !ring(1, 2, 3, [Release, Acquire, Release, Acquire], true),
        "a place is filled before it is free"
    );
}

/// Two store warps send their halves of a tile; whoever is last posts for both.
#[test]
fn the_last_of_two_store_warps_posts_for_both() {
    needs_each_order([AcqRel, Release, Acquire], |[count, post, look]| {
        holds(move || {
            let halves = Arc::new([Data::default(), Data::default()]);
            let (counter, slot) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            for half in 0..2 {
                let (halves, counter, slot) = (halves.clone(), counter.clone(), slot.clone());
                thread::spawn(move || {
                    halves[half].store();
                    if counter.fetch_add(1, count) % 2 == 1 {
                        slot.fetch_add(1, post);
                    }
                });
            }
            wait_reached(&slot, 1, look)?;
            halves.iter().for_each(Data::load);
            Some(())
        })
    });
}

/// Two parts of a split tile leave their sums in slabs, in two runs; flags hold the number of the run, or are only set.
fn slabs([flag, look]: [Ordering; 2], numbered: bool) -> bool {
    holds(move || {
        let parts = Arc::new([(); 2].map(|()| (Data::default(), AtomicU32::new(0))));
        for run in 1..=2 {
            let number = if numbered { run } else { 1 };
            let leave = |part: usize| {
                let parts = parts.clone();
                thread::spawn(move || {
                    parts[part].0.store();
                    parts[part].1.store(number, flag);
                })
            };
            let leaving = [0, 1].map(leave);
            for (sums, set) in parts.iter() {
                wait_reached(set, number, look)?;
                sums.load();
            }
            leaving.into_iter().for_each(|part| part.join().expect("it ends"));
        }
        Some(())
    })
}

#[test]
fn slabs_of_split_tiles() {
    needs_each_order([Release, Acquire], |orders| slabs(orders, true));
    assert!(!slabs([Release, Acquire], false), "a flag that is only set tells of the run before");
}

/// Workers that have parts of a head: the last to come adds them all up, posts, and sets the count back for the next run.
#[test]
fn the_last_worker_ends_a_head() {
    needs_each_order([AcqRel, Release, Acquire], |[count, post, look]| {
        holds(move || {
            let parts = Arc::new([Data::default(), Data::default()]);
            let head = Arc::new(Data::default());
            let (came, slot) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let mut workers = Vec::new();
            for part in 0..2 {
                let (parts, head, came, slot) = (parts.clone(), head.clone(), came.clone(), slot.clone());
                workers.push(thread::spawn(move || {
                    parts[part].store();
                    if came.fetch_add(1, count) == 1 {
                        parts.iter().for_each(Data::load);
                        head.store();
                        came.store(0, Relaxed);
                        slot.fetch_add(1, post);
                    }
                }));
            }
            let posted = wait_reached(&slot, 1, look).map(|()| head.load());
            workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
            assert_eq!(came.load(Acquire), 0, "the next run counts from nothing");
            posted
        })
    });
}

/// Tickets of two workers over two runs of two tiles: each tile is drawn once a run, and a ticket tells its run.
#[test]
fn tickets_of_two_runs() {
    const TILES: u64 = 2;
    const WORKERS: u64 = 2;
    assert!(holds(|| {
        let counter = Arc::new(AtomicU64::new(0));
        let drawn = Arc::new([(); TILES as usize].map(|()| AtomicU32::new(0)));
        for run in 0..2 {
            let draws = move |counter: Arc<AtomicU64>, drawn: Arc<[AtomicU32; TILES as usize]>| loop {
                let ticket = counter.fetch_add(1, Relaxed);
                assert_eq!(ticket / (TILES + WORKERS), run, "a ticket tells its run");
                let Some(tile) = drawn.get((ticket % (TILES + WORKERS)) as usize) else { break };
                tile.fetch_add(1, Relaxed);
            };
            let (theirs, tiles) = (counter.clone(), drawn.clone());
            let other = thread::spawn(move || draws(theirs, tiles));
            draws(counter.clone(), drawn.clone());
            other.join().expect("it ends");
            drawn.iter().for_each(|of| assert_eq!(u64::from(of.load(Relaxed)), run + 1));
        }
        Some(())
    }));
}
