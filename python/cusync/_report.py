"""Answers of commands."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from . import _cusync


class Report(dict[str, Any]):
    """An answer as a dictionary, with the fields of the command's JSON; ``str`` gives the text that it prints."""

    def __init__(self, fields: Mapping[str, Any], text: str) -> None:
        super().__init__(fields)
        self.text = text

    def __str__(self) -> str:
        return self.text


def _report(answer: tuple[str, str]) -> Report:
    import json

    fields, text = answer
    return Report(json.loads(fields), text)


def sizes(dims: Mapping[str, int] | None) -> list[tuple[str, int]]:
    """Dims in the form of the native half."""
    return [(name, int(value)) for name, value in (dims or {}).items()]


def check(
    spec: str, dims: Mapping[str, int] | None = None, *, device: str = "h200", executor: str = "auto"
) -> Report:
    """Prove that a pipeline can neither race nor hang.

    ``spec`` is the text of a spec, the path of a RON file, or the name of a shipped pipeline. ``dims`` override its
    defaults. A spec that is refused, or a plan that is refuted, raises ``SpecError``.
    """
    return _report(_cusync.check(spec, sizes(dims), device, executor))


def explain(
    spec: str, dims: Mapping[str, int] | None = None, *, device: str = "h200", executor: str = "auto"
) -> Report:
    """Show the decisions of a plan: tiles, policies, orders and the launch, with reasons."""
    return _report(_cusync.explain(spec, sizes(dims), device, executor))


def schedule(
    program: str,
    dims: Mapping[str, int] | None = None,
    *,
    device: str = "h200",
    streams: int | None = None,
    memory: int | None = None,
    form: str | None = None,
    output: str | PathLike[str] | None = None,
) -> Report:
    """Schedule a program of kernels concurrently: streams, waits and a form, predicted and proved.

    ``program`` is the text of a program, the path of a RON file, or the name of a shipped program. ``streams`` limits
    the kernels that run at a time, and ``memory`` the bytes of all temporary buffers. ``form`` takes the place of the
    form of least measured risk, and ``output`` names a file for the plan: a timeline (``.html``), a Graphviz graph (``.dot``) or CUDA C++ (``.cu``). A program that is refused raises
    ``SpecError``.
    """
    return _report(_cusync.schedule(program, sizes(dims), device, (streams, memory), form, output))


def doctor() -> Report:
    """Show what this machine can do, with a command that fixes each problem."""
    return _report(_cusync.doctor())


def shipped() -> dict[str, str]:
    """Names and texts of the shipped pipelines."""
    return dict(_cusync.shipped())
