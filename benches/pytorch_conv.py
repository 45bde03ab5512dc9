#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chains of convolutions and the bodies of ResNet-38 and VGG-19 in PyTorch: a peer for `cusync bench conv --pytorch FILE.json`.

Needs python3 and torch with CUDA, nothing else. Channels-last, cuDNN in benchmark mode, a convolution with its bias of zeros and ReLU (and
residual) in one call, everything in one CUDA graph. Method as in pytorch_common.py. Every result is compared with float32 first.
"""
import sys
import time

import torch
import torch.nn.functional as F

from pytorch_common import arguments, both_regimes, capture, checked, element, quantiles, write

BATCHES = [1, 4, 8, 12, 16, 20, 24, 28, 32]
BODY_BATCHES = [1, 8, 32]
RESTED_SAMPLES = 15
SHAPES = [(56, 64), (28, 128), (14, 256), (7, 512)]
CHAINS = {"resnet_layer": 2, "vgg_layer": 4}
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 8e-2}  # of bodies; cuDNN's Winograd algorithms round more than sums do


class Conv:
    """A convolution whose output is as large as its input, or half as large along each side."""

    def __init__(self, dtype, rows, channels, features, stride=1):
        scale = (2 / (rows * rows * channels)) ** 0.5
        filter = torch.randn(features, channels, rows, rows, device="cuda") * scale
        self.filter = filter.to(dtype).to(memory_format=torch.channels_last)
        self.bias = torch.zeros(features, device="cuda", dtype=dtype)
        self.stride, self.padding = [stride, stride], [rows // 2, rows // 2]

    def __call__(self, x, residual=None, relu=True):
        if x.dtype == torch.float32:
            y = F.conv2d(x, self.filter.float(), None, self.stride, self.padding)
            y = y if residual is None else y + residual
            return F.relu(y) if relu else y
        rest = (self.stride, self.padding, [1, 1], 1)
        if residual is not None:
            return torch.cudnn_convolution_add_relu(x, self.filter, residual, 1.0, self.bias, *rest)
        if relu:
            return torch.cudnn_convolution_relu(x, self.filter, self.bias, *rest)
        return F.conv2d(x, self.filter, None, self.stride, self.padding)


def chain(dtype, channels, length):
    convs = [Conv(dtype, 3, channels, channels) for _ in range(length)]

    def run(x):
        for conv in convs:
            x = conv(x)
        return x

    return run


def blocks(dtype, count, channels, features):
    """Basic blocks; the first with stride 2 and a shortcut where the channels change."""
    made = []
    for i in range(count):
        down = i == 0 and channels != features
        into = channels if i == 0 else features
        shortcut = Conv(dtype, 1, into, features, 2) if down else None
        made.append((Conv(dtype, 3, into, features, 2 if down else 1), shortcut, Conv(dtype, 3, features, features)))

    def run(x):
        for first, shortcut, second in made:
            inner = first(x)
            x = second(inner, shortcut(x, relu=False) if shortcut else x)
        return x

    return run


def resnet38(dtype):
    layers = [blocks(dtype, 3, 64, 64)] + [blocks(dtype, n, 32 << i, 64 << i) for i, n in ((1, 4), (2, 6), (3, 3))]

    def run(x):
        x = F.max_pool2d(x, 3, 2, 1)
        for layer in layers:
            x = layer(x)
        return F.adaptive_avg_pool2d(x, 1)

    return run


def vgg19(dtype):
    made, channels = [], 64
    for i, length in enumerate([2, 2, 4, 4]):
        features = 64 << i
        made.append([Conv(dtype, 3, channels if j == 0 else features, features) for j in range(length)])
        channels = features

    def run(x):
        for i, block in enumerate(made):
            x = F.max_pool2d(x, 2) if i else x
            for conv in block:
                x = conv(x)
        return F.adaptive_avg_pool2d(x, 1)

    return run


def images(dtype, batch, channels, size):
    x = torch.rand(batch, channels, size, size, device="cuda") * 2 - 1
    return x.to(dtype).to(memory_format=torch.channels_last)


def points(pipelines, batches):
    """Pipeline, dims, (images, channels, pixels), what makes it."""
    for batch in batches or BATCHES:
        for name, length in CHAINS.items():
            for size, channels in SHAPES:
                dims = {"B": batch, "HW": size, "C": channels}
                yield name, dims, (batch, channels, size), lambda d, c=channels, n=length: chain(d, c, n)
    for batch in batches or BODY_BATCHES:
        yield "resnet38_body", {"B": batch}, (batch, 64, 112), resnet38
        yield "vgg19_body", {"B": batch}, (batch, 64, 56), vgg19


def main():
    parser = arguments(__doc__, runs=20, seconds=55.0)
    parser.add_argument("--pipeline", action="append", help="only these")
    parser.add_argument("--b", default="", help="images, comma-separated")
    args = parser.parse_args()

    began = time.perf_counter()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    dtype, name_of_dtype = element(args)
    batches = [int(b) for b in args.b.split(",") if b]
    todo = [p for p in points(args.pipeline, batches) if not args.pipeline or p[0] in args.pipeline]
    records, skipped = [], []
    with torch.inference_mode():
        for place, (name, dims, shape, make) in enumerate(todo):
            left = args.seconds - (time.perf_counter() - began)
            if left < 0.3:
                skipped.append(f"{name} {dims}: the time limit")
                continue
            share = left / (len(todo) - place)
            try:
                sets = [(make(dtype), images(dtype, *shape)) for _ in range(args.sets)]
                run, x = sets[0]
                few = x[:1]
                error = checked(run(few), run(few.float()), TOLERANCE[dtype])
                graph = capture(lambda one: one[0](one[1]), sets, args.runs)
                measured = both_regimes(graph, RESTED_SAMPLES, 0.3 * share)
            except Exception as fault:  # one size must not cost the others
                skipped.append(f"{name} {dims}: {fault}")
                continue
            for regime, times in measured.items():
                records.append({
                    "pipeline": name,
                    "dims": dims,
                    "element": name_of_dtype,
                    "layout": "channels-last",
                    "regime": regime,
                    **quantiles(times, args.runs),
                    "rel_l2_err": error,
                })
            del graph, sets, run, x
    return write(args, began, records, skipped, cudnn=torch.backends.cudnn.version())


if __name__ == "__main__":
    sys.exit(main())
