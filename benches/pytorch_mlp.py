#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The MLPs in PyTorch, as CUDA graphs: a peer for `cusync bench mlp --pytorch FILE.json`.

Needs python3 and torch with CUDA, nothing else. Method as in pytorch_common.py; inputs are in (-1, 1) for activations and in
(-3, 3) / sqrt(K) for weights. Weights are stored K x N and N x K, the activation of a gated MLP is one fused kernel where torch
can compile one; every combination is a record, and the reader takes the fastest. Every result is compared with float32 first.
"""
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from pytorch_common import REST_S, arguments, both_regimes, capture, checked, element, quantiles, seeded, sustained, uniform, write

# name: (hidden width, inner width per GPU, gated)
PIPELINES = {
    "gpt3_mlp": (12288, 6144, False),
    "llama65_mlp": (8192, 2752, True),
    "llama3_70b_mlp": (8192, 3584, True),
}
SIZES = [1, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096]
RESTED_SAMPLES = 15
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 1.6e-2}  # torch may reduce split sums in 16 bits

SILU_MUL = """
template <typename T> T silu_mul(T gate, T up) {
  float const g = static_cast<float>(gate);
  return static_cast<T>(g / (1.0f + expf(-g)) * static_cast<float>(up));
}
"""


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

    def run(self, x, pair, gate):
        first, second = pair
        product = self.product(x, first)
        inner = gate(product, self.inner) if self.gated else F.gelu(product, approximate="tanh")
        return self.product(inner, second)

    def error(self, x, gate):
        """Relative L2 error of set 0 against float32, over the first rows; raises if it is too large."""
        first, second = (w.float() if self.layout == "KxN" else w.float().t() for w in self.sets[0])
        rows = x[:32]
        product = rows.float() @ first
        inner = eager_gate(product, self.inner) if self.gated else F.gelu(product, approximate="tanh")
        want = inner.to(x.dtype).float() @ second
        return checked(self.run(x, self.sets[0], gate)[:32], want, TOLERANCE[x.dtype])


def main():
    parser = arguments(__doc__, runs=20, seconds=55.0)
    parser.add_argument("--pipeline", action="append", choices=sorted(PIPELINES), help="only these")
    parser.add_argument("--m", default=",".join(map(str, SIZES)), help="tokens in flight, comma-separated")
    parser.add_argument("--layout", default="KxN,NxK", help="storage of weights, comma-separated")
    args = parser.parse_args()

    began = time.perf_counter()
    (dtype, name_of_dtype), generator = element(args), seeded()
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
                    label = "gelu" if not weights.gated else "fused" if fused else "eager"
                    try:
                        error = weights.error(inputs[m], gate)
                        graph = capture(lambda pair: weights.run(inputs[m], pair, gate), weights.sets, args.runs)
                        one = sustained(graph, 0.0)
                        fits = int(0.3 * share / (REST_S + statistics.median(one) * 1e-6))
                        measured = both_regimes(graph, max(5, min(RESTED_SAMPLES, fits)), 0.4 * share)
                    except Exception as fault:  # one size must not cost the others
                        skipped.append(f"{name} M = {m} {layout} {label}: {fault}")
                        continue
                    for regime, times in measured.items():
                        records.append({
                            "pipeline": name,
                            "dims": {"M": m},
                            "element": name_of_dtype,
                            "layout": layout,
                            "activation": label,
                            "regime": regime,
                            **quantiles(times, args.runs),
                            "rel_l2_err": error,
                        })
                    del graph
                del weights
                torch.cuda.empty_cache()
    return write(args, began, records, skipped, cuda=torch.version.cuda)


if __name__ == "__main__":
    sys.exit(main())
