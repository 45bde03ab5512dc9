"""The operator `cusync::mlp`, and the choice between a pipeline and torch's own operators: see `cusync.torch.mlp`."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from . import _cusync
from ._errors import CusyncError, argument_error
from ._steps import TAGS, here, turn

#: Activations behind the first product, and their names in specs. A gated MLP has ``silu``.
ACTIVATIONS = {"none": "None", "relu": "Relu", "gelu_tanh": "Gelu"}

#: Arguments of the operator that have weights, in its order.
WEIGHTS = ("up", "down", "gate", "up_bias", "down_bias")

_ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}

#: Plans of a set of weights that are kept beside those that a graph may use. Those of the host copy the weights.
_MOST = 8


@dataclass(frozen=True)
class Choice:
    """Who computes an MLP of some rows, and why."""

    ours: bool
    reason: str

    def __str__(self) -> str:
        return f"{'cusync' if self.ours else 'torch'}: {self.reason}"


def _spec(gated: bool, biases: tuple[bool, bool], activation: str) -> str:
    """The spec of an MLP, whose tensors have the names of the arguments."""
    up_bias = 'bias: "up_bias(I)", ' if biases[0] else ""
    down_bias = 'bias: "down_bias(N)", ' if biases[1] else ""
    if gated:
        first = 'GatedGemm(name: "first", a: "x(M,K)", gate: "gate(K,I)", up: "up(K,I)", out: "y(M,I)")'
    else:
        epilogue = f"{up_bias}epilogue: {ACTIVATIONS[activation]}"
        first = f'Gemm(name: "first", a: "x(M,K)", b: "up(K,I)", out: "y(M,I)", {epilogue})'
    second = f'Gemm(name: "second", a: "y(M,I)", b: "down(I,N)", {down_bias}out: "z(M,N)")'
    dims = '{ "M": 1, "K": 1, "I": 1, "N": 1 }'
    return f'Pipeline(name: "mlp", dims: {dims}, stages: [{first}, {second}])'


def _check(
    x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, others: dict[str, torch.Tensor], activation: str
) -> None:
    """Refuse what the operator cannot compute, with the name of the argument."""
    if x.dtype not in _ELEMENTS:
        raise argument_error(f"`x` has type {x.dtype}", "give float16 or bfloat16: x.to(torch.bfloat16)")
    if activation not in (["silu"] if "gate" in others else list(ACTIVATIONS)):
        raise argument_error(
            f"there is no activation `{activation}` here",
            f"activations: {', '.join(ACTIVATIONS)}; `silu` and no other for an MLP with a gate",
        )
    if "gate" in others and "up_bias" in others:
        raise argument_error("an MLP with a gate has no `up_bias`", "leave it out")
    if x.dim() < 1 or up.dim() != 2 or down.dim() != 2:
        raise argument_error("`up` and `down` are matrices, and `x` has rows", "see cusync.torch.mlp")
    (width, inner), outer = up.shape, down.shape[1]
    shapes = {"x": (*x.shape[:-1], width), "down": (inner, outer), "gate": (width, inner)}
    shapes.update({"up_bias": (inner,), "down_bias": (outer,)})
    for name, tensor in {"x": x, "up": up, "down": down, **others}.items():
        if name in shapes and tuple(tensor.shape) != shapes[name]:
            raise argument_error(
                f"`{name}` has shape {tuple(tensor.shape)}, not {shapes[name]}",
                "matrices are (inputs, outputs): give the weights of nn.Linear as weight.t(), or use Mlp.from_linear",
            )
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise argument_error(
                f"`{name}` is {tensor.dtype} on {tensor.device}, and `x` is {x.dtype} on {x.device}",
                f"convert it: {name}.to(x)",
            )
        if name != "x" and not dense(tensor):
            raise argument_error(f"`{name}` has strides {tensor.stride()}", f"copy it once: {name}.contiguous()")


def dense(tensor: torch.Tensor) -> bool:
    """Whether a vector is contiguous, and a matrix or its transpose is."""
    return tensor.is_contiguous() or tensor.dim() == 2 and tensor.t().is_contiguous()


def _named(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _holder(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a view is of: `weight.t()` is another object at each call."""
    return tensor if tensor._base is None else tensor._base


