"""Layers of language models for steps of one token: see `cusync.torch.Layers`, `DecoderLayer` and `Attention`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _cusync
from ._accelerate import ELEMENTS, configuration, unlike_static
from ._errors import argument_error
from ._steps import GRANULE, MOST_SEQUENCES, Engine, Launch, here

#: Activations of gates by their names in configurations.
_GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "swish": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
}

#: Keys or values: a tensor for each layer, or that of the only one.
Caches = torch.Tensor | Sequence[torch.Tensor]

#: Cosines and sines of positions, as the rotary modules of transformers make them; or the base of the frequencies.
Rotary = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | float


def _rotation(base: float, columns: int) -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Angles of heads of some columns without scaling."""

    def turn(like: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shares = torch.arange(0, columns, 2, dtype=torch.float32, device=like.device) / columns
        angles = positions[..., None].float() * base**-shares
        both = torch.cat([angles, angles], -1)
        return both.cos().to(like.dtype), both.sin().to(like.dtype)

    return turn


class _LayersEngine(Engine):
    """Steps of layers, from hidden states to hidden states, or of one attention: then `attention` states whether rows
    are normalized, and whether there is a residual."""

    preparing = "prepare it before the capture: prepare(keys, values)"

    def __init__(
        self,
        decoder: _cusync.Decoder,
        weights: dict[str, torch.Tensor],
        rotary: Rotary,
        attention: tuple[bool, bool] | None,
        epsilon: float,
        activation: str,
    ) -> None:
        super().__init__(decoder, next(iter(weights.values())))
        self.columns = self.width
        self.given, self.attention = weights, attention
        self.epsilon, self.gate = epsilon, _GATES[activation]
        #: Why torch computes steps of some sequences on caches of some rows.
        self.kept: dict[tuple[int, int], str] = {}
        self.rotary = rotary if callable(rotary) else _rotation(rotary, self.head)
        if self.like.dtype not in ELEMENTS or self.like.device.type not in ("cpu", "cuda"):
            raise argument_error(
                f"`{next(iter(weights))}` is {self.like.dtype} on {self.like.device}",
                "weights are float16 or bfloat16, on the host or a GPU",
            )
        missing = self.missing()
        if missing is not None:
            raise argument_error(missing, "give all weights, of one type and on one device, without adapters")
        #: Tensors of pages as rows of the weights, one after the other.
        self.rows: dict[str, list[torch.Tensor]] = {
            name: [weights[tensor][first : first + count] for tensor, first, count in rows]
            for _, _, _, made in self.launches(1, GRANULE)
            for name, rows in made
        }

    def launches(self, batch: int, rows: int) -> list[Launch]:
        if self.attention is not None:
            return self.decoder.attention(batch, rows, *self.attention)
        return self.decoder.layers(batch, rows)

    def weights(self) -> dict[str, torch.Tensor]:
        return self.given

    def turns(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self.rotary(self.like, positions)
        if cosines.shape[-1] != self.head:
            raise argument_error(
                f"the rotation has {cosines.shape[-1]} columns, and heads have {self.head}",
                "only whole heads are rotated",
            )
        return cosines, sines

    def shape(self, states: torch.Tensor) -> tuple[int, ...]:
        return tuple(states.shape)

    def prepare(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Make the plan for a step on these caches, and bind them to it."""
        self._check(None, keys, values)
        if self._reason(keys[0]) is None:
            super().prepare(keys, values)

    def _reason(self, cache: torch.Tensor) -> str | None:
        """Why torch computes a step on this cache and its like."""
        batch, _, rows, _ = cache.shape
        reason = self.ready(batch, rows) if batch <= MOST_SEQUENCES and rows % GRANULE == 0 else None
        if batch > MOST_SEQUENCES:
            reason = f"more than {MOST_SEQUENCES} sequences"
        elif rows % GRANULE:
            reason = f"{rows} rows are no multiple of {GRANULE}"
        if reason is None:
            self.kept.pop((batch, rows), None)
        else:
            self.kept[batch, rows] = reason
        return reason

    def _check(
        self, states: torch.Tensor | None, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
    ) -> None:
        """Refuse tensors that a step cannot use, by their names."""
        if len(keys) != self.layers or len(values) != self.layers:
            raise argument_error(
                f"there are {len(keys)} `keys` and {len(values)} `values`, and {self.layers} layers",
                "give a tensor of each for every layer",
            )
        first = keys[0].shape
        if len(first) != 4 or 0 in first:
            raise argument_error(
                f"`keys[0]` has shape {tuple(first)}", f"caches are (sequences, {self.heads}, rows, {self.head})"
            )
        wanted = (first[0], self.heads, first[2], self.head)
        named: list[tuple[str, torch.Tensor, tuple[int, ...]]]
        named = [(f"keys[{n}]", each, wanted) for n, each in enumerate(keys)]
        named += [(f"values[{n}]", each, wanted) for n, each in enumerate(values)]
        if states is not None:
            batch = (first[0], 1, self.width) if states.dim() == 3 else (first[0], self.width)
            named.append(("states", states, batch))
        for name, tensor, shape in named:
            if tensor.shape != shape:
                message = f"`{name}` has shape {tuple(tensor.shape)}, not {shape}"
                raise argument_error(message, "see cusync.torch.Layers")
            if tensor.dtype != self.like.dtype or tensor.device != self.like.device:
                raise argument_error(
                    f"`{name}` is {tensor.dtype} on {tensor.device}, and the weights are {self.like.dtype} on "
                    f"{self.like.device}",
                    "convert it, or make the layers again from converted weights",
                )
            if name != "states" and not tensor.is_contiguous():
                raise argument_error(f"`{name}` has strides {tensor.stride()}", "caches are contiguous")

    def run(
        self,
        states: torch.Tensor,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        self._check(states, keys, values)
        batch = states.shape[0]
        if lengths.dtype not in (torch.int32, torch.int64) or lengths.device != self.like.device:
            raise argument_error(
                f"`lengths` is {lengths.dtype} on {lengths.device}", f"give int32 or int64 on {self.like.device}"
            )
        if lengths.numel() != 1 and tuple(lengths.shape) != (batch,):
            raise argument_error(
                f"`lengths` has shape {tuple(lengths.shape)}", f"give one length, or one for each of {batch} sequences"
            )
        with here(self.like), torch.no_grad():
            if self._reason(keys[0]) is None:
                return super().run(states, keys, values, lengths.reshape(-1))
            return self._by_torch(states, keys, values, lengths.reshape(-1))

    def _product(self, x: torch.Tensor, name: str, bias: str = "") -> torch.Tensor:
        """A product of rows with the weights that a page has under this name."""
        parts = [torch.nn.functional.linear(x, rows) for rows in self.rows[name]]
        result = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return result + torch.cat(self.rows[bias]) if bias in self.rows else result

    def _norm(self, x: torch.Tensor, gain: str) -> torch.Tensor:
        [weight] = self.rows[gain]
        return torch.nn.functional.rms_norm(x, weight.shape, weight, self.epsilon)

    def _by_torch(
        self,
        states: torch.Tensor,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """A step by torch's own operators."""
        x = states.reshape(states.shape[0], self.width)
        batch, positions = len(x), lengths.expand(len(x)).long()
        cosines, sines = self.turns(positions[:, None])
        seen = torch.arange(keys[0].shape[2], device=x.device) <= positions[:, None]
        numbers = torch.arange(batch, device=x.device)

        def rotated(heads: torch.Tensor, gain: str) -> torch.Tensor:
            heads = self._norm(heads, gain) if gain in self.rows else heads
            left, right = heads.chunk(2, -1)
            return heads * cosines + torch.cat([-right, left], -1) * sines

        normed, residual = self.attention or (True, True)
        for n, (key, value) in enumerate(zip(keys, values, strict=True)):
            a = self._norm(x, f"g1_{n}") if normed else x
            qkv = self._product(a, f"Wqkv_{n}", f"bqkv_{n}").reshape(batch, -1, self.head)
            q, k, v = qkv.split([qkv.shape[1] - 2 * self.heads, self.heads, self.heads], 1)
            key[numbers, :, positions], value[numbers, :, positions] = rotated(k, f"gk_{n}"), v
            q = rotated(q, f"gq_{n}")[:, :, None]
            attended = torch.nn.functional.scaled_dot_product_attention(
                q, key, value, attn_mask=seen[:, None, None], enable_gqa=True
            )
            projected = self._product(attended.reshape(batch, -1), f"Wo_{n}")
            x = projected + x if residual else projected
            if self.attention is None:
                a = self._norm(x, f"g2_{n}")
                x = x + self._product(self.gate(self._product(a, f"Wg_{n}")) * self._product(a, f"Wu_{n}"), f"Wd_{n}")
        return x.reshape(states.shape)


class _Steps(torch.nn.Module):
    """A module that an engine runs."""

    def __init__(self, engine: _LayersEngine, first: int) -> None:
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
        super().__init__(_LayersEngine(decoder, weights, rotary, None, epsilon, activation), 0)

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
        super().__init__(_LayersEngine(decoder, named, rotary, options, epsilon, "silu"), 0)

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
) -> _LayersEngine:
    """The engine of modules whose class is named after their architecture."""
    hooked = any(each._forward_hooks or each._forward_pre_hooks for module in modules for each in module.modules())
    if hooked:
        raise argument_error("the layers have hooks, which would not run", "remove them, or use torch's own layers")
    windows = unlike_static(config)
    if windows is not None:
        raise argument_error(windows, "use torch's own layers")
    architecture = type(modules[0]).__name__.removesuffix(suffix) + "ForCausalLM"
    described = configuration(config, architecture, next(iter(weights.values())).dtype)
    decoder = _cusync.Decoder(json.dumps({**described, "num_hidden_layers": len(modules)}))
    activation = described.get("hidden_act") or "silu"
    return _LayersEngine(decoder, weights, rotary, attention, described["rms_norm_eps"], activation)
