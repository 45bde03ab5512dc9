"""PyTorch: an operator that runs an MLP as one pipeline, language models on the weights of a live model, and programs
of kernels from exported modules.

The operator ``cusync::mlp`` works eagerly and under ``torch.compile``. On the host it runs on the ``cpu`` executor. On
a GPU it is launched on torch's current stream, and refuses to be captured into a CUDA graph. It has no gradient.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _cusync
from . import _model
from ._accelerate import Acceleration, accelerate, configuration
from ._errors import argument_error
from ._layers import Attention, DecoderLayer, Layers
from ._pipeline import Pipeline
from ._program import program
from ._steps import faults

__all__ = [
    "ACTIVATIONS",
    "Acceleration",
    "Attention",
    "DecoderLayer",
    "Layers",
    "Mlp",
    "Model",
    "accelerate",
    "last_fault",
    "mlp",
    "program",
]

#: Activations behind the first product, and their names in specs. A gated MLP has ``silu``.
ACTIVATIONS = {"none": "None", "relu": "Relu", "gelu_tanh": "Gelu"}

_ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}

#: Plans that are kept, the last used ones. Those of the host have a copy of their weights.
_MOST = 16


@dataclass
class _Plan:
    """A pipeline, and the weights that it has."""

    pipeline: Pipeline
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    versions: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def changed(self, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Weights that are not those of the last run. The tensors are held, so their addresses are not reused."""

        def same(name: str, tensor: torch.Tensor) -> bool:
            version = _version(tensor)
            return self.weights.get(name) is tensor and version is not None and self.versions[name] == version

        return {name: tensor for name, tensor in given.items() if not same(name, tensor)}

    def keep(self, given: dict[str, torch.Tensor]) -> None:
        self.weights.update(given)
        self.versions.update({name: _version(tensor) for name, tensor in given.items()})


_plans: OrderedDict[tuple[Any, ...], _Plan] = OrderedDict()
_plans_lock = threading.Lock()


