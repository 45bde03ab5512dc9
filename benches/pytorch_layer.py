#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Transformer layers in PyTorch, generating the next token of each of B sequences, as CUDA graphs: a peer for policies/*_layer.ron.

Needs python3 and torch with CUDA, nothing else. A layer is norm, QKV, rotary embedding (LLaMA), append to the cache, attention, projection,
residual, norm, MLP, residual, with the sizes of one of eight GPUs in tensor parallelism. Method as in pytorch_mlp.py: several sets of
weights and caches in rotation, a graph of `--runs` runs, an idle time of 3 ms before each sample. Eager layers run with each backend
of scaled_dot_product_attention that takes the shapes, and the fastest is told; `--compile` adds torch.compile(max-autotune). The
compiled layer is compared with the eager one first.
"""
import argparse
import json
import math
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytorch_mlp import percentile, rested, uniform

# name: (hidden width, query heads, key/value heads, inner width, LLaMA)
LAYERS = {
    "gpt3_layer": (12288, 12, 12, 6144, False),
    "llama65_layer": (8192, 8, 8, 2752, True),
    "llama3_70b_layer": (8192, 8, 1, 3584, True),
}
DIM = 128
WARM_SAMPLES = 3
TOLERANCE = 1e-2
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Layer:
    """Weights and cache of one layer; `tokens` are in the cache already."""

    def __init__(self, name, batch, tokens, dtype, generator):
        self.width, self.heads, self.kv, self.inner, self.llama = LAYERS[name]
        rows, width = (self.heads + 2 * self.kv) * DIM, self.width

        def weight(n, k):
            return uniform((n, k), 3.0 / math.sqrt(k), dtype, generator)

        self.qkv, self.project = weight(rows, width), weight(width, self.heads * DIM)
        self.up, self.down = weight(2 * self.inner if self.llama else self.inner, width), weight(width, self.inner)
        self.gains = [uniform((width,), 1.0, dtype, generator) for _ in range(2)]
        self.biases = [uniform((width,), 1.0, dtype, generator) for _ in range(2)]
        self.cache = [uniform((batch, self.kv, tokens + 1, DIM), 1.0, dtype, generator) for _ in range(2)]
        angles = tokens * 10000.0 ** (-torch.arange(DIM // 2, device="cuda") / (DIM // 2))
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        self.tokens = tokens

    def norm(self, x, i):
        if self.llama:
            return F.rms_norm(x, (self.width,), self.gains[i], 1e-5)
        return F.layer_norm(x, (self.width,), self.gains[i], self.biases[i], 1e-5)

    def rotated(self, x):
        low, high = x.chunk(2, -1)
        return torch.cat((low * self.cos - high * self.sin, high * self.cos + low * self.sin), -1)

    def run(self, x):
        batch = x.shape[0]
        product = F.linear(self.norm(x, 0), self.qkv).view(batch, -1, 1, DIM)
        q, k, v = product.split([self.heads, self.kv, self.kv], 1)
        if self.llama:
            q, k = self.rotated(q), self.rotated(k)
        keys, values = self.cache
        keys[:, :, self.tokens :] = k
        values[:, :, self.tokens :] = v
        if self.kv == 1:  # one head of keys and values: the group's queries are rows of one attention
            mixed = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values)
        else:
            mixed = F.scaled_dot_product_attention(q, keys, values)
        h = x + F.linear(mixed.reshape(batch, -1), self.project)
        inner = F.linear(self.norm(h, 1), self.up)
        if self.llama:
            gate, up = inner.chunk(2, -1)
            inner = F.silu(gate) * up
        else:
            inner = F.gelu(inner, approximate="tanh")
        return h + F.linear(inner, self.down)


def capture(functions, x, runs):
    """A graph of runs that take the functions in turn."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for function in functions:
            function(x)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in range(runs):
            functions[run % len(functions)](x)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def compiled(layers, x):
    """The layers compiled; an error where the result is another."""
    functions = [torch.compile(layer.run, mode="max-autotune-no-cudagraphs", dynamic=False) for layer in layers]
    want, got = layers[0].run(x).float(), functions[0](x).float()
    error = ((got - want).norm() / want.norm()).item()
    if not error < TOLERANCE:
        raise ValueError(f"relative error {error:.2e}")
    return functions


def measured(functions, x, args):
    graph = capture(functions, x, args.runs)
    times = [t / args.runs for t in rested(graph, WARM_SAMPLES + args.samples)[WARM_SAMPLES:]]
    return {"median_us": statistics.median(times), "p10_us": percentile(times, 0.1), "p90_us": percentile(times, 0.9)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("--layer", action="append", choices=sorted(LAYERS), help="only these")
    parser.add_argument("--batch", default="1,8,32", help="sequences, comma-separated")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of each sequence in the cache")
    parser.add_argument("--compile", action="store_true", help="torch.compile(max-autotune) too, which takes minutes")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 in place of fp16")
    parser.add_argument("--sets", type=int, default=3, help="sets of weights and caches in rotation")
    parser.add_argument("--runs", type=int, default=12, help="runs of a graph")
    parser.add_argument("--samples", type=int, default=15)
    args = parser.parse_args()

    dtype = torch.bfloat16 if args.bf16 else torch.float16
    generator = torch.Generator(device="cuda")
    generator.manual_seed(1)
    records, skipped = [], []
    with torch.inference_mode():
        for name in args.layer or list(LAYERS):
            for batch in map(int, args.batch.split(",")):
                layers = [Layer(name, batch, args.tokens, dtype, generator) for _ in range(args.sets)]
                x = uniform((batch, layers[0].width), 1.0, dtype, generator)
                ways = [(f"eager, {label}", backend, False) for label, backend in BACKENDS.items()]
                ways += [("compiled", list(BACKENDS.values()), True)] if args.compile else []
                for way, backend, compiles in ways:
                    try:
                        with sdpa_kernel(backend):
                            functions = compiled(layers, x) if compiles else [layer.run for layer in layers]
                            record = {"layer": name, "batch": batch, "way": way, **measured(functions, x, args)}
                    except Exception as fault:  # not every backend takes every shape
                        skipped.append(f"{name} B = {batch}, {way}: {str(fault).splitlines()[0] if str(fault) else repr(fault)}")
                        continue
                    records.append(record)
                    print(f"{name} B = {batch}, {way}: {record['median_us']:.1f} us", flush=True)
                del layers
                torch.cuda.empty_cache()
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "tokens": args.tokens,
        "element": "bf16" if args.bf16 else "f16",
        "records": records,
        "skipped": skipped,
    }
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=1)
    print(f"{len(records)} records, {len(skipped)} skipped -> {args.output}")
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
