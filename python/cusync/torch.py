"""PyTorch: operators that run MLPs and layers as pipelines, language models on the weights of a live model, programs of
kernels from exported modules, and captured CUDA graphs, rescheduled.

Operators work eagerly, under ``torch.compile``, and in CUDA graphs once their plans are made. Tensors of the host run
on the ``cpu`` executor; on a GPU, runs are queued on torch's current stream. Operators have no gradients.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from . import _cusync
from . import _mlp
from . import _model
from ._accelerate import Acceleration, accelerate, configuration, stored
from ._errors import argument_error
from ._layers import Attention, DecoderLayer, Layers
from ._mlp import ACTIVATIONS
from ._program import program
from ._reschedule import Rescheduled, reschedule
from ._steps import faults

__all__ = [
    "ACTIVATIONS",
    "Acceleration",
    "Attention",
    "DecoderLayer",
    "Layers",
    "Mlp",
    "Model",
    "Rescheduled",
    "accelerate",
    "last_fault",
    "mlp",
    "program",
    "reschedule",
]


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

    ``x`` may have several axes of rows. Matrices are (inputs, outputs), of the type and device of ``x``: float16 or
    bfloat16. They are contiguous, or transposed views such as ``linear.weight.t()``; changes are read again.
    On a GPU, each number of rows runs by cusync or by torch's own operators, whichever is predicted to be faster.
    """
    result: torch.Tensor = torch.ops.cusync.mlp(x, up, down, gate, up_bias, down_bias, activation)
    return result


class Mlp(torch.nn.Module):
    """An MLP as one pipeline, where that is faster: see ``mlp``. Its weights are buffers: it cannot be trained."""

    up: torch.Tensor
    down: torch.Tensor
    gate: torch.Tensor | None
    up_bias: torch.Tensor | None
    down_bias: torch.Tensor | None

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
            held = None if tensor is None else tensor.detach()
            self.register_buffer(name, held if held is None or _mlp.dense(held) else held.contiguous())
        self.activation = activation

    @classmethod
    def from_linear(
        cls,
        up: torch.nn.Linear,
        down: torch.nn.Linear,
        gate: torch.nn.Linear | None = None,
        activation: str | None = None,
    ) -> Mlp:
        """The MLP of these layers, with their weights as they are."""
        if gate is not None and (gate.bias is not None or up.bias is not None):
            raise argument_error("an MLP with a gate has no bias in `gate` and `up`", "use torch's own layers")
        usual = "gelu_tanh" if gate is None else "silu"
        gates = None if gate is None else gate.weight.t()
        return cls(up.weight.t(), down.weight.t(), gates, up.bias, down.bias, activation or usual)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the MLP on rows."""
        return mlp(x, self.up, self.down, self.gate, self.up_bias, self.down_bias, self.activation)

    def prepare(self, rows: int) -> None:
        """Plan for this many rows, so that a call with as many can be captured into a CUDA graph."""
        _mlp.prepare(rows, self._weights(), self.activation)

    @property
    def choices(self) -> dict[int, str]:
        """Who computes each number of rows so far, and why."""
        return {rows: str(choice) for rows, choice in _mlp.choices(self._weights(), self.activation).items()}

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self, name) for name in _mlp.WEIGHTS if getattr(self, name) is not None}

    def extra_repr(self) -> str:
        (width, inner), outer = self.up.shape, self.down.shape[1]
        sizes = f"inputs={width}, inner={inner}, outputs={outer}, activation={self.activation}"
        return "\n".join([sizes, *(f"{rows} rows by {choice}" for rows, choice in self.choices.items())])


def last_fault() -> str | None:
    """What a failed run on a GPU has reported: the edge and the tile of a wait that was never satisfied.

    Such a run ends in an error of CUDA that names nothing, and the process cannot use the GPU any more.
    """
    return _mlp.faults() or faults()


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
        cache_tokens: int | None = None,
        element: str | None = None,
        device: str = "auto",
        devices: int = 1,
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
        weights = [(name, tensor.cpu().contiguous()) for name, tensor in stored(model).items()]
        place = (slots, context, cache_tokens, element, device, devices)
        self._adopt(_cusync.Model.from_tensors(json.dumps(config), weights, text, *place))
