"""From an exception to one line on stderr and an exit code."""

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmcmc.inference.runtime.errors import CheckpointWarning, DivisionWarning, DmcmcError

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOTS = (_PACKAGE, *(p.resolve() for p in map(_PACKAGE.joinpath, ("inference", "samplers", "mpi"))))


def exit_code(error: BaseException) -> int:
    """Return what the command line exits with: 2 for bad input, 130 for Ctrl-C, 1 for everything unforeseen."""
    if isinstance(error, DmcmcError):
        return error.exit_code
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def describe(error: BaseException) -> str:
    """Return an error as one line: its message if it is meant for users, else its type, message and place."""
    message = " ".join(str(error).split())
    if isinstance(error, DmcmcError):
        return f"error: {message}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError):
        return f"error: out of memory{_place(error)}; lower budget.memory or make the problem smaller"
    message = f": {message[:500]}" if message else ""
    return f"internal error: {type(error).__name__}{message}{_place(error)}; DMCMC_DEBUG=1 shows the traceback"


def report(error: BaseException, rank: int | None = None) -> None:
    """Print an error's line to stderr (and its traceback before that with DMCMC_DEBUG=1); ``rank`` is named."""
    if os.environ.get("DMCMC_DEBUG") == "1":
        traceback.print_exception(error)
    where = "" if rank is None else f"rank {rank}: "
    print(f"dmcmc: {where}{describe(error)}".encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print our own warnings as one line each, without the place in the code."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, DivisionWarning | CheckpointWarning):
                print(f"dmcmc: warning: {message}", file=sys.stderr, flush=True)
            else:
                others(message, category, *rest, **named)

        warnings.showwarning = show
        yield


def _place(error: BaseException) -> str:
    """Return `` (file:line)`` of the innermost frame in our own code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        for root in _ROOTS:
            if path.is_relative_to(root):
                prefix = "dmcmc" if root == _PACKAGE else f"dmcmc/{root.name}"
                return f" ({prefix}/{path.relative_to(root).as_posix()}:{frame.lineno})"
    return ""
