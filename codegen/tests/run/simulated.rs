//! How many tiles choices simulate.

use cusync_gen::check::Executor;
use cusync_gen::choose::Choices;
use cusync_gen::device::Profile;
use cusync_gen::spec;

/// Number of tiles simulated for each executor in turn, and then for the best of all.
fn simulated(m: u64) -> Vec<u64> {
    let source = include_str!("../../../policies/gpt3_mlp.ron");
    let spec = spec::parse(source, "shipped").and_then(|s| s.resolve(&[("M".into(), m)])).expect("sound");
    let choices = Choices::new(&spec, Profile::named("h200").expect("shipped"));
    let order =
        [Executor::Serial, Executor::Library, Executor::Streams, Executor::Programmatic, Executor::Fused];
    let count = |executor| {
        choices.candidate(executor).as_ref().expect("a choice");
        choices.simulated()
    };
    let mut counts: Vec<u64> = order.into_iter().map(count).collect();
    choices.best().expect("a choice");
    counts.push(choices.simulated());
    counts
}

/// Executors share two searches, one for serial launches and one for overlapping ones, and each runs once.
#[test]
fn choices_simulate_what_executors_have_in_common_once() {
    let counts = simulated(512);
    let (serial, overlapped) = (counts[0], counts[2]);
    assert!(0 < serial && serial < overlapped, "{counts:?}");
    assert_eq!(counts, [serial, serial, overlapped, overlapped, overlapped, overlapped]);
}

/// With hundreds of waves, kernel boundaries cost nothing, so overlap is not simulated. Serial launches are simulated
/// only in the orders of the best tiles, about 150 000 tiles each.
#[test]
fn of_many_waves_little_is_simulated() {
    let counts = simulated(262_144);
    assert_eq!(counts, vec![counts[0]; counts.len()]);
    assert!((1..1_300_000).contains(&counts[0]), "{counts:?}");
}
