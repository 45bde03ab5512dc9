"""Steps of transformers models by cusync: `cusync.torch.accelerate`."""

import copy
import gc
import inspect
import pickle
import threading
import weakref

import cusync
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

DEVICES = ["cpu"]
if torch.cuda.is_available() and any(f["what"] == "kernels" and f["ok"] for f in cusync.doctor()["findings"]):
    DEVICES.append("cuda")

PROMPT = [[1, 77, 200, 13, 5], [9, 8, 7, 6, 5]]


def live(kind="Llama", device="cpu", dtype=torch.bfloat16, **more):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 1003,
        "max_position_embeddings": 512,
        "eos_token_id": 1002,
        "pad_token_id": 0,
    }
    config = getattr(transformers, f"{kind}{'Text' * (kind == 'Gemma3')}Config")(**{**sizes, **more})
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(device, dtype).eval()


#: Bounds that change much; transformers' own attention is the one that bounds scores.
GEMMA2 = {
    "head_dim": 256,
    "num_key_value_heads": 4,
    "sliding_window": 65,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 1.5,
    "attn_implementation": "eager",
}

#: Angles of layers with windows differ much from the others'.
GEMMA3 = {
    "head_dim": 256,
    "num_key_value_heads": 4,
    "sliding_window": 65,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    },
}

HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}


def accelerated(model):
    from cusync.torch import accelerate

    report = accelerate(model, cpu=True)
    assert report.refusal is None, report.refusal
    return report


def cached(model, cache):
    """The cache as an argument, by the name that this release of transformers gives it."""
    names = inspect.signature(type(model).forward).parameters
    return {"use_cache": True, "cache" if "cache" in names else "past_key_values": cache}


def start(model, prompt=PROMPT, rows=60):
    cache = transformers.StaticCache(config=model.config, max_cache_len=rows)
    with torch.no_grad():
        model(input_ids=torch.tensor(prompt, device=model.device), **cached(model, cache))
    return cache


def follow(model, forward, tokens, prompt=PROMPT, rows=60):
    """Logits behind each of some tokens, which all sequences get."""
    cache, logits = start(model, prompt, rows), []
    with torch.no_grad():
        for token in tokens:
            ids = torch.full((len(prompt), 1), token, device=model.device)
            logits.append(forward(input_ids=ids, **cached(model, cache)).logits[:, -1].float().clone())
    assert all(int(layer.cumulative_length) == len(prompt[0]) + len(tokens) for layer in cache.layers)
    return torch.stack(logits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Llama", {}),
        ("Qwen2", {}),
        ("Qwen3", {"tie_word_embeddings": True}),
        ("Mistral", {"sliding_window": None}),
        ("Phi3", {"sliding_window": None}),
        # The cache is shorter than the window; heads of Phi-3-mini.
        ("Mistral", {"sliding_window": 200}),
        ("Phi3", {"sliding_window": 65, "num_key_value_heads": 8, "head_dim": 96}),
        ("Gemma", {"head_dim": 256, "num_key_value_heads": 4}),
        ("Gemma2", GEMMA2),
        ("Gemma3", GEMMA3),
        ("Granite", {"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "logits_scaling": 8.0}),
        ("SmolLM3", {"no_rope_layers": [1, 0, 1]}),
        # Two launches.
        ("Llama", {"num_hidden_layers": 9}),
    ],
)
def test_steps_have_the_logits_of_the_model(kind, more, dtype, device):
    model, tokens = live(kind, device, dtype, **more), [4, 900, 17, 256]
    wide = live(kind, device, torch.float32, **more)
    wide.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    exact, theirs = follow(wide, wide, tokens), follow(model, model, tokens)
    report = accelerated(model)
    found = follow(model, model, tokens)
    assert (report.steps, dict(report.kept)) == (4, {})
    # No further from float32 than those of torch, by more than a tenth.
    assert (found - exact).norm() <= 1.1 * (theirs - exact).norm(), (kind, dtype)
    report.remove()
    assert torch.equal(follow(model, model, tokens), theirs)
    assert report.refusal == "it was removed" and report.steps == 0


@pytest.mark.parametrize("device", DEVICES)
def test_generate_goes_on_working(device):
    model = live("Qwen3", device)
    ids = torch.tensor(PROMPT, device=device)
    options = {"do_sample": False, "cache_implementation": "static", "attention_mask": torch.ones_like(ids)}
    options.update(max_new_tokens=20, output_logits=True, return_dict_in_generate=True)
    before = model.generate(ids, **options)
    report = accelerated(model)
    after = model.generate(ids, **options)
    assert (report.steps, dict(report.kept)) == (19, {})
    # The first step has the same tokens before it.
    one, other = before.logits[1].float(), after.logits[1].float()
    assert (one - other).norm() <= 0.03 * one.norm()
    assert torch.equal(before.sequences[:, :7], after.sequences[:, :7])
    assert "steps of one token by cusync: 19" in str(report)
    assert not model._valid_auto_compile_criteria({}, model.generation_config)
    report.remove()
    assert torch.equal(model.generate(ids, **options).sequences, before.sequences)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "more"), [("Llama", {}), ("Mistral", {"sliding_window": 65})])
