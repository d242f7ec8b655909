"""Print results to standard output; all commands print with ``emit``."""

import io
import os
import sys

from rich.console import Console, RenderableType

from dmcmc.inference.runtime.errors import FileError

_FILE_WIDTH = 120  # columns if standard output is not a terminal


class OutputError(FileError):
    """Standard output cannot be written, as on a full disk."""

    exit_code = 1


def emit(content: RenderableType) -> None:
    """Print text, or a rich renderable as text. A closed pipe is not an error.

    Raises
    ------
    OutputError
        If standard output cannot be written.
    """
    if not isinstance(content, str):
        console = Console() if sys.stdout.isatty() else Console(file=io.StringIO(), width=_FILE_WIDTH)
        with console.capture() as capture:
            console.print(content)
        content = "\n".join(line.rstrip() for line in capture.get().splitlines())
    encoding = sys.stdout.encoding or "utf-8"
    write_output(content.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def write_output(text: str = "") -> None:
    """Write text to standard output, after everything that was printed before. A closed pipe is not an error.

    Raises
    ------
    OutputError
        If standard output cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        close_quietly()
    except OSError as error:
        close_quietly()
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def close_quietly() -> None:
    """Redirect standard output to the null device, so that the flush at exit does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
