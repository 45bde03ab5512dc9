#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Language models in transformers: a judge of `cusync model logits` and a peer of `cusync model bench`.

    pytorch_models.py write DIR --like llama32_1b [--layers N]   a checkpoint with random weights; --bare: config.json only
    pytorch_models.py judge DIR --cusync PATH                    logits beside float32, fp16 and bf16
    pytorch_models.py bench DIR --batch 1,8 --cached 128,2048    times of compiled steps, static cache

Needs python3, torch with CUDA and transformers. Every command writes one JSON object to standard output.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Sizes as published; TINY ones are for logits.
MODELS = {
    "llama32_1b": dict(
        model_type="llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, tie_word_embeddings=True,
    ),
    "llama31_8b": dict(
        model_type="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=500000.0, rope_scaling=dict(LLAMA3_ROPE, factor=8.0), tie_word_embeddings=False,
    ),
    "mistral_7b": dict(
        model_type="mistral", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=32768, max_position_embeddings=32768, rms_norm_eps=1e-5,
        rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False,
    ),
    "qwen25_7b": dict(
        model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064, max_position_embeddings=32768, rms_norm_eps=1e-6,
        rope_theta=1000000.0, tie_word_embeddings=False,
    ),
    "qwen3_8b": dict(
        model_type="qwen3", hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960, rms_norm_eps=1e-6,
        rope_theta=1000000.0, tie_word_embeddings=False,
    ),
    "phi4": dict(
        model_type="phi3", hidden_size=5120, intermediate_size=17920, num_hidden_layers=40, num_attention_heads=40,
        num_key_value_heads=10, vocab_size=100352, max_position_embeddings=16384, rms_norm_eps=1e-5,
        rope_theta=250000.0, sliding_window=None, tie_word_embeddings=False, pad_token_id=0,
    ),
}


def configuration(name, layers):
    fields = dict(MODELS[name])
    if layers:
        fields["num_hidden_layers"] = layers
    kind = fields.pop("model_type")
    return AutoConfig.for_model(kind, architectures=[f"{kind.capitalize()}ForCausalLM"], **fields)


def seeded(config, dtype):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    for name, parameter in model.named_parameters():
        # Biases start at zero, which would hide them.
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model.eval()


def write(args):
    if args.bare:
        configuration(args.like, args.layers).save_pretrained(args.folder)
        return {"folder": args.folder, "model": args.like}
    model = seeded(configuration(args.like, args.layers), getattr(torch, args.dtype))
    model.save_pretrained(args.folder)
    size = sum(p.numel() for p in model.parameters())
    return {"folder": args.folder, "model": args.like, "parameters": size}


def error(have, want):
    return ((have.double() - want.double()).norm() / want.double().norm()).item()


