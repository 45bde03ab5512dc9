# SPDX-License-Identifier: MIT OR Apache-2.0
"""Blocks of today's models in PyTorch: those of BERT, Gemma-2, Mistral, Llama, MobileNetV2 and Stable Diffusion, at the sizes of
policies and of docs/results/operations.md. Each is compiled (`max-autotune-no-cudagraphs`) and captured in a graph, and judged
against itself in float32.
"""
import sys
import time

import torch
import torch.nn.functional as F

import pytorch_common as common


def attention(qkv, sequences, heads, kv_heads, causal=True, window=None, softcap=None, angles=None):
    """Heads of the columns of `qkv`, rotated if there are angles."""
    rows, columns = qkv.shape
    dim = columns // (heads + 2 * kv_heads)
    tokens = rows // sequences
    split = qkv.view(sequences, tokens, heads + 2 * kv_heads, dim).transpose(1, 2)
    q, k, v = split.split([heads, kv_heads, kv_heads], dim=1)
    if angles is not None:
        half = dim // 2
        cosines, sines = angles[:tokens, :half], angles[:tokens, half:]

        def turned(x):
            low, high = x[..., :half], x[..., half:]
            return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)

        q, k = turned(q), turned(k)
    mask = None
    if window or softcap:
        position = torch.arange(tokens, device=qkv.device)
        back = position[:, None] - position[None, :]
        mask = (back >= 0) & (back < (window or tokens))
    if softcap:
        k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        scores = torch.tanh(q @ k.transpose(-1, -2) / (dim**0.5 * softcap)) * softcap
        weights = torch.softmax(scores.float().masked_fill(~mask, float("-inf")), dim=-1).to(v.dtype)
        out = weights @ v
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal and mask is None, enable_gqa=heads != kv_heads
        )
    return out.transpose(1, 2).reshape(rows, heads * dim)


def rms_norm(x, gain, one=0.0):
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return (scaled * (gain.float() + one)).to(x.dtype)


def bert(w):
    x1 = torch.addmm(w["x"], attention(torch.addmm(w["bqkv"], w["x"], w["wqkv"]), 4, 12, 12, False), w["wo"]) + w["bo"]
    n1 = F.layer_norm(x1, (768,), w["g1"], w["b1"], 1e-12)
    up = F.gelu(torch.addmm(w["c1"], n1, w["w1"]))
    return F.layer_norm(torch.addmm(w["c2"], up, w["w2"]) + n1, (768,), w["g2"], w["b2"], 1e-12)


def gemma2(w):
    qkv = rms_norm(w["x"], w["g1"], 1.0) @ w["wqkv"]
    x1 = w["x"] + rms_norm(attention(qkv, 1, 16, 8, softcap=50.0, angles=w["cs"]) @ w["wo"], w["g2"], 1.0)
    n2 = rms_norm(x1, w["g3"], 1.0)
    inner = F.gelu(n2 @ w["wg"], approximate="tanh") * (n2 @ w["wu"])
    return x1 + rms_norm(inner @ w["wd"], w["g4"], 1.0)


def mistral(w):
    qkv = w["x"] @ w["wqkv"]
    return torch.addmm(w["x"], attention(qkv, 1, 32, 8, window=128, angles=w["cs"]), w["wo"])


def llama(w):
    qkv = w["x"] @ w["wqkv"]
    return torch.addmm(w["x"], attention(qkv, 2, 32, 8, angles=w["cs"]), w["wo"])


def mobilenet(w):
    """Images are NHWC in memory, as `channels_last` has them."""
    x = w["x"]
    rows = F.relu6(torch.addmm(w["b1"], x, w["w1"]))
    images = rows.view(-1, 56, 56, 144).permute(0, 3, 1, 2)
    depthwise = F.relu6(F.conv2d(images, w["f"], w["b2"], padding=1, groups=144))
    return torch.addmm(w["b3"], depthwise.permute(0, 2, 3, 1).reshape(-1, 144), w["w2"]) + x


