#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The MLPs in PyTorch, as CUDA graphs: a peer for `cusync bench mlp --pytorch FILE.json`.

Needs python3 and torch with CUDA, nothing else. Method as in src/bench: uniform random inputs, (-1, 1) for activations and
(-3, 3) / sqrt(K) for weights; several weight sets in rotation, so that weights never come from the L2 cache; rested = idle for
3 ms before a sample, sustained = back to back for a window, its first fifth dropped. A sample is one replay of a graph of
`--runs` runs. Weights are stored K x N and N x K, the activation of a gated MLP is one fused kernel where torch can compile one;
every combination is a record, and the reader takes the fastest. Every result is compared with float32 first.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

# name: (hidden width, inner width per GPU, gated)
PIPELINES = {
    "gpt3_mlp": (12288, 6144, False),
    "llama65_mlp": (8192, 2752, True),
    "llama3_70b_mlp": (8192, 3584, True),
}
SIZES = [1, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096]
REST_S = 3e-3
RESTED_SAMPLES = 15
WARM_SAMPLES = 3
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 1.6e-2}  # torch may reduce split sums in 16 bits

SILU_MUL = """
template <typename T> T silu_mul(T gate, T up) {
  float const g = static_cast<float>(gate);
  return static_cast<T>(g / (1.0f + expf(-g)) * static_cast<float>(up));
}
"""


def uniform(shape, scale, dtype, generator):
    """Uniform in (-scale, scale)."""
    values = torch.empty(shape, dtype=torch.float32, device="cuda")
    values.uniform_(-scale, scale, generator=generator)
    return values.to(dtype)


def eager_gate(product, inner):
    return F.silu(product[:, :inner]) * product[:, inner:]


def fused_gate():
    """silu(gate) * up as one kernel, compiled by torch; None where it cannot."""
    try:
        kernel = torch.cuda.jiterator._create_jit_fn(SILU_MUL)
        gate = torch.linspace(-4, 4, 4096, device="cuda").half().view(16, 256)
        want = eager_gate(gate.float(), 128)
        got = kernel(gate[:, :128], gate[:, 128:]).float()
        if (got - want).abs().max().item() > 1e-2:
            return None
        return lambda product, inner: kernel(product[:, :inner], product[:, inner:])
    except Exception as error:  # jiterator is not everywhere
        print(f"no fused gate kernel: {error}", file=sys.stderr)
        return None


class Weights:
    """All sets of one pipeline in one layout: gate and up side by side in one matrix."""

    def __init__(self, name, layout, sets, dtype, generator):
        hidden, inner, gated = PIPELINES[name]
        self.layout, self.inner, self.gated, self.hidden = layout, inner, gated, hidden
        wide = 2 * inner if gated else inner
        shapes = [(hidden, wide), (inner, hidden)]  # K x N
        self.sets = []
        for _ in range(sets):
            pair = []
            for k, n in shapes:
                shape = (k, n) if layout == "KxN" else (n, k)
                pair.append(uniform(shape, 3.0 / math.sqrt(k), dtype, generator))
            self.sets.append(pair)

    def product(self, x, weight):
        return torch.matmul(x, weight) if self.layout == "KxN" else F.linear(x, weight)

    def run(self, x, index, gate):
        first, second = self.sets[index]
        product = self.product(x, first)
        inner = gate(product, self.inner) if self.gated else F.gelu(product, approximate="tanh")
        return self.product(inner, second)

    def error(self, x, gate):
        """Relative L2 error of set 0 against float32, over the first rows."""
        first, second = (w.float() if self.layout == "KxN" else w.float().t() for w in self.sets[0])
        rows = x[:32]
        product = rows.float() @ first
        inner = eager_gate(product, self.inner) if self.gated else F.gelu(product, approximate="tanh")
        want = inner.to(x.dtype).float() @ second
        got = self.run(x, 0, gate)[:32].float()
        return ((got - want).norm() / want.norm()).item()


