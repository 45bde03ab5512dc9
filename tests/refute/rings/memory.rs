//! The words through which warps and CTAs hand data to each other, under every outcome that release and acquire allow:
//! loom runs each model in all interleavings, with every value that a load may return, and reports unordered accesses
//! to the same data. The other models here assume sequential memory and check parities instead.
//!
//! A wait checks once, and its thread gives up if that was too early: other executions cover the later checks. The
//! other models check for deadlocks.
//!
//! Each model passes with the memory orders that the kernels use, and fails if any of them is relaxed, which shows that
//! the model can fail. Data stored by a warpgroup's threads, or loaded by a bulk copy, is one cell. The completion of
//! bulk stores after the full wait, and the effect of proxy fences, are specified by the vendor and outside this memory
//! model.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

/// Memory whose readers and writers must be ordered.
#[derive(Debug, Default)]
pub(super) struct Data(UnsafeCell<()>);

impl Data {
    pub(super) fn store(&self) {
        self.0.with_mut(|_| ());
    }

    pub(super) fn load(&self) {
        self.0.with(|_| ());
    }
}

/// Compares slots as devices do: by signed difference.
fn reached(have: u32, want: u32) -> bool {
    have.wrapping_sub(want) as i32 >= 0
}

pub(super) fn wait_reached(word: &AtomicU32, want: u32, look: Ordering) -> Option<()> {
    reached(word.load(look), want).then_some(())
}

/// A shared-memory barrier whose phases complete after a fixed number of arrivals; waits are for a parity.
#[derive(Debug)]
struct Phases {
    arrived: AtomicU32,
    arrivals: u32,
}

impl Phases {
    fn new(arrivals: u32) -> Phases {
        Phases { arrived: AtomicU32::new(0), arrivals }
    }

    fn arrive(&self, order: Ordering) {
        self.arrived.fetch_add(1, order);
    }

    /// Passes if the phase of this parity has completed, or is the one before the first.
    fn wait(&self, parity: u32, look: Ordering) -> Option<()> {
        (self.arrived.load(look) / self.arrivals % 2 != parity).then_some(())
    }
}

/// Whether every execution of a model is correct. At least one must finish; `None` means it gave up.
pub(super) fn holds(model: impl Fn() -> Option<()> + Sync + Send + 'static) -> bool {
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
pub(super) fn spawn(party: impl FnOnce() -> Option<()> + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        party();
    })
}

/// A model holds with the kernels' memory orders, and fails if any one of them is relaxed.
pub(super) fn needs_each_order<const N: usize>(sound: [Ordering; N], model: impl Fn([Ordering; N]) -> bool) {
    assert!(model(sound), "the kernels' own orders {sound:?}");
    for place in 0..N {
        let mut weak = sound;
        weak[place] = Relaxed;
        assert!(!model(weak), "nothing goes wrong with {weak:?}");
    }
}

/// Two tiles share a slot that is about to wrap.
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

/// A wait warp polls a slot and signals the load warp through a word. Slots keep counting from run to run: the second
/// run waits for its own post although nothing is cleared. A run begins after the previous run's kernels have ended.
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

/// The rings of operands, items and staged units: one warp fills, others read at their own pace and release.
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
            // The producer starts with the opposite parity: the first places are free. A broken producer does not wait
            // at all.
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

/// Two store warps store their halves of a tile; the last one posts for both.
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

/// Two parts of a split tile write their sums to slabs, in two runs; flags hold the run number, or are only set.
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

/// Workers with parts of a head: the last to arrive adds them all, posts, and resets the count for the next run.
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

/// Tickets of two workers over two runs of two tiles: each tile is drawn once per run, and a ticket identifies its run.
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
            drawn.iter().for_each(|draws| assert_eq!(u64::from(draws.load(Relaxed)), run + 1));
        }
        Some(())
    }));
}

/// A session's command: from the host to the relay, and on to another worker, which reads data the host wrote earlier.
#[test]
fn a_command_brings_what_was_written_before_it() {
    needs_each_order([Release, Acquire, Release, Acquire], |[post, find, hand_on, follow]| {
        holds(move || {
            let input = Arc::new(Data::default());
            let [mailbox, relay] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
            let (found, handed) = (mailbox.clone(), relay.clone());
            spawn(move || {
                wait_reached(&found, 1, find)?;
                handed.store(1, hand_on);
                Some(())
            });
            let theirs = input.clone();
            thread::spawn(move || {
                theirs.store();
                mailbox.store(1, post);
            });
            wait_reached(&relay, 1, follow)?;
            input.load();
            Some(())
        })
    });
}

