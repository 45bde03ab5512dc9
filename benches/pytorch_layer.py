#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention blocks and transformer layers in PyTorch, as CUDA graphs: a peer for `cusync bench attention --pytorch FILE.json` and `bench layer`.

Needs python3 and torch with CUDA, nothing else; sizes are those of one of eight GPUs in tensor parallelism. `*_generate` makes the next token of
each of B sequences: QKV, attention over a cache, projection; `*_attention` does it for a prompt, causal. Neither has norms, rotation or
an append. `*_block` and `*_prompt_block` have them: norm, QKV, rotary embedding (LLaMA), append to the cache, attention, projection,
residual. `*_layer` and `*_prompt_layer` go on with norm, MLP, residual. `*_attend` is the attention of a prompt alone. Method as in pytorch_common.py. Eager runs are made with each backend of
scaled_dot_product_attention that takes the shapes; `--compile` adds torch.compile(max-autotune). `--cusync libcusync_c.so` adds this project's pipelines, through its C API,
on the same tensors, stream and GPU. All ways of a size take turns, there and back. What is compiled, and what cusync makes where both make the same, is compared with eager first.
"""
import ctypes
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytorch_common import REST_S, arguments, capture, checked, element, quantiles, rested, seeded, sustained, uniform, write

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
TOLERANCE = 1e-2
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Layer:
    """The sizes of a block or layer, and its arithmetic; weights and caches come as arguments, so that all sets share what is compiled."""

    def __init__(self, model, kind, batch, tokens):
        self.model = model
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
            made[name] = uniform((self.batch, self.kv, self.dims["S"], DIM), 1.0, dtype, generator)
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


class Library:
    """The C API of cusync (capi/include/cusync/pipeline.h)."""

    def __init__(self, path):
        self.functions = ctypes.CDLL(path)
        self.functions.cusync_pipeline_error.restype = ctypes.c_char_p
        self.functions.cusync_pipeline_executor.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.functions, f"cusync_pipeline_{name}")(*arguments):
            raise RuntimeError(self.functions.cusync_pipeline_error().decode())


class Dim(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_uint64)]


class Pipeline:
    """A pipeline of cusync that reads one set of a layer's tensors. Weights are bound transposed, K x N, as its specs have them."""

    def __init__(self, library, layer, t, x, executor):
        self.library, self.handle, self.kept = library, ctypes.c_void_p(), []
        page = page_of(layer, x.dtype)
        dims = (Dim * len(layer.dims))(*(Dim(name.encode(), value) for name, value in layer.dims.items()))
        wanted = None if executor == "auto" else executor.encode()
        library.call("open", page.encode(), dims, len(dims), wanted, x.device.index, ctypes.byref(self.handle))
        self.executor = library.functions.cusync_pipeline_executor(self.handle).decode()
        self.out = torch.empty_like(x) if layer.part > ALONE else x.new_empty(x.shape[0], layer.heads * DIM)
        bound = {"X": x, "Z": self.out}
        if layer.part == ALONE:
            bound = {"QKV": x, "A": self.out}
        else:
            bound |= {"Wqkv": t["qkv"].t(), "Wo": t["project"].t()}
        if layer.part >= FULL:
            bound |= {f"{tensor}{i}": t[f"{name}{i}"] for tensor, name in (("g", "gain"), ("b", "bias")) for i in (1, 2)}
        if layer.part == FULL:
            bound["H"] = bound.pop("Z")
        if layer.part == LAYER:
            up = t["up"].t()
            bound |= {"W1": up, "W2": t["down"].t(), "Wg": up[:, : layer.inner], "Wu": up[:, layer.inner :], "Wd": t["down"].t()}
        table = torch.cat((t["cos"], t["sin"]), -1)
        if not layer.prompt:
            table = table.expand(layer.dims["S"], DIM)  # only the row of the token's position is read
        bound |= {"K": t["keys"], "V": t["values"], "cs": table}
        for name, tensor in bound.items():
            if f'"{name}(' in page:
                self.bind("bind", name, tensor)
        if '"n(' in page:
            self.bind("bind_i32", "n", torch.full((layer.batch,), layer.tokens, dtype=torch.int32, device="cuda"))
        torch.cuda.synchronize()  # weights are laid out anew on a stream of the library's, and the copies above are on another
        library.call("prepare", self.handle)

    def bind(self, function, name, tensor):
        kept = tensor.contiguous()
        self.kept.append(kept)
        memory = ctypes.c_void_p(kept.data_ptr())
        self.library.call(function, self.handle, name.encode(), memory, ctypes.c_size_t(kept.numel()))

    def run(self):
        self.library.call("run", self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def close(self):
        self.library.functions.cusync_pipeline_close(self.handle)


def page_of(layer, dtype):
    """The spec that ships, of the same element; of a full block, the layer's up to the projection; alone, the attention."""
    kind = layer.pipeline.removeprefix(layer.model + "_")
    of = {"block": "layer", "prompt_block": "prompt_layer", "attend": "attention"}.get(kind, kind)
    page = (Path(__file__).parents[1] / "policies" / f"{layer.model}_{of}.ron").read_text(encoding="utf-8")
    page = page.replace("    element: Bf16,\n", "").replace("    stages: [\n", f"    element: {'Bf16' if dtype == torch.bfloat16 else 'F16'},\n    stages: [\n")
    lines = page.splitlines(keepends=True)
    if layer.part == FULL:
        end = next(i for i, line in enumerate(lines) if '"before_mlp"' in line)
        lines = lines[:end] + ["    ],\n", ")\n"]
    if layer.part == ALONE:
        lines = [line for line in lines if "Gemm(" not in line]
    return "".join(lines)


def ours(library, layer, sets, x, executor):
    """Pipelines of cusync, one a set; an error where one makes something else than eager PyTorch does."""
    made = [Pipeline(library, layer, tensors, x, executor) for tensors in sets]
    # Plain blocks of generation leave the new token's rotation and place in the cache to us alone.
    if layer.prompt or layer.part >= FULL:
        want = layer.run(x, sets[0])
        made[0].run()
        torch.cuda.synchronize()
        checked(made[0].out, want, TOLERANCE)
    return made


def compiled(layer, tensors, x):
    """The layer compiled; an error where the result is another, or where torch runs it as it is."""
    # Of code that it has compiled for eight sizes torch compiles no ninth, and runs that eagerly without a word.
    torch._dynamo.reset()
    counters.clear()
    run = torch.compile(layer.run, mode="max-autotune-no-cudagraphs", dynamic=False)
    want = layer.run(x, tensors)
    checked(run(x, tensors), want, TOLERANCE)
    if not counters["stats"]["unique_graphs"]:
        raise ValueError("torch has not compiled it")
    return run


def measured(graphs, args):
    """Times of each way by regime. The ways take turns, there and back."""
    found = {way: {} for way in graphs}
    for regime in args.regime.split(","):
        times = {way: [] for way in graphs}
        for turn in range(2 * args.turns):
            for way in reversed(graphs) if turn % 2 else graphs:
                if regime == "rested":
                    times[way] += rested(graphs[way], args.samples)
                else:
                    times[way] += sustained(graphs[way], 0.05)
        for way, graph in graphs.items():
            found[way][regime] = {**quantiles(times[way], args.runs), "clock_mhz": clock(graph, regime == "rested")}
    return found


def clock(graph, is_rested):
    """The clock of the SMs while the graph runs; None where the driver's library for such questions is not there."""
    time.sleep(REST_S if is_rested else 0)
    for _ in range(4 if is_rested else 40):
        graph.replay()
    try:
        return torch.cuda.clock_rate()
    except Exception:  # the module that asks is not part of torch
        return None
    finally:
        torch.cuda.synchronize()


def points(args):
    """Blocks and layers at their sizes."""
    wanted = [[int(n) for n in text.split(",")] if text else [] for text in (args.batch, args.tokens)]
    for kind in args.kind or list(KINDS):
        batches, tokens = (given or sorted({size[i] for size in USUAL[kind]}) for i, given in enumerate(wanted))
        sizes = [(b, n) for b in ([1] if KINDS[kind][0] else batches) for n in tokens] if any(wanted) else USUAL[kind]
        for model in args.model or list(MODELS):
            yield from (Layer(model, kind, *size) for size in sizes)


def main():
    parser = arguments(__doc__, runs=12, seconds=600.0)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only these")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only these")
    parser.add_argument("--batch", help="sequences that generate a token, comma-separated")
    parser.add_argument("--tokens", help="tokens of a prompt, or of each sequence in the cache, comma-separated")
    parser.add_argument("--compile", action="store_true", help="torch.compile(max-autotune) too, which takes minutes")
    parser.add_argument("--cusync", metavar="LIBRARY", help="libcusync_c.so, with libcusync_kernels.so beside it: measure its pipelines too")
    parser.add_argument("--executor", default="auto", help="what runs cusync's pipelines, comma-separated, such as auto,serial")
    parser.add_argument("--regime", default="rested,sustained", help="comma-separated")
    parser.add_argument("--samples", type=int, default=8, help="of a way in each of its turns, rested")
    parser.add_argument("--turns", type=int, default=1, help="of each way, there and back")
    args = parser.parse_args()

    began = time.perf_counter()
    (dtype, name_of_dtype), generator = element(args), seeded()
    library = Library(args.cusync) if args.cusync else None
    records, own, skipped = [], [], []
    with torch.inference_mode():
        for layer in points(args):
            label = f"{layer.pipeline} {layer.dims}"
            if time.perf_counter() - began > args.seconds:
                skipped.append(f"{label}: the time limit")
                continue
            sets = [layer.tensors(dtype, generator) for _ in range(args.sets)]
            x = uniform((layer.rows, layer.columns), 1.0, dtype, generator)
            ways = [(f"eager, {name}", backend) for name, backend in BACKENDS.items()]
            ways = ([(f"cusync, {name}", name) for name in args.executor.split(",")] if library else []) + ways + ([("compiled", list(BACKENDS.values()))] if args.compile else [])
            graphs, pipelines = {}, []
            for way, backend in ways:  # where cusync runs, `backend` is its executor
                since = time.perf_counter()
                try:
                    if way.startswith("cusync"):
                        made = ours(library, layer, sets, x, backend)
                        pipelines += made
                        graphs[f"cusync, {made[0].executor}"] = capture(Pipeline.run, made, args.runs)
                        continue
                    with sdpa_kernel(backend):
                        run = compiled(layer, sets[0], x) if way == "compiled" else layer.run
                        graphs[way] = capture(lambda tensors: run(x, tensors), sets, args.runs)
                except Exception as fault:  # not every backend takes every shape
                    skipped.append(f"{label}, {way}: {str(fault).splitlines()[0] if str(fault) else repr(fault)}")
                if way == "compiled":
                    print(f"{label}, {way}: {time.perf_counter() - since:.1f} s to compile", flush=True)
            for way, times in measured(graphs, args).items():
                point = {"pipeline": layer.pipeline, "dims": layer.dims, "element": name_of_dtype, "way": way}
                (own if way.startswith("cusync") else records).extend({**point, "regime": regime, **found} for regime, found in times.items())
                print(f"{label}, {way}: " + ", ".join(f"{f['median_us']:.1f} us {r} ({f['clock_mhz']} MHz)" for r, f in times.items()), flush=True)
            graphs.clear()
            for pipeline in pipelines:
                pipeline.close()
            del sets, pipelines
            torch.cuda.empty_cache()
    return write(args, began, records, skipped, cusync=own)


if __name__ == "__main__":
    sys.exit(main())
