//! Mutations: one change to a sound plan, either to its events or to its choices.

use cusync_gen::check::{
    Candidate, EdgeChoice, EpochSource, Event, How, Launch, StartGuarantee, StoreCompletion,
};
use cusync_gen::graph::{Dependence, StageId};
use cusync_gen::sync::{Order, Policy, WaitAt};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};

use super::recorded::Recorded;
use super::{lists, plans, shape};

macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// Kinds of mutation, as named in the table of results.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Kind { $($kind),* }

        impl Kind {
            pub(crate) const ALL: &[Kind] = &[$(Kind::$kind),*];
        }
    };
}

kinds! {
    DropWait,
    DelayWait,
    ShiftWait,
    MergeWaits,
    WaitForAnotherEdge,
    WaitValue,
    DropPost,
    RepeatPost,
    ShiftPost,
    PostAmount,
    DropLoad,
    RepeatLoad,
    LateLoad,
    ChangeWarp,
    DropStore,
    RepeatStore,
    EarlyStore,
    ResizeStore,
    ChangeSlots,
    PhantomProducer,
    RepeatTile,
    SwapTiles,
    ShrinkHalo,
    ShiftHalo,
    ShiftHead,
    ForgetMask,
    LoseRows,
    ShrinkFootprint,
    SplitMidTile,
    GrowConsumer,
    ForgetDependence,
    SwapLaunches,
    DropLaunch,
    RepeatLaunch,
    DropGuarantee,
    ShrinkSms,
    Occupancy,
    ReuseEarly,
    BakeEpoch,
    OverlapRuns,
    WeakStore,
    WeakLook,
    PlainPosts,
    KernelBoundaries,
    SwapItems,
    MoveItem,
    DropItem,
    RepeatItem,
    MoveCut,
    ShiftSlab,
    WeakSlab,
    GrowCluster,
    AddWorkers,
    DeferPosts,
}

use Kind::*;

/// A mutant: the candidate to judge and the program to run.
pub(crate) struct Mutant {
    pub(crate) candidate: Candidate,
    pub(crate) program: Recorded,
    /// Whether the kernels run this program for the candidate, so that `check` can also judge the candidate alone.
    pub(crate) generated: bool,
}

impl Mutant {
    /// The program that the kernels run for a candidate.
    pub(crate) fn generated(candidate: Candidate) -> Mutant {
        let program = Recorded::new(&candidate);
        Mutant { candidate, program, generated: true }
    }

    /// A program that no kernel of ours would run for the candidate.
    pub(crate) fn changed(candidate: Candidate, program: Recorded) -> Mutant {
        Mutant { candidate, program, generated: false }
    }
}

/// A random slice that has waits: stage, tile, slice.
fn some_slice(rng: &mut SmallRng, p: &Recorded) -> Option<(usize, usize, usize)> {
    let waits = |(s, t, i): &(usize, usize, usize)| {
        p.slices[*s][*t][*i].events.iter().any(|e| matches!(e, Event::Wait { .. }))
    };
    let with: Vec<(usize, usize, usize)> = p.all().into_iter().filter(waits).collect();
    with.choose(rng).copied()
}

/// Position of a random wait among events.
fn some_wait(rng: &mut SmallRng, events: &[Event]) -> Option<usize> {
    let waits: Vec<usize> = (0..events.len()).filter(|i| matches!(events[*i], Event::Wait { .. })).collect();
    waits.choose(rng).copied()
}

/// Posts of a random producer tile that has some: the edge and the posts.
fn some_posts<'a>(rng: &mut SmallRng, p: &'a mut Recorded) -> Option<(usize, &'a mut Vec<(u32, u32)>)> {
    let with: Vec<(usize, usize)> = p
        .posts
        .iter()
        .enumerate()
        .flat_map(|(e, tiles)| (0..tiles.len()).map(move |t| (e, t)))
        .filter(|(e, t)| !p.posts[*e][*t].is_empty())
        .collect();
    let &(e, t) = with.choose(rng)?;
    Some((e, &mut p.posts[e][t]))
}

