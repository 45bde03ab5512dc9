"""Steps of a transformers model by cusync: see `cusync.torch.accelerate`."""

from __future__ import annotations

import functools
import inspect
import json
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from . import _cusync
from ._errors import CusyncError
from ._steps import GRANULE, MOST_SEQUENCES, Engine, Launch

ELEMENTS = (torch.float16, torch.bfloat16)

#: Longer caches have larger steps than a granule, so that fewer plans are made.
_LONG, _COARSE = 1024, 256


def configuration(config: Any, architecture: str, dtype: torch.dtype) -> dict[str, Any]:
    """The `config.json` of a live model, from its configuration, the name of its class, and its type."""
    found: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    found["architectures"] = [architecture]
    found["dtype"] = str(dtype).removeprefix("torch.")
    found.pop("torch_dtype", None)
    return found


#: Names of the module with the experts, and of their gate, up and down, in checkpoints.
_EXPERTS = {
    "Qwen3MoeForCausalLM": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "MixtralForCausalLM": ("block_sparse_moe", "w1", "w3", "w2"),
}


def stored(model: Any) -> dict[str, torch.Tensor]:
    """Weights of a live model by their names in checkpoints: transformers joins the experts of a layer."""
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    names = _EXPERTS.get(type(model).__name__)
    if names is None:
        return weights
    module, gate, up, down = names
    found: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        layer, is_mlp, part = name.partition(".mlp.")
        joined = {"experts.gate_up_proj": (gate, up), "experts.down_proj": (down,)}.get(part)
        if joined is None:
            found[f"{layer}.{module}.{part}" if is_mlp else name] = tensor
            continue
        for number, expert in enumerate(tensor):
            for product, rows in zip(joined, expert.chunk(len(joined)), strict=True):
                found[f"{layer}.{module}.experts.{number}.{product}.weight"] = rows
    return found


