"""Layers of language models for steps of one token: `cusync.torch.Layers`, `DecoderLayer` and `Attention`."""

import functools
import inspect
import math

import cusync
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

DEVICES = ["cpu"]
if torch.cuda.is_available() and any(f["what"] == "kernels" and f["ok"] for f in cusync.doctor()["findings"]):
    DEVICES.append("cuda")

DTYPES = [torch.float16, torch.bfloat16]
WIDTH, INNER, HEADS, SHARED, HEAD, ROWS, BASE, EPSILON = 512, 768, 8, 2, 64, 64, 10000.0, 1e-5


def draw(*shape, dtype, device="cpu", scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator) * scale).to(device, dtype)


def layer(number, dtype, device="cpu", bias=False, head_norm=False):
    """Weights of a layer, by their names in transformers."""

    def matrix(rows, columns, seed):
        return draw(rows, columns, dtype=dtype, device=device, scale=columns**-0.5, seed=number * 100 + seed)

    def gain(size, seed):
        return 1 + draw(size, dtype=dtype, device=device, scale=0.1, seed=number * 100 + seed)

    made = {
        "input_layernorm.weight": gain(WIDTH, 1),
        "post_attention_layernorm.weight": gain(WIDTH, 2),
        "self_attn.q_proj.weight": matrix(HEADS * HEAD, WIDTH, 3),
        "self_attn.k_proj.weight": matrix(SHARED * HEAD, WIDTH, 4),
        "self_attn.v_proj.weight": matrix(SHARED * HEAD, WIDTH, 5),
        "self_attn.o_proj.weight": matrix(WIDTH, HEADS * HEAD, 6),
        "mlp.gate_proj.weight": matrix(INNER, WIDTH, 7),
        "mlp.up_proj.weight": matrix(INNER, WIDTH, 8),
        "mlp.down_proj.weight": matrix(WIDTH, INNER, 9),
    }
    if bias:
        for seed, name in enumerate("qkv"):
            made[f"self_attn.{name}_proj.bias"] = made[f"self_attn.{name}_proj.weight"][:, seed].clone()
    if head_norm:
        made["self_attn.q_norm.weight"], made["self_attn.k_norm.weight"] = gain(HEAD, 10), gain(HEAD, 11)
    return made


