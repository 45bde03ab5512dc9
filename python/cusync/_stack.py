"""Steps of a stack of layers, or of one attention: plans, and torch's own operators where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import _cusync
from ._accelerate import ELEMENTS
from ._errors import argument_error
from ._steps import GRANULE, MOST_SEQUENCES, Engine, Launch, here

#: Activations of gates by their names in configurations.
GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "swish": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
}

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


class StackEngine(Engine):
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
        self.epsilon, self.gate = epsilon, GATES[activation]
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
            for name, rows, *_ in made
        }

    def launches(self, batch: int, rows: int) -> list[Launch]:
        if self.attention is not None:
            return self.decoder.attention(batch, rows, *self.attention)
        return self.decoder.layers(batch, rows)

    def weights(self) -> dict[str, torch.Tensor]:
        return self.given

    def turns(self, positions: torch.Tensor, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
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
