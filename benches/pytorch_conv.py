#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chains of convolutions and the bodies of ResNet-38 and VGG-19 in PyTorch: a peer for `cusync bench conv --pytorch FILE.json`.

Needs python3 and torch with CUDA; `--cusync` also the Python package of cusync, which then runs in turns with PyTorch in this process, with
plain and with programmatic edges, each result compared with PyTorch's first. Channels-last, cuDNN in benchmark mode, a convolution with its
bias of zeros and ReLU (and residual) in one call, everything in one CUDA graph. Method as in pytorch_common.py. PyTorch's result for an
image is compared with float32 first.
"""
import math
import sys
import time

import torch
import torch.nn.functional as F

from pytorch_common import arguments, capture, checked, element, in_turns, quantiles, write

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

    run.convs = convs
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

    run.convs = [conv for block in made for conv in block if conv]
    return run


def resnet38(dtype):
    layers = [blocks(dtype, 3, 64, 64)] + [blocks(dtype, n, 32 << i, 64 << i) for i, n in ((1, 4), (2, 6), (3, 3))]

    def run(x):
        x = F.max_pool2d(x, 3, 2, 1)
        for layer in layers:
            x = layer(x)
        return F.adaptive_avg_pool2d(x, 1)

    run.convs = [conv for layer in layers for conv in layer.convs]
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

    run.convs = [conv for block in made for conv in block]
    return run


class Ours:
    """Pipelines of cusync on the images and filters of PyTorch's sets, one each."""

    def __init__(self, name, dims, sets, dtype, programmatic):
        from cusync import _cusync

        first = _cusync.Pipeline(name, sorted(dims.items()), "bf16" if dtype == torch.bfloat16 else "f16", "gpu", programmatic)
        self.pipelines, self.out = [], []
        names, (out,) = first.inputs(), first.outputs()
        for run, x in sets:
            pipeline = first.fork() if self.pipelines else first
            filters = [conv.filter.permute(2, 3, 1, 0).contiguous() for conv in run.convs]
            z = torch.empty(first.shape(out), dtype=dtype, device="cuda")
            torch.cuda.synchronize()
            for tensor, values in zip([*names, out], [x.permute(0, 2, 3, 1), *filters, z], strict=True):
                pipeline.set(tensor, values, 0)
            self.pipelines.append(pipeline)
            self.out.append(z)

    def error(self, sets):
        """Largest error of a set beside PyTorch's own result, in norm."""
        for pipeline in self.pipelines:
            pipeline.run(None)
        wants = [run(x).permute(0, 2, 3, 1) for run, x in sets]
        return max(checked(z, want.reshape(z.shape), TOLERANCE[z.dtype]) for z, want in zip(self.out, wants, strict=True))

    def graph(self, runs):
        return capture(lambda pipeline: pipeline.run(torch.cuda.current_stream().cuda_stream), self.pipelines, runs)


def summary(records):
    """Lines with the speed-ups of cusync over PyTorch."""
    times = {}
    for r in records:
        times.setdefault((r["regime"], r["pipeline"], *r["dims"].values()), {})[r.get("edges", "torch")] = r["median_us"]
    gains = {key: t["torch"] / min(t["plain"], t["programmatic"]) for key, t in times.items() if len(t) == 3}
    for regime in ("rested", "sustained"):
        chains = {key: gain for key, gain in gains.items() if key[0] == regime and key[1] in CHAINS}
        groups = {"all": chains, "at most 8 images": {key: gain for key, gain in chains.items() if key[2] <= 8}}
        for title, group in groups.items():
            if group:
                mean = math.exp(sum(map(math.log, group.values())) / len(group))
                less = sum(gain < 0.95 for gain in group.values())
                yield f"{regime}, {len(group)} chains, {title}: mean {mean:.3f}, least {min(group.values()):.2f}, {less} below 0.95"
        for key, gain in gains.items():
            if key[0] == regime and key[1] not in CHAINS:
                yield f"{regime}, {key[1]}, {key[2]} images: {gain:.3f}"


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
    parser.add_argument("--cusync", action="store_true", help="measure cusync beside PyTorch")
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
            graphs, kept = {}, []  # replays use the memory of the pipelines
            try:
                sets = [(make(dtype), images(dtype, *shape)) for _ in range(args.sets)]
                run, x = sets[0]
                few = x[:1]
                graphs["torch"], errors = capture(lambda one: one[0](one[1]), sets, args.runs), {}
                errors["torch"] = checked(run(few), run(few.float()), TOLERANCE[dtype])
                for edges in ("plain", "programmatic") if args.cusync else ():
                    kept.append(Ours(name, dims, sets, dtype, edges == "programmatic"))
                    errors[edges] = kept[-1].error(sets)
                    graphs[edges] = kept[-1].graph(args.runs)
                measured = in_turns(graphs, RESTED_SAMPLES, 0.3 * share / len(graphs))
            except Exception as fault:  # one size must not cost the others
                skipped.append(f"{name} {dims}: {fault}")
                continue
            for (way, regime), times in measured.items():
                records.append({
                    "pipeline": name,
                    "dims": dims,
                    "element": name_of_dtype,
                    "layout": "channels-last",
                    "regime": regime,
                    **({} if way == "torch" else {"edges": way}),
                    **quantiles(times, args.runs),
                    "rel_l2_err": errors[way],
                })
            del graphs, kept, sets, run, x, few
    for line in summary(records):
        print(line)
    peers = [r for r in records if "edges" not in r]
    more = {"cusync": [r for r in records if "edges" in r]} if args.cusync else {}
    return write(args, began, peers, skipped, cudnn=torch.backends.cudnn.version(), **more)


if __name__ == "__main__":
    sys.exit(main())
