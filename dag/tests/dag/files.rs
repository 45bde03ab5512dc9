//! Programs read from files, and files refused with a location and a fix.

use cusync_dag::{AccessMode, Direction, NodeWork, ScheduleOptions, TileAccesses, TileBytes, parse};

use crate::schedule;
use cusync_gen::device::DEVICES;

/// Wraps nodes in a file.
fn file(nodes: &str) -> String {
    format!(
        "Dag(\n    name: \"f\",\n    dims: {{ \"N\": 8 }},\n    buffers: {{ \"x\": \"4*N\", \"y\": 16 }},\n    temporary: {{ \"t\": 8 }},\n    \
         zones: {{ \"urgent\": 3 }},\n    nodes: [\n        {nodes}\n    ],\n)\n"
    )
}

#[test]
fn everything_that_a_file_can_state() {
    let text = file(
        r#"ToDevice(name: "in", writes: "x[0..2*N]", us: 7.5),
        Kernel(name: "k", reads: ["x[4..N]", "y"], writes: "t", updates: "y[0..4]", us: 2.5, grid: ("N", 2), block: (32, 2, 4),
               shared: 1024, ctas_per_sm: 3, traffic: 99, programmatic: true, zone: "urgent"),
        ToHost(name: "out", reads: "y"),"#,
    );
    let program = parse(&text, &[("N".into(), 16)], &DEVICES[0])
        .unwrap_or_else(|d| panic!("{}", d.render(&text, "f", false)));
    assert_eq!(
        program.buffers().iter().map(|b| (b.bytes, b.external)).collect::<Vec<_>>(),
        [(64, true), (16, true), (8, false)]
    );
    let [copy, k, out] = program.nodes() else { panic!("three nodes") };
    assert_eq!(
        (&copy.work, copy.us),
        (&NodeWork::Copy { direction: Direction::HostToDevice, bytes: 32 }, 7.5)
    );
    assert_eq!((copy.accesses[0].bytes.clone(), copy.accesses[0].mode), (0..32, AccessMode::Write));
    let kernel = k.kernel().expect("a kernel");
    assert_eq!(
        (kernel.launch.grid, kernel.launch.block, kernel.launch.shared_bytes),
        ([16, 2, 1], [32, 2, 4], 1024)
    );
    assert_eq!((kernel.ctas_per_sm, kernel.traffic_bytes, kernel.programmatic), (3, 99, true));
    assert_eq!(program.zones()[k.zone.index()].priority, 3);
    let accesses: Vec<_> = k.accesses.iter().map(|a| (a.buffer.0, a.bytes.clone(), a.mode)).collect();
    let expected = [
        (0, 4..16, AccessMode::Read),
        (1, 0..16, AccessMode::Read),
        (2, 0..8, AccessMode::Write),
        (1, 0..4, AccessMode::ReadWrite),
    ];
    assert_eq!(accesses, expected);
    assert_eq!((out.us, out.zone.0), (2.0, 0), "the shortest time that is estimated");
}

#[test]
fn an_unstated_time_is_that_of_traffic_or_of_flops() {
    let nodes = r#"Kernel(name: "short", reads: "x", flops: 1000),
        Kernel(name: "reads", reads: "x", traffic: "1000000*N", flops: 1000),
        Kernel(name: "multiplies", reads: "x", traffic: "1000000*N", flops: 10000000000000),
        Kernel(name: "stated", reads: "x", flops: 10000000000000, us: 3.0)"#;
    let text = file(nodes);
    for device in DEVICES.iter() {
        let program = parse(&text, &[("N".into(), 100)], device)
            .unwrap_or_else(|d| panic!("{}", d.render(&text, "f", false)));
        let us: Vec<f64> = program.nodes().iter().map(|node| node.us).collect();
        // A terabyte per second is a megabyte per microsecond.
        let expected = [2.0, 1e8 / device.read_tbs / 1e6, 1e13 / device.tflops / 1e6, 3.0];
        assert_eq!(us, expected, "{}", device.name);
    }
}

