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
    """The sizes of a layer, and its arithmetic; weights and caches come as arguments, so that all sets share what is compiled."""

    def __init__(self, name, tokens):
        self.width, self.heads, self.kv, self.inner, self.llama = LAYERS[name]
        self.tokens = tokens

    def tensors(self, batch, dtype, generator):
        """A set of weights, and a cache that has the tokens already."""
        rows, width, up = (self.heads + 2 * self.kv) * DIM, self.width, self.inner * (2 if self.llama else 1)
        made = {}
        for name, n, k in [("qkv", rows, width), ("project", width, self.heads * DIM), ("up", up, width), ("down", width, self.inner)]:
            made[name] = uniform((n, k), 3.0 / math.sqrt(k), dtype, generator)
        for name in ("gain1", "bias1", "gain2", "bias2"):
            made[name] = uniform((width,), 1.0, dtype, generator)
        for name in ("keys", "values"):
            made[name] = uniform((batch, self.kv, self.tokens + 1, DIM), 1.0, dtype, generator)
        angles = self.tokens * 10000.0 ** (-torch.arange(DIM // 2, device="cuda") / (DIM // 2))
        return {**made, "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}

    def norm(self, x, gain, bias):
        if self.llama:
            return F.rms_norm(x, (self.width,), gain, 1e-5)
        return F.layer_norm(x, (self.width,), gain, bias, 1e-5)

    def run(self, x, t):
        def rotated(y):
            low, high = y.chunk(2, -1)
            return torch.cat((low * t["cos"] - high * t["sin"], high * t["cos"] + low * t["sin"]), -1)

        batch = x.shape[0]
        product = F.linear(self.norm(x, t["gain1"], t["bias1"]), t["qkv"]).view(batch, -1, 1, DIM)
        q, k, v = product.split([self.heads, self.kv, self.kv], 1)
        if self.llama:
            q, k = rotated(q), rotated(k)
        t["keys"][:, :, self.tokens :] = k
        t["values"][:, :, self.tokens :] = v
        # Queries that share one head of keys and values are rows of one attention.
        q = q.transpose(1, 2) if self.kv == 1 else q
        mixed = F.scaled_dot_product_attention(q, t["keys"], t["values"])
        h = x + F.linear(mixed.reshape(batch, -1), t["project"])
        inner = F.linear(self.norm(h, t["gain2"], t["bias2"]), t["up"])
        if self.llama:
            gate, up = inner.chunk(2, -1)
            inner = F.silu(gate) * up
        else:
            inner = F.gelu(inner, approximate="tanh")
        return h + F.linear(inner, t["down"])


def capture(run, sets, x, runs):
    """A graph of runs that take the sets in turn."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for tensors in sets:
            run(x, tensors)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(runs):
            run(x, sets[number % len(sets)])
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def compiled(layer, tensors, x):
    """The layer compiled; an error where the result is another."""
    run = torch.compile(layer.run, mode="max-autotune-no-cudagraphs", dynamic=False)
    want, got = layer.run(x, tensors).float(), run(x, tensors).float()
    error = ((got - want).norm() / want.norm()).item()
    if not error < TOLERANCE:
        raise ValueError(f"relative error {error:.2e}")
    return run


def measured(run, sets, x, args):
    graph = capture(run, sets, x, args.runs)
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
                layer = Layer(name, args.tokens)
                sets = [layer.tensors(batch, dtype, generator) for _ in range(args.sets)]
                x = uniform((batch, layer.width), 1.0, dtype, generator)
                ways = [(f"eager, {label}", backend, False) for label, backend in BACKENDS.items()]
                ways += [("compiled", list(BACKENDS.values()), True)] if args.compile else []
                for way, backend, compiles in ways:
                    try:
                        with sdpa_kernel(backend):
                            run = compiled(layer, sets[0], x) if compiles else layer.run
                            record = {"layer": name, "batch": batch, "way": way, **measured(run, sets, x, args)}
                    except Exception as fault:  # not every backend takes every shape
                        skipped.append(f"{name} B = {batch}, {way}: {str(fault).splitlines()[0] if str(fault) else repr(fault)}")
                        continue
                    records.append(record)
                    print(f"{name} B = {batch}, {way}: {record['median_us']:.1f} us", flush=True)
                del sets
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
