"""Plans of steps of layers, and the operator that runs them: see `cusync.torch.accelerate` and `Layers`."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _cusync
from ._errors import CusyncError, argument_error

#: Plans that are kept beside those that a graph may use.
_MOST_PLANS = 8

#: Sequences that a decode kernel takes at most.
MOST_SEQUENCES = 32

#: Rows of caches are a multiple of this.
GRANULE = 64

#: A launch: the text of its page, its first layer and the one behind its last, and the tensors of the page, each made
#: of rows of weights: the name of a weight, the first row and the number of rows.
#: A tensor of a page: its name, the rows that it is made of, and two numbers: elements are (x + first) * second.
Made = tuple[str, list[tuple[str, int, int]], float, float]
Launch = tuple[str, int, int, list[Made]]


class _Runner:
    """The launches of a step for one number of sequences and one length of caches."""

    def __init__(self, parts: list[_cusync.Pipeline], layers: list[range], engine: Engine, batch: int) -> None:
        self.parts, self.layers = parts, layers
        #: Addresses of the caches that are bound.
        self.bound: list[int] = []
        #: Whether a graph has captured a step, which needs these caches from then on.
        self.captured = False
        like = engine.like
        self.states = [like.new_zeros((batch, engine.width)) for _ in parts]
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=like.device)
        self.result = like.new_zeros((batch, engine.columns))
        for number, part in enumerate(parts):
            part.set("X", self.states[number], engine.stream())
            part.set("n", self.lengths, engine.stream())
            [name] = part.outputs()
            part.set(name, self.states[number + 1] if number + 1 < len(parts) else self.result, engine.stream())

    def bind(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], addresses: list[int]) -> None:
        """Use these caches from now on."""
        self.bound = []
        for part, layers in zip(self.parts, self.layers, strict=True):
            # Memory may have been that of another layer's cache.
            part.unbind([f"{name}_{layer}" for layer in layers for name in "KV"])
            for layer in layers:
                part.lend(f"K_{layer}", keys[layer], 0)
                part.lend(f"V_{layer}", values[layer], 0)
            part.prepare()
        self.bound = addresses

    def run(self, states: torch.Tensor, length: torch.Tensor, stream: int) -> torch.Tensor:
        # Each part has reports of its own, which are read at once so that a fault fails one step.
        faults = [fault for part in self.parts if (fault := part.fault()) is not None]
        if faults:
            raise argument_error(*_split(faults[0]))
        self.states[0].copy_(states.reshape(self.states[0].shape))
        self.lengths.copy_(length.expand_as(self.lengths))
        for part in self.parts:
            part.run(stream)
        return self.result


class _HostRunner:
    """The launches of a step on the host, which copies caches from and to the pipelines."""

    def __init__(self, parts: list[_cusync.Pipeline], layers: list[range], copied: int) -> None:
        #: Bytes of the weights that it has copied.
        self.parts, self.layers, self.copied = parts, layers, copied

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


class Engine:
    """Plans of steps, and their weights. Subclasses have the weights and the angles of rotations."""

    #: What to do before a capture, and where no plan can be made.
    preparing, instead = "", ""

    def __init__(self, decoder: _cusync.Decoder, like: torch.Tensor) -> None:
        self.number = next(_numbers)
        ENGINES[self.number] = self
        self.decoder = decoder
        # It has no memory, and the type and the device of the weights.
        self.like = like.detach().new_empty(0)
        self.layers, self.width, self.heads, self.head, self.vocabulary, self.columns = decoder.sizes()
        self.steps = 0
        self.lock = threading.RLock()
        self.plans: OrderedDict[tuple[int, int], list[_Runner | _HostRunner]] = OrderedDict()
        self.failures: dict[tuple[int, int], str] = {}
        self.on_host = self.like.device.type == "cpu"

    def launches(self, batch: int, rows: int) -> list[Launch]:
        """The launches of a step of some sequences, with caches of some rows."""
        raise NotImplementedError

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights by their names in launches."""
        raise NotImplementedError

    def turns(self, positions: torch.Tensor, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of a layer, each (1, positions, columns of a head), the first half of which counts."""
        raise NotImplementedError

    def shape(self, states: torch.Tensor) -> tuple[int, ...]:
        """The shape of a step's result."""
        raise NotImplementedError

    def stream(self) -> int:
        return 0 if self.on_host else torch.cuda.current_stream(self.like.device).cuda_stream

    def bytes(self) -> int:
        """Bytes of weights beside those of the model: laid out for a GPU, or copied by plans for the host."""
        with self.lock:
            if self.on_host:
                return sum(runner.copied for runners in self.plans.values() for runner in runners)  # type: ignore
            parts = [part for runners in self.plans.values() for part in runners[0].parts]
            return sum(dict(each for part in parts for each in part.laid_out()).values())

    def whole(self, result: torch.Tensor) -> torch.Tensor:
        """A copy of what a step wrote."""
        return result.clone()

    def missing(self) -> str | None:
        """What the weights lack, or have elsewhere."""
        weights = self.weights()
        for _, _, _, made in self.launches(1, GRANULE):
            for _, rows, *_ in made:
                for name, first, count in rows:
                    tensor = weights.get(name)
                    if tensor is None or tensor.shape[0] < first + count:
                        return f"there is no weight `{name}` of {first + count} rows"
                    if tensor.dtype != self.like.dtype or tensor.device != self.like.device:
                        like = f"{self.like.dtype} on {self.like.device}"
                        return f"`{name}` is {tensor.dtype} on {tensor.device}, and other weights are {like}"
        return None

    def ready(self, batch: int, rows: int) -> str | None:
        """Make the plan for these sizes; the reason why there is none."""
        key = (batch, rows)
        # Plans outlive the mode that they are made in.
        with self.lock, here(self.like), torch.inference_mode(False):
            if key in self.plans:
                self.plans.move_to_end(key)
                return None
            if not self.on_host and key not in self.failures and torch.cuda.is_current_stream_capturing():
                raise self.unprepared()
            if key not in self.failures:
                try:
                    return self._make_or_reason(key)
                except CusyncError as error:
                    self.failures[key] = error.message
            return self.failures[key]

    def _make_or_reason(self, key: tuple[int, int]) -> str | None:
        """Make a plan; the reason if memory is short, which it may not be at a later step."""
        for last in (False, True):
            try:
                self._make(key)
                return None
            except (CusyncError, torch.OutOfMemoryError) as error:
                if isinstance(error, CusyncError) and error.code != "device-memory":
                    raise
                if last:
                    return str(error).splitlines()[0]
                torch.cuda.empty_cache()
        return None

    def _make(self, key: tuple[int, int]) -> None:
        batch, rows = key
        place = "cpu" if self.on_host else f"gpu:{self.like.device.index}"
        tables = {name: self._table(rows, layer) for name, layer in self.decoder.rotations()}
        first = next(iter(self.plans.values()), [None])[0]
        parts, layers, weights, copied = [], [], self.weights(), 0
        for number, (text, begin, end, made) in enumerate(self.launches(batch, rows)):
            part = _cusync.Pipeline(text, [], None, place, True)
            for name in tables.keys() & set(part.inputs()):
                part.set(name, tables[name], self.stream())
            matrices = [name for name, rows, *_ in made if weights[rows[0][0]].dim() == 2]
            copied += self._put(part, [each for each in made if each[0] not in matrices], weights)
            peer = None if first is None or self.on_host else first.parts[number]
            if peer is None or not part.share(peer):
                copied += self._put(part, [each for each in made if each[0] in matrices], weights)
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
        runner = _HostRunner(parts, layers, copied) if self.on_host else _Runner(parts, layers, self, batch)
        self.plans[key] = [runner]

    def _table(self, rows: int, layer: int) -> torch.Tensor:
        """Cosines and sines of the positions in a cache. The model rotated the keys in it, so they are the model's."""
        with torch.no_grad():
            turns = self.turns(torch.arange(rows, device=self.like.device)[None], layer)
        half = self.head // 2
        return torch.cat([turn[0, :, :half] for turn in turns], -1).to(self.like.dtype).contiguous()

    def _put(
        self,
        part: _cusync.Pipeline,
        made: list[Made],
        weights: dict[str, torch.Tensor],
    ) -> int:
        """Set tensors of a page, made of rows of the model's weights; the bytes of them."""
        total = 0
        for name, rows, added, factor in made:
            tensors = [weights[tensor][first : first + count] for tensor, first, count in rows]
            joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
            if (added, factor) != (0.0, 1.0):
                joined = ((joined.float() + added) * factor).to(joined.dtype)
            if joined.dim() == 2:
                short = part.shape(name)[1] - joined.shape[0]
                joined = torch.nn.functional.pad(joined, (0, 0, 0, short)).t().contiguous()
            part.set(name, joined, self.stream())
            total += joined.nbytes
        return total

    def prepare(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Make the plan for a step on these caches, and bind them to it."""
        with self.lock, here(self.like):
            runners = self._runners(keys[0].shape[0], keys[0].shape[2])
            if not self.on_host:
                self._find(runners, keys, values)

    def _runners(self, batch: int, rows: int) -> list[_Runner | _HostRunner]:
        reason = self.ready(batch, rows)
        if reason is not None:
            raise argument_error(reason, self.instead)
        return self.plans[batch, rows]

    def run(
        self,
        states: torch.Tensor,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """A step: caches get the row of one more token behind `lengths` ones, and the result is returned."""
        with self.lock, here(self.like):
            [runner, *_] = runners = self._runners(states.shape[0], keys[0].shape[2])
            with contextlib.nullcontext() if self.on_host else turn(self.like.device):
                if isinstance(runner, _HostRunner):
                    result = runner.run(states, keys, values, lengths)
                else:
                    result = self._find(runners, keys, values).run(states, lengths, self.stream())
                self.steps += 1
                shape = self.shape(states)
                # The next step, on whatever stream, overwrites the result.
                return self.whole(result[:, : shape[-1]].reshape(shape))

    def _find(self, runners: list[Any], keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> _Runner:
        """The runner that these caches are bound to. A runner in a graph keeps its caches."""
        addresses = [tensor.data_ptr() for tensor in (*keys, *values)]
        capturing = torch.cuda.is_current_stream_capturing()
        found: _Runner | None = next((each for each in runners if each.bound == addresses), None)
        if found is None:
            if capturing:
                raise self.unprepared()
            found = next((each for each in runners if not each.captured), None)
            if found is None:
                [first, *_] = runners
                with torch.inference_mode(False):
                    parts = [part.fork() for part in first.parts]
                    found = _Runner(parts, first.layers, self, first.result.shape[0])
                runners.append(found)
            found.bind(keys, values, addresses)
        found.captured |= capturing
        return found

    def unprepared(self) -> CusyncError:
        return argument_error("this cache has no plan, and a graph is being captured", self.preparing)


def here(like: torch.Tensor) -> Any:
    """The device of a tensor as torch's current one."""
    return contextlib.nullcontext() if like.device.type == "cpu" else torch.cuda.device(like.device)


#: End of the last run on each device, and its stream; the lock is held while a run is queued.
_last: dict[torch.device, tuple[int, torch.cuda.Event]] = {}
_queueing = threading.Lock()


@contextlib.contextmanager
def turn(device: torch.device) -> Iterator[None]:
    """Order runs of all pipelines on a device: one needs all of its SMs, so two at once would wait for each other."""
    stream = torch.cuda.current_stream(device)
    if torch.cuda.is_current_stream_capturing():
        yield
        return
    with _queueing:
        number, done = _last.get(device) or (stream.cuda_stream, torch.cuda.Event())
        if number != stream.cuda_stream:
            stream.wait_event(done)
        yield
        done.record(stream)
        _last[device] = (stream.cuda_stream, done)


def _split(text: str) -> tuple[str, str]:
    """Message and help of an error's text."""
    message, _, help = text.partition("\n  help: ")
    return message, help or "see docs/trust.md"


def faults() -> str | None:
    """What a step of any model on a GPU has reported."""
    parts = []
    for engine in list(ENGINES.values()):
        with engine.lock:
            runners = [] if engine.on_host else [each for several in engine.plans.values() for each in several]
            parts += [part for runner in runners for part in runner.parts]
    return next(filter(None, (part.fault() for part in parts)), None)


def _captured(runners: list[Any]) -> bool:
    return any(getattr(runner, "captured", False) for runner in runners)


#: Engines by the numbers that operators name them by.
ENGINES: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()
_numbers = itertools.count()

#: A run must not be inside the private memory of graphs that inductor makes: plans outlive it.
TAGS = (torch.Tag.pt2_compliant_tag, *filter(None, [getattr(torch.Tag, "cudagraph_unsafe", None)]))

torch.library.define(
    "cusync::decode",
    "(Tensor states, Tensor(a!)[] keys, Tensor(b!)[] values, Tensor lengths, int engine) -> Tensor",
    tags=TAGS,
)


def _decode(
    states: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    lengths: torch.Tensor,
    engine: int,
) -> torch.Tensor:
    return ENGINES[engine].run(states, keys, values, lengths)


torch.library.impl("cusync::decode", ("cpu", "cuda"), _decode)


@torch.library.register_fake("cusync::decode")
def _fake(
    states: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    lengths: torch.Tensor,
    engine: int,
) -> torch.Tensor:
    return states.new_empty(ENGINES[engine].shape(states))
