//! `order` and `bounds`: every k-block of every tile exactly once, in fields that the kernel has.

use super::*;
use cusync_gen::check::check;
use cusync_gen::graph::TensorId;

#[test]
fn sound_schedules_are_proved() {
    for cluster in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        for cut in [0, 3, 8] {
            for mode in [Hand::Fixed, Hand::Drawn] {
                for workers in [1, 5, 16, 29] {
                    if mode == Hand::Drawn && cluster != (1, 1) {
                        continue;
                    }
                    let graph = mlp();
                    let mut schedule = dealt(&graph, cluster, workers, cut);
                    schedule.mode = mode;
                    let c = scheduled(graph, schedule.clone());
                    assert_eq!(judge(&c).refutations, [], "{cluster:?} {cut} {mode:?} {workers}");
                    let plan = check(c).expect("proved");
                    assert_eq!(plan.launch().lists(), Some(&schedule));
                }
            }
        }
    }
}

#[test]
fn a_tile_that_nobody_computes() {
    let c = edit(|s| remove(s, 11));
    refuted(&c, Obligation::Order, &["no item computes up(1, 3)"]);
}

#[test]
fn a_tile_computed_twice() {
    let c = edit(|s| {
        s.sequence.push(s.sequence[5]);
        s.lists[2].push(s.sequence.len() as u32 - 1);
    });
    refuted(
        &c,
        Obligation::Order,
        &["item 11 of worker 2, up(0, 5), computes again k-blocks 0..16: item 0 of worker 5"],
    );
}

#[test]
fn a_part_left_out() {
    let c = edit(|s| remove(s, items_of(s, 1, 3, 7)[1]));
    refuted(&c, Obligation::Order, &["down(3, 7), k-blocks 10..16, leaves out k-blocks 5..10", "of worker"]);
}

#[test]
fn a_gap_between_parts() {
    let c = edit(|s| {
        let part = items_of(s, 0, 3, 4)[0];
        s.sequence[part].k_end -= 1;
    });
    refuted(&c, Obligation::Order, &["up(3, 4), k-blocks 5..10, leaves out k-blocks 4..5"]);
}

#[test]
fn parts_that_overlap() {
    let c = edit(|s| {
        let finisher = items_of(s, 0, 3, 4)[2];
        s.sequence[finisher].k_begin -= 1;
    });
    refuted(&c, Obligation::Order, &["up(3, 4), k-blocks 9..16, computes again k-blocks 9..10"]);
}

#[test]
fn parts_that_begin_late_or_end_early() {
    let c = edit(|s| {
        let first = items_of(s, 0, 3, 4)[0];
        s.sequence[first].k_begin = 2;
    });
    refuted(&c, Obligation::Order, &["leaves out k-blocks 0..2: no item comes before it"]);
    let c = edit(|s| {
        let last = items_of(s, 0, 3, 4)[2];
        s.sequence[last].k_end = 15;
    });
    refuted(
        &c,
        Obligation::Order,
        &["up(3, 4), k-blocks 10..15, is the last of its tile and ends at k-block 15 of 16"],
    );
    let c = edit(|s| s.sequence[0].k_end = 15);
    refuted(&c, Obligation::Order, &["item 0 of worker 0, up(0, 0), is the last of its tile"]);
}

#[test]
fn two_finishers() {
    let c = edit(|s| {
        let first = items_of(s, 1, 3, 4)[0];
        s.sequence[first].part = Part::Finish { first: 0, slabs: 1 };
    });
    refuted(
        &c,
        Obligation::Order,
        &["down(3, 4), k-blocks 10..16, finishes a tile that item", "finishes too"],
    );
}

#[test]
fn no_finisher() {
    let c = edit(|s| {
        let last = items_of(s, 1, 3, 4)[2];
        s.sequence[last].part = Part::Contribute { slab: 0 };
    });
    refuted(
        &c,
        Obligation::Order,
        &["down(3, 4), k-blocks 10..16, leaves its sums in a slab, and no item finishes"],
    );
}

#[test]
fn a_part_that_calls_itself_whole() {
    let c = edit(|s| {
        let last = items_of(s, 1, 3, 4)[2];
        s.sequence[last].part = Part::Whole;
    });
    refuted(&c, Obligation::Order, &["down(3, 4), is said to be whole and is one of 3 parts"]);
}