/// The end of a session's job: the last of two workers to finish signals the host, which reads the results of both.
#[test]
fn the_last_worker_tells_the_host_of_the_end() {
    needs_each_order([AcqRel, Release, Acquire], |[count, end, see]| {
        holds(move || {
            let outputs = Arc::new([Data::default(), Data::default()]);
            let [arrived, ended] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
            for worker in 0..2 {
                let (outputs, arrived, ended) = (outputs.clone(), arrived.clone(), ended.clone());
                thread::spawn(move || {
                    outputs[worker].store();
                    if arrived.fetch_add(1, count) == 1 {
                        ended.store(1, end);
                    }
                });
            }
            wait_reached(&ended, 1, see)?;
            outputs.iter().for_each(Data::load);
            Some(())
        })
    });
}

/// An intermediate tensor of a session, in two jobs: the second job's producer waits until the first job has ended on
/// all workers. A producer that continues as soon as it is ready itself overwrites data that is still being read.
fn two_jobs([post, look, count, end, behind]: [Ordering; 5], waits: bool) -> bool {
    holds(move || {
        let tensor = Arc::new(Data::default());
        let [slot, arrived, ended] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let arrive = move |arrived: &AtomicU32, ended: &AtomicU32| {
            if arrived.fetch_add(1, count) == 1 {
                arrived.store(0, Relaxed);
                ended.store(1, end);
            }
        };
        let (theirs, posted, came, over) = (tensor.clone(), slot.clone(), arrived.clone(), ended.clone());
        let consumer = spawn(move || {
            wait_reached(&posted, 1, look)?;
            theirs.load();
            arrive(&came, &over);
            Some(())
        });
        tensor.store();
        slot.fetch_add(1, post);
        arrive(&arrived, &ended);
        if waits {
            wait_reached(&ended, 1, behind)?;
            assert_eq!(arrived.load(Relaxed), 0, "the next job counts from nothing");
        }
        tensor.store();
        consumer.join().expect("it ends");
        Some(())
    })
}

#[test]
fn a_job_begins_when_the_one_before_is_over() {
    let sound = [Release, Acquire, AcqRel, Release, Acquire];
    needs_each_order(sound, |orders| two_jobs(orders, true));
    assert!(!two_jobs(sound, false), "a job overtakes the one before");
}

/// One launch of a session's kernel: it starts after `over`, the device's own word, checks once for a command, and
/// leaves. It signals the end of a job and its leaving through the two words that the host reads. Returns whether it
/// had work.
fn launch(
    words: &[AtomicU32; 3],
    over: &AtomicU32,
    output: &Data,
    number: u32,
    orders: [Ordering; 2],
) -> bool {
    let [command, ended, left] = words;
    let next = over.load(Relaxed) + 1;
    let works = command.load(Acquire) == next;
    if works {
        output.store();
        over.store(next, Relaxed);
        ended.store(next, orders[0]);
    }
    left.store(number, orders[1]);
    works
}

/// A host posts a command just when the kernel may be leaving, and relaunches it if it has left without the job;
/// launches in a stream follow each other. Every job runs exactly once, and no launch except the first is in vain.
fn leaving([end, leave, see_left]: [Ordering; 3], ended_first: bool) -> bool {
    holds(move || {
        let words = Arc::new([(); 3].map(|()| AtomicU32::new(0)));
        let (over, output) = (Arc::new(AtomicU32::new(0)), Arc::new(Data::default()));
        let (theirs, device, out) = (words.clone(), over.clone(), output.clone());
        let running = thread::spawn(move || {
            launch(&theirs, &device, &out, 1, [end, leave]);
        });
        words[0].store(1, Release);
        let early = ended_first && words[1].load(Acquire) == 1;
        let has_left = words[2].load(see_left) == 1;
        let ended = if ended_first { early } else { words[1].load(Acquire) == 1 };
        if ended {
            output.load();
        } else if has_left {
            running.join().expect("it ends");
            assert!(launch(&words, &over, &output, 2, [end, leave]), "a launch without work");
        } else {
            return None;
        }
        assert_eq!(over.load(Relaxed), 1, "the job ran");
        Some(())
    })
}

#[test]
fn a_command_that_meets_a_leaving_kernel_is_neither_lost_nor_run_twice() {
    needs_each_order([Release, Release, Acquire], |orders| leaving(orders, false));
    assert!(!leaving([Release, Release, Acquire], true), "the end is looked for before the leaving");
}

/// A worker of the second launch polls a word that still holds the first launch's farewell, with the same number as the
/// next command.
fn farewell(numbered: bool) -> bool {
    const STOP: u32 = 100;
    holds(move || {
        let relay = Arc::new(AtomicU32::new(0));
        relay.store(STOP + 1, Release); // the first launch has left
        let handed = relay.clone();
        let hands_on = thread::spawn(move || handed.store(1, Release));
        let seen = relay.load(Acquire);
        hands_on.join().expect("it ends");
        let leaves = seen >= STOP && (!numbered || seen == STOP + 2);
        assert!(!leaves, "a worker leaves and the others wait for it");
        (seen == 1).then_some(())
    })
}

#[test]
fn a_farewell_is_of_one_launch() {
    assert!(farewell(true));
    assert!(!farewell(false), "without the number of the launch");
}
