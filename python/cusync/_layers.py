"""Layers of language models for steps of one token: see `cusync.torch.Layers`, `DecoderLayer` and `Attention`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _cusync
from ._accelerate import configuration, unlike_static
from ._errors import argument_error
from ._stack import Rotary, StackEngine
from ._steps import GRANULE

#: Keys or values: a tensor for each layer, or that of the only one.
Caches = torch.Tensor | Sequence[torch.Tensor]


class _Steps(torch.nn.Module):
    """A module that an engine runs."""

    def __init__(self, engine: StackEngine, first: int) -> None:
        super().__init__()
        self._engine, self._number = engine, engine.number
        #: Its layers in a `StaticCache` of transformers.
        self.layers = range(first, first + engine.layers)

    @property
    def bytes(self) -> int:
        """Bytes of weights that are held beside those given: laid out for a GPU, or copied by plans for the host."""
        return self._engine.bytes()

    @property
    def choices(self) -> dict[tuple[int, int], str]:
        """Who computes steps of some sequences on caches of some rows so far, and why."""
        engine = self._engine
        with engine.lock:
            ours = dict.fromkeys(engine.plans, "cusync: it has a plan")
            return {**ours, **{sizes: f"torch: {reason}" for sizes, reason in engine.kept.items()}}

    def forward(self, states: torch.Tensor, keys: Caches, values: Caches, lengths: torch.Tensor) -> torch.Tensor:
        """The hidden states behind the layers.

        ``states`` is (sequences, width) or (sequences, 1, width). ``keys`` and ``values`` have a contiguous cache
        (sequences, kv_heads, rows, head) for each layer, as a ``StaticCache`` of transformers; keys are rotated.
        ``lengths`` has the tokens in them before the step: an integer for each sequence, or one for all. The caches get
        the row of the new token; ``lengths`` stays, and is yours to increase. More than 32 sequences, and caches whose
        rows are no multiple of 64, run by torch's own operators.
        """
        if torch.is_grad_enabled() and states.requires_grad:
            raise argument_error(
                f"cusync.torch.{type(self).__name__} has no gradient",
                "call it under torch.no_grad(), or use torch's own layers",
            )
        result: torch.Tensor = torch.ops.cusync.decode(states, _list(keys), _list(values), lengths, self._number)
        return result

    def prepare(self, keys: Caches, values: Caches) -> None:
        """Plan for these caches, so that a step on them can be captured into a CUDA graph."""
        self._engine.prepare(_list(keys), _list(values))

    def step(self, states: torch.Tensor, cache: Any) -> torch.Tensor:
        """A step on the layers of a `StaticCache` of transformers, whose lengths grow by one."""
        held = [cache.layers[layer] for layer in self.layers]
        keys, values = [layer.keys for layer in held], [layer.values for layer in held]
        result: torch.Tensor = self(states, keys, values, held[0].cumulative_length)
        torch._foreach_add_([layer.cumulative_length for layer in held], 1)
        return result

    def extra_repr(self) -> str:
        engine = self._engine
        return f"layers={engine.layers}, width={engine.width}, kv_heads={engine.heads}, head={engine.head}"


class Layers(_Steps):
    """Decoder layers for one more token of each of up to 32 sequences: up to eight layers are one launch.

    A layer is that of Llama: norm, attention with rotated heads, norm, gated MLP; with biases of queries, keys and
    values (Qwen2), or norms of heads (Qwen3). ``layers`` has the weights of each by the names that its ``state_dict``
    has in transformers, as ``nn.Linear`` keeps them. ``rotary`` is the base of the frequencies, or makes cosines and
    sines as the rotary modules of transformers do. Weights are laid out for steps when the first plan is made: after a
    change of weights, make the layers again.
    """

    def __init__(
        self,
        layers: Iterable[Mapping[str, torch.Tensor]],
        rotary: Rotary,
        *,
        heads: int,
        epsilon: float = 1e-6,
        activation: str = "silu",
    ) -> None:
        weights = _weights(layers)
        count = 1 + max((int(name.split(".")[2]) for name in weights), default=-1)
        decoder = _decoder(weights, count, heads, epsilon, activation)
        super().__init__(StackEngine(decoder, weights, rotary, None, epsilon, activation), 0)

    @classmethod
    def from_transformers(cls, layers: Iterable[Any], rotary: Rotary) -> Any:
        """The layers of a live model, such as ``model.model.layers[:8]`` with ``model.model.rotary_emb``."""
        modules = list(layers) if isinstance(layers, Iterable) else [layers]
        if not modules or any(type(module) is not type(modules[0]) for module in modules):
            raise argument_error("there are no layers, or layers of several types", "give layers of one model")
        numbers = [module.self_attn.layer_idx for module in modules]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise argument_error(f"layers {numbers} do not follow each other", "give a slice of the model's layers")
        weights = _weights(module.state_dict() for module in modules)
        made = cls.__new__(cls)
        config = modules[0].self_attn.config
        _Steps.__init__(made, _of_transformers(modules, "DecoderLayer", config, weights, rotary, None), numbers[0])
        return made


class DecoderLayer(Layers):
    """``Layers`` with one layer, whose caches may be given as tensors of their own."""

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        rotary: Rotary,
        *,
        heads: int,
        epsilon: float = 1e-6,
        activation: str = "silu",
    ) -> None:
        super().__init__([weights], rotary, heads=heads, epsilon=epsilon, activation=activation)

    @classmethod
    def from_linear(
        cls,
        q: torch.nn.Linear,
        k: torch.nn.Linear,
        v: torch.nn.Linear,
        o: torch.nn.Linear,
        gate: torch.nn.Linear,
        up: torch.nn.Linear,
        down: torch.nn.Linear,
        *,
        norm: Any,
        mlp_norm: Any,
        rotary: Rotary,
        heads: int,
        q_norm: Any = None,
        k_norm: Any = None,
        epsilon: float = 1e-6,
        activation: str = "silu",
    ) -> DecoderLayer:
        """The layer of these modules. ``norm`` and ``mlp_norm`` have the gains in front of attention and MLP,
        ``q_norm`` and ``k_norm`` those of heads."""
        weights = _attention_weights(q, k, v, o, norm, q_norm, k_norm)
        weights["post_attention_layernorm.weight"] = mlp_norm.weight
        for name, linear in {"gate": gate, "up": up, "down": down}.items():
            weights[f"mlp.{name}_proj.weight"] = _without_bias(name, linear)
        return cls(weights, rotary, heads=heads, epsilon=epsilon, activation=activation)


class Attention(_Steps):
    """The attention of a layer with its cache, for one more token of each of up to 32 sequences, in one launch: norm
    (optional), queries, keys and values, rotation, attention to the cache, output product, residual (optional).

    ``weights`` has the names of ``Layers``: those of ``self_attn``, and of ``input_layernorm`` if rows are normalized.
    With ``residual`` the hidden states are added to the result. The other arguments are those of ``Layers``.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        rotary: Rotary,
        *,
        heads: int,
        residual: bool = False,
        epsilon: float = 1e-6,
    ) -> None:
        named = _weights([weights])
        decoder = _decoder(named, 1, heads, epsilon, "silu")
        options = (_normed(named), residual)
        super().__init__(StackEngine(decoder, named, rotary, options, epsilon, "silu"), 0)

    @classmethod
    def from_linear(
        cls,
        q: torch.nn.Linear,
        k: torch.nn.Linear,
        v: torch.nn.Linear,
        o: torch.nn.Linear,
        *,
        rotary: Rotary,
        heads: int,
        norm: Any = None,
        q_norm: Any = None,
        k_norm: Any = None,
        residual: bool = False,
        epsilon: float = 1e-6,
    ) -> Attention:
        """The attention of these modules; the norms are as in ``DecoderLayer.from_linear``."""
        weights = _attention_weights(q, k, v, o, norm, q_norm, k_norm)
        return cls(weights, rotary, heads=heads, residual=residual, epsilon=epsilon)

    @classmethod
    def from_transformers(
        cls, attention: Any, rotary: Rotary, *, norm: Any = None, residual: bool = False
    ) -> Attention:
        """The attention of a live model, such as ``layer.self_attn`` with ``norm=layer.input_layernorm``."""
        given = {f"self_attn.{name}": tensor for name, tensor in attention.state_dict().items()}
        if norm is not None:
            given["input_layernorm.weight"] = norm.weight
        weights = _weights([given])
        made = cls.__new__(cls)
        options = (_normed(weights), residual)
        engine = _of_transformers([attention], "Attention", attention.config, weights, rotary, options)
        _Steps.__init__(made, engine, attention.layer_idx)
        return made


