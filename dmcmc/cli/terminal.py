"""Print results to standard output; all commands print with ``emit``."""

import os
import sys

from rich.console import Console, RenderableType

_FILE_WIDTH = 120  # columns if standard output is not a terminal


def emit(content: RenderableType) -> None:
    """Print text, or a rich renderable as text. A closed pipe is not an error."""
    if not isinstance(content, str):
        console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
        with console.capture() as capture:
            console.print(content)
        content = "\n".join(line.rstrip() for line in capture.get().splitlines())
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(content.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        close_quietly()


def close_quietly() -> None:
    """Redirect standard output to the null device, so that the flush at exit does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
