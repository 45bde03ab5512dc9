//! Profiles that match no device are refused; the others give valid times.

use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::Resolved;
use cusync_gen::spec::parse;

fn resolved(text: &str, dims: &[(&str, u64)]) -> Resolved {
    let dims: Vec<_> = dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    parse(text, "shipped").and_then(|spec| spec.resolve(&dims)).expect("valid")
}

/// A profile's lines, with each number replaced by impossible values.
fn spoilt(good: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (at, line) in good.lines().enumerate() {
        let Some((field, value)) = line.trim().trim_end_matches(',').split_once(": ") else { continue };
        let others: &[&str] = match value {
            _ if value.parse::<u64>().is_ok() => &["0", "4294967295"],
            _ if value.parse::<f64>().is_ok() => &["NaN", "inf", "-inf", "-1.0", "1e308", "1e-300", "0.0"],
            _ if value.starts_with("(") && value.ends_with(")") => &["(0, 0)", "(4294967295, 4294967295)"],
            _ => &[],
        };
        for other in others {
            let lines = good.lines().enumerate().map(|(i, l)| match i == at {
                true => l.replace(value, other) + "\n",
                false => format!("{l}\n"),
            });
            all.push((format!("line {}: {field}: {other}", at + 1), lines.collect()));
        }
    }
    all
}

#[test]
fn no_number_of_a_profile_makes_a_time_that_is_none() {
    let pipelines = [
        resolved(
            include_str!("../../../policies/llama65_prompt_layer.ron"),
            &[("S", 128), ("E", 512), ("HQ", 2), ("HKV", 2), ("I", 256)],
        ),
        resolved(
            include_str!("../../../policies/llama65_layer.ron"),
            &[("B", 4), ("S", 128), ("E", 512), ("HQ", 2), ("HKV", 2), ("I", 256)],
        ),
        resolved(include_str!("../../../policies/vgg_layer.ron"), &[("B", 1), ("C", 64)]),
        resolved(include_str!("../../../policies/two_gemms.ron"), &[("M", 128)]),
    ];
    let executors = [Executor::Serial, Executor::Library, Executor::Fused];
    let good = Profile::named("h200").expect("it ships").to_ron();
    let (mut refused, mut wrong) = (0, Vec::new());
    let spoilt = spoilt(&good);
    for (name, text) in &spoilt {
        let device = match Profile::from_ron(text) {
            Ok(device) => device,
            Err(diagnostic) => {
                refused += 1;
                assert!(
                    diagnostic.primary.is_some() && !diagnostic.help.is_empty(),
                    "{name}: {diagnostic:?}"
                );
                continue;
            }
        };
        for (pipeline, executor) in pipelines.iter().flat_map(|p| executors.map(|e| (p, e))) {
            // A stage may have no kernel for an executor, or none that fits an SM.
            let Ok(candidate) = choose::candidate(pipeline, &device, executor) else { continue };
            let own = candidate.launch.predicted_us();
            let predicted = candidate.predicted.map(|p| [p.serial_us, p.synchronised_us]);
            let mut times = own.into_iter().chain(predicted.into_iter().flatten());
            if let Some(us) = times.find(|us| !(us.is_finite() && *us > 0.0 && *us < 1e15)) {
                wrong.push(format!("{name}: {} {executor:?}: {us}", pipeline.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(spoilt.len() > 500 && refused > spoilt.len() / 2, "{refused} of {} refused", spoilt.len());
}