def test_a_compiled_model_has_no_break_and_the_same_logits(kind, more, device):
    model = live(kind, device, **more)
    report = accelerated(model)
    plain = follow(model, model, [4, 900, 17])
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(model.forward, backend=backend, fullgraph=True)
        assert torch.equal(follow(model, compiled, [4, 900, 17]), plain), backend
    assert (report.steps, dict(report.kept)) == (9, {})


def test_what_cannot_run_stays_with_torch_and_is_counted():
    model = live()
    report = accelerated(model)
    ids = torch.tensor(PROMPT)
    with torch.no_grad():
        # Dynamic caches grow by copies.
        growing = transformers.DynamicCache(config=model.config)
        model(input_ids=ids, **cached(model, growing))
        model(input_ids=ids[:, :1], **cached(model, growing))
        # Padded sequences begin at different rows.
        mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
        padded = transformers.StaticCache(config=model.config, max_cache_len=60)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        model(input_ids=ids, attention_mask=mask, position_ids=positions, **cached(model, padded))
        model(input_ids=ids[:, :1], **cached(model, padded))
        # A cache of before has rows that kernels do not take.
        kept = report.kept
        report.remove()
        early = start(model)
        report = accelerated(model)
        model(input_ids=ids[:, :1], **cached(model, early))
        early._cusync_plain = True
        model(input_ids=ids[:, :1], **cached(model, early))
        mask = torch.ones(2, 6, dtype=torch.int64)
        model(input_ids=ids[:, :1], attention_mask=mask, **cached(model, start(model)))
        model.train()
        model(input_ids=ids[:, :1], **cached(model, start(model)))
        model.eval()
        model(input_ids=ids[:, :1], labels=ids[:, :1], **cached(model, start(model)))
        model(input_ids=ids[:, :1], **cached(model, start(model, [[5, 6]] * 2)))
        many = start(model, [[5, 6]] * 33)
        model(input_ids=torch.full((33, 1), 7), **cached(model, many))
    model(input_ids=ids[:, :1], **cached(model, start(model)))
    assert sorted(reason.split(":")[0] for reason in kept + report.kept) == [
        "`labels` is set",
        "a step has `attention_mask`, which is not read",
        "gradients are enabled",
        "more than 32 sequences",
        "sequences are padded, or their masks hide tokens",
        "the cache has 60 rows, which is no multiple of 64",
        "the cache is not static",
        "the cache was filled elsewhere",
        "the model is in training mode",
    ]
    assert report.steps == 1 and all(count == 1 for count in report.kept.values())


def test_padded_texts_are_generated_as_before():
    model = live()
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static", "attention_mask": mask}
    before = model.generate(torch.tensor(PROMPT), **options)
    report = accelerated(model)
    assert torch.equal(model.generate(torch.tensor(PROMPT), **options), before)
    assert report.steps == 0 and dict(report.kept) == {"sequences are padded, or their masks hide tokens": 7}


def test_a_cache_is_judged_by_its_last_prompt():
    model = live()
    report = accelerated(model)
    cache, ids = start(model), torch.tensor(PROMPT)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    compiled = torch.compile(model.forward, backend="eager")
    with torch.no_grad():
        for forward in (model, compiled):
            cache.reset()
            forward(input_ids=ids, attention_mask=mask, position_ids=positions, **cached(model, cache))
            model(input_ids=ids[:, :1], **cached(model, cache))
    assert report.steps == 0 and sum(report.kept.values()) == 2, report.kept


def test_threads_share_plans():
    model = live()
    report = accelerated(model)
    rows, found = [64 * n for n in range(1, 13)], []

    def run(rows):
        found.append(follow(model, model, [4], rows=rows))

    for _ in range(2):
        threads = [threading.Thread(target=run, args=(n,)) for n in rows]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(found) == report.steps == 24 and all(torch.equal(found[0], other) for other in found)


def test_beams_move_caches():
    model = live()
    ids = torch.tensor(PROMPT[:1])
    options = {"max_new_tokens": 8, "num_beams": 3, "do_sample": False, "cache_implementation": "static"}
    before = model.generate(ids, **options)
    report = accelerated(model)
    assert torch.equal(model.generate(ids, **options), before)
    assert report.steps == 7


def test_models_that_cannot_be_accelerated_say_why():
    from cusync.torch import accelerate

    def hooked():
        model = live()
        model.model.layers[0].register_forward_hook(lambda *_: None)
        return model

    def compiled():
        model = live()
        model.forward = torch.compile(model.forward)
        return model

    def other():
        model = live()
        return type("OtherForCausalLM", (type(model),), {})(model.config).to(torch.bfloat16)

    def adapted():
        model = live()
        layer = model.model.layers[0].mlp
        layer.up_proj = torch.nn.Sequential(layer.up_proj)
        return model

    cases = [
        (live(dtype=torch.float32), True, "its weights are torch.float32"),
        (live(), False, "it is on a CPU"),
        (hooked(), True, "its modules have hooks"),
        (other(), True, "OtherForCausalLM"),
        (adapted(), True, "no weight `model.layers.0.mlp.up_proj.weight`"),
        (live(mlp_bias=True), True, "a bias in the MLP"),
        (live("Mixtral", num_local_experts=4), True, "MixtralForCausalLM has experts"),
        (live("Phi3", sliding_window=None, rope_parameters=HALF), True, "Phi3ForCausalLM rotates heads in part"),
        (compiled(), True, "its `forward` was replaced"),
    ]
    for model, cpu, reason in cases:
        report = accelerate(model, cpu=cpu)
        assert report.refusal is not None and reason in report.refusal, reason
        assert "_cusync_acceleration" not in model.__dict__
        assert str(report).startswith("all steps stay with torch: ")


