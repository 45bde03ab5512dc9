#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention blocks and transformer layers in PyTorch, as CUDA graphs: a peer for `cusync bench attention --pytorch FILE.json` and `bench layer`.

Needs python3 and torch with CUDA, nothing else; sizes are those of one of eight GPUs in tensor parallelism. `*_generate` makes the next token of
each of B sequences: QKV, attention over a cache, projection; `*_attention` does it for a prompt, causal. Neither has norms, rotation or
an append. `*_block` and `*_prompt_block` have them: norm, QKV, rotary embedding (LLaMA), append to the cache, attention, projection,
residual. `*_layer` and `*_prompt_layer` go on with norm, MLP, residual. `*_attend` is the attention of a prompt alone. Method as in pytorch_mlp.py: several sets of weights and caches in rotation, a graph of `--runs` runs,
an idle time of 3 ms before each sample, or (sustained) back to back for a window. Eager runs are made with each backend of
scaled_dot_product_attention that takes the shapes; `--compile` adds torch.compile(max-autotune). What is compiled is compared with eager first.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytorch_mlp import percentile, rested, sustained, uniform

# model: (hidden width, query heads, key/value heads, inner width, LLaMA)
MODELS = {
    "gpt3": (12288, 12, 12, 6144, False),
    "llama65": (8192, 8, 8, 2752, True),
    "llama3_70b": (8192, 8, 1, 3584, True),
}
# kind: (a prompt, how much of a layer)
ALONE, PLAIN, FULL, LAYER = range(4)
KINDS = {
    "generate": (False, PLAIN),
    "block": (False, FULL),
    "attention": (True, PLAIN),
    "prompt_block": (True, FULL),
    "attend": (True, ALONE),
    "layer": (False, LAYER),
    "prompt_layer": (True, LAYER),
}
# kind: (sequences, tokens) as in src/bench/layers.rs
USUAL = {
    "generate": [(1, 512), (1, 2048), (4, 2048), (32, 2048)],
    "block": [(1, 512), (1, 2048), (4, 2048), (32, 2048)],
    "attention": [(1, 512), (1, 1024), (1, 2048)],
    "prompt_block": [(1, 512), (1, 1024), (1, 2048)],
    "attend": [(1, 2048)],
    "layer": [(1, 2048), (8, 2048), (32, 2048)],
    "prompt_layer": [(1, 512), (1, 2048)],
}
DIM = 128
WARM_SAMPLES = 3
TOLERANCE = 1e-2
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Layer:
    """The sizes of a block or layer, and its arithmetic; weights and caches come as arguments, so that all sets share what is compiled."""

    def __init__(self, model, kind, batch, tokens):
        self.width, self.heads, self.kv, self.inner, self.llama = MODELS[model]
        self.prompt, self.part = KINDS[kind]
        self.pipeline, self.batch, self.tokens = f"{model}_{kind}", batch, tokens
        self.columns = (self.heads + 2 * self.kv) * DIM if self.part == ALONE else self.width  # of the input
        # Rows of activations, and the first of them in the cache.
        self.rows, self.first = (tokens, 0) if self.prompt else (batch, tokens)
        self.dims = {"S": tokens} if self.prompt else {"B": batch, "S": tokens + 1}

    def tensors(self, dtype, generator):
        """A set of weights, and a cache that has the tokens already."""
        rows, width, up = (self.heads + 2 * self.kv) * DIM, self.width, self.inner * (2 if self.llama else 1)
        made = {}
        matrices = [("qkv", rows, width), ("project", width, self.heads * DIM)] if self.part > ALONE else []
        matrices += [("up", up, width), ("down", width, self.inner)] if self.part == LAYER else []
        for name, n, k in matrices:
            made[name] = uniform((n, k), 3.0 / math.sqrt(k), dtype, generator)
        for name in ("gain1", "bias1", "gain2", "bias2"):
            made[name] = uniform((width,), 1.0, dtype, generator)
        for name in ("keys", "values"):
            made[name] = uniform((self.batch, self.kv, self.tokens + 1, DIM), 1.0, dtype, generator)
        positions = torch.arange(self.first, self.first + (self.tokens if self.prompt else 1), device="cuda")[:, None]
        angles = positions * 10000.0 ** (-torch.arange(DIM // 2, device="cuda") / (DIM // 2))
        return {**made, "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}

    def norm(self, x, gain, bias):
        if self.llama:
            return F.rms_norm(x, (self.width,), gain, 1e-5)
        return F.layer_norm(x, (self.width,), gain, bias, 1e-5)

    def attend(self, x, t):
        """QKV, attention, projection; the rotation and the append of full blocks and layers."""

        def rotated(y):
            low, high = y.chunk(2, -1)
            return torch.cat((low * t["cos"] - high * t["sin"], high * t["cos"] + low * t["sin"]), -1)

        product = (F.linear(x, t["qkv"]) if self.part > ALONE else x).view(self.batch, -1, self.heads + 2 * self.kv, DIM).transpose(1, 2)
        q, k, v = product.split([self.heads, self.kv, self.kv], 1)
        if self.llama and self.part >= FULL:
            q, k = rotated(q), rotated(k)
        last = self.first + k.shape[2]
        if self.part >= FULL:
            t["keys"][:, :, self.first : last] = k
            t["values"][:, :, self.first : last] = v
        if self.prompt:
            shape = (self.batch, self.heads, self.tokens, DIM)
            k, v = (k.expand(shape), v.expand(shape)) if self.kv == 1 else (k, v)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        else:
            # Queries that share one head of keys and values are rows of one attention.
            q = q.transpose(1, 2) if self.kv == 1 else q
            mixed = F.scaled_dot_product_attention(q, t["keys"], t["values"])
        mixed = mixed.reshape(x.shape[0], -1)
        return F.linear(mixed, t["project"]) if self.part > ALONE else mixed

    def run(self, x, t):
        if self.part < FULL:
            return self.attend(x, t)
        h = x + self.attend(self.norm(x, t["gain1"], t["bias1"]), t)
        if self.part == FULL:
            return h
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
    """Times by regime."""
    graph = capture(run, sets, x, args.runs)
    found = {}
    for regime in args.regime.split(","):
        if regime == "rested":
            times = rested(graph, WARM_SAMPLES + args.samples)[WARM_SAMPLES:]
        else:
            times = sustained(graph, 0.1)
        times = [t / args.runs for t in times]
        quantiles = {"median_us": statistics.median(times), "p10_us": percentile(times, 0.1), "p90_us": percentile(times, 0.9)}
        found[regime] = {**quantiles, "samples": len(times)}
    return found


def points(args):
    """Blocks and layers at their sizes."""
    wanted = [[int(n) for n in text.split(",")] if text else [] for text in (args.batch, args.tokens)]
    for kind in args.kind or list(KINDS):
        batches, tokens = (given or sorted({size[i] for size in USUAL[kind]}) for i, given in enumerate(wanted))
        sizes = [(b, n) for b in ([1] if KINDS[kind][0] else batches) for n in tokens] if any(wanted) else USUAL[kind]
        for model in args.model or list(MODELS):
            yield from (Layer(model, kind, *size) for size in sizes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only these")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only these")
    parser.add_argument("--batch", help="sequences that generate a token, comma-separated")
    parser.add_argument("--tokens", help="tokens of a prompt, or of each sequence in the cache, comma-separated")
    parser.add_argument("--compile", action="store_true", help="torch.compile(max-autotune) too, which takes minutes")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 in place of fp16")
    parser.add_argument("--regime", default="rested,sustained", help="comma-separated")
    parser.add_argument("--sets", type=int, default=4, help="sets of weights and caches in rotation")
    parser.add_argument("--runs", type=int, default=12, help="runs of a graph")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so many seconds")
    args = parser.parse_args()

    began = time.perf_counter()
    dtype = torch.bfloat16 if args.bf16 else torch.float16
    generator = torch.Generator(device="cuda")
    generator.manual_seed(1)
    records, skipped = [], []
    with torch.inference_mode():
        for layer in points(args):
            label = f"{layer.pipeline} {layer.dims}"
            if time.perf_counter() - began > args.seconds:
                skipped.append(f"{label}: the time limit")
                continue
            sets = [layer.tensors(dtype, generator) for _ in range(args.sets)]
            x = uniform((layer.rows, layer.columns), 1.0, dtype, generator)
            ways = [(f"eager, {name}", backend, False) for name, backend in BACKENDS.items()]
            ways += [("compiled", list(BACKENDS.values()), True)] if args.compile else []
            for way, backend, compiles in ways:
                try:
                    with sdpa_kernel(backend):
                        run = compiled(layer, sets[0], x) if compiles else layer.run
                        times = measured(run, sets, x, args)
                except Exception as fault:  # not every backend takes every shape
                    skipped.append(f"{label}, {way}: {str(fault).splitlines()[0] if str(fault) else repr(fault)}")
                    continue
                element = "bf16" if args.bf16 else "f16"
                of = {"pipeline": layer.pipeline, "dims": layer.dims, "element": element, "way": way}
                records += [{**of, "regime": regime, **found} for regime, found in times.items()]
                print(f"{label}, {way}: " + ", ".join(f"{f['median_us']:.1f} us {r}" for r, f in times.items()), flush=True)
            del sets
            torch.cuda.empty_cache()
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "records": records, "skipped": skipped}
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=1)
    print(f"{len(records)} records, {len(skipped)} skipped -> {args.output}")
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
