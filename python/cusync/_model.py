"""Language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, overload

from . import _cusync
from ._errors import argument_error

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

#: A text, or its tokens.
Prompt = str | Sequence[int]

Piece = TypeVar("Piece")


class Options(TypedDict, total=False):
    """How texts are generated: see ``Model.generate``."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    stop: str | Sequence[str]
    ignore_end: bool


def tiny_model(folder: str | PathLike[str], architecture: str = "LlamaForCausalLM") -> None:
    """Write a small checkpoint with random weights and a tokenizer of bytes. Its text is noise."""
    _cusync.tiny_model(folder, architecture)


class Stream(Generic[Piece]):
    """Texts that grow while they are read.

    It gives pieces of one text, or ``(number, piece)`` for a list of prompts. Until it ends or is closed, the model
    does nothing else. ``ends`` has the reason of each end: ``stop``, ``length`` or ``context``; ``None`` before.
    """

    def __init__(self, events: _cusync.Generation, count: int, several: bool) -> None:
        self._events = events
        self._several = several
        self.ends: list[str | None] = [None] * count

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        for number, piece, end in self._events:
            if end is not None:
                self.ends[number] = end
            if piece:
                return (number, piece) if self._several else piece  # type: ignore[return-value]
        raise StopIteration

    def close(self) -> None:
        """End the generation, within a token."""
        self._events.close()

    def __enter__(self) -> Stream[Piece]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Model:
    """A language model that holds up to ``slots`` sequences at once.

    ``folder`` is a Hugging Face checkpoint: ``config.json``, ``*.safetensors`` and ``tokenizer.json``. ``context`` is
    the largest number of tokens of a sequence; by default as many as the model was trained for, up to 4096.
    ``cache_tokens`` tokens of all sequences together have room in caches; by default a whole context for each slot.
    ``element`` and ``device`` are as in ``Pipeline``. ``devices`` divide each layer among them: GPUs from ``device`` on,
    or as many groups of host threads.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        slots: int = 1,
        *,
        context: int | None = None,
        cache_tokens: int | None = None,
        element: str | None = None,
        device: str = "auto",
        devices: int = 1,
    ) -> None:
        self._adopt(_cusync.Model(folder, slots, context, cache_tokens, element, device, devices))

    def _adopt(self, native: _cusync.Model) -> None:
        self._native = native
        self.slots, self.context, self.vocabulary, self.ends = native.sizes()
        self.element, self.place = native.names()

    @overload
    def generate(self, prompt: str, **options: Unpack[Options]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def generate(self, prompt: Sequence[int], **options: Unpack[Options]) -> str: ...

    @overload
    def generate(self, prompt: Sequence[Prompt], **options: Unpack[Options]) -> list[str]: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        ignore_end: bool = False,
    ) -> str | list[str]:
        """Continue a text, or each of a list of texts; a text may be given as its tokens.

        ``temperature`` 0 takes the most likely token. ``top_k`` 0 and ``top_p`` 1 keep all tokens. The text with
        number n is drawn with the seed ``seed + n``, so a text depends only on its own request. A text ends before
        the first of the strings in ``stop``. All slots are cleared.
        """
        prompts, several = _prompts(prompt)
        events = self._start(prompts, max_tokens, temperature, top_k, top_p, seed, stop, ignore_end)
        texts = [""] * len(prompts)
        try:
            for number, piece, _ in events:
                texts[number] += piece
        finally:
            events.close()
        return texts if several else texts[0]

    @overload
    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream[str]: ...  # type: ignore[overload-overlap]

    @overload
    def stream(self, prompt: Sequence[int], **options: Unpack[Options]) -> Stream[str]: ...

    @overload
    def stream(self, prompt: Sequence[Prompt], **options: Unpack[Options]) -> Stream[tuple[int, str]]: ...

    def stream(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        ignore_end: bool = False,
    ) -> Stream[str] | Stream[tuple[int, str]]:
        """``generate`` piece by piece."""
        prompts, several = _prompts(prompt)
        events = self._start(prompts, max_tokens, temperature, top_k, top_p, seed, stop, ignore_end)
        return Stream(events, len(prompts), several)

    def _start(
        self,
        prompts: list[Prompt],
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        seed: int,
        stop: str | Sequence[str],
        ignore_end: bool,
    ) -> _cusync.Generation:
        if max_tokens < 1 or top_k < 0 or seed < 0:
            raise argument_error(
                f"max_tokens={max_tokens}, top_k={top_k}, seed={seed}",
                "`max_tokens` is at least 1, `top_k` and `seed` are at least 0",
            )
        stops = [stop] if isinstance(stop, str) else list(stop)
        return self._native.start(
            prompts, max_tokens, temperature, top_k, top_p, seed & (2**64 - 1), stops, ignore_end
        )

    def tokens(self, text: str) -> list[int]:
        """Tokens of a text."""
        return self._native.tokens(text)

    def text(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without special ones."""
        return self._native.text(list(tokens))

    def append(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to the sequence in a slot."""
        self._native.append(slot, list(tokens))

    def step(self, tokens: Mapping[int, int]) -> numpy.ndarray:
        """Append a token to each slot named, and return the logits of the next tokens.

        The result is float32, with a row for each slot in the order of ``tokens``, and a column for each token of the
        vocabulary.
        """
        import numpy

        data = self._native.step(list(tokens.items()))
        return numpy.frombuffer(data, numpy.float32).reshape(len(tokens), self.vocabulary)

    def clear(self, slot: int = 0) -> None:
        """Forget the sequence in a slot."""
        self._native.clear(slot)

    def length(self, slot: int = 0) -> int:
        """Tokens of the sequence in a slot."""
        return self._native.length(slot)

    def free_pages(self) -> int:
        """Pages that no sequence has; a sequence takes one for each 64 tokens as it grows."""
        return self._native.free_pages()

    def __repr__(self) -> str:
        return f"<cusync.Model of {self.slots} slots with {self.context} tokens each, on {self.place}>"


def _prompts(prompt: Prompt | Sequence[Prompt]) -> tuple[list[Prompt], bool]:
    """Prompts, and whether they were given as a list."""
    if isinstance(prompt, str):
        return [prompt], False
    items = list(prompt)
    if items and all(isinstance(item, int) for item in items):
        return [items], False  # type: ignore[list-item]
    return items, True  # type: ignore[return-value]
