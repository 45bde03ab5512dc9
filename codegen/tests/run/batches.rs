//! Choices for convolutions at every number of images.

use cusync_gen::choose::{ChainOverride, chain};
use cusync_gen::device::Profile;

/// Name, text and dims.
type Sized = (&'static str, &'static str, &'static [(&'static str, u64)]);

/// The shipped specs of convolutions, in each of their sizes.
const SPECS: [Sized; 18] = {
    macro_rules! spec {
        ($name:literal $(, $dim:literal = $size:literal)*) => {
            ($name, include_str!(concat!("../../../policies/", $name, ".ron")), &[$(($dim, $size)),*])
        };
    }
    [
        spec!("resnet_layer", "HW" = 56, "C" = 64),
        spec!("resnet_layer", "HW" = 28, "C" = 128),
        spec!("resnet_layer", "HW" = 14, "C" = 256),
        spec!("resnet_layer", "HW" = 7, "C" = 512),
        spec!("vgg_layer", "HW" = 56, "C" = 64),
        spec!("vgg_layer", "HW" = 28, "C" = 128),
        spec!("vgg_layer", "HW" = 14, "C" = 256),
        spec!("vgg_layer", "HW" = 7, "C" = 512),
        spec!("resnet38_layer1"),
        spec!("resnet38_layer2"),
        spec!("resnet38_layer3"),
        spec!("resnet38_layer4"),
        spec!("vgg19_block1"),
        spec!("vgg19_block2"),
        spec!("vgg19_block3"),
        spec!("vgg19_block4"),
        spec!("resnet38_body"),
        spec!("vgg19_body"),
    ]
};

/// The points at which the chosen time at B images is more than 1.02 of the one at B + 1: at most 1.035.
const SLOWER: [(&str, &str, u64); 3] =
    [("h200", "resnet38_layer4", 14), ("h200", "vgg19_body", 19), ("h100", "resnet38_layer4", 14)];

/// Elsewhere the chosen time at B images is at most 1.02 of the one at B + 1. Release only:
/// `cargo test --release -p cusync-gen --test run batches -- --ignored --nocapture`.
#[test]
#[ignore = "chooses for every convolution at 41 batches; takes a minute in a release build"]
fn one_image_less_is_not_slower() {
    let mut slower = Vec::new();
    let mut points = 0;
    for device in ["h200", "h100"] {
        let profile = Profile::named(device).expect("shipped");
        for (name, source, dims) in SPECS {
            let chosen_us = |batch: u64| {
                let size = |(dim, n): &(&str, u64)| ((*dim).to_owned(), *n);
                let dims: Vec<_> = dims.iter().chain(&[("B", batch)]).map(size).collect();
                let resolved = cusync_gen::spec::parse(source, name).and_then(|spec| spec.resolve(&dims));
                let c = chain(&resolved.expect("sound"), profile, ChainOverride::default()).expect("chosen");
                c.launch.predicted_us().expect("predicted")
            };
            let all: Vec<f64> = (1..=41).map(chosen_us).collect();
            for (pair, batch) in all.windows(2).zip(1..) {
                points += 1;
                let ratio = pair[0] / pair[1];
                let known = SLOWER.contains(&(device, name, batch));
                if ratio > if known { 1.035 } else { 1.02 } {
                    slower.push(format!("{device} {name} {dims:?} B={batch}: {ratio:.3}"));
                }
            }
        }
    }
    assert_eq!(points, 1440);
    assert!(slower.is_empty(), "{slower:#?}");
}
