#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Language models in transformers: a judge of `cusync model logits`, and the peer that `cusync model bench` starts.

    pytorch_models.py write DIR --like llama32_1b [--layers N]   a checkpoint with random weights; --bare: config.json only
    pytorch_models.py judge DIR --cusync PATH                    logits beside float32, fp16 and bf16
    pytorch_models.py serve                                      jobs of `cusync model bench`

Needs python3, torch from 2.5 and transformers from 5. `write` and `judge` print one JSON object.
"""
import argparse
import gc
import inspect
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ANSWERS = sys.stdout
if sys.argv[1:2] == ["serve"]:
    # Libraries may print to standard output, too.
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
try:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache
except Exception as error:
    if sys.argv[1:2] != ["serve"]:
        raise
    print(json.dumps({"missing": str(error).splitlines()[0]}), file=ANSWERS)
    sys.exit()

# Steps of a sample, as ours has.
STEPS = 16
# Tokens that a static cache has room for behind the cached ones: the steps of a sample, and a whole block of kernels.
ROOM = 64

LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
GEMMA2 = dict(
    model_type="gemma2", vocab_size=256000, max_position_embeddings=8192, rms_norm_eps=1e-6, rope_theta=10000.0,
    hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=4096,
)
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
    "phi3_mini": dict(
        model_type="phi3", hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=32, vocab_size=32064, max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=10000.0,
        sliding_window=2047, tie_word_embeddings=False, pad_token_id=0,
    ),
    "phi4": dict(
        model_type="phi3", hidden_size=5120, intermediate_size=17920, num_hidden_layers=40, num_attention_heads=40,
        num_key_value_heads=10, vocab_size=100352, max_position_embeddings=16384, rms_norm_eps=1e-5,
        rope_theta=250000.0, sliding_window=None, tie_word_embeddings=False, pad_token_id=0,
    ),
    "qwen3_30b_a3b": dict(
        model_type="qwen3_moe", hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, vocab_size=151936, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000.0,
        tie_word_embeddings=False,
    ),
    "mixtral_8x7b": dict(
        model_type="mixtral", hidden_size=4096, intermediate_size=14336, num_local_experts=8, num_experts_per_tok=2,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=32000,
        max_position_embeddings=32768, rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None,
        tie_word_embeddings=False,
    ),
    "gemma2_2b": dict(
        GEMMA2, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256,
    ),
    "gemma2_9b": dict(
        GEMMA2, hidden_size=3584, intermediate_size=14336, num_hidden_layers=42, num_attention_heads=16,
        num_key_value_heads=8, head_dim=256, query_pre_attn_scalar=256,
    ),
    "gemma2_27b": dict(
        GEMMA2, hidden_size=4608, intermediate_size=36864, num_hidden_layers=46, num_attention_heads=32,
        num_key_value_heads=16, head_dim=128, query_pre_attn_scalar=144,
    ),
    "gemma3_1b": dict(
        model_type="gemma3_text", vocab_size=262144, max_position_embeddings=32768, rms_norm_eps=1e-6,
        rope_theta=1000000.0, rope_local_base_freq=10000.0, hidden_activation="gelu_pytorch_tanh", sliding_window=512,
        hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1,
        head_dim=256, query_pre_attn_scalar=256,
    ),
    "gemma3_4b": dict(
        model_type="gemma3_text", vocab_size=262208, max_position_embeddings=131072, rms_norm_eps=1e-6,
        rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0),
        hidden_activation="gelu_pytorch_tanh", sliding_window=1024, hidden_size=2560, intermediate_size=10240,
        num_hidden_layers=34, num_attention_heads=8, num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256,
    ),
    "phi4_mini": dict(
        model_type="phi3", hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=24,
        num_key_value_heads=8, vocab_size=200064, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=10000.0,
        partial_rotary_factor=0.75, sliding_window=None, tie_word_embeddings=True, pad_token_id=0,
    ),
    "granite33_2b": dict(
        model_type="granite", hidden_size=2048, intermediate_size=8192, num_hidden_layers=40, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=49159, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=1e7,
        embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0,
        tie_word_embeddings=True,
    ),
    "smollm3_3b": dict(
        model_type="smollm3", hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=128256, max_position_embeddings=65536, rms_norm_eps=1e-6, rope_theta=5e6,
        no_rope_layers=[1, 1, 1, 0] * 9, sliding_window=None, tie_word_embeddings=True,
    ),
}


def configuration(name, layers):
    fields = dict(MODELS[name])
    if layers:
        fields["num_hidden_layers"] = layers
    kind = fields.pop("model_type")
    config = AutoConfig.for_model(kind, **fields)
    config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__name__]
    return config


def attention(config):
    """PyTorch's own attention, which needs no other package; it has no bound of scores."""
    return "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"