def test_caches_that_may_leave_a_window_stay_with_torch():
    cases = [
        ({"sliding_window": 64}, 200, {"the cache may hold more tokens than the window of 64": 3}),
        ({"sliding_window": 64}, 60, {"the cache has 60 rows, which is no multiple of 64": 3}),
        ({"sliding_window": 8}, 60, {"the cache may hold more tokens than the window of 8": 3}),
        ({"sliding_window": 65}, 60, {}),
    ]
    for more, rows, kept in cases:
        model, tokens = live("Mistral", **more), [4, 900, 17]
        theirs = follow(model, model, tokens, rows=rows)
        report = accelerated(model)
        found = follow(model, model, tokens, rows=rows)
        assert dict(report.kept) == kept and report.steps == (0 if kept else 3), more
        assert torch.equal(found, theirs) if kept else (found - theirs).norm() < 0.03 * theirs.norm()
    # A full window drops tokens, which is torch's to do.
    model = live("Mistral", sliding_window=65)
    options = {"do_sample": False, "cache_implementation": "static", "max_new_tokens": 90}
    before = model.generate(torch.tensor(PROMPT), **options)
    report = accelerated(model)
    assert model.generate(torch.tensor(PROMPT), **options).shape == before.shape
    assert report.steps == 0 and sum(report.kept.values()) == 89, dict(report.kept)


def test_accelerating_again_reads_the_weights_again():
    model = live()
    report = accelerated(model)
    before = follow(model, model, [4])
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    assert torch.equal(follow(model, model, [4]), before)
    again = accelerated(model)
    assert report.refusal == "it was removed"
    torch.testing.assert_close(follow(model, model, [4]), before * 2)
    assert again.steps == 1


def test_copies_of_a_model_run_as_before_and_memory_is_freed():
    model = live()
    kind, theirs = type(model), follow(model, model, [4])
    report = accelerated(model)
    copied = copy.deepcopy(model)
    assert type(copied) is kind and type(pickle.loads(pickle.dumps(model))) is kind
    assert torch.equal(follow(copied, copied, [4]), theirs) and report.steps == 0
    # A copy has its own weights.
    with torch.no_grad():
        copied.lm_head.weight.mul_(2)
    doubled = accelerated(copied)
    assert torch.allclose(follow(copied, copied, [4]), 2 * follow(model, model, [4]))
    assert (doubled.steps, report.steps) == (1, 1)
    weight, engine = weakref.ref(model.lm_head.weight), weakref.ref(report._engine)
    held = model.forward
    report.remove()
    assert torch.equal(follow(model, held, [4]), theirs)
    del model, report, held
    gc.collect()
    assert weight() is None and engine() is None
    doubled.remove()
    doubled.remove()
    assert type(copied) is kind


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU with kernels")
def test_graphs_keep_their_caches():
    model = live(device="cuda")
    report = accelerated(model)
    cache = start(model)
    token = torch.tensor([[4], [5]], device="cuda")

    def step(cache=cache):
        with torch.no_grad():
            return model(input_ids=token, **cached(model, cache)).logits

    def rewind(cache, length):
        for layer in cache.layers:
            layer.cumulative_length.fill_(length)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    other = start(model, [[3, 2, 1], [1, 2, 3]])
    for number in range(1000):
        token.fill_(number % 900)
        rewind(cache, 5 + number % 20)
        graph.replay()
        if number % 100 == 0:
            found = out.clone()
            rewind(cache, 5 + number % 20)
            assert torch.equal(found, step()), number
            step(other)
    fresh = start(model, rows=200)
    with pytest.raises(cusync.CusyncError, match="this cache has no plan"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        step(fresh)
    assert dict(report.kept) == {}


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU with kernels")
def test_a_full_cache_is_an_error_of_the_next_step():
    model = live(device="cuda")
    accelerated(model)
    cache = start(model)
    token = torch.tensor([[4], [5]], device="cuda")
    for layer in cache.layers:
        layer.cumulative_length.fill_(64)
    with torch.no_grad():
        model(input_ids=token, **cached(model, cache))
        torch.cuda.synchronize()
        for layer in cache.layers:
            layer.cumulative_length.fill_(5)
        with pytest.raises(cusync.CusyncError, match="attend_0"):
            model(input_ids=token, **cached(model, cache))
        # The model goes on working.
        assert model(input_ids=token, **cached(model, cache)).logits.isfinite().all()