def _list(caches: Caches) -> list[torch.Tensor]:
    return [caches] if isinstance(caches, torch.Tensor) else list(caches)


def _weights(layers: Iterable[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Weights of layers by their names in a model that has no others."""
    numbered = [(number, name, tensor) for number, layer in enumerate(layers) for name, tensor in layer.items()]
    return {f"model.layers.{number}.{name}": tensor.detach() for number, name, tensor in numbered}


def _normed(weights: dict[str, torch.Tensor]) -> bool:
    return "model.layers.0.input_layernorm.weight" in weights


def _attention_weights(q: Any, k: Any, v: Any, o: Any, norm: Any, q_norm: Any, k_norm: Any) -> dict[str, torch.Tensor]:
    weights = {f"self_attn.{name}_proj.weight": linear.weight for name, linear in {"q": q, "k": k, "v": v}.items()}
    weights["self_attn.o_proj.weight"] = _without_bias("o", o)
    biases = {name: linear.bias for name, linear in {"q": q, "k": k, "v": v}.items() if linear.bias is not None}
    if len(biases) not in (0, 3):
        raise argument_error(f"only {', '.join(biases)} have a bias", "give `q`, `k` and `v` a bias, or none of them")
    weights.update({f"self_attn.{name}_proj.bias": bias for name, bias in biases.items()})
    if (q_norm is None) != (k_norm is None):
        raise argument_error("one of `q_norm` and `k_norm` is missing", "give both, or none of them")
    gains = {"self_attn.q_norm": q_norm, "self_attn.k_norm": k_norm, "input_layernorm": norm}
    weights.update({f"{name}.weight": module.weight for name, module in gains.items() if module is not None})
    return weights


def _without_bias(name: str, linear: torch.nn.Linear) -> torch.Tensor:
    if linear.bias is not None:
        raise argument_error(f"`{name}` has a bias", "only `q`, `k` and `v` may have one")
    return linear.weight


def _decoder(
    weights: dict[str, torch.Tensor], layers: int, heads: int, epsilon: float, activation: str
) -> _cusync.Decoder:
    """A decoder with the sizes of these weights."""

    def rows(name: str) -> int:
        tensor = weights.get(f"model.layers.0.{name}.weight")
        if tensor is None or tensor.dim() != 2:
            help = "weights have the names of transformers' layers"
            raise argument_error(f"there is no matrix `{name}.weight`", help)
        return tensor.shape[0]

    queries, width = rows("self_attn.q_proj"), rows("self_attn.o_proj")
    if heads < 1 or queries % heads or rows("self_attn.k_proj") % (queries // heads):
        raise argument_error(
            f"`heads` is {heads}, and `q_proj` and `k_proj` have {queries} and {rows('self_attn.k_proj')} rows",
            "give the number of query heads, which divides both into heads of one size",
        )
    only_attention = not any(".mlp." in name for name in weights)
    config = {
        "hidden_size": width,
        # An attention has no MLP.
        "intermediate_size": 8 if only_attention else rows("mlp.gate_proj"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": rows("self_attn.k_proj") * heads // queries,
        "head_dim": queries // heads,
        "rms_norm_eps": epsilon,
        "hidden_act": activation,
        # A stack without a head has no vocabulary, and caches limit its sequences.
        "vocab_size": 8,
        "max_position_embeddings": 8,
        "dtype": str(weights["model.layers.0.self_attn.o_proj.weight"].dtype).removeprefix("torch."),
    }
    prefix = "model.layers.0.self_attn"
    bias, head_norm = f"{prefix}.q_proj.bias" in weights, f"{prefix}.q_norm.weight" in weights
    return _cusync.Decoder.plain(json.dumps(config), bias, head_norm)


def _of_transformers(
    modules: list[Any],
    suffix: str,
    config: Any,
    weights: dict[str, torch.Tensor],
    rotary: Rotary,
    attention: tuple[bool, bool] | None,
) -> StackEngine:
    """The engine of modules whose class is named after their architecture."""
    hooked = any(each._forward_hooks or each._forward_pre_hooks for module in modules for each in module.modules())
    if hooked:
        raise argument_error("the layers have hooks, which would not run", "remove them, or use torch's own layers")
    windows = unlike_static(config, windows=False)
    if windows is not None:
        raise argument_error(windows, "use torch's own layers")
    architecture = type(modules[0]).__name__.removesuffix(suffix) + "ForCausalLM"
    described = configuration(config, architecture, next(iter(weights.values())).dtype)
    decoder = _cusync.Decoder(json.dumps({**described, "num_hidden_layers": len(modules)}))
    if any((added, factor) != (0.0, 1.0) for *_, made in decoder.layers(1, GRANULE) for _, _, added, factor in made):
        raise argument_error(f"layers of {architecture} add one to their gains", "use torch's own layers")
    activation = described.get("hidden_act") or "silu"
    return StackEngine(decoder, weights, rotary, attention, described["rms_norm_eps"], activation)
