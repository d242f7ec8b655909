"""Child processes."""

from contextlib import suppress
from subprocess import Popen


def end_process(process: "Popen[bytes]") -> None:
    """Kill a child process, wait until it has ended, and close its pipes."""
    with suppress(OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
