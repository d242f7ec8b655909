"""Child processes."""

import os
import sys
from contextlib import suppress
from subprocess import Popen


def python_command() -> list[str]:
    """Return the command for a Python that imports modules from the working directory only if this process does."""
    try:
        here = os.getcwd()
    except OSError:  # the working directory was deleted
        here = ""
    return [sys.executable] if "" in sys.path or here in sys.path else [sys.executable, "-P"]


def end_process(process: "Popen[bytes]") -> None:
    """Kill a child process, wait until it has ended, and close its pipes."""
    with suppress(OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
