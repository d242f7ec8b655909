"""Printing results to stdout."""

import os
import sys

from rich.console import Console, RenderableType

_WIDTH_ELSEWHERE = 120  # columns where stdout is no terminal


def emit(content: RenderableType) -> None:
    """Print text as it is, or a rich renderable as a table; a reader that has gone away is no error."""
    if not isinstance(content, str):
        console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_ELSEWHERE)
        with console.capture() as capture:
            console.print(content)
        content = "\n".join(line.rstrip() for line in capture.get().splitlines())
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(content.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        close_quietly()


def close_quietly() -> None:
    """Point stdout nowhere, so that the flush at exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
