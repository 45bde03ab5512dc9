#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Steps of Llama-shaped models split over the GPUs of one host (tensor parallelism) in PyTorch, as CUDA graphs: a peer of
`cusync model bench DIR --devices N`.

Needs python3 and torch with CUDA, nothing else. One process a GPU; each has its heads, its columns of the MLP, and the whole embedding and
head, as cusync has. The parts between sums are compiled by torch.compile; sums are NCCL's all-reduce (`nccl`) or the one-shot all-reduce of
symmetric memory (`symmetric`). A step is one graph: embedding, layers, head, argmax. It appends to caches at a fixed position, behind
`--cached` tokens. Weights are random; times are medians of wall time on rank 0, us.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

# model: (hidden width, layers, query heads, key/value heads, head size, inner width, vocabulary)
MODELS = {
    "llama32_1b": (2048, 16, 32, 8, 64, 8192, 128256),
    "llama31_8b": (4096, 32, 32, 8, 128, 14336, 128256),
}
DTYPE = torch.bfloat16


def normed(x, gain):
    return F.rms_norm(x, (x.shape[-1],), gain, 1e-5)


class Model:
    """One GPU's part of a model, and its step for `batch` sequences with `cached` tokens each."""

    def __init__(self, sizes, ranks, batch, cached):
        self.width, layers, heads, kv, self.dim, inner, vocabulary = sizes
        self.heads, self.kv, self.inner = heads // ranks, kv // ranks, inner // ranks
        self.batch, self.cached = batch, cached
        rows = (self.heads + 2 * self.kv) * self.dim

        def weight(n, k):
            return torch.empty((n, k), dtype=DTYPE, device="cuda").uniform_(-1.0, 1.0).mul_((3.0 / k) ** 0.5)

        def layer():
            cache = (batch, self.kv, cached + 1, self.dim)
            return {
                "qkv": weight(rows, self.width), "project": weight(self.width, self.heads * self.dim),
                "up": weight(2 * self.inner, self.width), "down": weight(self.width, self.inner),
                "keys": torch.randn(cache, dtype=DTYPE, device="cuda"), "values": torch.randn(cache, dtype=DTYPE, device="cuda"),
            }

        self.layers = [layer() for _ in range(layers)]
        self.gain = torch.ones(self.width, dtype=DTYPE, device="cuda")
        self.embedding, self.head = weight(vocabulary, self.width), weight(vocabulary, self.width)
        angles = cached * 500000.0 ** (-torch.arange(self.dim // 2, device="cuda") / (self.dim // 2))
        self.cos, self.sin = angles.cos().to(DTYPE), angles.sin().to(DTYPE)
        self.tokens = torch.zeros(batch, dtype=torch.long, device="cuda")

    def rotated(self, x):
        low, high = x.chunk(2, -1)
        return torch.cat((low * self.cos - high * self.sin, high * self.cos + low * self.sin), -1)

    def attend(self, x, layer):
        product = F.linear(normed(x, self.gain), layer["qkv"]).view(self.batch, 1, -1, self.dim).transpose(1, 2)
        q, k, v = product.split([self.heads, self.kv, self.kv], 1)
        layer["keys"][:, :, self.cached :] = self.rotated(k)
        layer["values"][:, :, self.cached :] = v
        mixed = F.scaled_dot_product_attention(self.rotated(q), layer["keys"], layer["values"], enable_gqa=True)
        return F.linear(mixed.transpose(1, 2).reshape(self.batch, -1), layer["project"])

    def mlp(self, x, layer):
        gate, up = F.linear(normed(x, self.gain), layer["up"]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, layer["down"])

    def last(self, x):
        return F.linear(normed(x, self.gain), self.head).argmax(-1)


def step(model, attend, mlp, last, summed):
    x = F.embedding(model.tokens, model.embedding)
    for layer in model.layers:
        x = x + summed(attend(x, layer))
        x = x + summed(mlp(x, layer))
    model.tokens.copy_(last(x))


def measure(rank, args, results):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.devices, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    for batch in args.batch:
        for cached in args.cached:
            model = Model(MODELS[args.model], args.devices, batch, cached)
            parts = [torch.compile(part, dynamic=False) for part in (model.attend, model.mlp, model.last)]

            def nccl(x):
                dist.all_reduce(x)
                return x

            ways = {"nccl": nccl}
            try:
                import torch.distributed._symmetric_memory as symmetric

                shared = symmetric.empty((batch, model.width), dtype=DTYPE, device="cuda")
                symmetric.rendezvous(shared, dist.group.WORLD.group_name)

                def one_shot(x):
                    shared.copy_(x)
                    return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", dist.group.WORLD.group_name)

                ways["symmetric"] = one_shot
            except Exception as why:  # an older torch, or GPUs that it does not take
                if rank == 0:
                    print(f"no symmetric memory: {why}", flush=True)
            graphs = {}
            for name, summed in ways.items():
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side), torch.no_grad():
                    for _ in range(3):
                        step(model, *parts, summed)
                torch.cuda.synchronize()
                dist.barrier()
                graphs[name] = torch.cuda.CUDAGraph()
                with torch.no_grad(), torch.cuda.graph(graphs[name]):
                    step(model, *parts, summed)
            times = {name: [] for name in graphs}
            for _ in range(args.turns):
                for name, graph in graphs.items():
                    torch.cuda.synchronize()
                    dist.barrier()
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    for _ in range(args.steps):
                        graph.replay()
                    torch.cuda.synchronize()
                    times[name].append((time.perf_counter() - begin) / args.steps * 1e6)
            if rank == 0:
                row = {"model": args.model, "devices": args.devices, "batch": batch, "cached": cached}
                row |= {f"{name}_us": statistics.median(t) for name, t in times.items()}
                print(json.dumps(row), flush=True)
                results.append(row)
            del graphs, model, parts
            torch.cuda.empty_cache()
            torch._dynamo.reset()
    dist.destroy_process_group()


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("--model", choices=MODELS, default="llama31_8b")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch", type=numbers, default=[1, 8, 32], metavar="N,N,...")
    parser.add_argument("--cached", type=numbers, default=[128, 2048], metavar="N,N,...")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--port", type=int, default=29517)
    args = parser.parse_args()
    with mp.Manager() as manager:
        results = manager.list()
        mp.spawn(measure, (args, results), nprocs=args.devices)
        with open(args.output, "w") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "rows": list(results)}, file, indent=1)


if __name__ == "__main__":
    main()