class ModelEngine(Engine):
    """Steps of a model, from its embedded tokens to its logits."""

    preparing = "prepare it: run one step on the same cache before the capture"
    instead = "remove the acceleration"

    def __init__(self, model: Any, decoder: _cusync.Decoder) -> None:
        super().__init__(decoder, model.get_input_embeddings().weight)
        self.config = model.config
        self.bound, self.factor = decoder.bound(), decoder.embedding_factor()
        #: Tokens that the layers attend to, if some have a window.
        self.window: int | None = getattr(model.config.get_text_config(), "sliding_window", None)
        self.model: Callable[[], Any] = weakref.ref(model)

    def launches(self, batch: int, rows: int) -> list[Launch]:
        return self.decoder.launches(batch, rows)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach() for name, tensor in self.model().state_dict().items()}

    def rotary(self) -> Any:
        """The module that makes the angles of rotations."""
        return getattr(self.model().get_decoder(), "rotary_emb", None)

    def turns(self, positions: torch.Tensor, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        rotary = self.rotary()
        # Models with several rotations have one for each type of layers.
        typed = "layer_type" in inspect.signature(rotary.forward).parameters
        kind = {"layer_type": self.config.get_text_config().layer_types[layer]} if typed else {}
        cosines, sines = rotary(self.like, positions, **kind)
        return cosines, sines

    def embedded(self, states: torch.Tensor) -> torch.Tensor:
        """Embedded tokens as the layers take them."""
        return states if self.factor is None else states * self.factor

    def shape(self, states: torch.Tensor) -> tuple[int, ...]:
        return (states.shape[0], 1, self.vocabulary)

    def whole(self, result: torch.Tensor) -> torch.Tensor:
        return result.clone() if self.bound is None else result * self.bound

    def missing(self) -> str | None:
        return "its decoder has no `rotary_emb`" if self.rotary() is None else super().missing()


class Acceleration:
    """What `accelerate` changed in a model, and how often it was used."""

    #: Why nothing was changed; ``None`` if steps run by cusync.
    refusal: str | None
    #: Steps that torch computed, by the reason.
    kept: Counter[str]

    def __init__(self, refusal: str | None, engine: ModelEngine | None) -> None:
        self.refusal = refusal
        self.kept = Counter()
        self._engine = engine
        #: Masks and positions that `generate` made for the next call.
        self._made: list[Any] = []

    @property
    def steps(self) -> int:
        """Steps that cusync computed."""
        return 0 if self._engine is None else self._engine.steps

    @property
    def bytes(self) -> int:
        """Bytes of weights that are held beside those of the model."""
        return 0 if self._engine is None else self._engine.bytes()

    def remove(self) -> None:
        """Give the model its own steps back, and free the second copy of its weights."""
        model = None if self._engine is None else self._engine.model()
        if model is None:
            return
        model.__class__ = model._cusync_base
        del model._cusync_acceleration
        self.refusal, self._engine = "it was removed", None

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"all steps stay with torch: {self.refusal}"
        lines = [
            f"steps of one token by cusync: {self.steps}",
            f"weights beside those of the model: {self.bytes / 1e9:.2f} GB",
            "prompts: torch",
        ]
        lines += [f"steps by torch: {count}: {reason}" for reason, count in self.kept.most_common()]
        return "\n".join(lines)


def _cache(arguments: dict[str, Any]) -> Any:
    """The cache of a call; newer releases of transformers have another name for it."""
    cache = arguments.get("cache")
    return arguments.get("past_key_values") if cache is None else cache


#: Layers of static caches. Those with a window have at most its rows, and drop tokens when these are full.
_STATIC = ("StaticLayer", "StaticSlidingWindowLayer")


def _static(cache: Any) -> bool:
    layers = getattr(cache, "layers", None)
    return layers is not None and len(layers) > 0 and all(type(layer).__name__ in _STATIC for layer in layers)


def _slides(layer: Any) -> bool:
    return bool(getattr(layer, "is_sliding", False))


def _cut_off(cache: Any, window: int | None) -> str | None:
    """Why tokens may leave the window of a layer: steps need caches that hold all tokens."""
    rows = {layer.max_cache_len for layer in cache.layers}
    whole = any(not _slides(layer) for layer in cache.layers) or window is not None and max(rows) < window
    if len(rows) > 1 or not whole:
        return f"the cache may hold more tokens than the window of {window}"
    if any(_slides(layer) and layer.cumulative_length_int >= max(rows) for layer in cache.layers):
        return "the cache is full"
    return None


def _round(cache: Any, window: int | None) -> None:
    """Give a cache that has no memory yet a number of rows that kernels take."""
    if not _static(cache) or any(layer.is_initialized for layer in cache.layers):
        return
    longest = max(layer.max_cache_len for layer in cache.layers)
    step = _COARSE if longest > _LONG else GRANULE
    rounded = -(-longest // step) * step
    if any(_slides(layer) for layer in cache.layers) and (window is None or rounded >= window):
        return
    for layer in cache.layers:
        layer.max_cache_len = rounded


def _all_seen(mask: Any, length: int) -> bool:
    """Whether the last token of every sequence attends to all tokens of it."""
    if mask is None:
        return True
    if isinstance(mask, dict):
        return all(_all_seen(each, length) for each in mask.values())
    if not isinstance(mask, torch.Tensor) or mask.dim() not in (2, 4):
        return False
    row = mask[..., :length] if mask.dim() == 2 else mask[:, :, -1, :length]
    return bool((row == 0).all() if row.is_floating_point() else row.bool().all())


def _examine(cache: Any, arguments: dict[str, Any]) -> None:
    """Remember whether all sequences of a cache begin at its first row, as steps assume; ``None``: unknown."""
    if not _static(cache) or not cache.layers[0].is_initialized:
        return
    mask, positions = arguments.get("attention_mask"), arguments.get("position_ids")
    if mask is None and positions is None:
        cache._cusync_plain = True
        return
    if torch.compiler.is_compiling() or cache.layers[0].keys.is_cuda and torch.cuda.is_current_stream_capturing():
        cache._cusync_plain = None
        return
    length = int(cache.layers[0].cumulative_length)
    plain = _all_seen(mask, length)
    if isinstance(positions, torch.Tensor):
        plain = plain and bool((positions[..., -1] == length - 1).all())
    cache._cusync_plain = plain


def _reason(engine: ModelEngine, report: Acceleration, model: Any, arguments: dict[str, Any]) -> str | None:
    """Why torch computes a step: a call for one more token of each sequence in a cache."""
    cache = _cache(arguments)
    if torch.is_grad_enabled():
        return "gradients are enabled"
    if model.training:
        return "the model is in training mode"
    if not _static(cache):
        return 'the cache is not static: generate(cache_implementation="static")'
    for name in ("labels", "output_attentions", "output_hidden_states"):
        value = arguments.get(name, getattr(engine.config, name, None))
        if value is not None and value is not False:
            return f"`{name}` is set"
    if arguments.get("return_dict") is False:
        return "`return_dict` is false"
    for name in ("attention_mask", "position_ids"):
        value = arguments.get(name)
        known = not torch.compiler.is_compiling() and any(value is made for made in report._made)
        if value is not None and not known:
            return f"a step has `{name}`, which is not read: leave it out, or call generate"
    plain = getattr(cache, "_cusync_plain", None)
    if plain is None:
        return "the cache was filled elsewhere: run its prompt on this model, outside of graphs and torch.compile"
    if not plain:
        return "sequences are padded, or their masks hide tokens"
    given, embeds = arguments.get("input_ids"), arguments.get("inputs_embeds")
    if given is not None and embeds is not None or embeds is not None and embeds.dtype != engine.like.dtype:
        return "`inputs_embeds` are of another type, or not the only inputs"
    if model.get_output_embeddings().weight.shape[0] != engine.vocabulary:
        return "the vocabulary has changed: call accelerate again"
    if len(cache.layers) != engine.layers:
        return "the cache has other layers than the model"
    beyond = _cut_off(cache, engine.window)
    if beyond is not None:
        return beyond
    batch, heads, rows, columns = cache.layers[0].keys.shape
    if (heads, columns) != (engine.heads, engine.head):
        return "the cache has other heads than the model"
    for layer in cache.layers:
        for tensor in (layer.keys, layer.values):
            if tensor.dtype != engine.like.dtype or tensor.device != engine.like.device:
                return "the cache is of another type or on another device than the model"
            if not tensor.is_contiguous():
                return "the cache is not contiguous"
    if batch > MOST_SEQUENCES:
        return f"more than {MOST_SEQUENCES} sequences"
    if rows % GRANULE:
        return f"the cache has {rows} rows, which is no multiple of {GRANULE}"
    return None if torch.compiler.is_compiling() else engine.ready(batch, rows)


def _tokens(arguments: dict[str, Any]) -> int:
    """Tokens of a call for each sequence; 0 if the call has none that are known."""
    given = arguments.get("input_ids")
    given = arguments.get("inputs_embeds") if given is None else given
    return given.shape[1] if isinstance(given, torch.Tensor) and given.dim() >= 2 else 0


def _empty(kind: Any) -> Any:
    """An object of a class without attributes, for copies and pickles."""
    return kind.__new__(kind)


@functools.cache
def _accelerated(base: Any) -> Any:
    """The class of models of a class whose steps run by cusync. Copies of a model are of the plain class."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    names = list(inspect.signature(base.forward).parameters)[1:]
    cached = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"

    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        report: Acceleration | None = getattr(self, "_cusync_acceleration", None)
        engine = None if report is None else report._engine
        if report is None or engine is None:
            return base.forward(self, *args, **kwargs)
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        cache = _cache(arguments)
        empty = _static(cache) and not cache.layers[0].is_initialized
        if _tokens(arguments) != 1 or empty:
            mask = arguments.get("attention_mask")
            if mask is None or isinstance(mask, torch.Tensor) and mask.dim() == 2:
                _round(cache, engine.window)
            result = base.forward(self, *args, **kwargs)
            _examine(cache, arguments)
            return result
        reason = _reason(engine, report, self, arguments)
        if reason is not None:
            if not torch.compiler.is_compiling():
                report.kept[reason] += 1
            return base.forward(self, *args, **kwargs)
        states = arguments.get("inputs_embeds")
        states = self.get_input_embeddings()(arguments["input_ids"]) if states is None else states
        layers = cache.layers
        logits = torch.ops.cusync.decode(
            engine.embedded(states),
            [layer.keys for layer in layers],
            [layer.values for layer in layers],
            layers[0].cumulative_length,
            engine.number,
        )
        torch._foreach_add_([layer.cumulative_length for layer in layers], 1)
        for layer in layers:
            if _slides(layer):
                layer.cumulative_length_int += 1
        return CausalLMOutputWithPast(logits=logits, **{cached: cache})

    @functools.wraps(base.prepare_inputs_for_generation)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        report: Acceleration | None = getattr(self, "_cusync_acceleration", None)
        if report is None:
            return base.prepare_inputs_for_generation(self, *args, **kwargs)
        # Masks are made of the cache's rows before the model is called.
        engine = report._engine
        if engine is not None:
            _round(_cache(kwargs), engine.window)
        inputs = base.prepare_inputs_for_generation(self, *args, **kwargs)
        report._made = [inputs.get(name) for name in ("attention_mask", "position_ids")]
        return inputs

    def compiles(self: Any, *args: Any, **kwargs: Any) -> bool:
        # There is nothing left to compile in a step.
        active = getattr(self, "_cusync_acceleration", None) is not None
        return not active and bool(base._valid_auto_compile_criteria(self, *args, **kwargs))

    def reduce(self: Any, protocol: Any) -> Any:
        state = base.__reduce_ex__(self, protocol)[2]
        return _empty, (base,), {name: value for name, value in state.items() if name != "_cusync_acceleration"}

    methods = {"forward": forward, "prepare_inputs_for_generation": prepare, "__reduce_ex__": reduce}
    # Others find the class by its name, as transformers does.
    names_of_base = {"__module__": base.__module__, "__qualname__": base.__qualname__, "_cusync_base": base}
    return type(base.__name__, (base,), {**methods, "_valid_auto_compile_criteria": compiles, **names_of_base})


def unlike_static(config: Any, windows: bool) -> str | None:
    """What a static cache of a model has that steps cannot use; whether they can use those of layers with windows."""
    import transformers

    cache = transformers.StaticCache(config=config, max_cache_len=GRANULE)
    layers = cache.layers
    if not _static(cache) or not windows and any(map(_slides, layers)):
        return "its layers have windows of attention, whose caches steps cannot use"
    if not isinstance(getattr(layers[0], "cumulative_length", None), torch.Tensor):
        return f"static caches of transformers {transformers.__version__} do not count their tokens on the device"
    return None


def _refusal(model: Any, cpu: bool) -> tuple[str | None, ModelEngine | None]:
    """Why a model keeps its own steps, or what computes them."""
    if getattr(model, "dtype", None) not in ELEMENTS:
        return f"its weights are {getattr(model, 'dtype', 'of no known type')}, not float16 or bfloat16", None
    try:
        decoder = _cusync.Decoder(json.dumps(configuration(model.config, type(model).__name__, model.dtype)))
    except CusyncError as error:
        return error.message, None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return "its modules have hooks, which would not run", None
    if "forward" in model.__dict__:
        return "its `forward` was replaced, for instance by a compiled one: replace it afterwards", None
    unlike = unlike_static(model.config, windows=True)
    if unlike is not None:
        return unlike, None
    engine = ModelEngine(model, decoder)
    if engine.on_host and not cpu:
        return "it is on a CPU, where torch is faster", None
    if engine.like.device.type not in ("cpu", "cuda"):
        return f"it is on {engine.like.device}", None
    missing = engine.missing()
    if missing is not None:
        return missing, None
    reason = None if engine.on_host else engine.ready(1, GRANULE)
    return (reason, None) if reason is not None else (None, engine)


def accelerate(model: Any, *, cpu: bool = False) -> Acceleration:
    """Let cusync compute the steps of a transformers model: calls for one more token of each of up to 32 sequences.

    ``model.generate`` and direct calls work as before. Steps on a static cache run by cusync, under CUDA graphs and
    ``torch.compile`` too; everything else stays with torch, and the result counts it by its reason. Steps read a second
    copy of the weights, laid out for them: after a change of weights, call ``accelerate`` again. ``cpu`` also takes
    models on the host, to try it: there torch is faster.
    """
    before = model.__dict__.get("_cusync_acceleration")
    if before is not None:
        before.remove()
    refusal, engine = _refusal(model, cpu)
    report = Acceleration(refusal, engine)
    if engine is None:
        return report
    model._cusync_acceleration = report
    model.__class__ = _accelerated(getattr(model, "_cusync_base", type(model)))
    return report