def capture(weights, x, runs, gate):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for index in range(len(weights.sets)):
            weights.run(x, index, gate)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in range(runs):
            weights.run(x, run % len(weights.sets), gate)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def rested(graph, samples):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(samples):
        time.sleep(REST_S)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return times


def sustained(graph, window_s):
    once = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - once, 1e-5)
    count = max(5, min(4096, math.ceil(window_s / once)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]
    return times[count // 5 :]


def percentile(times, fraction):
    ordered = sorted(times)
    place = fraction * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("--pipeline", action="append", choices=sorted(PIPELINES), help="only these")
    parser.add_argument("--m", default=",".join(map(str, SIZES)), help="tokens in flight, comma-separated")
    parser.add_argument("--layout", default="KxN,NxK", help="storage of weights, comma-separated")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 in place of fp16")
    parser.add_argument("--sets", type=int, default=4, help="weight sets in rotation")
    parser.add_argument("--runs", type=int, default=20, help="runs of a graph")
    parser.add_argument("--seconds", type=float, default=55.0, help="stop after so many seconds")
    args = parser.parse_args()

    began = time.perf_counter()
    dtype = torch.bfloat16 if args.bf16 else torch.float16
    generator = torch.Generator(device="cuda")
    generator.manual_seed(1)
    names = args.pipeline or list(PIPELINES)
    sizes = [int(m) for m in args.m.split(",")]
    layouts = args.layout.split(",")
    fused = fused_gate()
    gate = fused or eager_gate
    records, skipped = [], []
    todo = len(names) * len(layouts) * len(sizes)
    with torch.inference_mode():
        for name in names:
            hidden = PIPELINES[name][0]
            inputs = {m: uniform((m, hidden), 1.0, dtype, generator) for m in sizes}
            for layout in layouts:
                weights = Weights(name, layout, args.sets, dtype, generator)
                for m in sizes:
                    left = args.seconds - (time.perf_counter() - began)
                    share, todo = left / todo, todo - 1
                    if left < 0.3:
                        skipped.append(f"{name} M = {m} {layout}: the time limit")
                        continue
                    window = min(0.25, max(0.02, 0.4 * share))
                    label = "gelu" if not weights.gated else "fused" if fused else "eager"
                    try:
                        error = weights.error(inputs[m], gate)
                        if not error < TOLERANCE[dtype]:
                            raise ValueError(f"relative error {error:.2e}")
                        graph = capture(weights, inputs[m], args.runs, gate)
                        one = sustained(graph, 0.0)
                        fits = int(0.3 * share / (REST_S + statistics.median(one) * 1e-6))
                        samples = max(5, min(RESTED_SAMPLES, fits))
                        measured = {
                            "rested": rested(graph, WARM_SAMPLES + samples)[WARM_SAMPLES:],
                            "sustained": sustained(graph, window),
                        }
                    except Exception as fault:  # one size must not cost the others
                        skipped.append(f"{name} M = {m} {layout} {label}: {fault}")
                        continue
                    for regime, times in measured.items():
                        times = [t / args.runs for t in times]
                        records.append({
                            "pipeline": name,
                            "dims": {"M": m},
                            "element": "bf16" if args.bf16 else "f16",
                            "layout": layout,
                            "activation": label,
                            "regime": regime,
                            "median_us": statistics.median(times),
                            "p10_us": percentile(times, 0.1),
                            "p90_us": percentile(times, 0.9),
                            "samples": len(times),
                            "rel_l2_err": error,
                        })
                    del graph
                del weights
                torch.cuda.empty_cache()
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "sets": args.sets,
        "runs": args.runs,
        "seconds": time.perf_counter() - began,
        "records": records,
        "skipped": skipped,
    }
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=1)
    print(f"{len(records)} records, {len(skipped)} skipped, {report['seconds']:.1f} s -> {args.output}")
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
