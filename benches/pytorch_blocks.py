#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Blocks of today's models: values and times of cusync and of PyTorch's own modules, in one process at real sizes.

Needs the wheel of cusync, torch and transformers. A block is a page of `blocks` or `policies` and a module of transformers (of torch for the two of
convolutions) with the same random weights and input; cusync reads them in place, matrices as K x N. The reference is the module in float32 on the
same rounded values, rotary tables too. A result is right if its error in norm is at most `SHARE` of the error that torch's eager module makes in the
element type, plus `ALLOWANCE`. Method of times as in pytorch_common.py: all ways are CUDA graphs of `--runs` runs, take turns, there and back, and
share inputs; so many sets of weights take turns that they come from memory, where eight can. `--cpu` compares values alone, on the host.
"""
import argparse
import copy
import json
import math
import sys
import time
import traceback
from pathlib import Path

import torch

import cusync
from pytorch_block_modules import BLOCKS, randomized
from pytorch_common import capture
from pytorch_layer import measured

SHARE, ALLOWANCE, COARSE = 1.1, 1e-5, 2e-2
MOST_SETS = 8
ROOT = Path(__file__).resolve().parents[1]


def rows(y):
    """The rows of cusync: tokens, or pixels of NHWC images."""
    y = y.permute(0, 2, 3, 1) if y.ndim == 4 else y
    return y.reshape(-1, y.shape[-1])


class Set:
    """Weights and an input, the module that computes with them, and cusync's pipeline on the same values."""

    def __init__(self, name, block, dims, device):
        page = str(ROOT / block.folder / f"{block.page or name}.ron")
        self.pipeline = cusync.Pipeline(page, dims, device="cpu" if device == "cpu" else "gpu")
        self.element = torch.bfloat16 if self.pipeline.element == "bf16" else torch.float16
        with torch.device(device):
            self.net = randomized(block.make(dims), self.element)
        shape = [dims.get(dim, 1) if isinstance(dim, str) else dim for dim in block.shape]
        x = torch.randn(shape, device=device).to(self.element)
        self.x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
        inputs = self.pipeline.inputs
        self.given = {name: tensor.detach() for name, tensor in {**block.tensors(self.net), "X": rows(self.x)}.items() if name in inputs}
        self.out = {} if device == "cpu" else {"Z": torch.empty(self.pipeline.shape("Z"), dtype=self.element, device=device)}
        self.bytes = sum(tensor.nbytes for tensor in self.given.values())

    def ours(self):
        """Runs cusync once and returns what it wrote."""
        result = self.pipeline.run(self.given, out=self.out)
        cached = [name for name in "KV" if name in self.given]
        if self.out:
            return result | {name: self.given[name][:, :, self.net.first] for name in cached}
        read = lambda name: torch.from_numpy(self.pipeline.read(name, dtype="float32").copy())
        return {"Z": read("Z")} | {name: read(name).view(self.given[name].shape)[:, :, self.net.first] for name in cached}

    def theirs(self, net):
        """Runs a module on the same input."""
        results = {"Z": rows(net(self.x.to(next(net.parameters()).dtype)))}
        if "K" in self.given:
            results |= {"K": net.keys[:, :, net.first].clone(), "V": net.values[:, :, net.first].clone()}
        return results


def judged(each):
    """Errors of cusync and of torch's eager module against float32, of each result: in norm, and of the worst element by the mean size of all."""
    wanted, theirs, ours = each.theirs(copy.deepcopy(each.net).float()), each.theirs(each.net), each.ours()
    found = []
    for name, want in wanted.items():
        norm, size = want.double().norm(), want.abs().mean()
        pairs = {"error": ours[name], "torch_error": theirs[name]}
        row = {"tensor": name}
        for key, got in pairs.items():
            difference = got.to(want.device).reshape(want.shape).double() - want.double()
            row[key], row[f"worst_{key}"] = (difference.norm() / norm).item(), (difference.abs().max() / size).item()
        row["right"] = row["error"] <= SHARE * row["torch_error"] + ALLOWANCE  # not if it is NaN
        found.append(row)
    return found


def close(got, want, names):
    """Raises unless two results in the element type are those of the same block; `judged` is stricter."""
    error = ((got.float() - want.float()).norm() / want.float().norm()).item()
    if not error < COARSE:
        bad = [int((~torch.isfinite(side)).sum()) for side in (got, want)]
        raise ValueError(f"{names} differ by {error:.1e} in norm, and have {bad[0]} and {bad[1]} values that are not finite")


def compiled(args, sets, wanted):
    """The modules compiled, each as one graph; an error where torch cannot."""
    torch._dynamo.reset()
    run = torch.compile(lambda each: each.net(each.x), mode=args.mode, dynamic=False, fullgraph=True)
    for each, want in zip(sets, wanted):
        close(run(each), want, "compiled and eager")
    return run