def _version(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Address and number of changes; ``None`` if changes are not counted."""
    return None if tensor.is_inference() else (tensor.data_ptr(), tensor._version)


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
                "matrices are (inputs, outputs): transpose the weights of nn.Linear, or use Mlp.from_linear",
            )
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise argument_error(
                f"`{name}` is {tensor.dtype} on {tensor.device}, and `x` is {x.dtype} on {x.device}",
                f"convert it: {name}.to(x)",
            )
        if name != "x" and not tensor.is_contiguous():
            raise argument_error(f"`{name}` is not contiguous", f"copy it once: {name}.contiguous()")


def _named(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _plan(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, others: dict[str, torch.Tensor], more: Any) -> _Plan:
    """The plan for these sizes; ``more`` tells plans apart that must not share memory."""
    activation, stream = more
    rows, (width, inner) = x.shape[0], up.shape
    key = (rows, width, inner, down.shape[1], tuple(others), activation, x.dtype, x.device, stream)
    with _plans_lock:
        if key in _plans:
            _plans.move_to_end(key)
            return _plans[key]
    biases = ("up_bias" in others, "down_bias" in others)
    dims = {"M": rows, "K": width, "I": inner, "N": down.shape[1]}
    device = "cpu" if x.device.type == "cpu" else f"gpu:{x.device.index}"
    spec = _spec("gate" in others, biases, activation)
    plan = _Plan(Pipeline(spec, dims, element=_ELEMENTS[x.dtype], device=device))
    with _plans_lock:
        _plans[key] = plan
        while len(_plans) > _MOST:
            _plans.popitem(last=False)
    return plan


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
    # DLPack takes no tensors that need gradients.
    rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
    shape = (*x.shape[:-1], down.shape[1])
    if rows.numel() == 0:
        return x.new_zeros(shape)
    stream = None
    if x.device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise argument_error("cusync::mlp cannot be captured into a graph", "call it outside of CUDA graphs")
        stream = torch.cuda.current_stream(x.device).cuda_stream
    plan = _plan(rows, up, down, others, (activation, stream))
    with plan.lock:
        weights = {"up": up, "down": down, **others}
        new = plan.changed(weights)
        given = {"x": rows, **{name: tensor.detach() for name, tensor in new.items()}}
        if stream is None:
            plan.pipeline.run(given)
            out = torch.frombuffer(plan.pipeline._native.read("z", False), dtype=x.dtype)
        else:
            out = rows.new_empty((rows.shape[0], down.shape[1]))
            plan.pipeline.run(given, out={"z": out}, stream=stream)
        plan.keep(new)
    return out.reshape(shape)


_SCHEMA = (
    "(Tensor x, Tensor up, Tensor down, Tensor? gate=None, Tensor? up_bias=None, Tensor? down_bias=None, "
    'str activation="gelu_tanh") -> Tensor'
)
torch.library.define("cusync::mlp", _SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
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


def mlp(
    x: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    gate: torch.Tensor | None = None,
    up_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    """``activation(x @ up + up_bias) @ down + down_bias``; with a gate ``(silu(x @ gate) * (x @ up)) @ down``.

    ``x`` may have several axes of rows. Matrices are (inputs, outputs), contiguous, and of the type and device of
    ``x``: float16 or bfloat16. They are read again when they change.
    """
    result: torch.Tensor = torch.ops.cusync.mlp(x, up, down, gate, up_bias, down_bias, activation)
    return result


class Mlp(torch.nn.Module):
    """An MLP as one pipeline: see ``mlp``. Its weights are buffers, since it cannot be trained."""

    def __init__(
        self,
        up: torch.Tensor,
        down: torch.Tensor,
        gate: torch.Tensor | None = None,
        up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        activation: str = "gelu_tanh",
    ) -> None:
        super().__init__()
        tensors = {"up": up, "down": down, "gate": gate, "up_bias": up_bias, "down_bias": down_bias}
        for name, tensor in tensors.items():
            self.register_buffer(name, None if tensor is None else tensor.detach().contiguous())
        self.activation = activation

    @classmethod
    def from_linear(
        cls,
        up: torch.nn.Linear,
        down: torch.nn.Linear,
        gate: torch.nn.Linear | None = None,
        activation: str | None = None,
    ) -> Mlp:
        """The MLP of these layers; their weights are transposed, which copies them."""
        if gate is not None and (gate.bias is not None or up.bias is not None):
            raise argument_error("an MLP with a gate has no bias in `gate` and `up`", "use torch's own layers")
        usual = "gelu_tanh" if gate is None else "silu"
        gates = None if gate is None else gate.weight.t()
        return cls(up.weight.t(), down.weight.t(), gates, up.bias, down.bias, activation or usual)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the MLP on rows."""
        return mlp(x, self.up, self.down, self.gate, self.up_bias, self.down_bias, self.activation)


def last_fault() -> str | None:
    """What a failed run on a GPU has reported: the edge and the tile of a wait that was never satisfied.

    Such a run ends in an error of CUDA that names nothing, and the process cannot use the GPU any more.
    """
    with _plans_lock:
        natives = [plan.pipeline._native for plan in _plans.values() if plan.pipeline.executor != "cpu"]
    return next(filter(None, (native.fault() for native in natives)), None) or faults()


class Model(_model.Model):
    """A language model on the weights of a live model of transformers.

    ``tokenizer`` is a fast tokenizer of transformers; without one, only ``append`` and ``step`` work. Weights are
    copied in the order in which pipelines read them; on a host the embedding is read where it is, at every step. The
    other arguments are those of ``cusync.Model``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        slots: int = 1,
        *,
        context: int | None = None,
        element: str | None = None,
        device: str = "auto",
    ) -> None:
        config = configuration(model.config, type(model).__name__, model.dtype)
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        if ends is not None:
            config["eos_token_id"] = ends
        text = None
        if tokenizer is not None:
            backend = getattr(tokenizer, "backend_tokenizer", None)
            if backend is None:
                raise argument_error("the tokenizer is not a fast one", "load it with use_fast=True")
            text = backend.to_str()
        weights = [(name, tensor.detach().cpu().contiguous()) for name, tensor in model.state_dict().items()]
        native = _cusync.Model.from_tensors(json.dumps(config), weights, text, slots, context, element, device)
        self._adopt(native)
