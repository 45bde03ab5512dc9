//! Tiles whose parts share the epilogue: each part leaves its sums for the others and finishes its own units.

use super::*;

/// The last `cut` tiles of each stage have two parts each, on two neighboring workers.
fn shared(cut: u32, workers: u32) -> Candidate {
    let graph = mlp();
    let mut schedule = dealt(&graph, (1, 1), workers, 0);
    let whole = std::mem::take(&mut schedule.sequence);
    for item in whole {
        if (item.m * 8 + item.n) + cut < 32 {
            schedule.sequence.push(item);
            continue;
        }
        let first = schedule.slabs;
        let share = |part| Part::Share { first, parts: 2, part };
        schedule.sequence.push(Item { k_end: 8, part: share(0), ..item });
        schedule.sequence.push(Item { k_begin: 8, part: share(1), ..item });
        schedule.slabs += 2;
    }
    schedule.lists = vec![Vec::new(); workers as usize];
    (0..schedule.sequence.len()).for_each(|i| schedule.lists[i % workers as usize].push(i as u32));
    scheduled(graph, schedule)
}

fn edit_shared(change: impl FnOnce(&mut Schedule)) -> Candidate {
    let mut c = shared(6, 4);
    change(c.launch.lists_mut().expect("a schedule"));
    c
}

#[test]
fn sound_shares_are_proved() {
    for (cut, workers) in [(0, 1), (1, 2), (6, 4), (32, 4), (32, 132)] {
        assert_eq!(judge(&shared(cut, workers)).refutations, [], "{cut} {workers}");
    }
    // Wider tiles have more units and may have more parts.
    let source = r#"Pipeline(name: "one", dims: { "M": 256 }, stages: [
        Gemm(name: "one", a: "X(M,1024)", b: "W(1024,M)", bias: "b(M)", out: "Y(M,M)"),
        Gemm(name: "two", a: "Y(M,M)", b: "V(M,M)", residual: "Y(M,M)", out: "Z(M,M)"),
    ])"#;
    for (tile, parts) in [
        ((128, 256, 64), 4),
        ((128, 192, 64), 3),
        ((192, 192, 64), 3),
        ((256, 128, 64), 4),
        ((64, 256, 64), 3),
    ] {
        let graph = cusync_gen::graph::graph_with_tile(source, tile).expect("a sound spec");
        let mut schedule = dealt(&graph, (1, 1), parts, 0);
        let whole = std::mem::take(&mut schedule.sequence);
        for item in whole {
            let (first, k) = (schedule.slabs, item.k_end);
            for part in 0..parts {
                let (k_begin, k_end) = (k * part / parts, k * (part + 1) / parts);
                schedule.sequence.push(Item {
                    k_begin,
                    k_end,
                    part: Part::Share { first, parts, part },
                    ..item
                });
            }
            schedule.slabs += parts;
        }
        schedule.lists = vec![Vec::new(); parts as usize];
        (0..schedule.sequence.len()).for_each(|i| schedule.lists[i % parts as usize].push(i as u32));
        assert_eq!(judge(&scheduled(graph, schedule)).refutations, [], "{tile:?}");
    }
}

#[test]
fn both_shares_in_one_list() {
    let c = edit_shared(|s| {
        let parts = items_of(s, 0, 3, 7);
        let place_in = |list: &Vec<u32>, i: usize| list.iter().position(|x| *x as usize == i);
        let from = s.lists.iter().position(|l| place_in(l, parts[1]).is_some()).expect("in a list");
        let to = s.lists.iter().position(|l| place_in(l, parts[0]).is_some()).expect("in a list");
        s.lists[from].retain(|i| *i as usize != parts[1]);
        let at = place_in(&s.lists[to], parts[0]).expect("found");
        s.lists[to].insert(at + 1, parts[1] as u32);
    });
    // The first part waits for the sums of the second, which its worker starts only later.
    refuted(
        &c,
        Obligation::Progress,
        &["up(3, 7), k-blocks 0..8, waits for up(3, 7), k-blocks 8..16", "behind item"],
    );
}

