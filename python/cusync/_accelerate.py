"""Steps of a transformers model by cusync: see `cusync.torch.accelerate`."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _cusync
from ._errors import CusyncError, argument_error

_ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}

#: Sequences that a decode kernel takes at most.
_MOST_SEQUENCES = 32

#: Rows of caches are a multiple of this; longer caches have larger steps, so that fewer plans are made.
_GRANULE, _LONG, _COARSE = 64, 1024, 256

#: Plans that are kept beside those that a graph may use.
_MOST_PLANS = 8


def configuration(model: Any) -> dict[str, Any]:
    """The `config.json` of a live model."""
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    config["architectures"] = [type(model).__name__]
    config["dtype"] = str(model.dtype).removeprefix("torch.")
    config.pop("torch_dtype", None)
    return config


class Acceleration:
    """What `accelerate` changed in a model, and how often it was used."""

    #: Why nothing was changed; ``None`` if steps run by cusync.
    refusal: str | None
    #: Steps that cusync computed.
    steps: int
    #: Steps that torch computed, by the reason.
    kept: Counter[str]

    def __init__(self, refusal: str | None, engine: _Engine | None) -> None:
        self.refusal = refusal
        self.kept = Counter()
        self._engine = engine
        self._model: Callable[[], Any] = lambda: None
        self._compiles = True

    def __deepcopy__(self, memo: Any) -> Acceleration:
        return Acceleration("it is a copy of an accelerated model: call accelerate", None)

    @property
    def steps(self) -> int:  # type: ignore[no-redef]
        return 0 if self._engine is None else self._engine.steps

    @property
    def bytes(self) -> int:
        """Bytes of weights that are held beside those of the model."""
        return 0 if self._engine is None else self._engine.bytes()

    def remove(self) -> None:
        """Give the model its own steps back, and free the second copy of its weights."""
        model = self._model()
        if self._engine is None or model is None:
            return
        model.__class__ = model._cusync_base
        del model._cusync_acceleration
        model.generation_config.disable_compile = not self._compiles
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


class _Runner:
    """The launches of a step for one number of sequences and one length of caches."""

    def __init__(self, parts: list[_cusync.Pipeline], layers: list[range], engine: _Engine, batch: int) -> None:
        self.parts, self.layers = parts, layers
        #: Addresses of the caches that are bound.
        self.bound: list[int] = []
        #: Whether a graph has captured a step, which needs these caches from then on.
        self.captured = False
        like = engine.like
        self.states = [like.new_zeros((batch, engine.width)) for _ in parts]
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=like.device)
        self.logits = like.new_zeros((batch, engine.columns))
        for number, part in enumerate(parts):
            part.set("X", self.states[number], engine.stream())
            part.set("n", self.lengths, engine.stream())
            out = self.states[number + 1] if number + 1 < len(parts) else self.logits
            part.set("Z" if number + 1 < len(parts) else "logits", out, engine.stream())

    def bind(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], addresses: list[int]) -> None:
        """Use these caches from now on."""
        for part, layers in zip(self.parts, self.layers, strict=True):
            if self.bound:
                # Memory may have been that of another layer's cache.
                part.unbind([f"{name}_{layer}" for layer in layers for name in "KV"])
            for layer in layers:
                part.lend(f"K_{layer}", keys[layer], 0)
                part.lend(f"V_{layer}", values[layer], 0)
            part.prepare()
        self.bound = addresses

    def run(self, states: torch.Tensor, length: torch.Tensor, stream: int) -> torch.Tensor:
        self.states[0].copy_(states.reshape(self.states[0].shape))
        self.lengths.copy_(length.expand_as(self.lengths))
        for part in self.parts:
            part.run(stream)
        return self.logits


class _HostRunner:
    """The launches of a step on the host, which copies caches from and to the pipelines."""

    def __init__(self, parts: list[_cusync.Pipeline], layers: list[range]) -> None:
        self.parts, self.layers = parts, layers

    def run(
        self,
        states: torch.Tensor,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        length: torch.Tensor,
    ) -> torch.Tensor:
        batch = states.shape[0]
        out = states.reshape(batch, -1).contiguous()
        for part, layers in zip(self.parts, self.layers, strict=True):
            part.set("X", out, 0)
            part.set("n", length.expand(batch).to(torch.int32).contiguous(), 0)
            caches = [(f"{name}_{n}", each[n]) for n in layers for name, each in (("K", keys), ("V", values))]
            for name, cache in caches:
                part.set(name, cache, 0)
            part.run(None)
            for name, cache in caches:
                cache.copy_(_read(part, name, cache.dtype).reshape(cache.shape))
            [result] = part.outputs()
            out = _read(part, result, out.dtype).reshape(batch, -1)
        return out


def _read(part: _cusync.Pipeline, name: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(part.read(name, False), dtype=dtype)


class _Engine:
    """Plans and weights of a model's steps."""

    def __init__(self, model: Any, decoder: _cusync.Decoder) -> None:
        self.number = next(_numbers)
        _engines[self.number] = self
        self.decoder, self.config = decoder, model.config
        self.model: Callable[[], Any] = weakref.ref(model)
        # It has no memory, and the type and the device of the model.
        self.like = model.get_input_embeddings().weight.detach().new_empty(0)
        self.layers, self.width, self.heads, self.head, self.vocabulary, self.columns, self.context = decoder.sizes()
        self.steps = self.copied = 0
        self.lock = threading.Lock()
        self.plans: OrderedDict[tuple[int, int], list[_Runner | _HostRunner]] = OrderedDict()
        self.failures: dict[tuple[int, int], str] = {}
        self.on_host = self.like.device.type == "cpu"

    def stream(self) -> int:
        return 0 if self.on_host else torch.cuda.current_stream(self.like.device).cuda_stream

    def bytes(self) -> int:
        """Bytes of weights beside those of the model: laid out for a GPU, or copied by plans for the host."""
        with self.lock:
            if self.on_host:
                return self.copied
            parts = [part for runners in self.plans.values() for part in runners[0].parts]
            return sum(dict(each for part in parts for each in part.laid_out()).values())

    def rotary(self) -> Any:
        """The module that makes the angles of rotations."""
        return getattr(self.model().get_decoder(), "rotary_emb", None)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach() for name, tensor in self.model().state_dict().items()}

    def missing(self) -> str | None:
        """What the model lacks, or has elsewhere."""
        if self.rotary() is None:
            return "its decoder has no `rotary_emb`"
        weights = self.weights()
        for _, _, _, made in self.decoder.launches(1, _GRANULE):
            for _, rows in made:
                for name, first, count in rows:
                    tensor = weights.get(name)
                    if tensor is None or tensor.shape[0] < first + count:
                        return f"the model has no weight `{name}` of {first + count} rows"
                    if tensor.dtype != self.like.dtype or tensor.device != self.like.device:
                        return f"`{name}` is {tensor.dtype} on {tensor.device}, unlike the embedding"
        return None

    def ready(self, batch: int, rows: int) -> str | None:
        """Make the plan for these sizes; the reason why there is none."""
        key = (batch, rows)
        with self.lock:
            if key in self.plans:
                self.plans.move_to_end(key)
                return None
            if not self.on_host and torch.cuda.is_current_stream_capturing():
                raise _unprepared()
            if key not in self.failures:
                try:
                    self._make(key)
                    return None
                except (CusyncError, torch.OutOfMemoryError) as error:
                    self.failures[key] = str(error).splitlines()[0]
            return self.failures[key]

    def _make(self, key: tuple[int, int]) -> None:
        batch, rows = key
        place = "cpu" if self.on_host else f"gpu:{self.like.device.index}"
        # The model rotated the keys in the cache, so its own angles are used, with their rounding.
        with torch.no_grad():
            turns = self.rotary()(self.like, torch.arange(rows, device=self.like.device)[None])
        half = self.head // 2
        angles = torch.cat([turn[0, :, :half] for turn in turns], -1).to(self.like.dtype).contiguous()
        first = next(iter(self.plans.values()), [None])[0]
        parts, layers, weights = [], [], self.weights()
        for number, (text, begin, end, made) in enumerate(self.decoder.launches(batch, rows)):
            part = _cusync.Pipeline(text, [], None, place, True)
            part.set("cs", angles, self.stream())
            matrices = [name for name, rows in made if weights[rows[0][0]].dim() == 2]
            self._put(part, [(name, rows) for name, rows in made if name not in matrices], weights)
            peer = None if first is None or self.on_host else first.parts[number]
            if peer is None or not part.share(peer):
                self._put(part, [(name, rows) for name, rows in made if name in matrices], weights)
                if peer is not None:
                    part.share(peer)
                if not self.on_host:
                    # The layout runs on a stream of the pipeline.
                    torch.cuda.synchronize(self.like.device)
                    part.release(matrices)
            parts.append(part)
            layers.append(range(begin, end))
        while len(self.plans) >= _MOST_PLANS:
            oldest = next((key for key, each in self.plans.items() if not _captured(each)), None)
            if oldest is None:
                break
            del self.plans[oldest]
        runner = _HostRunner(parts, layers) if self.on_host else _Runner(parts, layers, self, batch)
        self.plans[key] = [runner]

    def _put(
        self,
        part: _cusync.Pipeline,
        made: list[tuple[str, list[tuple[str, int, int]]]],
        weights: dict[str, torch.Tensor],
    ) -> None:
        """Set tensors of a page, made of rows of the model's weights."""
        for name, rows in made:
            tensors = [weights[tensor][first : first + count] for tensor, first, count in rows]
            joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
            if joined.dim() == 2:
                short = part.shape(name)[1] - joined.shape[0]
                joined = torch.nn.functional.pad(joined, (0, 0, 0, short)).t().contiguous()
            part.set(name, joined, self.stream())
            self.copied += joined.nbytes if self.on_host else 0

    def run(
        self,
        states: torch.Tensor,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        lengths: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """A step: caches and their lengths grow by one token, and the logits of the next one are returned."""
        batch, rows = states.shape[0], keys[0].shape[2]
        reason = self.ready(batch, rows)
        if reason is not None:
            raise argument_error(reason, "remove the acceleration")
        with self.lock:
            [runner, *_] = runners = self.plans[batch, rows]
            if isinstance(runner, _HostRunner):
                logits = runner.run(states, keys, values, lengths[0])
            else:
                logits = self._find(runners, keys, values).run(states, lengths[0], self.stream())
            self.steps += 1
            torch._foreach_add_(list(lengths), 1)
            return logits[:, : self.vocabulary].reshape(batch, 1, self.vocabulary).clone()

    def _find(self, runners: list[Any], keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> _Runner:
        """The runner that these caches are bound to. A runner in a graph keeps its caches."""
        addresses = [tensor.data_ptr() for tensor in (*keys, *values)]
        capturing = torch.cuda.is_current_stream_capturing()
        found: _Runner | None = next((each for each in runners if each.bound == addresses), None)
        if found is None:
            if capturing:
                raise _unprepared()
            found = next((each for each in runners if not each.captured), None)
            if found is None:
                [first, *_] = runners
                found = _Runner([part.fork() for part in first.parts], first.layers, self, first.logits.shape[0])
                runners.append(found)
            found.bind(keys, values, addresses)
        found.captured |= capturing
        return found


def _unprepared() -> CusyncError:
    return argument_error(
        "this cache has no plan, and a graph is being captured",
        "prepare it: run one step on the same cache before the capture",
    )


def faults() -> str | None:
    """What a step of any model on a GPU has reported."""
    engines = [engine for engine in list(_engines.values()) if not engine.on_host]
    parts = [part for engine in engines for runners in engine.plans.values() for each in runners for part in each.parts]
    return next(filter(None, (part.fault() for part in parts)), None)


def _captured(runners: list[Any]) -> bool:
    return any(getattr(runner, "captured", False) for runner in runners)


_engines: weakref.WeakValueDictionary[int, _Engine] = weakref.WeakValueDictionary()
_numbers = itertools.count()

torch.library.define(
    "cusync::decode",
    "(Tensor states, Tensor(a!)[] keys, Tensor(b!)[] values, Tensor(c!)[] lengths, int engine) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _decode(
    states: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    lengths: list[torch.Tensor],
    engine: int,
) -> torch.Tensor:
    return _engines[engine].run(states, keys, values, lengths)


torch.library.impl("cusync::decode", ("cpu", "cuda"), _decode)


@torch.library.register_fake("cusync::decode")
def _fake(
    states: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    lengths: list[torch.Tensor],
    engine: int,
) -> torch.Tensor:
    return states.new_empty((states.shape[0], 1, _engines[engine].vocabulary))


def _cache(arguments: dict[str, Any]) -> Any:
    """The cache of a call; newer releases of transformers have another name for it."""
    cache = arguments.get("cache")
    return arguments.get("past_key_values") if cache is None else cache


def _static(cache: Any) -> bool:
    layers = getattr(cache, "layers", None)
    return layers is not None and len(layers) > 0 and all(type(layer).__name__ == "StaticLayer" for layer in layers)


def _round(cache: Any) -> None:
    """Give a cache that has no memory yet a number of rows that kernels take."""
    if not _static(cache) or any(layer.is_initialized for layer in cache.layers):
        return
    for layer in cache.layers:
        step = _COARSE if layer.max_cache_len > _LONG else _GRANULE
        layer.max_cache_len = -(-layer.max_cache_len // step) * step


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
    """Remember whether all sequences of a cache begin at its first row, as steps assume."""
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if capturing or not _static(cache) or not cache.layers[0].is_initialized:
        return
    length = int(cache.layers[0].cumulative_length)
    plain = _all_seen(arguments.get("attention_mask"), length)
    positions = arguments.get("position_ids")
    if isinstance(positions, torch.Tensor):
        plain = plain and bool((positions[..., -1] == length - 1).all())
    cache._cusync_plain = plain


def _reason(engine: _Engine, arguments: dict[str, Any]) -> str | None:
    """Why torch computes a step: a call for one more token of each sequence in a cache."""
    cache = _cache(arguments)
    if torch.is_grad_enabled():
        return "gradients are enabled"
    if not _static(cache):
        return 'the cache is not static: generate(cache_implementation="static")'
    for name in ("labels", "output_attentions", "output_hidden_states"):
        value = arguments.get(name, getattr(engine.config, name, None))
        if value is not None and value is not False:
            return f"`{name}` is set"
    if arguments.get("return_dict") is False:
        return "`return_dict` is false"
    plain = getattr(cache, "_cusync_plain", None)
    if plain is None:
        return "the cache was filled elsewhere: run its prompt on this model, outside of graphs"
    if not plain:
        return "sequences are padded, or their masks hide tokens"
    first = cache.layers[0].keys
    batch, heads, rows, columns = first.shape
    if first.dtype != engine.like.dtype or first.device != engine.like.device or len(cache.layers) != engine.layers:
        return "the cache is of another type or on another device than the model"
    if (heads, columns) != (engine.heads, engine.head):
        return "the cache has other heads than the model"
    if not all(layer.keys.is_contiguous() and layer.values.is_contiguous() for layer in cache.layers):
        return "the cache is not contiguous"
    if batch > _MOST_SEQUENCES:
        return f"more than {_MOST_SEQUENCES} sequences"
    if rows % _GRANULE:
        return f"the cache was filled before the model was accelerated, and {rows} is no multiple of {_GRANULE}"
    return None if torch.compiler.is_compiling() else engine.ready(batch, rows)


def _tokens(arguments: dict[str, Any]) -> int:
    """Tokens of a call for each sequence; 0 if the call has none that are known."""
    given = arguments.get("input_ids")
    given = arguments.get("inputs_embeds") if given is None else given
    return given.shape[1] if isinstance(given, torch.Tensor) and given.dim() >= 2 else 0


@functools.cache
def _accelerated(base: Any) -> Any:
    """The class of models of a class whose steps run by cusync. Copies of a model are of it, too, and run as before."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    names = list(inspect.signature(base.forward).parameters)[1:]
    cached = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"

    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        report: Acceleration = self._cusync_acceleration
        engine = report._engine
        if engine is None:
            return base.forward(self, *args, **kwargs)
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        cache = _cache(arguments)
        empty = _static(cache) and not cache.layers[0].is_initialized
        if _tokens(arguments) != 1 or empty:
            if getattr(arguments.get("attention_mask"), "ndim", 2) == 2:
                _round(cache)
            result = base.forward(self, *args, **kwargs)
            if not torch.compiler.is_compiling():
                _examine(cache, arguments)
            return result
        reason = _reason(engine, arguments)
        if reason is not None:
            if not torch.compiler.is_compiling():
                report.kept[reason] += 1
            return base.forward(self, *args, **kwargs)
        states = arguments.get("inputs_embeds")
        states = self.get_input_embeddings()(arguments["input_ids"]) if states is None else states
        layers = cache.layers
        logits = torch.ops.cusync.decode(
            states,
            [layer.keys for layer in layers],
            [layer.values for layer in layers],
            [layer.cumulative_length for layer in layers],
            engine.number,
        )
        return CausalLMOutputWithPast(logits=logits, **{cached: cache})

    @functools.wraps(base.prepare_inputs_for_generation)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Masks are made of the cache's rows before the model is called.
        if self._cusync_acceleration._engine is not None:
            _round(_cache(kwargs))
        return base.prepare_inputs_for_generation(self, *args, **kwargs)

    # Others find the class by its name, as transformers does.
    names_of_base = {"__module__": base.__module__, "__qualname__": base.__qualname__, "_cusync_base": base}
    methods = {"forward": forward, "prepare_inputs_for_generation": prepare}
    return type(base.__name__, (base,), {**methods, **names_of_base})


def _refusal(model: Any, cpu: bool) -> tuple[str | None, _Engine | None]:
    """Why a model keeps its own steps, or what computes them."""
    if getattr(model, "dtype", None) not in _ELEMENTS:
        return f"its weights are {getattr(model, 'dtype', 'of no known type')}, not float16 or bfloat16", None
    try:
        decoder = _cusync.Decoder(json.dumps(configuration(model)))
    except CusyncError as error:
        return error.message, None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return "its modules have hooks, which would not run", None
    engine = _Engine(model, decoder)
    if engine.on_host and not cpu:
        return "it is on a CPU, where torch is faster", None
    if engine.like.device.type not in ("cpu", "cuda"):
        return f"it is on {engine.like.device}", None
    missing = engine.missing()
    if missing is not None:
        return missing, None
    reason = None if engine.on_host else engine.ready(1, _GRANULE)
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
    report._model, report._compiles = weakref.ref(model), not model.generation_config.disable_compile
    # There is nothing left to compile in a step.
    model.generation_config.disable_compile = True
    model._cusync_acceleration = report
    model.__class__ = _accelerated(getattr(model, "_cusync_base", type(model)))
    return report
