"""Processes that this one has started."""

from contextlib import suppress
from subprocess import Popen


def end_process(process: "Popen[bytes]") -> None:
    """Kill a process, whatever it does, wait until it is gone, and close what it was talked to by."""
    with suppress(OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