/// One change of a kind; `None` if the plan has nothing to change.
pub(crate) fn mutate(
    rng: &mut SmallRng,
    base: &Candidate,
    recorded: &Recorded,
    kind: Kind,
) -> Option<Mutant> {
    let mut c = base.clone();
    let mut p = recorded.clone();
    let semaphores = c.launch.has_semaphores();
    if matches!(kind, DropLoad | RepeatLoad | LateLoad | DropStore | RepeatStore | EarlyStore | ResizeStore) {
        return change_work(rng, &mut p, kind).map(|()| Mutant::changed(c, p));
    }
    let events = matches!(
        kind,
        DropWait
            | DelayWait
            | ShiftWait
            | MergeWaits
            | WaitForAnotherEdge
            | WaitValue
            | DropPost
            | RepeatPost
            | ShiftPost
            | PostAmount
            | ChangeWarp
    );
    if events {
        // Without semaphores there are no waits or posts.
        return (semaphores && change_events(rng, base, &mut p, kind).is_some())
            .then(|| Mutant::changed(c, p));
    }
    match kind {
        ShrinkHalo | ShiftHalo | ShiftHead | ForgetMask | LoseRows | ShrinkFootprint | SplitMidTile
        | GrowConsumer => {
            return shape::change(rng, base, recorded, kind);
        }
        SwapItems | MoveItem | DropItem | RepeatItem | MoveCut | ShiftSlab | GrowCluster | AddWorkers => {
            if let Some(plan) = c.launch.shares_mut() {
                // Models a different kernel: ours gets no lists. Decode plans have no split shares or clusters.
                if matches!(kind, MoveCut | ShiftSlab | GrowCluster) {
                    return None;
                }
                lists::change(rng, &mut plan.work, kind)?;
                let program = Recorded::new(&c);
                return Some(Mutant::changed(c, program));
            }
            lists::change(rng, c.launch.lists_mut()?, kind)?;
        }
        RepeatTile | SwapTiles => {
            let s = rng.random_range(0..c.graph.stages.len());
            let (grid, tiles) = (c.graph.stages[s].grid, c.graph.stages[s].tiles());
            // A schedule ignores the orders.
            if tiles < 2 || c.launch.is_one_kernel() {
                return None;
            }
            let mut table: Vec<_> =
                (0..tiles).filter_map(|i| c.launch.order(StageId(s)).tile_at(grid, i)).collect();
            let (a, b) = (rng.random_range(0..table.len()), rng.random_range(0..table.len()));
            if a == b {
                return None;
            }
            if kind == RepeatTile {
                table[a] = table[b]
            } else {
                table.swap(a, b)
            }
            c.launch.kernel_mut(StageId(s))?.order = Order::Table(table);
        }
        ChangeSlots => {
            // Models a decode kernel that numbers the slots of its columns otherwise, or has none.
            c.launch.shares()?;
            let edge = (0..c.edges.len()).choose(rng)?;
            let Policy::Columns { width, columns } = &mut c.edges[edge].policy else { return None };
            match rng.random_range(0..4) {
                0 => *width /= 2,
                1 => *width *= 2,
                2 => *columns -= rng.random_range(1..*columns),
                _ => c.edges[edge].policy = Policy::Own,
            }
            let program = Recorded::new(&c);
            return Some(Mutant::changed(c, program));
        }
        PhantomProducer => {
            // Also names another stage as the producer of an operand.
            let consumer = rng.random_range(1..c.graph.stages.len());
            let producer = rng.random_range(0..consumer);
            let operand = rng.random_range(0..c.graph.stages[consumer].operands.len());
            let tensor = &c.graph.tensors[c.graph.stages[consumer].operands[operand].tensor.0];
            let written = &c.graph.stages[producer];
            let (producer, consumer) = (StageId(producer), StageId(consumer));
            let known = c.graph.dependences.iter().any(|d| (d.consumer, d.operand) == (consumer, operand));
            if known || (tensor.rows, tensor.cols) != (written.m, written.n) || c.launch.shares().is_some() {
                return None;
            }
            c.graph.dependences.push(Dependence { producer, consumer, operand });
            c.edges.push(EdgeChoice { policy: Policy::Tile, wait_at: WaitAt::PerKBlock });
        }
        ForgetDependence => {
            if c.graph.dependences.is_empty() {
                return None;
            }
            let edge = rng.random_range(0..c.graph.dependences.len());
            c.graph.dependences.remove(edge);
            c.edges.remove(edge);
        }
        SwapLaunches | DropLaunch | RepeatLaunch => {
            let Launch::Stages { stages, .. } = &mut c.launch else { return None };
            let (a, b) = (rng.random_range(0..stages.len()), rng.random_range(0..stages.len()));
            match kind {
                SwapLaunches if a == b => return None,
                SwapLaunches => stages.swap(a, b),
                DropLaunch => drop(stages.remove(a)),
                _ => stages.insert(a, stages[b].clone()),
            }
            if rng.random() {
                c.device.sms = rng.random_range(1..20);
            }
        }
        DropGuarantee => {
            if !c.launch.guarantees_starts() {
                return None;
            }
            *c.launch.how_mut().expect("stages") = How::Streams(StartGuarantee::None);
            c.device.sms = rng.random_range(1..40);
        }
        ShrinkSms => c.device.sms = rng.random_range(0..c.device.sms),
        Occupancy => {
            let stage = rng.random_range(0..c.graph.stages.len());
            plans::occupy(rng, &base.device, c.launch.kernel_mut(StageId(stage))?, 1..6);
        }
        ReuseEarly => {
            let graph = &mut c.graph;
            let outs: Vec<_> = graph.stages.iter().map(|s| s.out).collect();
            let (&new, &old) = (outs.choose(rng)?, outs.choose(rng)?);
            let shape = |t: cusync_gen::graph::TensorId| (graph.tensors[t.0].rows, graph.tensors[t.0].cols);
            // Tensors of another shape would have different cells.
            if new <= old || shape(new) != shape(old) || graph.tensors.iter().any(|t| t.alias.is_some()) {
                return None;
            }
            graph.tensors[new.0].alias = Some(old);
            if c.launch.shares().is_some() {
                // Our kernels accept no chain that shares memory, so this models another kernel.
                let program = Recorded::new(&c);
                return Some(Mutant::changed(c, program));
            }
        }
        BakeEpoch => c.contract.epoch = EpochSource::LaunchParameter,
        OverlapRuns => match rng.random_range(0..2) {
            0 => c.contract.full_run_boundary = false,
            _ => (c.contract.overlap, c.contract.dependency_wait) = (true, false),
        },
        WeakStore => match rng.random_range(0..2) {
            0 => c.contract.stores = StoreCompletion::BulkWaitRead,
            _ => c.contract.post_releases = false,
        },
        WeakLook => match rng.random_range(0..2) {
            0 => c.contract.wait_acquires = false,
            _ => c.contract.proxy_fence = false,
        },
        PlainPosts => c.contract.plain_store_posts = true,
        DeferPosts => {
            c.launch.work()?;
            c.contract.deferred_post = true;
        }
        KernelBoundaries => {
            *c.launch.how_mut()? = How::Serial;
            if rng.random() {
                c.launch.kernels_mut().shuffle(rng);
            }
        }
        WeakSlab => {
            c.launch.lists().filter(|s| s.slabs > 0)?;
            let slabs = &mut c.contract.slabs;
            match rng.random_range(0..4) {
                0 => slabs.barrier = false,
                1 => slabs.flag_releases = false,
                2 => slabs.flag_acquires = false,
                _ => slabs.flag_is_epoch = false,
            }
        }
        _ => return None,
    }
    Some(Mutant::generated(c))
}

