# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inputs, graphs and times of the PyTorch peers. Method as in benches/src: uniform random inputs; several sets of weights in
rotation, so that weights never come from the L2 cache; a sample is one replay of a graph of `--runs` runs; rested = idle for 3 ms
before a sample, sustained = back to back for a window, its first fifth dropped.
"""
import argparse
import json
import math
import statistics
import time

import torch

REST_S = 3e-3
WARM_SAMPLES = 3


def arguments(doc, runs, seconds):
    """The parser of a peer, with the options that all have."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 in place of fp16")
    parser.add_argument("--sets", type=int, default=4, help="sets of weights (and images or caches) in rotation")
    parser.add_argument("--runs", type=int, default=runs, help="runs of a graph")
    parser.add_argument("--seconds", type=float, default=seconds, help="stop after so many seconds")
    return parser


def element(args):
    """The element type, and its name in records."""
    return (torch.bfloat16, "bf16") if args.bf16 else (torch.float16, "f16")


def seeded():
    generator = torch.Generator(device="cuda")
    generator.manual_seed(1)
    return generator


def uniform(shape, scale, dtype, generator):
    """Uniform in (-scale, scale)."""
    values = torch.empty(shape, dtype=torch.float32, device="cuda")
    values.uniform_(-scale, scale, generator=generator)
    return values.to(dtype)


def checked(got, want, tolerance):
    """The relative L2 error of a result; raises if it is too large."""
    error = ((got.float() - want.float()).norm() / want.float().norm()).item()
    if not error < tolerance:
        raise ValueError(f"relative error {error:.2e}")
    return error


def capture(run, sets, runs):
    """A graph of so many runs, which take the sets in turn; each has run before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for tensors in sets:
            for _ in range(2):
                run(tensors)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(runs):
            run(sets[number % len(sets)])
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def rested(graph, samples, warm=WARM_SAMPLES):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(warm + samples):
        time.sleep(REST_S)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return times[warm:]


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


def in_turns(graphs, samples, window_s):
    """Times of several graphs, at rest sample by sample in turns, and back to back in a window each; by name and regime."""
    times = {(name, "rested"): [] for name in graphs}
    for _ in range(samples):
        for name, graph in graphs.items():
            times[name, "rested"] += rested(graph, 1, warm=0 if times[name, "rested"] else WARM_SAMPLES)
    for name, graph in graphs.items():
        times[name, "sustained"] = sustained(graph, min(0.25, max(0.02, window_s)))
    return times


def both_regimes(graph, samples, share_s):
    """Times at rest and back to back, in a share of the time limit."""
    return {regime: times for (_, regime), times in in_turns({"": graph}, samples, share_s).items()}


def percentile(times, fraction):
    ordered = sorted(times)
    place = fraction * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def quantiles(times, runs):
    """The times of one run, as a record has them."""
    times = [t / runs for t in times]
    return {
        "median_us": statistics.median(times),
        "p10_us": percentile(times, 0.1),
        "p90_us": percentile(times, 0.9),
        "samples": len(times),
    }


def write(args, began, records, skipped, **more):
    """Writes the report and returns the exit status."""
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "sets": args.sets,
        "runs": args.runs,
        "seconds": time.perf_counter() - began,
        **more,
        "records": records,
        "skipped": skipped,
    }
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=1)
    print(f"{len(records)} records, {len(skipped)} skipped, {report['seconds']:.1f} s -> {args.output}")
    for line in skipped:
        print("not measured:", line)
    return 0 if records else 1
