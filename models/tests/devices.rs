//! Models whose steps several devices share.

use std::path::Path;

use cusync_models::{Model, Options, Place, architecture, tiny};

fn options(devices: usize) -> Options {
    Options { slots: 2, context: Some(64), place: Place::Host, devices, ..Options::default() }
}

fn opened(folder: &Path, devices: usize) -> Model {
    Model::open(folder, &options(devices), |_| ()).expect("opened")
}

#[test]
fn two_devices_have_the_logits_of_one() {
    for architecture in architecture::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        tiny::write(folder.path(), architecture.name).expect("written");
        if opened(folder.path(), 1).decoder().experts.is_some() {
            let refused = Model::open(folder.path(), &options(2), |_| ()).err().expect("refused").to_string();
            assert!(refused.contains("with experts runs on one device"), "{refused}");
            continue;
        }
        let [mut one, mut two] = [1, 2].map(|devices| opened(folder.path(), devices));
        for model in [&mut one, &mut two] {
            // Long enough for a prompt of one device.
            model.append(1, &(0..20).map(|token| token * 11).collect::<Vec<_>>()).expect("it fits");
        }
        for token in "cusync".bytes().map(u32::from) {
            let tokens = [(0, token), (1, token + 1)];
            let (expected, found) = (one.step(&tokens).expect("a step"), two.step(&tokens).expect("a step"));
            for row in 0..2 {
                let (expected, found) = (expected.row(row), found.row(row));
                let norm = |values: &mut dyn Iterator<Item = f32>| {
                    values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt()
                };
                let error = norm(&mut expected.iter().zip(&found).map(|(a, b)| a - b))
                    / norm(&mut expected.iter().copied());
                // Rounding to bf16, of sums in another order.
                assert!(error < 0.02, "{}: {error}", architecture.name);
            }
        }
        // Each device reads the head.
        let decoder = one.decoder();
        let head = 2 * decoder.width * decoder.logits();
        assert_eq!(two.step_bytes(), one.step_bytes() + head as u64);
    }
}

#[test]
fn a_model_that_does_not_divide_is_refused_before_weights_are_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    tiny::write(folder.path(), "LlamaForCausalLM").expect("written");
    for (devices, words) in [
        (
            4,
            "2 heads of keys and values do not divide among 4 devices\n  help: these numbers of devices do: 1, 2",
        ),
        (9, "a model runs on 1 to 8 devices, not on 9"),
    ] {
        let loaded = Model::open(folder.path(), &options(devices), |loaded| panic!("{loaded:?}"));
        let error = loaded.err().expect("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}
