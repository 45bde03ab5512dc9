"""The command ``cusync``, as ``python -m cusync`` and as a script."""

from __future__ import annotations

import signal
import sys

from . import _cusync


def main() -> int:
    """Run the command with the arguments of the process."""
    # The command runs without the interpreter, which would notice Ctrl-C only at the end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _cusync.command(["cusync", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
