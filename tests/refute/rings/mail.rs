//! Mailboxes of a chain kernel fed by a host: the words under every memory order, and all interleavings of a host and
//! workers that take items, go to sleep and leave.

use std::collections::HashSet;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use loom::thread;

use super::memory::{Data, holds, needs_each_order, spawn, wait_reached};

/// Two words through one place: the second overwrites the first once that one is done. The worker reads the data of
/// each word, and the host reads the worker's results.
#[test]
fn a_place_is_used_again_when_its_word_is_done() {
    needs_each_order([Release, Acquire, Release, Acquire], |[post, take, tell, see]| {
        holds(move || {
            let (input, output) = (Arc::new(Data::default()), Arc::new(Data::default()));
            let [word, done] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
            let (from, to, sent, finished) = (input.clone(), output.clone(), word.clone(), done.clone());
            let worker = spawn(move || {
                for number in 1..=2 {
                    // Compares the number, so that the previous contents are not mistaken for it.
                    (sent.load(take) == number).then_some(())?;
                    from.load();
                    to.store();
                    finished.store(number, tell);
                }
                Some(())
            });
            for number in 1..=2 {
                input.store();
                word.store(number, post);
                wait_reached(&done, number, see)?;
                output.load();
            }
            worker.join().expect("it ends");
            Some(())
        })
    });
}

/// No worker wakes up any more.
const CLOSED: u32 = 1 << 31;

/// A worker completes an item and goes to sleep; another closes the launch. An observer that sees the launch has ended
/// also sees that the item is done, so no launch is in vain.
#[test]
fn what_was_done_is_seen_before_the_leaving() {
    needs_each_order([AcqRel, AcqRel, Release, Acquire], |[sleep, close, leave, see]| {
        holds(move || {
            let awake = Arc::new(AtomicU32::new(1));
            let [done, left] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
            let (finished, of_first) = (done.clone(), awake.clone());
            thread::spawn(move || {
                finished.store(1, Release);
                of_first.fetch_sub(1, sleep);
            });
            let (of_second, gone) = (awake.clone(), left.clone());
            spawn(move || {
                of_second.compare_exchange(0, CLOSED, close, Relaxed).ok()?;
                gone.store(1, leave);
                Some(())
            });
            wait_reached(&left, 1, see)?;
            assert_eq!(done.load(Relaxed), 1, "a launch without work");
            Some(())
        })
    });
}

/// Words arrive just when both workers are asleep. With `counted`, a worker wakes only if the launch is not closed.
/// Returns whether no worker takes an item in a closed launch in which data that the item needs would be missing.
fn waking(counted: bool) -> bool {
    holds(move || {
        let awake = Arc::new(AtomicU32::new(0));
        let [needed, needs] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let look = |word: Arc<AtomicU32>, awake: Arc<AtomicU32>| {
            move || {
                if word.load(Acquire) == 1 {
                    let late = awake.fetch_add(1, AcqRel) & CLOSED != 0;
                    return !(late && counted);
                }
                let _ = awake.compare_exchange(0, CLOSED, AcqRel, Relaxed);
                false
            }
        };
        let first = thread::spawn(look(needed.clone(), awake.clone()));
        let second = thread::spawn(look(needs.clone(), awake.clone()));
        needed.store(1, Release);
        needs.store(1, Release);
        let taken = [first.join().expect("it ends"), second.join().expect("it ends")];
        let closed = awake.load(Ordering::Acquire) & CLOSED != 0;
        assert!(
            !(closed && taken[1] && !taken[0]),
            "what it needs lies in the mailbox of a worker that has left"
        );
        Some(())
    })
}

#[test]
fn nobody_wakes_in_a_launch_that_is_closed() {
    assert!(waking(true));
    assert!(!waking(false), "without a look at whether it is closed");
}

/// The rule that a model leaves out, described by the effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Items are handed out before the items they need.
    Ledger,
    /// A sleeping worker leaves on its own.
    Closing,
    /// A worker wakes up in a closed launch.
    Late,
}

const WORKERS: usize = 2;
const PLACES: usize = 2;
/// The items that each item needs.
const NEEDS: [&[u8]; 4] = [&[], &[0], &[], &[1, 2]];

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct State {
    /// Items that the host has handed out.
    sent: usize,
    /// Unfinished items in each mailbox, and how many of them are taken.
    boxes: [Vec<u8>; WORKERS],
    taken: [usize; WORKERS],
    done: u8,
    asleep: [bool; WORKERS],
    gone: [bool; WORKERS],
    awake: usize,
    closed: bool,
}

fn steps(s: &State, order: &[u8], without: Without) -> Vec<State> {
    let mut next = Vec::new();
    let mut step = |change: &dyn Fn(&mut State)| {
        let mut changed = s.clone();
        change(&mut changed);
        next.push(changed);
    };
    for w in 0..WORKERS {
        if let Some(item) = order.get(s.sent).filter(|_| s.boxes[w].len() < PLACES) {
            step(&|n| (n.boxes[w].push(*item), n.sent += 1).1);
        }
        if s.gone[w] {
            continue;
        }
        if let Some(item) = s.boxes[w].first().filter(|_| s.taken[w] > 0)
            && NEEDS[usize::from(*item)].iter().all(|need| s.done & 1 << need != 0)
        {
            step(&|n| (n.boxes[w].remove(0), n.taken[w] -= 1, n.done |= 1 << item).2);
        }
        let late = s.asleep[w] && s.closed && without != Without::Late;
        if s.taken[w] < s.boxes[w].len() {
            step(&|n| match late {
                true => n.gone[w] = true,
                false => {
                    n.awake += usize::from(n.asleep[w]);
                    n.asleep[w] = false;
                    n.taken[w] += 1;
                }
            });
        }
        // It may have looked before a word arrived.
        if !s.asleep[w] && s.taken[w] == 0 {
            step(&|n| (n.asleep[w] = true, n.awake -= 1).1);
        }
        if s.asleep[w] && (s.closed || s.awake == 0 || without == Without::Closing) {
            step(&|n| (n.closed |= without != Without::Closing, n.gone[w] = true).1);
        }
    }
    // The stream starts the next launch after this one ends.
    if s.gone == [true; WORKERS] && usize::from(s.done.count_ones() as u8) < order.len() {
        step(&|n| {
            (n.gone, n.asleep, n.closed) = ([false; WORKERS], [false; WORKERS], false);
            n.awake = WORKERS;
        });
    }
    next
}

/// Whether every state with no possible step is the end of all items.
fn ends(order: &[u8], without: Without) -> bool {
    let begin = State { awake: WORKERS, ..State::default() };
    let (mut seen, mut open) = (HashSet::from([begin.clone()]), vec![begin]);
    while let Some(state) = open.pop() {
        let next = steps(&state, order, without);
        if next.is_empty() && usize::from(state.done.count_ones() as u8) < order.len() {
            return false;
        }
        open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    assert!(seen.len() > 300, "{} states", seen.len());
    true
}

#[test]
fn nothing_stands_still_whoever_is_sent_what() {
    for order in [[0, 1, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3]] {
        assert!(ends(&order, Without::Nothing));
        assert!(!ends(&order, Without::Closing), "a worker leaves, and what others need lies in its mailbox");
        assert!(!ends(&order, Without::Late), "a worker wakes when others have left");
    }
    for order in [[1, 0, 2, 3], [0, 1, 3, 2], [3, 2, 1, 0]] {
        assert!(!ends(&order, Without::Ledger), "an item stands before what it needs");
    }
}