@torch.inference_mode()
def judge(args):
    """Errors in norm against float32 of the same weights, and the share of tokens whose most likely successor agrees."""
    stored = AutoModelForCausalLM.from_pretrained(args.folder, dtype="auto", attn_implementation="sdpa").cuda().eval()
    config, dtype = stored.config, next(stored.parameters()).dtype
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, config.vocab_size, (1, args.tokens), generator=generator)
    own = stored(tokens.cuda()).logits[0].float().cpu()
    want = stored.float()(tokens.cuda()).logits[0].cpu()
    del stored
    torch.cuda.empty_cache()
    report = {"model": args.folder, "tokens": args.tokens, "dtype": str(dtype).removeprefix("torch."), "torch": error(own, want)}
    for label, extra in {"steps": [], "prompt": ["--prompt", str(args.tokens // 2)], "cpu": ["--cpu"]}.items():
        if label == "cpu" and not args.cpu:
            continue
        with tempfile.NamedTemporaryFile() as file:
            named = ",".join(map(str, tokens[0].tolist()))
            command = [args.cusync, "model", "logits", args.folder, "--tokens", named, "-o", file.name, "--json", *extra]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                report[label] = {"failed": done.stderr[-600:]}
                continue
            have = torch.frombuffer(bytearray(Path(file.name).read_bytes()), dtype=torch.float32).view(-1, config.vocab_size)
        rows = want[-have.shape[0]:]
        same = (have.argmax(-1) == rows.argmax(-1)).float().mean().item()
        own_same = (own[-have.shape[0]:].argmax(-1) == rows.argmax(-1)).float().mean().item()
        report[label] = {
            "error": error(have, rows), "torch_error": error(own[-have.shape[0]:], rows), "same_token": same,
            "torch_same_token": own_same, "place": json.loads(done.stdout)["next"].rsplit(" on ", 1)[-1],
        }
    return report


@torch.inference_mode()
def bench(args):
    config = AutoConfig.from_pretrained(args.folder)
    dtype = getattr(torch, args.dtype)
    model = seeded(config, dtype)
    points = []
    for batch in args.batch:
        for cached in args.cached:
            longest = cached + 1024
            cache = StaticCache(config=config, max_cache_len=longest)
            ids = torch.randint(0, config.vocab_size, (batch, cached), device="cuda")

            def step(token, position):
                out = model(
                    input_ids=token, past_key_values=cache, cache_position=position, position_ids=position[None].expand(batch, 1),
                    use_cache=True,
                )
                return out.logits[:, -1].argmax(-1, keepdim=True)

            torch._dynamo.reset()
            began = time.time()
            prompt = torch.arange(cached, device="cuda")
            model(input_ids=ids, past_key_values=cache, cache_position=prompt, use_cache=True, logits_to_keep=1)
            torch.cuda.synchronize()
            compiled = torch.compile(step, mode=args.mode, dynamic=False)
            token, position = ids[:, -1:].clone(), torch.tensor([cached], device="cuda")
            for _ in range(4):
                token = compiled(token, position).clone()
            torch.cuda.synchronize()
            compile_s = time.time() - began
            times, begin = [], time.time()
            while len(times) < 10 or time.time() - begin < args.seconds:
                start = time.perf_counter()
                for _ in range(10):
                    token = compiled(token, position).clone()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - start) / 10)
            firsts = []
            if batch == 1:
                for _ in range(5):
                    cache.reset()
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    out = model(input_ids=ids, past_key_values=cache, cache_position=prompt, use_cache=True, logits_to_keep=1)
                    out.logits[:, -1].argmax(-1).item()
                    firsts.append(time.perf_counter() - start)
            points.append({
                "batch": batch, "cached": cached, "step_us": statistics.median(times) * 1e6, "compile_s": compile_s,
                "first_token_ms": statistics.median(firsts) * 1e3 if firsts else None, "mode": args.mode,
            })
            print(points[-1], file=sys.stderr, flush=True)
    return {"model": args.folder, "device": torch.cuda.get_device_name(), "torch": torch.__version__, "points": points}


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command in (write, judge, bench):
        sub = commands.add_parser(command.__name__)
        sub.set_defaults(run=command)
        sub.add_argument("folder", metavar="DIR")
        sub.add_argument("--dtype", default="bfloat16", choices=["float16", "bfloat16"])
        if command is write:
            sub.add_argument("--like", required=True, choices=sorted(MODELS))
            sub.add_argument("--layers", type=int, default=0)
            sub.add_argument("--bare", action="store_true")
        if command is judge:
            sub.add_argument("--cusync", default="cusync")
            sub.add_argument("--tokens", type=int, default=200)
            sub.add_argument("--cpu", action="store_true", help="also on the host")
        if command is bench:
            sub.add_argument("--batch", type=numbers, default=[1])
            sub.add_argument("--cached", type=numbers, default=[128])
            sub.add_argument("--mode", default="max-autotune")
            sub.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    print(json.dumps(args.run(args)))


if __name__ == "__main__":
    main()