/// A random change to the loads or stores of a slice.
fn change_work(rng: &mut SmallRng, p: &mut Recorded, kind: Kind) -> Option<()> {
    let of_loads = matches!(kind, DropLoad | RepeatLoad | LateLoad);
    let which = |event: &Event| match event {
        Event::Load { .. } | Event::Multicast { .. } => of_loads,
        Event::Store { .. } => !of_loads,
        _ => false,
    };
    let all = p.all();
    let with = all.into_iter().filter(|(s, t, i)| p.slices[*s][*t][*i].events.iter().any(which));
    let (stage, tile, slice) = with.choose(rng)?;
    let events = &mut p.slices[stage][tile][slice].events;
    let at = (0..events.len()).filter(|i| which(&events[*i])).choose(rng)?;
    match kind {
        DropLoad | DropStore => drop(events.remove(at)),
        RepeatLoad => events.insert(rng.random_range(at..=events.len()), events[at].clone()),
        LateLoad => {
            let load = events.remove(at);
            events.push(load);
        }
        RepeatStore => events.push(events[at].clone()),
        EarlyStore => {
            let store = events.remove(at);
            events.insert(rng.random_range(0..=at), store);
        }
        _ => {
            let Event::Store { units, of } = &mut events[at] else { return None };
            match rng.random_range(0..3) {
                0 => *of += 1,
                1 => units.end += 1,
                _ => units.end = units.end.checked_sub(1)?,
            }
        }
    }
    Some(())
}