#[test]
fn lists_that_are_no_partition_of_the_sequence() {
    let c = edit(|s| s.lists[3].push(0));
    refuted(&c, Obligation::Order, &["item 11 of worker 3, up(0, 0), is also item 0 of worker 0"]);
    let c = edit(|s| {
        s.lists[4].remove(1);
    });
    refuted(&c, Obligation::Order, &["item 12 of the sequence, up(1, 4), is in no worker's list"]);
    let c = edit(|s| s.lists[4].push(500));
    refuted(&c, Obligation::Order, &["item 11 of worker 4 is number 500 of a sequence of 88"]);
}

#[test]
fn items_outside_their_grid() {
    let c = edit(|s| s.sequence[9].n = 8);
    refuted(&c, Obligation::Bounds, &["item 1 of worker 1, up(1, 8), is outside the grid of 4 x 8"]);
    let c = edit(|s| s.sequence[9].stage = StageId(2));
    refuted(&c, Obligation::Bounds, &["item 1 of worker 1 is of stage 2, and there are 2"]);
    let c = edit(|s| s.sequence[9].k_end = 17);
    refuted(&c, Obligation::Bounds, &["item 1 of worker 1, up(1, 1), covers k-blocks 0..17 of 16"]);
    let c = edit(|s| s.sequence[9].k_end = 0);
    refuted(&c, Obligation::Bounds, &["covers k-blocks 0..0 of 16"]);
}

#[test]
fn slabs_outside_their_array() {
    let c = edit(|s| s.slabs -= 1);
    refuted(&c, Obligation::Bounds, &["down(3, 7), k-blocks 5..10, uses slab 23, and there are 23"]);
}

#[test]
fn numbers_that_the_items_fields_do_not_hold() {
    let mut c = sound();
    c.graph.stages[0].grid = (70_000, 8);
    c.launch.lists_mut().expect("a schedule").sequence[3].m = 65_536;
    refuted(
        &c,
        Obligation::Bounds,
        &["`up` has a grid of 70000 x 8 tiles of 128 x 128, and writes 512 x 1024"],
    );
    let mut c = sound();
    c.graph.stages[1].k_blocks = 65_536;
    let s = c.launch.lists_mut().expect("a schedule");
    let down = items_of(s, 1, 0, 0)[0];
    s.sequence[down].k_end = 65_536;
    refuted(&c, Obligation::Bounds, &["down(0, 0), has a coordinate or k-block that 16 bits"]);
    let c = edit(|s| {
        let finisher = items_of(s, 1, 3, 4)[2];
        s.sequence[finisher].part = Part::Finish { first: 0, slabs: 256 };
        s.slabs = 300;
    });
    refuted(&c, Obligation::Bounds, &["down(3, 4), k-blocks 10..16, adds 256 slabs, and 8 bits count them"]);
}

#[test]
fn stages_that_one_kernel_does_not_run() {
    let mut c = sound();
    c.graph.stages[1].mma_tile = (128, 256, 64);
    refuted(&c, Obligation::Bounds, &["`down` has tiles of 128 x 256, `up` of 128 x 128"]);
    let mut c = sound();
    c.graph.stages[1].split_k = 2;
    refuted(&c, Obligation::Bounds, &["`down` is split into 2 along k"]);
    let mut c = sound();
    for number in c.graph.stages.len()..65 {
        let mut stage = c.graph.stages[1].clone();
        let mut out = c.graph.tensors[stage.out.0].clone();
        out.producer = Some(StageId(number));
        stage.out = TensorId(c.graph.tensors.len());
        c.graph.tensors.push(out);
        c.graph.stages.push(stage);
    }
    refuted(&c, Obligation::Bounds, &["65 stages; a chain kernel takes 64"]);
    let mut c = sound();
    c.device = Profile::named("a100").expect("shipped").clone();
    refuted(&c, Obligation::Bounds, &["chain kernels are for sm_90a, and a100 is sm_80"]);
    let mut c = scheduled(mlp(), dealt(&mlp(), (2, 1), 4, 0));
    c.launch.lists_mut().expect("a schedule").mode = Hand::Drawn;
    refuted(&c, Obligation::Bounds, &["each of the 2 x 1 CTAs of a worker would draw an item of its own"]);
    let c = edit(|s| s.lists.clear());
    refuted(&c, Obligation::Bounds, &["0 workers"]);
}
