#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chains of convolutions and the bodies of ResNet-38 and VGG-19 in PyTorch: channels-last fp16, cuDNN in benchmark mode, a
convolution and its ReLU (and residual) in one call, everything in one CUDA graph. The peer of `cusync run NAME`.

    python3 benches/pytorch_conv.py [--batches 1,8,32] [--seconds 0.2]

Prints a line of JSON for each point: microseconds a run, the median of graphs of 20 runs.
"""

import argparse
import json
import statistics
import time

import torch

RUNS = 20


def filters(rows, channels, features):
    scale = (rows * rows * channels) ** -0.5
    filter = torch.randn(features, channels, rows, rows, device="cuda", dtype=torch.float16) * scale
    return filter.to(memory_format=torch.channels_last), torch.zeros(features, device="cuda", dtype=torch.float16)


class Conv:
    """A convolution whose output is as large as its input, or half as large along each side."""

    def __init__(self, rows, channels, features, stride=1):
        self.filter, self.bias = filters(rows, channels, features)
        self.stride, self.padding = [stride, stride], [rows // 2, rows // 2]

    def __call__(self, x, residual=None, relu=True):
        rest = (self.stride, self.padding, [1, 1], 1)
        if residual is not None:
            return torch.cudnn_convolution_add_relu(x, self.filter, residual, 1.0, self.bias, *rest)
        if relu:
            return torch.cudnn_convolution_relu(x, self.filter, self.bias, *rest)
        return torch.nn.functional.conv2d(x, self.filter, None, self.stride, self.padding)


def chain(channels, length):
    convs = [Conv(3, channels, channels) for _ in range(length)]

    def run(x):
        for conv in convs:
            x = conv(x)
        return x

    return run


def blocks(count, channels, features):
    """Basic blocks; the first with stride 2 and a shortcut where the channels change."""
    made = []
    for i in range(count):
        down = i == 0 and channels != features
        into = channels if i == 0 else features
        shortcut = Conv(1, into, features, 2) if down else None
        made.append((Conv(3, into, features, 2 if down else 1), shortcut, Conv(3, features, features)))

    def run(x):
        for first, shortcut, second in made:
            inner = first(x)
            x = second(inner, shortcut(x, relu=False) if shortcut else x)
        return x

    return run


def resnet38():
    layers = [blocks(3, 64, 64), blocks(4, 64, 128), blocks(6, 128, 256), blocks(3, 256, 512)]

    def run(x):
        x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        for layer in layers:
            x = layer(x)
        return torch.nn.functional.adaptive_avg_pool2d(x, 1)

    return run


def vgg19():
    made, channels = [], 64
    for i, length in enumerate([2, 2, 4, 4]):
        features = 64 << i
        made.append([Conv(3, channels if j == 0 else features, features) for j in range(length)])
        channels = features

    def run(x):
        for i, block in enumerate(made):
            x = torch.nn.functional.max_pool2d(x, 2) if i else x
            for conv in block:
                x = conv(x)
        return torch.nn.functional.adaptive_avg_pool2d(x, 1)

    return run


def images(batch, channels, size):
    x = torch.randn(batch, channels, size, size, device="cuda", dtype=torch.float16)
    return x.to(memory_format=torch.channels_last)


def measure(run, x, seconds):
    """Microseconds a run."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            run(x)
    graph.replay()
    torch.cuda.synchronize()
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until or len(times) < 12:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / RUNS)
    return statistics.median(times)


def points(batches):
    for batch in batches:
        yield "resnet38_body", batch, 64, 112, resnet38
        yield "vgg19_body", batch, 64, 56, vgg19
    for batch in batches:
        for channels, size in [(64, 56), (128, 28), (256, 14), (512, 7)]:
            for name, length in [("chain of 2", 2), ("chain of 4", 4)]:
                yield name, batch, channels, size, lambda c=channels, n=length: chain(c, n)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=0.1)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        for name, batch, channels, size, make in points([int(b) for b in given.batches.split(",")]):
            us = measure(make(), images(batch, channels, size), given.seconds)
            print(json.dumps({"name": name, "b": batch, "c": channels, "hw": size, "us": round(us, 2)}), flush=True)


if __name__ == "__main__":
    main()
