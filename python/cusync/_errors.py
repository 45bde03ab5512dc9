"""Exceptions: the diagnostics that the command prints, with their fields."""

from __future__ import annotations


class CusyncError(Exception):
    """An error with a suggested fix. Its text is what the command prints.

    ``code`` is a stable short name, ``message`` the fault in one sentence, and ``help`` has ways to fix it, one per
    line. ``file``, ``line`` and ``column`` are the place, from 1, if it is known.
    """

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        message: str | None = None,
        help: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.message = text if message is None else message
        self.help = help
        self.file = file
        self.line = line
        self.column = column


class SpecError(CusyncError):
    """A spec or a program is refused, or a plan refuted. The text shows the lines that are at fault."""


def argument_error(message: str, help: str) -> CusyncError:
    """An error in an argument, in the form of the others."""
    text = f"error: {message}\n  help: {help}"
    return CusyncError(text, code="bad-argument", message=message, help=help)