#[test]
fn shares_of_two_tiles_crosswise() {
    let c = edit_shared(|s| {
        let (one, two) = (items_of(s, 1, 3, 6), items_of(s, 1, 3, 7));
        let all: Vec<u32> = (0..s.sequence.len() as u32).collect();
        let last = [one[0], one[1], two[0], two[1]].map(|i| i as u32);
        let rest = all.into_iter().filter(|i| !last.contains(i)).collect::<Vec<_>>();
        s.lists = vec![Vec::new(); 4];
        rest.iter().enumerate().for_each(|(n, i)| s.lists[n % 4].push(*i));
        s.lists[0].extend([last[0], last[2]]);
        s.lists[1].extend([last[3], last[1]]);
    });
    refuted(
        &c,
        Obligation::Progress,
        &[
            "of worker 0, down(3, 6), k-blocks 0..8, waits for down(3, 6), k-blocks 8..16",
            "of worker 1, down(3, 7), k-blocks 8..16, waits for down(3, 7), k-blocks 0..8",
        ],
    );
}

#[test]
fn shares_cannot_be_drawn() {
    // A worker may draw the second part while it holds the first.
    let c = edit_shared(|s| s.mode = Hand::Drawn);
    refuted(
        &c,
        Obligation::Progress,
        &["up(3, 2), k-blocks 0..8, waits for up(3, 2), k-blocks 8..16", "drawn later"],
    );
}

#[test]
fn shares_that_do_not_make_a_tile() {
    let c = edit_shared(|s| {
        let second = items_of(s, 1, 3, 7)[1];
        let Part::Share { first, .. } = s.sequence[second].part else { panic!("a share") };
        s.sequence[second].part = Part::Share { first, parts: 2, part: 0 };
    });
    refuted(
        &c,
        Obligation::Order,
        &["down(3, 7), k-blocks 8..16, takes share 0 of its tile, which item", "takes too"],
    );
    let c = edit_shared(|s| {
        let second = items_of(s, 1, 3, 7)[1];
        s.sequence[second].part = Part::Contribute { slab: 23 };
    });
    refuted(&c, Obligation::Order, &["is not of the 2 parts at slab 22 that share its tile"]);
    let c = edit_shared(|s| {
        let parts = items_of(s, 1, 3, 7);
        s.sequence[parts[0]].k_end = 16;
        remove(s, parts[1]);
    });
    refuted(&c, Obligation::Order, &["shares its tile with 2 parts, and share 1 is no item's"]);
    let c = edit_shared(|s| {
        let second = items_of(s, 1, 3, 7)[1];
        s.sequence[second].part = Part::Share { first: 22, parts: 3, part: 1 };
        s.slabs += 1;
    });
    refuted(&c, Obligation::Bounds, &["is part 1 of 3 that share a tile of 2 units"]);
    let c = edit_shared(|s| s.slabs -= 1);
    refuted(&c, Obligation::Bounds, &["uses slab 23, and there are 23"]);
}

#[test]
fn two_tiles_that_use_the_same_slabs() {
    let c = edit_shared(|s| {
        for part in 0..2 {
            let second = items_of(s, 1, 3, 7)[part as usize];
            s.sequence[second].part = Part::Share { first: 0, parts: 2, part };
        }
    });
    refuted(
        &c,
        Obligation::Reuse,
        &["down(3, 7) (item", "may overwrite slab 0 before it is read", "up(3, 2) (item"],
    );
}

#[test]
fn a_share_that_is_finished_too_early() {
    let c = shared(6, 4);
    // The other part's sums are not added, or are added only after the store.
    let never = mutated(&c, |_, _, slice, events| {
        events.into_iter().filter(|e| slice == 0 || !matches!(e, Event::Add { .. })).collect()
    });
    let text = only(&never, Obligation::Cover, &[]);
    assert!(
        text.contains("up(3, 2) (item 6 of worker 3) finishes without slab 0, the sums of up(3, 2)"),
        "{text}"
    );
    let late = mutated(&c, |_, _, _, mut events| {
        if let Some(at) = events.iter().position(|e| matches!(e, Event::Add { .. })) {
            let add = events.remove(at);
            events.push(add);
        }
        events
    });
    only(&late, Obligation::Cover, &["finishes without slab"]);
}

#[test]
fn units_that_two_parts_store_or_none() {
    let c = shared(6, 4);
    let stored = |to: std::ops::Range<u32>| {
        move |_: StageId, _: Tile, slice: u32, events: Vec<Event>| {
            let change = |e| match e {
                Event::Store { of, .. } if slice == 1 && of == 2 => Event::Store { units: to.clone(), of },
                other => other,
            };
            events.into_iter().map(change).collect()
        }
    };
    let text = only(&mutated(&c, stored(0..2)), Obligation::Order, &[]);
    assert!(text.contains("stores again units 0..1 of the 2 of its tile"), "{text}");
    let text = only(&mutated(&c, stored(1..1)), Obligation::Order, &[]);
    assert!(text.contains("is of a tile of 2 units of which only 1 are stored"), "{text}");
}