#: What tells whether a weight is that of the last run: number of changes (`None`: they are not counted), address, shape
#: and strides.
_Version = tuple[int | None, int, torch.Size, tuple[int, ...]]


def _version(tensor: torch.Tensor) -> _Version:
    changes = None if tensor.is_inference() else tensor._version
    return changes, tensor.data_ptr(), tensor.shape, tensor.stride()


class _Weights:
    """The weights that a plan has. Those but `up` are held, so that their addresses are not reused."""

    def __init__(self) -> None:
        self.held: dict[str, torch.Tensor] = {}
        self.versions: dict[str, _Version] = {}

    def changed(self, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Weights that are not those of the last run."""

        def same(name: str, tensor: torch.Tensor) -> bool:
            version = _version(tensor)
            held = name == "up" or self.held.get(name) is _holder(tensor)
            return held and version[0] is not None and self.versions.get(name) == version

        return {name: tensor for name, tensor in given.items() if not same(name, tensor)}

    def keep(self, given: dict[str, torch.Tensor]) -> None:
        self.held.update({name: _holder(tensor) for name, tensor in given.items() if name != "up"})
        self.versions.update({name: _version(tensor) for name, tensor in given.items()})


class _HostPlan:
    """A pipeline on the host."""

    captured = False

    def __init__(self, native: _cusync.Pipeline) -> None:
        self.native, self.weights = native, _Weights()
        self.lock = threading.Lock()

    def run(self, rows: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        with self.lock:
            new = self.weights.changed(weights)
            for name, tensor in {"x": rows, **new}.items():
                # DLPack takes no tensors that need gradients.
                self.native.set(name, tensor.detach().contiguous(), 0)
            self.native.run(None)
            self.weights.keep(new)
            return torch.frombuffer(self.native.read("z", False), dtype=rows.dtype)


class _GpuPlan:
    """A pipeline on a GPU, with memory of its own for rows: binding other memory would make its kernels again."""

    def __init__(self, native: _cusync.Pipeline, rows: int, weights: dict[str, torch.Tensor], peers: list[Any]) -> None:
        self.native, self.weights = native, _Weights()
        self.lock = threading.Lock()
        #: Whether a graph has captured a run.
        self.captured = False
        up, down = weights["up"], weights["down"]
        stream = torch.cuda.current_stream(up.device).cuda_stream
        # A plan outlives the mode that it is made in.
        with torch.inference_mode(False), torch.no_grad():
            self.x = torch.zeros((rows, up.shape[0]), dtype=up.dtype, device=up.device)
            self.z = torch.zeros((rows, down.shape[1]), dtype=up.dtype, device=up.device)
            for name, tensor in {"x": self.x, "z": self.z}.items():
                native.set(name, tensor, stream)
            self._load(weights, peers, stream)
        native.prepare()

    def _load(self, weights: dict[str, torch.Tensor], peers: list[Any], stream: int) -> None:
        matrices = {name: tensor for name, tensor in weights.items() if tensor.dim() == 2}
        for name in weights.keys() - matrices.keys():
            self.native.set(name, weights[name].detach(), stream)
        sharing = [peer.native for peer in peers if self.native.lays_out() and peer.native.lays_out()]
        if not any(self.native.share(peer) for peer in sharing):
            for name, tensor in matrices.items():
                self.native.set(name, tensor.detach().contiguous(), stream)
            [self.native.share(peer) for peer in sharing]
            # The layout runs on a stream of the pipeline.
            torch.cuda.current_stream(self.x.device).synchronize()
            if self.native.lays_out():
                self.native.release(list(matrices))
        self.weights.keep(weights)

    def run(self, rows: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        with self.lock, turn(rows.device):
            self.captured |= torch.cuda.is_current_stream_capturing()
            self.x.copy_(rows)
            self.native.run(torch.cuda.current_stream(rows.device).cuda_stream)
            return self.z.clone()


_Key = tuple[Any, ...]


@dataclass
class _Bank:
    """Plans and choices of one set of weights."""

    plans: OrderedDict[_Key, _HostPlan | _GpuPlan] = field(default_factory=OrderedDict)
    choices: dict[_Key, Choice] = field(default_factory=dict)
    #: Plans of earlier weights that a graph has captured.
    kept: list[_GpuPlan] = field(default_factory=list)

    def drop(self, key: _Key) -> None:
        """Forget a plan, unless a graph needs it."""
        plan = self.plans.pop(key, None)
        if isinstance(plan, _GpuPlan) and plan.captured:
            self.kept.append(plan)

    def insert(self, key: _Key, plan: _HostPlan | _GpuPlan) -> None:
        self.plans[key] = plan
        while len(self.plans) > _MOST:
            oldest = next((key for key, each in self.plans.items() if not each.captured and each is not plan), None)
            if oldest is None:
                break
            del self.plans[oldest]


#: Banks by the tensor that `up` is or is a view of; they end with it.
_banks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_lock = threading.RLock()


def _key(rows: int, weights: dict[str, torch.Tensor], activation: str) -> _Key:
    up = weights["up"]
    return rows, activation, tuple(weights), tuple(up.shape), weights["down"].shape[1], up.dtype, up.device


@functools.cache
def predicted(spec: str, dims: tuple[tuple[str, int], ...], element: str, device: str) -> Choice:
    """The choice for a GPU, by times: of the tuned plan, else predicted."""
    size = dict(dims)
    copies = [size["M"] * size["K"], size["M"] * size["N"]]
    try:
        executor, ours, tuned, theirs, copies_us = _cusync.times(spec, list(dims), element, device, copies)
    except CusyncError as error:
        return Choice(False, error.message)
    if tuned:
        return Choice(executor != "library", f"`{executor}` is the fastest of the tuned plans")
    if theirs is None or ours is None:
        return Choice(True, f"`{executor}`; the profile of this GPU has no times of cuBLASLt to compare with")
    own = f"predicted {ours + copies_us:.1f} us by `{executor}` and its copies"
    return Choice(ours + copies_us <= theirs, f"{own}, {theirs:.1f} us by products of cuBLASLt")


def _plan(rows: int, weights: dict[str, torch.Tensor], activation: str) -> _HostPlan | _GpuPlan | None:
    """The plan for some rows; ``None`` if torch computes them."""
    up, down = weights["up"], weights["down"]
    key, on_host = _key(rows, weights, activation), up.device.type == "cpu"
    with _lock:
        if _holder(up) not in _banks:
            _banks[_holder(up)] = _Bank()
        bank: _Bank = _banks[_holder(up)]
        plan, choice = bank.plans.get(key), bank.choices.get(key)
        stale = isinstance(plan, _GpuPlan) and bool(plan.weights.changed(weights))
        if plan is not None and not stale:
            bank.plans.move_to_end(key)
            return plan
        if choice is not None and not choice.ours:
            return None
        if not on_host and torch.cuda.is_current_stream_capturing():
            why = "its weights have changed since" if stale else "there is none"
            raise argument_error(
                f"a graph is being captured, and needs a plan for {rows} rows: {why}",
                f"prepare it before the capture: Mlp.prepare({rows}), or a call with as many rows",
            )
        bank.drop(key)
        spec = _spec("gate" in weights, ("up_bias" in weights, "down_bias" in weights), activation)
        dims = (("M", rows), ("K", up.shape[0]), ("I", up.shape[1]), ("N", down.shape[1]))
        place = "cpu" if on_host else f"gpu:{up.device.index}"
        if on_host:
            choice = Choice(True, "the tensors are on the host")
        elif any(tensor.is_inference() for tensor in weights.values()):
            choice = Choice(False, "weights of the inference mode do not count their changes")
        else:
            choice = predicted(spec, dims, _ELEMENTS[up.dtype], place)
        made: _HostPlan | _GpuPlan | None = None
        if choice.ours:
            # The reference from here would keep the old plan's memory.
            del plan
            try:
                native = _cusync.Pipeline(spec, list(dims), _ELEMENTS[up.dtype], place, False)
                peers = [each for each in bank.plans.values() if not on_host and not each.weights.changed(weights)]
                made = _HostPlan(native) if on_host else _GpuPlan(native, rows, weights, peers)
            except (CusyncError, torch.OutOfMemoryError) as error:
                if on_host:
                    raise
                choice = Choice(False, str(error).splitlines()[0].removeprefix("error: "))
        bank.choices[key] = choice
        if made is not None:
            bank.insert(key, made)
        return made


def _by_torch(rows: torch.Tensor, weights: dict[str, torch.Tensor], activation: str) -> torch.Tensor:
    """The MLP by torch's own operators."""
    weights = {name: tensor.detach() for name, tensor in weights.items()}

    def product(a: torch.Tensor, name: str) -> torch.Tensor:
        bias = weights.get(f"{name}_bias")
        return a @ weights[name] if bias is None else torch.addmm(bias, a, weights[name])

    hidden = product(rows, "up")
    if "gate" in weights:
        hidden = torch.nn.functional.silu(rows @ weights["gate"]).mul_(hidden)
    elif activation == "gelu_tanh":
        hidden = torch.nn.functional.gelu(hidden, approximate="tanh")
    elif activation == "relu":
        hidden = hidden.relu_()
    return product(hidden, "down")


def _run(
    x: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    gate: torch.Tensor | None = None,
    up_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    others = _named(gate=gate, up_bias=up_bias, down_bias=down_bias)
    _check(x, up, down, others, activation)
    rows = x.detach().reshape(-1, x.shape[-1])
    shape = (*x.shape[:-1], down.shape[1])
    if rows.numel() == 0:
        return x.new_zeros(shape)
    weights = {"up": up, "down": down, **others}
    with here(x):
        plan = _plan(rows.shape[0], weights, activation)
        out = _by_torch(rows, weights, activation) if plan is None else plan.run(rows, weights)
    return out.reshape(shape)


def prepare(rows: int, weights: dict[str, torch.Tensor], activation: str) -> None:
    """Make the plan for some rows."""
    up = weights["up"]
    x = up.new_empty((rows, up.shape[0]))
    _check(x, up, weights["down"], {name: weights[name] for name in weights.keys() - {"up", "down"}}, activation)
    with here(x):
        _plan(rows, weights, activation)


def choices(weights: dict[str, torch.Tensor], activation: str) -> dict[int, Choice]:
    """Choices so far, by the number of rows."""
    with _lock:
        bank = _banks.get(_holder(weights["up"]), _Bank())
        own = _key(0, weights, activation)[1:]
        return {key[0]: choice for key, choice in bank.choices.items() if key[1:] == own}


def faults() -> str | None:
    """What a run on a GPU has reported."""
    with _lock:
        plans = [plan for bank in _banks.values() for plan in (*bank.plans.values(), *bank.kept)]
    return next(filter(None, (plan.native.fault() for plan in plans if isinstance(plan, _GpuPlan))), None)


_SCHEMA = (
    "(Tensor x, Tensor up, Tensor down, Tensor? gate=None, Tensor? up_bias=None, Tensor? down_bias=None, "
    'str activation="gelu_tanh") -> Tensor'
)
torch.library.define("cusync::mlp", _SCHEMA, tags=TAGS)
torch.library.impl("cusync::mlp", ("cpu", "cuda"), _run)


@torch.library.register_fake("cusync::mlp")
def _fake(
    x: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    gate: torch.Tensor | None = None,
    up_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], down.shape[1]))


def _backward(context: Any, gradient: torch.Tensor) -> None:
    raise RuntimeError("cusync::mlp has no gradient: call it under torch.no_grad(), or use torch's own operators")


torch.library.register_autograd("cusync::mlp", _backward)