def diffusion(w):
    x = w["x"].permute(0, 3, 1, 2)
    for n in (1, 2):
        x = F.conv2d(F.silu(F.group_norm(x, 32, w[f"g{n}"], w[f"h{n}"])), w[f"f{n}"], w[f"c{n}"], padding=1)
    return x + w["x"].permute(0, 3, 1, 2)


def shapes(rows, width, qkv, out, **more):
    return {"x": (rows, width), "wqkv": (width, qkv), "wo": (out, width), **more}


# Name: the block, the shapes of its tensors by name; weights are scaled by their rows.
BLOCKS = {
    "bert_erf": (bert, shapes(512, 768, 2304, 768, bqkv=(2304,), bo=(768,), g1=(768,), b1=(768,), g2=(768,), b2=(768,),
                              w1=(768, 3072), c1=(3072,), w2=(3072, 768), c2=(768,))),
    "gemma2_9b": (gemma2, shapes(128, 3584, 8192, 4096, cs=(128, 256), g1=(3584,), g2=(3584,), g3=(3584,), g4=(3584,),
                                 wg=(3584, 14336), wu=(3584, 14336), wd=(14336, 3584))),
    "mistral_swa": (mistral, shapes(256, 4096, 6144, 4096, cs=(256, 128))),
    "llama_prefill": (llama, shapes(400, 4096, 6144, 4096, cs=(200, 128))),
    "mobilenetv2": (mobilenet, {"x": (8 * 3136, 24), "w1": (24, 144), "b1": (144,), "f": (144, 1, 3, 3), "b2": (144,),
                                "w2": (144, 24), "b3": (24,)}),
    "sd_resnet": (diffusion, {"x": (1, 64, 64, 320), **{f"{k}{n}": (320,) for k in "ghc" for n in (1, 2)},
                              **{f"f{n}": (320, 320, 3, 3) for n in (1, 2)}}),
}


def tensors(sizes, dtype, generator):
    made = {}
    for name, shape in sizes.items():
        rows = shape[0] if len(shape) == 2 else shape[1] * 9 if len(shape) == 4 and name != "x" else 1
        scale = 1.0 if name in ("x", "cs") or rows == 1 else (3.0 / rows) ** 0.5
        made[name] = common.uniform(shape, scale, dtype, generator)
        if len(shape) == 4 and name != "x":
            made[name] = made[name].contiguous(memory_format=torch.channels_last)
    return made


def main():
    parser = common.arguments(__doc__, 20, 120.0)
    parser.add_argument("--only", nargs="*", choices=BLOCKS, help="these blocks alone")
    args = parser.parse_args()
    began, generator = time.perf_counter(), common.seeded()
    torch.backends.cudnn.benchmark = True
    dtype, name_of = common.element(args)
    records, skipped = [], []
    for name, (block, sizes) in BLOCKS.items():
        if args.only and name not in args.only:
            continue
        if time.perf_counter() - began > args.seconds:
            skipped.append(name)
            continue
        sets = [tensors(sizes, dtype, generator) for _ in range(args.sets)]
        compiled = torch.compile(block, fullgraph=True, mode="max-autotune-no-cudagraphs")
        with torch.no_grad():
            error = common.checked(compiled(sets[0]), block({k: v.float() for k, v in sets[0].items()}), 2e-2)
            times = {}
            for kind, run in (("eager", block), ("compiled", compiled)):
                times[kind] = common.quantiles(common.rested(common.capture(run, sets, args.runs), 15), args.runs)
        records.append({"block": name, "element": name_of, "error": error, **times})
        print(f"{name:14} {name_of} eager {times['eager']['median_us']:8.1f} us, compiled {times['compiled']['median_us']:8.1f} us")
    return common.write(args, began, records, skipped)


if __name__ == "__main__":
    sys.exit(main())