#[test]
fn tiles_are_stated_by_buffer() {
    let text = file(
        r#"Kernel(name: "k", reads: ["x", "y"], writes: "t", grid: 4, programmatic: true,
               tiles: Tiles(bytes: { "x": Halo("N", 4), "y": Reversed(4), "t": Each(2) }, spread_us: 1.5, early_trigger: true)),
        Kernel(name: "l", reads: "t", tiles: Tiles())"#,
    );
    let program =
        parse(&text, &[], &DEVICES[0]).unwrap_or_else(|d| panic!("{}", d.render(&text, "f", false)));
    let strided = |first, stride, bytes| TileBytes::Strided { first, stride, bytes };
    let tiles = |node: usize| program.nodes()[node].kernel().and_then(|k| k.tiles.clone()).expect("stated");
    let bytes = vec![strided(-4, 8, 16), strided(12, -4, 4), strided(0, 2, 2)];
    assert_eq!(tiles(0), TileAccesses { bytes, spread_us: 1.5, early_trigger: true });
    assert_eq!(tiles(1), TileAccesses { bytes: vec![TileBytes::All], spread_us: 0.0, early_trigger: false });
}

#[test]
fn every_fault_has_its_place_and_a_way_out() {
    // A node, the fault's code, and the required prefix of its location.
    let cases = [
        (r#"Kernel(name: "k", reads: "z")"#, "unknown-buffer", "z"),
        (r#"Kernel(name: "k", reads: "x[0..33]")"#, "bytes-range", "0..33"),
        (r#"Kernel(name: "k", reads: "x[4..4]")"#, "bytes-range", "4..4"),
        (r#"Kernel(name: "k", reads: "x[4-N..4]")"#, "bytes-range", "4-N..4"),
        (r#"Kernel(name: "k", reads: "x[4..8")"#, "syntax", "[4..8"),
        (r#"Kernel(name: "k", reads: "x[0..M]")"#, "unknown-dim", "M"),
        (r#"Kernel(name: "k", reads: ["x", 3])"#, "wrong-type", "3"),
        (r#"Kernel(name: "k", raeds: "x")"#, "unknown-field", "raeds"),
        (r#"Kernel(reads: "x")"#, "missing-field", "Kernel"),
        (r#"Kernal(name: "k")"#, "unknown-variant", "Kernal"),
        (r#"Kernel(name: "k", us: -1.0)"#, "number-range", "-1.0"),
        (r#"Kernel(name: "k", us: inf)"#, "number-range", "inf"),
        (r#"Kernel(name: "k", us: NaN)"#, "number-range", "NaN"),
        (r#"Kernel(name: "k", us: 1e308)"#, "number-range", "1e308"),
        (r#"ToDevice(name: "in", writes: "x", us: 1e308)"#, "number-range", "1e308"),
        (r#"Kernel(name: "k", reads: "x", tiles: Tiles(spread_us: 1e308))"#, "number-range", "1e308"),
        (r#"Kernel(name: "k", traffic: 9223372036854775807)"#, "number-range", "9223"),
        (r#"Kernel(name: "k", flops: 9223372036854775807)"#, "number-range", "9223"),
        (r#"Kernel(name: "k", grid: (1, 65536))"#, "number-range", "65536"),
        (r#"Kernel(name: "k", us: "long")"#, "wrong-type", "\"long\""),
        (r#"Kernel(name: "k", grid: 0)"#, "number-range", "0"),
        (r#"Kernel(name: "k", grid: (1, 2, 3, 4))"#, "wrong-type", "(1, 2"),
        (r#"Kernel(name: "k", block: 2048)"#, "number-range", "2048"),
        (r#"Kernel(name: "k", block: (64, 64))"#, "block-range", "(64, 64)"),
        (r#"Kernel(name: "k", zone: "urgnt")"#, "unknown-zone", "urgnt"),
        (r#"Kernel(name: "k\u{1b}[31m", reads: "x")"#, "bad-name", "\"k"),
        (r#"ToDevice(name: "in")"#, "missing-field", "ToDevice"),
        (r#"Kernel(name: "k", reads: "x", tiles: Tiles(bytes: { "y": All }))"#, "unknown-buffer", "y"),
        (
            r#"Kernel(name: "k", reads: "x", tiles: Tiles(bytes: { "x": Every(4) }))"#,
            "unknown-variant",
            "Every",
        ),
        (
            r#"Kernel(name: "k", reads: "x", tiles: Tiles(bytes: { "x": Each("0-4") }))"#,
            "number-range",
            "\"0-4\"",
        ),
        (r#"Kernel(name: "k", reads: "x", tiles: Tiles(spread_us: -1.0))"#, "number-range", "-1.0"),
        (
            r#"Kernel(name: "k", reads: "x", grid: 2, tiles: Tiles(bytes: { "x": Each(4) }))"#,
            "bad-tiles",
            "Tiles",
        ),
    ];
    for (node, code, place) in cases {
        let text = file(node);
        let Err(fault) = parse(&text, &[], &DEVICES[0]) else { panic!("{node} was accepted") };
        assert_eq!(fault.code, code, "{node}: {fault}");
        let at = fault.primary.as_ref().unwrap_or_else(|| panic!("{node}: no place")).span;
        assert!(text[at.start..].starts_with(place), "{node}: the place is {:?}", &text[at.start..at.end]);
        assert!(!fault.help.is_empty(), "{node}: no way out");
        assert!(!fault.render(&text, "f.ron", false).contains('\u{1b}'));
    }
    let whole = [
        ("", "syntax"),
        ("Dag(name: \"f\", buffers: {}, nodes: [])", "no-nodes"),
        ("Dag(name: \"f\", buffers: { \"x\": 0 }, nodes: [Kernel(name: \"k\")])", "number-range"),
        ("Dag(name: \"f\", buffers: { \"x\": 4, \"x\": 4 }, nodes: [Kernel(name: \"k\")])", "duplicate-key"),
        (
            "Dag(name: \"f\", buffers: { \"x\": 4 }, temporary: { \"x\": 4 }, nodes: [Kernel(name: \"k\")])",
            "duplicate-key",
        ),
        ("Dag(name: \"f\", dims: { \"N\": 0 }, buffers: {}, nodes: [Kernel(name: \"k\")])", "dim-range"),
        ("Pipeline(name: \"f\", buffers: {}, nodes: [Kernel(name: \"k\")])", "wrong-type"),
    ];
    for (text, code) in whole {
        let Err(fault) = parse(text, &[], &DEVICES[0]) else { panic!("{text} was accepted") };
        assert_eq!(fault.code, code, "{text}: {fault}");
        assert!(!fault.help.is_empty(), "{text}: no way out");
    }
    let unknown =
        parse(&file("Kernel(name: \"k\")"), &[("Q".into(), 1)], &DEVICES[0]).expect_err("no such dim");
    assert_eq!(unknown.code, "unknown-dim");
}

#[test]
fn the_longest_durations_add_up_to_a_time() {
    let kernels: Vec<String> = (0..200)
        .map(|i| format!("Kernel(name: \"k{i}\", updates: \"x\", us: 3.6e9, traffic: {})", 1u64 << 50))
        .collect();
    let text = file(&kernels.join(", "));
    let program = parse(&text, &[], &DEVICES[0]).expect("an hour each");
    let us = schedule(&program, &ScheduleOptions::default()).predicted_us();
    assert!((200.0 * 3.6e9..201.0 * 3.6e9).contains(&us), "{us}");
}

#[test]
fn a_hundred_thousand_names_are_told_apart() {
    let names: Vec<String> = (0..100_000).map(|i| format!("\"buffer_{i}\": 64")).collect();
    let text = |more: &str, nodes: &str| {
        let (external, temporary) = names.split_at(names.len() / 2);
        let (external, temporary) = (external.join(", "), temporary.join(", "));
        format!(
            "Dag(name: \"d\", buffers: {{ {external}{more} }}, temporary: {{ {temporary} }}, nodes: [{nodes}])"
        )
    };
    let copy = |from: &str, to: &str| format!("Kernel(name: \"k\", reads: \"{from}\", writes: \"{to}\")");
    let good = text("", &copy("buffer_49999", "buffer_99999"));
    let program = parse(&good, &[], &DEVICES[0]).expect("every name is its own");
    let used: Vec<_> = program.nodes()[0].accesses.iter().map(|a| a.buffer.index()).collect();
    assert_eq!((program.buffers().len(), used), (100_000, vec![49_999, 99_999]));
    for (text, code) in [
        (text(", \"buffer_7\": 8", &copy("buffer_0", "buffer_1")), "duplicate-key"),
        (text(", \"buffer_99998\": 8", &copy("buffer_0", "buffer_1")), "duplicate-key"),
        (text("", &copy("buffer_100000", "buffer_1")), "unknown-buffer"),
        (text("", &copy("buffer_99999", "buffer_1")), "never-written"),
    ] {
        let fault = parse(&text, &[], &DEVICES[0]).expect_err(code);
        assert_eq!((fault.code, fault.primary.is_some()), (code, true), "{fault}");
    }
}

#[test]
fn noise_in_a_file_is_refused_without_a_panic() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let good = cusync_dag::shipped("img").expect("it ships");
    let mut random = SmallRng::seed_from_u64(5);
    let mut refused = 0;
    for _ in 0..300 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, b"\"()[]{},:x9-. "[random.random_range(0..14)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(fault) = parse(&text, &[], &DEVICES[0]) {
            refused += 1;
            assert!(fault.render(&text, "noise", false).starts_with("error"));
        }
    }
    assert!(refused > 150, "only {refused} of 300 were refused");
}
