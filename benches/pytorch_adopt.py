#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Captured graphs of PyTorch, rescheduled by cusync: equality with their own replay, and times of both, one JSON line for each block.

Needs the wheel of cusync and torch 2.8 or newer. Blocks are written as models write them, in bfloat16 with random weights: a decoder layer of
Llama 3.1 8B for one token of 1 and 8 sequences with 2048 cached tokens, with separate layers for q, k, v, gate and up; a block with attention and
MLP side by side (GPT-J 6B); and 8 dense experts in a Python loop. `own_us` is the usual capture of the same code, `ours_us` the rescheduled
graph; each is the median of samples of `--runs` replays, taken in turns. Of `--checks` replays, `unequal` leave other bits in the memory that the
block writes than torch's replay of the same nodes, and `own_unequal` of torch's own replays do. cuDNN's attention, which torch prefers, does not
always repeat its bits; `--sdpa flash` does.
"""
import argparse
import json
import statistics
import sys

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from cusync.torch import reschedule
from pytorch_common import capture

CACHED = 2048


def linear(inputs, outputs, bias=False):
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    torch.nn.init.uniform_(layer.weight, -(inputs**-0.5), inputs**-0.5)
    return layer


class Attention(torch.nn.Module):
    """Attention of one new token of each sequence, which it appends to its caches."""

    def __init__(self, batch, width, heads, kv_heads, head):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, head
        self.q, self.k, self.v = (linear(width, n * head) for n in (heads, kv_heads, kv_heads))
        self.o = linear(heads * head, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, kv_heads, CACHED, head))
        angles = torch.outer(torch.tensor([CACHED - 1.0]), 10000.0 ** -torch.linspace(0, 1, head // 2)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def rotated(self, x):
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def forward(self, x):
        split = lambda y, heads: y.view(x.shape[0], 1, heads, self.head).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.kv_heads), split(self.v(x), self.kv_heads)
        q, k = self.rotated(q), self.rotated(k)
        self.keys[:, :, CACHED - 1 :] = k
        self.values[:, :, CACHED - 1 :] = v
        y = functional.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=self.heads != self.kv_heads)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Gated(torch.nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class LlamaLayer(torch.nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.before, self.after = torch.nn.RMSNorm(4096), torch.nn.RMSNorm(4096)
        self.attention, self.mlp = Attention(batch, 4096, 32, 8, 128), Gated(4096, 14336)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class ParallelBlock(torch.nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4096)
        self.attention = Attention(batch, 4096, 16, 16, 256)
        self.up, self.down = linear(4096, 16384, bias=True), linear(16384, 4096, bias=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y) + self.down(functional.gelu(self.up(y), approximate="tanh"))


class Experts(torch.nn.Module):
    def __init__(self, _):
        super().__init__()
        self.router = linear(2048, 8)
        self.experts = torch.nn.ModuleList(Gated(2048, 1408) for _ in range(8))

    def forward(self, x):
        scores = self.router(x).softmax(dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out += scores[..., number : number + 1] * expert(x)
        return out


BLOCKS = {"llama": (LlamaLayer, 4096, (1, 8)), "parallel": (ParallelBlock, 4096, (1, 8)), "experts": (Experts, 2048, (1, 16))}


def medians(replays, samples, runs):
    """The median time of a replay of each, in microseconds, there and back."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = {name: [] for name in replays}
    names = list(replays)
    for sample in range(samples + 2):
        for name in names if sample % 2 else reversed(names):
            begin.record()
            for _ in range(runs):
                replays[name]()
            end.record()
            end.synchronize()
            if sample > 1:
                times[name].append(begin.elapsed_time(end) * 1e3 / runs)
    return {name: statistics.median(values) for name, values in times.items()}


def state(net, output):
    return [output.clone(), *(buffer.clone() for buffer in net.buffers())]


def differing(replay, net, x, ours, checks):
    """How many of so many replays leave other bits than torch's replay of the same input.

    A replay of another input lies between both, so that what a node reads too early is wrong.
    """
    count = 0
    for _ in range(checks):
        given, other = torch.randn_like(x), torch.randn_like(x)
        x.copy_(given)
        ours.graph.replay()
        want = state(net, ours.output)
        x.copy_(other)
        ours.graph.replay()
        x.copy_(given)
        replay()
        count += not all(map(torch.equal, want, state(net, ours.output)))
    return count


def measured(name, batch, args):
    make, width, _ = BLOCKS[name]
    with torch.device("cuda"):
        net = make(batch).bfloat16().eval()
        x = torch.randn(batch, 1, width).bfloat16()
    backend = SDPBackend.FLASH_ATTENTION if args.sdpa == "flash" else SDPBackend.CUDNN_ATTENTION
    with torch.no_grad(), sdpa_kernel(backend):
        plain = capture(lambda tensor: net(tensor), [x], 1)
        ours = reschedule(lambda: net(x), constants=[net], form=args.form, streams=args.streams, workspaces=args.workspaces)
    unequal, own_unequal = (differing(replay, net, x, ours, args.checks) for replay in (ours.replay, ours.graph.replay))
    replays = {"own": plain.replay, "own nodes": ours.graph.replay, "ours": ours.replay}
    times = medians(replays, args.samples, args.runs)
    record = {
        "block": name,
        "batch": batch,
        "unequal": unequal,
        "own_unequal": own_unequal,
        "own_us": round(times["own"], 2),
        "ours_us": round(times["ours"], 2),
        "same_nodes_us": round(times["own nodes"], 2),
        "speedup": round(times["own"] / times["ours"], 3),
    }
    print(json.dumps(record | ours.report), flush=True)
    # Some kernels do not repeat their own bits: cuDNN's attention, for example.
    return unequal == 0 or own_unequal > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", nargs="*", default=list(BLOCKS), help=f"of {', '.join(BLOCKS)}")
    parser.add_argument("--runs", type=int, default=50, help="replays of a sample")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--checks", type=int, default=100, help="replays that are compared")
    parser.add_argument("--form", help="a form of the schedule; the default is the chosen one")
    parser.add_argument("--streams", type=int, help="at most so many nodes at a time")
    parser.add_argument("--sdpa", choices=("cudnn", "flash"), default="cudnn", help="kernels of attention")
    parser.add_argument("--workspaces", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(1)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    outcomes = [measured(name, batch, args) for name in args.blocks for batch in BLOCKS[name][2]]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