def graphs_of(args, block, sets, wanted, failed):
    """A CUDA graph of each way to compute the block. `failed` gets the reasons of ways that have none."""
    eager = lambda each: each.net(each.x)
    stream = lambda: torch.cuda.current_stream().cuda_stream

    def checked():
        for each, want in zip(sets, wanted):
            close(eager(each), want, "another implementation and the usual one")
        return eager

    # `Pipeline.run` binds `out` anew, which a capture does not allow; all is bound since the values were compared.
    ways = {"cusync": (lambda: lambda each: each.pipeline._native.run(stream()), "", None)}
    for word, field, value in (("", "", None), *block.more):
        ways[f"eager {word}".strip()] = (checked, field, value)
        if args.compile:
            ways[f"compiled {word}".strip()] = (lambda: compiled(args, sets, wanted), field, value)
    found = {}
    configs = {id(module.config): module.config for each in sets for module in each.net.modules() if getattr(module, "config", None) is not None}.values()
    for way, (make, field, value) in ways.items():
        usual = [getattr(config, field, None) for config in configs]
        for config in configs if value else ():
            setattr(config, field, value)
        try:
            found[way] = capture(make(), sets, args.runs)
        except Exception as fault:
            failed[way] = f"{type(fault).__name__}: {fault}"[:500]
        for config, name in zip(configs, usual):
            if value:
                setattr(config, field, name)
    return found


def record(args, name, device):
    """Values and times of a block."""
    block = BLOCKS[name]
    page = (ROOT / block.folder / f"{block.page or name}.ron").read_text(encoding="utf-8")
    stated = page.partition("dims: {")[2].partition("}")[0]
    dims = {dim.strip(' "'): int(size) for dim, size in (pair.split(":") for pair in stated.split(",") if ":" in pair)}
    dims |= block.small if args.small else block.dims
    torch.manual_seed(1)
    first = Set(name, block, dims, device)
    results = judged(first)
    made = {"block": name, "dims": dims, "element": first.pipeline.element, "executor": first.pipeline.executor, "bytes": first.bytes}
    made |= {"right": all(row["right"] for row in results), "results": results}
    if device == "cpu":
        return made
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(MOST_SETS, max(2, math.ceil(2.5 * cache / first.bytes)))
    sets = [first] + [Set(name, block, dims, device) for _ in range(count - 1)]
    for each in sets[1:]:
        each.ours()
    made |= {"sets": count, "l2_bytes": cache, "weights": "from memory" if count * first.bytes > 2 * cache else "may stay in the L2 cache", "failed": {}}
    wanted = [each.net(each.x) for each in sets]
    graphs = graphs_of(args, block, sets, wanted, made["failed"])
    made["times"] = measured(graphs, args)
    for each, want in zip(sets, wanted):
        close(each.out["Z"], rows(want), "results of graphs by cusync and eager")
    fault = first.pipeline._native.fault()
    if fault:
        raise RuntimeError(fault)
    return made


def line(made):
    """A row of the table."""
    if "error" in made:
        return f"{made['block']:22} {made['error'].splitlines()[0]}"
    worst = max(made["results"], key=lambda row: row["error"] / max(row["torch_error"], ALLOWANCE))
    text = f"{made['block']:22} {made['element']:4} {made['executor']:8} {'right' if made['right'] else 'WRONG'} {worst['error']:.2e} (torch {worst['torch_error']:.2e}, {worst['tensor']})"
    for way, regimes in made.get("times", {}).items():
        text += f" | {way} " + ", ".join(f"{found['median_us']:.1f} us {regime} {found['clock_mhz']} MHz" for regime, found in regimes.items())
    return text + "".join(f" | {way}: {why.splitlines()[0]}" for way, why in made.get("failed", {}).items())


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="JSON file to write, after every block")
    parser.add_argument("--only", help=f"names, comma-separated, of {', '.join(BLOCKS)}")
    parser.add_argument("--seconds", type=float, default=540.0, help="start no block after so many seconds")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out torch.compile, which takes minutes")
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs", help="of torch.compile")
    parser.add_argument("--cpu", action="store_true", help="values only, by the cpu executor and torch on the host")
    parser.add_argument("--small", action="store_true", help="small sizes")
    parser.add_argument("--runs", type=int, default=24, help="runs of a graph")
    parser.add_argument("--samples", type=int, default=8, help="of a way in each of its turns, rested")
    parser.add_argument("--turns", type=int, default=2, help="of each way, there and back")
    args = parser.parse_args(given)
    args.regime = "rested,sustained"
    device = "cpu" if args.cpu else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # the reference is float32
    torch._dynamo.config.recompile_limit = 2 * MOST_SETS
    began, records = time.perf_counter(), []
    for name in args.only.split(",") if args.only else BLOCKS:
        if time.perf_counter() - began > args.seconds:
            records.append({"block": name, "error": "the time limit"})
        else:
            try:
                with torch.no_grad():
                    records.append(record(args, name, device))
            except Exception as fault:
                records.append({"block": name, "error": str(fault) or repr(fault), "trace": traceback.format_exc()[-2000:]})
        records[-1]["at_s"] = time.perf_counter() - began
        print(line(records[-1]), flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
        if args.out:
            machine = "cpu" if args.cpu else torch.cuda.get_device_name()
            report = {"device": machine, "torch": torch.__version__, "mode": args.mode, "runs": args.runs, "share": SHARE, "allowance": ALLOWANCE}
            Path(args.out).write_text(json.dumps({**report, "records": records}, indent=1), encoding="utf-8")
    return 0 if all(made.get("right") for made in records) else 1


if __name__ == "__main__":
    sys.exit(main())
