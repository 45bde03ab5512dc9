"""`cusync.torch.Model` on live models of transformers."""

import cusync
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")


def live(kind, **more):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 264,
        "max_position_embeddings": 512,
        "eos_token_id": 256,
        "pad_token_id": 0,
    }
    # The configuration of Gemma 3 with images has the plain name.
    name = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, name)(**{**sizes, **more})
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()


#: Bounds and a window that change much; transformers' own attention is the one that bounds scores.
GEMMA2 = {
    "sliding_window": 3,
    "query_pre_attn_scalar": 8,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 1.5,
    "attn_implementation": "eager",
}

#: Windows with another rotation than the other layer.
GEMMA3 = {
    "sliding_window": 3,
    "query_pre_attn_scalar": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0},
    },
}
#: Three quarters of each head are rotated, as in Phi-4-mini.
PHI4 = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "original_max_position_embeddings": 128,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.5] * 24,
        "long_factor": [4.0] * 24,
    },
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
GRANITE = {
    "attention_multiplier": 0.03,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Llama", {}),
        ("Llama", {"rope_parameters": YARN}),
        ("Qwen3", {"tie_word_embeddings": True}),
        ("Gemma", {}),
        ("Gemma2", GEMMA2),
        ("Gemma3", GEMMA3),
        ("Granite", GRANITE),
        ("SmolLM3", {"no_rope_layers": [1, 0]}),
        ("Phi3", PHI4),
        ("Qwen3Moe", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}),
        ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ],
)
def test_a_live_model_has_the_logits_of_transformers(kind, more):
    from cusync.torch import Model

    model = live(kind, **more)
    ours = Model(model, context=64, device="cpu")
    assert (ours.element, ours.vocabulary, ours.ends) == ("bf16", 264, [256])
    tokens = [1, 77, 200, 13, 5]
    with torch.no_grad():
        wide = live(kind, **more).float()
        wide.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
        exact = wide(torch.tensor([tokens])).logits[0]
        theirs = model(torch.tensor([tokens])).logits[0].float()
    found = torch.stack([torch.from_numpy(ours.step({0: token})[0].copy()) for token in tokens])
    # No further from float32 than those of torch, by more than a half.
    assert (found - exact).norm() <= 1.5 * (theirs - exact).norm() + 1e-3 * exact.norm()


def test_a_live_model_without_a_tokenizer_and_with_an_unknown_one():
    from cusync.torch import Model

    ours = Model(live("Llama"), context=32, device="cpu")
    with pytest.raises(cusync.CusyncError, match="without a tokenizer"):
        ours.generate("x")
    with pytest.raises(cusync.CusyncError, match="not a fast one"):
        Model(live("Llama"), tokenizer=object())
    with pytest.raises(cusync.CusyncError, match="is not supported"):
        model = live("Llama")
        Model(type("OtherForCausalLM", (type(model),), {})(model.config).to(torch.bfloat16))


def test_a_live_model_generates_with_its_tokenizer(tiny):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from cusync.torch import Model

    model = transformers.LlamaForCausalLM.from_pretrained(tiny, dtype=torch.bfloat16)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tiny / "tokenizer.json"))
    ours = Model(model, tokenizer, context=128, device="cpu")
    text = ours.generate("Once upon a time", max_tokens=16)
    assert text == cusync.Model(tiny, context=128, device="cpu").generate("Once upon a time", max_tokens=16)