def norm(x, gain):
    return x * (x.pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt() * gain


def rotate(x, length):
    angles = length * BASE ** -(torch.arange(0, HEAD, 2, device=x.device, dtype=x.dtype) / HEAD)
    left, right = x.chunk(2, -1)
    return torch.cat([left * angles.cos() - right * angles.sin(), right * angles.cos() + left * angles.sin()], -1)


def attend(w, x, keys, values, lengths, normed=True, residual=True):
    """The attention of a layer in plain torch, sequence by sequence; the caches get the row of the new token."""
    a = norm(x, w["input_layernorm.weight"]) if normed else x
    product = {n: a @ w[f"self_attn.{n}_proj.weight"].t() + w.get(f"self_attn.{n}_proj.bias", 0) for n in "qkv"}
    q, k, v = (product[n].reshape(len(x), -1, HEAD) for n in "qkv")
    if "self_attn.q_norm.weight" in w:
        q, k = norm(q, w["self_attn.q_norm.weight"]), norm(k, w["self_attn.k_norm.weight"])
    out = []
    for n, length in enumerate(lengths):
        keys[n, :, length], values[n, :, length] = rotate(k[n], length), v[n]
        seen_k = keys[n, :, : length + 1].repeat_interleave(HEADS // SHARED, 0)
        seen_v = values[n, :, : length + 1].repeat_interleave(HEADS // SHARED, 0)
        scores = torch.einsum("hd,htd->ht", rotate(q[n], length), seen_k) / math.sqrt(HEAD)
        out.append(torch.einsum("ht,htd->hd", scores.softmax(-1), seen_v).reshape(-1))
    result = torch.stack(out) @ w["self_attn.o_proj.weight"].t()
    return result + x if residual else result


def expected(layers, x, keys, values, lengths):
    """The layers in plain torch."""
    for w, k, v in zip(layers, keys, values, strict=True):
        h = attend(w, x, k, v, lengths)
        a = norm(h, w["post_attention_layernorm.weight"])
        y = torch.nn.functional.silu(a @ w["mlp.gate_proj.weight"].t()) * (a @ w["mlp.up_proj.weight"].t())
        x = h + y @ w["mlp.down_proj.weight"].t()
    return x


def wide(tensors):
    return {name: tensor.float() for name, tensor in tensors.items()}


def caches(count, batch, dtype, device, rows=ROWS):
    """Keys and values, filled everywhere."""
    both = [draw(batch, SHARED, rows, HEAD, dtype=dtype, device=device, seed=n) for n in range(2 * count)]
    return both[:count], both[count:]


def near(found, wanted, dtype):
    error = (found.float() - wanted).norm() / wanted.norm()
    assert found.dtype == dtype and found.shape == wanted.shape
    assert error < (2e-3 if dtype == torch.float16 else 1.6e-2), error


OPTIONS = [{}, {"bias": True}, {"head_norm": True}, {"bias": True, "head_norm": True}]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", OPTIONS)
def test_layers_are_those_of_torch_in_float32(more, dtype, device):
    from cusync.torch import Layers

    weights = [layer(n, dtype, device, **more) for n in range(3)]
    made = Layers(weights, BASE, heads=HEADS, epsilon=EPSILON)
    for batch, lengths in [(1, [0]), (1, [63]), (3, [5, 0, 40])]:
        keys, values = caches(3, batch, dtype, device)
        wide_keys, wide_values = [k.float() for k in keys], [v.float() for v in values]
        states = draw(batch, WIDTH, dtype=dtype, device=device)
        for step in range(2 if max(lengths) < 62 else 1):
            now = [length + step for length in lengths]
            found = made(states, keys, values, torch.tensor(now, device=device))
            near(found, expected([wide(w) for w in weights], states.float(), wide_keys, wide_values, now), dtype)
            for ours, theirs in zip(keys + values, wide_keys + wide_values, strict=True):
                near(ours, theirs, dtype)
    # One length for all, a third axis, and numbers of another type.
    lengths = torch.tensor([7], dtype=torch.int32, device=device)
    one = made(states[:, None], keys, values, lengths)
    assert one.shape == (3, 1, WIDTH) and lengths.item() == 7
    assert torch.equal(one[:, 0], made(states, keys, values, torch.tensor([7, 7, 7], device=device)))


@pytest.mark.parametrize("device", DEVICES)
def test_more_than_eight_layers_are_several_launches(device):
    from cusync.torch import Layers

    weights = [layer(n, torch.bfloat16, device) for n in range(9)]
    keys, values = caches(9, 2, torch.bfloat16, device)
    wide_keys, wide_values = [k.float() for k in keys], [v.float() for v in values]
    states = draw(2, WIDTH, dtype=torch.bfloat16, device=device)
    found = Layers(weights, BASE, heads=HEADS, epsilon=EPSILON)(states, keys, values, torch.tensor(3, device=device))
    near(found, expected([wide(w) for w in weights], states.float(), wide_keys, wide_values, [3, 3]), torch.bfloat16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", OPTIONS)
def test_torch_runs_sizes_that_have_no_plan(more, dtype, device):
    from cusync.torch import Attention, Layers

    weights = [layer(n, dtype, device, **more) for n in range(2)]
    made = Layers(weights, BASE, heads=HEADS, epsilon=EPSILON)
    bare = {name: tensor for name, tensor in weights[0].items() if name.startswith("self_attn")}
    attention = Attention(bare, BASE, heads=HEADS, epsilon=EPSILON)
    for batch, rows, reason in [(33, 64, "more than 32 sequences"), (2, 60, "60 rows are no multiple of 64")]:
        keys, values = caches(2, batch, dtype, device, rows)
        wide_keys, wide_values = [k.float() for k in keys], [v.float() for v in values]
        states, lengths = draw(batch, WIDTH, dtype=dtype, device=device), [n % 50 for n in range(batch)]
        found = made(states, keys, values, torch.tensor(lengths, device=device))
        near(found, expected([wide(w) for w in weights], states.float(), wide_keys, wide_values, lengths), dtype)
        for ours, theirs in zip(keys + values, wide_keys + wide_values, strict=True):
            near(ours, theirs, dtype)
        assert made.choices == {**made.choices, (batch, rows): f"torch: {reason}"}
        made.prepare(keys, values)
        found = attention(states, keys[0], values[0], torch.tensor(lengths, device=device))
        half = attend(wide(weights[0]), states.float(), wide_keys[0], wide_values[0], lengths, False, False)
        near(found, half, dtype)
    keys, values = caches(2, 2, dtype, device)
    made(states, keys, values, torch.tensor(3, device=device))
    assert made.choices[2, 64] == "cusync: it has a plan" and len(made.choices) == 3


GATES = ["silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2"]


@pytest.mark.parametrize("activation", GATES)
def test_gates_of_torch_are_those_of_kernels(activation):
    from cusync._stack import GATES as known
    from cusync.torch import DecoderLayer

    assert list(known) == GATES
    made = DecoderLayer(layer(0, torch.float16), BASE, heads=HEADS, activation=activation)
    found = []
    for rows in (64, 63):
        [key], [value] = caches(1, 2, torch.float16, "cpu")
        key, value = key[:, :, :rows].contiguous(), value[:, :, :rows].contiguous()
        found.append(made(draw(2, WIDTH, dtype=torch.float16), key, value, torch.tensor([7, 20])))
    assert [text[:5] for text in made.choices.values()] == ["cusyn", "torch"]
    near(found[0], found[1].float(), torch.float16)


def linears(weights):
    """Modules of torch with these weights, by their short names."""
    made = {}
    for name in ("q", "k", "v", "o", "gate", "up", "down"):
        prefix = f"{'mlp' if name in ('gate', 'up', 'down') else 'self_attn'}.{name}_proj"
        bias = weights.get(f"{prefix}.bias")
        made[name] = torch.nn.Linear(*weights[f"{prefix}.weight"].shape[::-1], bias=bias is not None)
        made[name].weight = torch.nn.Parameter(weights[f"{prefix}.weight"])
        if bias is not None:
            made[name].bias = torch.nn.Parameter(bias)
    for name, gain in {"norm": "input_layernorm", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}.items():
        if f"{gain}.weight" in weights:
            made[name] = torch.nn.RMSNorm(len(weights[f"{gain}.weight"]), eps=EPSILON)
            made[name].weight = torch.nn.Parameter(weights[f"{gain}.weight"])
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", OPTIONS)
def test_an_attention_has_its_norm_and_residual_on_request(more, dtype, device):
    from cusync.torch import Attention

    weights = layer(0, dtype, device, **more)
    modules = linears(weights)
    [modules.pop(name) for name in ("gate", "up", "down")]
    gain = modules.pop("norm")
    states = draw(2, WIDTH, dtype=dtype, device=device)
    for normed in (False, True):
        for residual in (False, True):
            options = {"norm": gain if normed else None, "residual": residual, "epsilon": EPSILON}
            made = Attention.from_linear(**modules, rotary=BASE, heads=HEADS, **options)
            [key], [value] = caches(1, 2, dtype, device)
            wide_key, wide_value = key.float(), value.float()
            with torch.no_grad():
                found = made(states, key, value, torch.tensor([3, 21], device=device))
            near(found, attend(wide(weights), states.float(), wide_key, wide_value, [3, 21], normed, residual), dtype)
            near(key, wide_key, dtype)
            near(value, wide_value, dtype)


def test_a_layer_of_modules_is_one_of_weights():
    from cusync.torch import DecoderLayer

    weights = layer(0, torch.float16, bias=True)
    modules = linears(weights)
    mlp_norm = torch.nn.RMSNorm(WIDTH)
    mlp_norm.weight = torch.nn.Parameter(weights["post_attention_layernorm.weight"])
    made = DecoderLayer.from_linear(**modules, mlp_norm=mlp_norm, rotary=BASE, heads=HEADS, epsilon=EPSILON)
    other = DecoderLayer(weights, BASE, heads=HEADS, epsilon=EPSILON)
    states, length = draw(2, WIDTH, dtype=torch.float16), torch.tensor([9, 2])
    found = []
    for each in (made, other):
        [key], [value] = caches(1, 2, torch.float16, "cpu")
        found.append(each(states, key, value, length))
    assert torch.equal(*found)
    assert repr(made) == "DecoderLayer(layers=1, width=512, kv_heads=2, head=64)"


def live(kind, device, dtype, **more):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 4, "num_attention_heads": HEADS}
    sizes.update({"num_key_value_heads": SHARED, "head_dim": HEAD, "vocab_size": 264, "pad_token_id": 0})
    config = getattr(transformers, f"{kind}Config")(**{**sizes, "max_position_embeddings": 512, **more})
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(device, dtype).eval()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [64, 60])
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3", "Phi3"])
def test_layers_of_a_live_model_take_turns_with_its_own(kind, rows, device):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from cusync.torch import Attention, Layers

    model = live(kind, device, torch.bfloat16, sliding_window=None)
    exact = live(kind, device, torch.float32, sliding_window=None)
    exact.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    prompt = torch.tensor([[1, 77, 200, 13, 5], [9, 8, 7, 6, 5]], device=device)
    inner, tokens = model.model, [4, 200, 17]
    cached = "cache" if "cache" in inspect.signature(type(inner).forward).parameters else "past_key_values"

    def start(model):
        cache = transformers.StaticCache(config=model.config, max_cache_len=rows)
        model.model(input_ids=prompt, **{cached: cache}, use_cache=True)
        return cache

    with torch.no_grad():
        cache = start(exact)
        wanted = [exact.model(prompt[:, :1] * 0 + t, **{cached: cache}).last_hidden_state for t in tokens]
        cache = start(model)
        theirs = [inner(prompt[:, :1] * 0 + t, **{cached: cache}).last_hidden_state for t in tokens]
        front = Layers.from_transformers(inner.layers[:1], inner.rotary_emb)
        rest = Layers.from_transformers(inner.layers[2:], inner.rotary_emb)
        last = inner.layers[1]
        middle = Attention.from_transformers(
            last.self_attn, inner.rotary_emb, norm=last.input_layernorm, residual=True
        )
        assert (front.layers, middle.layers, rest.layers) == (range(1), range(1, 2), range(2, 4))
        cache, found = start(model), []
        for token in tokens:
            states = middle.step(front.step(inner.embed_tokens(prompt[:, :1] * 0 + token), cache), cache)
            states = states + last.mlp(last.post_attention_layernorm(states))
            found.append(inner.norm(rest.step(states, cache)))
    assert [int(layer.cumulative_length) for layer in cache.layers] == [8] * 4
    assert {text.split(":")[0] for text in rest.choices.values()} == {"cusync" if rows == 64 else "torch"}
    wanted, theirs, found = (torch.stack(each).float() for each in (wanted, theirs, found))
    assert (found - wanted).norm() <= 1.1 * (theirs - wanted).norm()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_step_has_no_break(backend, device):
    from cusync.torch import Layers

    weights = [layer(n, torch.float16, device) for n in range(2)]
    made = Layers(weights, BASE, heads=HEADS, epsilon=EPSILON)
    keys, values = caches(2, 2, torch.float16, device)
    other_keys, other_values = [k.clone() for k in keys], [v.clone() for v in values]
    length = torch.tensor([4], device=device)
    states = draw(2, WIDTH, dtype=torch.float16, device=device)

    def step(states, keys, values, length):
        return made(states * 2, keys, values, length) + 1

    torch._dynamo.reset()
    found = torch.compile(step, fullgraph=True, backend=backend)(states, keys, values, length)
    assert torch.equal(found, step(states, other_keys, other_values, length))
    assert all(torch.equal(*pair) for pair in zip(keys + values, other_keys + other_values, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    from cusync.torch import Layers

    made = Layers([layer(0, torch.float16, device)], BASE, heads=HEADS, epsilon=EPSILON)
    keys, values = caches(1, 2, torch.float16, device)
    states = draw(2, WIDTH, dtype=torch.float16, device=device)
    arguments = (states, keys, values, torch.tensor([3, 4], device=device), made._number)
    torch.library.opcheck(torch.ops.cusync.decode.default, arguments)


def test_wrong_tensors_are_errors_that_name_them():
    from cusync.torch import Attention, DecoderLayer, Layers

    weights = layer(0, torch.float16)
    made = DecoderLayer(weights, BASE, heads=HEADS)
    [key], [value] = caches(1, 2, torch.float16, "cpu")
    x, n = draw(2, WIDTH, dtype=torch.float16), torch.tensor([3, 4])
    less = {name: tensor for name, tensor in weights.items() if name != "mlp.up_proj.weight"}
    mixed = {**weights, "self_attn.v_proj.weight": weights["self_attn.v_proj.weight"].bfloat16()}
    modules = linears(layer(0, torch.float16, bias=True))
    half = {**modules, "k": linears(weights)["k"]}
    attention = functools.partial(Attention.from_linear, rotary=BASE, heads=HEADS)
    names = ("q", "k", "v", "o")
    cases = [
        (lambda: made(x[:, 1:], key, value, n), "`states` has shape (2, 511), not (2, 512)"),
        (lambda: made(x.float(), key, value, n), "`states` is torch.float32 on cpu"),
        (lambda: made(x, key[:1], value, n), "`values[0]` has shape (2, 2, 64, 64), not (1, 2, 64, 64)"),
        (lambda: made(x, key, value.bfloat16(), n), "`values[0]` is torch.bfloat16 on cpu"),
        (lambda: made(x, key, value.mT.contiguous().mT, n), "`values[0]` has strides (8192, 4096, 1, 64)"),
        (lambda: made(x, [key] * 2, value, n), "there are 2 `keys` and 1 `values`, and 1 layers"),
        (lambda: made(x, key[:, :, :0], value, n), "`keys[0]` has shape (2, 2, 0, 64)"),
        (lambda: made.prepare(key, value[:, :1]), "`values[0]` has shape (2, 1, 64, 64), not (2, 2, 64, 64)"),
        (lambda: made(x, key, value, n.float()), "`lengths` is torch.float32 on cpu"),
        (lambda: made(x, key, value, torch.tensor([1, 2, 3])), "`lengths` has shape (3,)"),
        (lambda: made(x.requires_grad_(), key, value, n), "cusync.torch.DecoderLayer has no gradient"),
        (lambda: Layers([less], BASE, heads=HEADS), "no weight `model.layers.0.mlp.up_proj.weight` of 768 rows"),
        (lambda: Layers([mixed], BASE, heads=HEADS), "`model.layers.0.self_attn.v_proj.weight` is torch.bfloat16"),
        (lambda: Layers([wide(weights)], BASE, heads=HEADS), "is torch.float32 on cpu"),
        (lambda: Layers([], BASE, heads=HEADS), "there is no matrix `self_attn.q_proj.weight`"),
        (lambda: Layers([weights], BASE, heads=7), "`heads` is 7"),
        (lambda: Layers.from_transformers([], BASE), "there are no layers"),
        (lambda: attention(**{name: half[name] for name in names}), "only q, v have a bias"),
        (lambda: attention(**{**{name: modules[name] for name in names}, "o": modules["q"]}), "`o` has a bias"),
        (lambda: attention(**{name: modules[name] for name in names}, q_norm=modules["norm"]), "one of `q_norm`"),
    ]
    for number, (call, message) in enumerate(cases):
        with pytest.raises(cusync.CusyncError) as caught:
            call()
        assert message in caught.value.message, (number, caught.value.message)
        assert caught.value.help, number


def test_layers_of_a_live_model_that_cannot_run_say_why():
    from cusync.torch import Layers

    model = live("Llama", "cpu", torch.bfloat16)
    rotary = model.model.rotary_emb
    cases = [(lambda: Layers.from_transformers([model.model.layers[n] for n in (0, 2)], rotary), "do not follow")]
    windows = live("Mistral", "cpu", torch.bfloat16, sliding_window=32).model
    cases.append((lambda: Layers.from_transformers(windows.layers, windows.rotary_emb), "windows of attention"))
    gains = live("Gemma2", "cpu", torch.bfloat16, layer_types=["full_attention"] * 4).model
    cases.append((lambda: Layers.from_transformers(gains.layers, gains.rotary_emb), "add one to their gains"))
    hooked = live("Llama", "cpu", torch.bfloat16).model
    hooked.layers[0].mlp.register_forward_hook(lambda *_: None)
    cases.append((lambda: Layers.from_transformers(hooked.layers, rotary), "have hooks"))
    cases.append((lambda: Layers.from_transformers([torch.nn.Linear(8, 8), 3], rotary), "layers of several types"))
    for call, message in cases:
        with pytest.raises(cusync.CusyncError, match=message):
            call()


def test_a_full_cache_is_an_error():
    from cusync.torch import DecoderLayer

    made = DecoderLayer(layer(0, torch.float16), BASE, heads=HEADS)
    [key], [value] = caches(1, 1, torch.float16, "cpu")
    with pytest.raises(cusync.CusyncError, match="attend_0"):
        made(draw(1, WIDTH, dtype=torch.float16), key, value, torch.tensor([64]))


@pytest.mark.parametrize("more", OPTIONS)
def test_a_gpu_runs_each_launch_as_one_decode_kernel(more):
    from cusync.torch import Attention, Layers

    weights = [layer(n, torch.float16, **more) for n in range(8)]
    plain = {name: tensor for name, tensor in weights[0].items() if name.startswith("self_attn")}
    modules = [Layers(weights, BASE, heads=HEADS)]
    modules += [
        Attention(given, BASE, heads=HEADS, residual=residual)
        for given in (plain, {**plain, "input_layernorm.weight": weights[0]["input_layernorm.weight"]})
        for residual in (False, True)
    ]
    for module in modules:
        for batch in (1, 32):
            [(page, *_)] = module._engine.launches(batch, 1024)
            for device in ("h100", "h200"):
                report = cusync.explain(page, device=device)
                assert (report["executor"], report["decode"]["width"]) == ("fused", max(batch, 8)), str(report)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU with kernels")
def test_a_step_is_captured_once_it_is_prepared():
    from cusync.torch import Layers

    weights = [layer(n, torch.bfloat16, "cuda") for n in range(2)]
    made = Layers(weights, BASE, heads=HEADS, epsilon=EPSILON)
    keys, values = caches(2, 2, torch.bfloat16, "cuda")
    states, lengths = draw(2, WIDTH, dtype=torch.bfloat16, device="cuda"), torch.tensor([0, 5], device="cuda")
    with pytest.raises(cusync.CusyncError, match="`lengths` is torch.int64 on cpu"):
        made(states, keys, values, lengths.cpu())
    with pytest.raises(cusync.CusyncError) as caught, torch.cuda.graph(torch.cuda.CUDAGraph()):
        made(states, keys, values, lengths)
    assert "prepare" in str(caught.value)
    made.prepare(keys, values)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = made(states, keys, values, lengths)
    for number in range(50):
        states.copy_(draw(2, WIDTH, dtype=torch.bfloat16, device="cuda", seed=number))
        lengths.copy_(torch.tensor([number, 5 + number], device="cuda"))
        graph.replay()
        captured = out.clone()
        assert torch.equal(captured, made(states, keys, values, lengths)), number