fn change_events(rng: &mut SmallRng, c: &Candidate, p: &mut Recorded, kind: Kind) -> Option<()> {
    let slots = c.slot_counts();
    // One forward, one back, or anywhere; sometimes past the end.
    let shifted = |rng: &mut SmallRng, slot: u32, count: u32| match rng.random_range(0..8) {
        0 => count,
        1..4 => (slot + 1) % count,
        4..7 => (slot + count - 1) % count,
        _ => rng.random_range(0..count),
    };
    match kind {
        DropPost | RepeatPost | ShiftPost | PostAmount => {
            let (edge, posts) = some_posts(rng, p)?;
            let at = rng.random_range(0..posts.len());
            match kind {
                DropPost => drop(posts.remove(at)),
                RepeatPost => posts.push(posts[at]),
                ShiftPost => {
                    let slot = shifted(rng, posts[at].0, slots[edge]);
                    (slot != posts[at].0).then(|| posts[at].0 = slot)?;
                }
                _ => posts[at].1 = if rng.random() { posts[at].1 + 1 } else { posts[at].1 - 1 },
            }
            return Some(());
        }
        _ => {}
    }
    let (stage, tile, slice) = some_slice(rng, p)?;
    let other = rng.random_range(0..slots.len());
    if slots[other] == 0 {
        return None;
    }
    let foreign = rng.random_range(0..slots[other]);
    let posts = p.posts[other].iter().flatten().filter(|(slot, _)| *slot == foreign);
    let total = posts.map(|(_, amount)| amount).sum();
    let events = &mut p.slices[stage][tile][slice].events;
    let at = some_wait(rng, events)?;
    match kind {
        // Only shares specify the warp that loads a k-block.
        ChangeWarp if c.launch.shares().is_none() => return None,
        ChangeWarp => {
            let warps = (0..events.len()).filter(|i| matches!(events[*i], Event::Warp { .. }));
            let from = warps.choose(rng)?;
            let warp = rng.random_range(0..4);
            // Move its work to another warp, entirely or from some step on.
            let at = rng.random_range(from..events.len());
            match &mut events[from] {
                Event::Warp { warp: current } if rng.random() => {
                    (*current != warp).then(|| *current = warp)?
                }
                _ => events.insert(at, Event::Warp { warp }),
            }
        }
        DropWait => drop(events.remove(at)),
        DelayWait => {
            let wait = events.remove(at);
            let to = if rng.random() { at + 1 } else { rng.random_range(at..=events.len()) };
            events.insert(to.min(events.len()), wait);
        }
        MergeWaits => {
            let next = (at + 1..events.len()).find(|i| matches!(events[*i], Event::Wait { .. }))?;
            // The earlier or the later wait replaces both, at the earlier or later position.
            let (first, second) = (events[at].clone(), events.remove(next));
            match rng.random_range(0..3) {
                0 => events[at] = second,
                1 => {
                    events.remove(at);
                    events.insert(next - 1, first);
                }
                _ => {}
            }
        }
        _ => {
            let Event::Wait { edge, slot, value } = &mut events[at] else { return None };
            match kind {
                ShiftWait => {
                    let to = shifted(rng, *slot, slots[*edge]);
                    (to != *slot).then(|| *slot = to)?;
                }
                WaitForAnotherEdge => {
                    (other != *edge).then_some(())?;
                    (*edge, *slot) = (other, foreign);
                    if rng.random_ratio(3, 4) {
                        *value = total;
                    }
                }
                _ => {
                    let to = match rng.random_range(0..4) {
                        0 => *value + 1,
                        1 => *value - 1,
                        2 => *value / 2,
                        _ => *value * 2,
                    };
                    (to != *value).then(|| *value = to)?;
                }
            }
        }
    }
    Some(())
}
