//! The shipped suite has the known dependences and waits.

use cusync_dag::{SHIPPED, Times, all_concurrency, analyse, parse, shipped};
use cusync_gen::device::DEVICES;

/// Nodes, dependences, reduced dependences, waits and streams.
fn figures(name: &str, rounds: usize) -> [usize; 5] {
    let text = shipped(name).expect("it ships");
    let program = parse(text, &[], &DEVICES[0]).unwrap_or_else(|d| panic!("{}", d.render(text, name, false)));
    let program = program.repeat(rounds).expect("small");
    let dependences = analyse(&program);
    let plan = all_concurrency(&program, &dependences, &Times::new(&program, &dependences));
    [
        program.nodes().len(),
        dependences.edges.len(),
        dependences.reduced_edges().count(),
        plan.waits.len(),
        plan.streams(),
    ]
}

#[test]
fn edges_waits_and_streams_of_the_suite() {
    // Nodes, edges, reduced edges and waits are published figures; the numbers of streams are the widths of the graphs.
    let published = [
        ("vec", [3, 2, 2, 1, 2]),
        ("bs", [10, 0, 0, 0, 10]),
        ("ml", [10, 12, 9, 1, 2]),
        ("hits", [7, 14, 8, 3, 2]),
        ("img", [11, 14, 11, 4, 4]),
        ("dl", [8, 7, 7, 1, 2]),
    ];
    for (name, expected) in published {
        assert_eq!(figures(name, 1), expected, "{name}: nodes, edges, reduced edges, waits, streams");
    }
    // Chains of three with one join.
    assert_eq!(figures("m1", 1), [19, 18, 18, 5, 6]);
    assert_eq!(figures("m2", 1), [37, 36, 36, 11, 12]);
    assert_eq!(SHIPPED.len(), 8, "every program that ships is tested here");
}

#[test]
fn iterations_depend_on_each_other() {
    let [nodes, edges, reduced, waits, streams] = figures("hits", 5);
    assert_eq!((nodes, streams), (35, 2));
    // A round has 14 edges; both vectors, both products and both norms connect it to the next round.
    assert!(edges > 5 * 14 && reduced > 5 * 8, "{edges} edges, {reduced} reduced");
    assert!(waits >= 15, "{waits} waits");
}