def stored(folder, dtype):
    config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention(config)).eval()


def seeded(config, dtype, device):
    torch.manual_seed(1)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention(config))
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
    model = seeded(configuration(args.like, args.layers), getattr(torch, args.dtype), args.device)
    model.save_pretrained(args.folder)
    size = sum(p.numel() for p in model.parameters())
    return {"folder": args.folder, "model": args.like, "parameters": size}


def error(have, want):
    return ((have.double() - want.double()).norm() / want.double().norm()).item()


@torch.inference_mode()
def judge(args):
    """Errors in norm against float32 of the same weights, and the share of tokens whose most likely successor agrees."""
    model = stored(args.folder, "auto").to(args.device)
    config, dtype = model.config, next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, config.vocab_size, (1, args.tokens), generator=generator)
    own = model(tokens.to(args.device)).logits[0].float().cpu()
    want = model.float()(tokens.to(args.device)).logits[0].cpu()
    del model
    torch.cuda.empty_cache()
    report = {"model": args.folder, "tokens": args.tokens, "dtype": str(dtype).removeprefix("torch."), "torch": error(own, want)}
    runs = {"steps": [], "prompt": ["--prompt", str(args.tokens // 2)]} if args.device == "cuda" else {}
    if args.cpu or not runs:
        runs["cpu"] = ["--cpu"]
    for label, extra in runs.items():
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


def median_us(sample, seconds, warm):
    """Median time of as many samples as fit into the time, at least three, behind some that warm up or compile."""
    for _ in range(warm):
        sample()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        times.append(sample())
    return statistics.median(times) * 1e6


def cache_name(model):
    """The argument that takes a cache, which differs between versions of transformers."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class Bench:
    """A model with random weights, and the jobs of `serve` that measure it."""

    def __init__(self, job):
        self.device = job["device"]
        config = AutoConfig.from_pretrained(job["folder"])
        self.model = seeded(config, getattr(torch, job["dtype"]), self.device)
        self.seconds = job["seconds"]
        self.compiled = False
        self.cache_name = cache_name(self.model)
        self.positioned = "cache_position" in inspect.signature(self.model.forward).parameters

    def run(self, ids, cache, position):
        """The most likely tokens behind some tokens at these positions."""
        named = {self.cache_name: cache}
        if self.positioned:
            named["cache_position"] = position
        places = position[None].expand(ids.shape[0], -1)
        out = self.model(input_ids=ids, position_ids=places, use_cache=True, logits_to_keep=1, **named)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def cache(self, batch, cached):
        """A cache of zeros, whose values do not change times; a static one has room for some more tokens."""
        config = self.model.config
        if self.compiled:
            cache = StaticCache(config=config, max_cache_len=cached + ROOM)
            # Memory is taken outside compiled code, so that graphs know its address.
            self.run(torch.ones(batch, 1, dtype=torch.int64, device=self.device), cache, self.positions(0, 1))
            self.rewind(cache, cached)
            return cache
        cache = DynamicCache(config=config)
        columns = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (batch, config.num_key_value_heads, cached, columns)
        zeros = torch.zeros(shape, dtype=self.model.dtype, device=self.device)
        if cached:
            for layer in range(config.num_hidden_layers):
                cache.update(zeros, zeros, layer)
        return cache

    def rewind(self, cache, length):
        """Sets the length of static caches that count it themselves."""
        for layer in cache.layers:
            for name in ("cumulative_length", "cumulative_length_int"):
                count = getattr(layer, name, None)
                if isinstance(count, torch.Tensor):
                    count.fill_(length)
                elif count is not None:
                    setattr(layer, name, length)

    def positions(self, first, count):
        return torch.arange(first, first + count, device=self.device)

    def runner(self):
        if not self.compiled:
            return self.run
        # Graphs are a matter of GPUs.
        return torch.compile(self.run, mode=None if self.device == "cpu" else "reduce-overhead", dynamic=False)

    def synchronize(self):
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def steps(self, job):
        """Time of a step that appends the token chosen by the one before to texts of `cached` tokens."""
        batch, cached = job["batch"], job["cached"]
        run, position = self.runner(), self.positions(cached, 1)
        static = self.cache(batch, cached) if self.compiled else None

        def sample():
            cache = self.cache(batch, cached) if static is None else static
            if static is not None:
                self.rewind(static, cached)
            token = torch.ones(batch, 1, dtype=torch.int64, device=self.device)
            self.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                token = run(token, cache, position).clone()
            self.synchronize()
            return (time.perf_counter() - start) / STEPS

        return {"us": median_us(sample, self.seconds, 2)}

    @torch.inference_mode()
    def first(self, job):
        """Time from a prompt of `cached` tokens to its first token."""
        cached = job["cached"]
        run, position = self.runner(), self.positions(0, cached)
        ids = (position % 200)[None]
        static = self.cache(1, cached) if self.compiled else None

        def sample():
            cache = self.cache(1, 0) if static is None else static
            if static is not None:
                self.rewind(static, 0)
            self.synchronize()
            start = time.perf_counter()
            run(ids, cache, position).item()
            return time.perf_counter() - start

        return {"us": median_us(sample, self.seconds, 4 if self.compiled else 1)}


def greedy(model, prompt, count):
    """The most likely tokens behind a prompt."""
    named = {cache_name(model): DynamicCache(config=model.config)}
    ids, chosen = torch.tensor([prompt], device=model.device), []
    for _ in range(count):
        ids = model(input_ids=ids, use_cache=True, logits_to_keep=1, **named).logits[:, -1].argmax(-1, keepdim=True)
        chosen.append(ids.item())
    return chosen


def scores(model, prompt, ours):
    """Logits before each token of a text."""
    text = torch.tensor([prompt + ours[:-1]], device=model.device)
    return model(input_ids=text, use_cache=False, logits_to_keep=len(ours)).logits[0].float()


def agreed(a, b):
    """The number of first tokens that are equal."""
    return next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


@torch.inference_mode()
def tokens(job):
    """Our greedy tokens beside those of the element type and of float32 with the same weights."""
    dtype, ours, prompt = getattr(torch, job["dtype"]), job["tokens"], job["prompt"]
    model = stored(job["folder"], dtype).to(job["device"])
    half, half_scores = greedy(model, prompt, len(ours)), scores(model, prompt, ours)
    report = {"halves_agree_until": agreed(ours, half)}
    try:
        # Angles of rotations are float32 already.
        model.float()
        exact, exact_scores = greedy(model, prompt, len(ours)), scores(model, prompt, ours)
        chosen = torch.tensor(ours, device=model.device)[:, None]
        gaps = exact_scores.amax(-1) - exact_scores.gather(-1, chosen)[:, 0]
        noises = (half_scores - exact_scores).abs().amax(-1)
    except torch.OutOfMemoryError as error:
        return {**report, "unjudged": reason(error)}
    place = (gaps / noises.clamp(min=1e-30)).argmax().item()
    report.update(agree_until=agreed(ours, exact), peer_agree_until=agreed(half, exact))
    return {**report, "place": place, "gap": gaps[place].item(), "noise": noises[place].item()}


def random_checkpoint(job):
    """Writes random weights for the configuration of another folder."""
    config = AutoConfig.from_pretrained(job["folder"])
    seeded(config, getattr(torch, job["dtype"]), job["device"]).save_pretrained(job["to"])
    return {}


def reason(error):
    line = (str(error).strip() or "no message").splitlines()[0][:200]
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of memory: {line}"
    return f"failed: {type(error).__name__}: {line}"


def serve(args):
    """Answers jobs, a JSON object in a line each. When the input ends, the command that asked is gone."""
    jobs = queue.SimpleQueue()

    def read():
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)

    def answer(report):
        ANSWERS.write(json.dumps(report, allow_nan=False) + "\n")
        ANSWERS.flush()

    threading.Thread(target=read, daemon=True).start()
    transformers.logging.set_verbosity_error()
    answer({"torch": torch.__version__, "transformers": transformers.__version__, "gpus": torch.cuda.device_count()})
    bench = None
    while True:
        job = json.loads(jobs.get())
        try:
            if job["job"] in ("steps", "first"):
                bench = bench or Bench(job)
                bench.compiled = job["kind"] == "compiled"
                report = getattr(bench, job["job"])(job)
            else:
                # These have a model of their own.
                bench = None
                report = {"tokens": tokens, "write": random_checkpoint}[job["job"]](job)
        except Exception as error:
            report = {"failed": reason(error)}
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        answer(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command in (write, judge, serve):
        sub = commands.add_parser(command.__name__)
        sub.set_defaults(run=command)
        if command is serve:
            continue
        sub.add_argument("folder", metavar="DIR")
        sub.add_argument("--dtype", default="bfloat16", choices=["float16", "bfloat16"])
        sub.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: both sides run on the host")
        if command is write:
            sub.add_argument("--like", required=True, choices=sorted(MODELS))
            sub.add_argument("--layers", type=int, default=0)
            sub.add_argument("--bare", action="store_true")
        if command is judge:
            sub.add_argument("--cusync", default="cusync")
            sub.add_argument("--tokens", type=int, default=200)
            sub.add_argument("--cpu", action="store_true", help="also on the host")
    args = parser.parse_args()
    print(json.dumps(args.run(args)))


if __name__ == "__main__":
    main()
