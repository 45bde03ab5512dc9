//! The windows that the compiler chooses for convolutions, against the kernels' arithmetic, compiled for the host.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::*;
use cusync_gen::device::{ChainKernel, Operation, turned_groups};
use cusync_gen::graph::{Activation, Conv, Op, Sliding};

/// A convolution with a square filter; `None` if its output would be empty.
fn conv(
    images: u32,
    input: (u32, u32),
    channels: u32,
    (filter, stride, padding): (u32, u32, u32),
) -> Option<Conv> {
    let out = |x: u32| Some((x + 2 * padding).checked_sub(filter)? / stride + 1);
    let output = (out(input.0)?, out(input.1)?);
    let both = |x: u32| (x, x);
    let sliding = Sliding {
        images,
        input,
        output,
        filter: both(filter),
        stride: both(stride),
        padding: both(padding),
        dilation: (1, 1),
    };
    Some(Conv { epilogue: Activation::Relu.into(), sliding, channels, window: None })
}

fn all() -> impl Iterator<Item = Conv> {
    let sizes = [(7, 7), (13, 13), (14, 14), (14, 28), (28, 28), (55, 20), (56, 56), (112, 112), (3, 200)];
    let filters =
        [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (3, 1, 0), (5, 1, 4), (7, 2, 3), (7, 1, 3), (3, 3, 1)];
    let usual = sizes.into_iter().flat_map(move |size| {
        filters.into_iter().flat_map(move |filter| {
            [1, 3, 8].into_iter().flat_map(move |images| {
                [8, 64, 72, 256].into_iter().filter_map(move |channels| conv(images, size, channels, filter))
            })
        })
    });
    // The most images per tile, and tiles per image, that kernels can count, and more.
    let most =
        [(255, (1, 1)), (256, (1, 1)), (300, (1, 1)), (1, (65521, 1)), (1, (65537, 1)), (1, (131_074, 1))];
    usual.chain(most.into_iter().filter_map(|(images, size)| conv(images, size, 8, (1, 1, 0))))
}

#[test]
fn kernels_take_every_window_that_is_chosen_and_double_it_where_an_item_has_several() {
    let program = scratch("windows").join("driver");
    let mut command = cxx();
    command.arg(root().join("codegen/tests/support/windows.cpp")).arg("-o").arg(&program);
    compile(command);
    let (mut asked, mut chosen) = (String::new(), Vec::new());
    for kernel in ChainKernel::running([Operation::Conv2d].into_iter().collect()) {
        let (slots, area) = (kernel.tile.0, kernel.window_pixels());
        for conv in all() {
            let Some(window) = conv.tiled(kernel.tile).window else { continue };
            let Sliding { input, output, filter, stride, padding, .. } = conv.sliding;
            let pixels = window.rows * window.images * output.1;
            let numbers = [
                input.0,
                input.1,
                conv.channels,
                output.0,
                output.1,
                filter.0,
                filter.1,
                stride.0,
                stride.1,
                padding.0,
                padding.1,
                pixels,
                slots,
                area,
                turned_groups(kernel.tile),
            ];
            asked += &(numbers.map(|n| n.to_string()).join(" ") + "\n");
            chosen.push((
                conv,
                window,
                Op::Conv2d(Conv { window: Some(window), ..conv }).rows_multiplied(kernel.tile),
            ));
        }
    }
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the driver runs");
    child.stdin.take().expect("piped").write_all(asked.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert_eq!(lines.lines().count(), chosen.len());
    assert!(chosen.len() > 1000, "{} windows", chosen.len());
    for ((conv, window, multiplied), line) in chosen.iter().zip(lines.lines()) {
        let numbers: Vec<u32> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [rows, images, pitch, buffers, slots] = numbers[..] else {
            panic!("no kernel takes {window:?} of {conv:?}")
        };
        assert_eq!((rows, images, pitch), (window.rows, window.images, window.pitch), "{conv:?}");
        assert_eq!(slots, *multiplied, "{conv:?} {window:?}");
        let Sliding { filter, stride, .. } = conv.sliding;
        let windows = conv.channels.div_ceil(64) * stride.0.min(filter.0) * stride.1.min(filter.1);
        assert!(buffers >= windows.min(2), "{buffers} windows of {conv:?}");
    }
}
