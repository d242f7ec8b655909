"""Turn exceptions and warnings into lines on standard error, and exceptions into exit codes."""

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dmcmc.inference.runtime.errors import CheckpointWarning, DivisionWarning, DmcmcError, FileWarning

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOTS = (_PACKAGE, *(p.resolve() for p in map(_PACKAGE.joinpath, ("inference", "samplers", "mpi"))))


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error: 2 for bad input, 130 for Ctrl-C, 1 for unexpected errors."""
    if isinstance(error, DmcmcError):
        return error.exit_code
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def describe(error: BaseException) -> str:
    """Return an error as one line: the message of a ``DmcmcError``; of others the type, the message and the place."""
    message = " ".join(str(error).split())
    if isinstance(error, DmcmcError):
        return f"error: {message}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError):
        return f"error: out of memory{_place(error)}; set a lower budget.memory or use a smaller problem"
    message = f": {message[:500]}" if message else ""
    return f"internal error: {type(error).__name__}{message}{_place(error)}; set DMCMC_DEBUG=1 to see the traceback"


def report(error: BaseException, rank: int | None = None) -> None:
    """Print an error as one line to standard error, with ``DMCMC_DEBUG=1`` after its traceback.

    Parameters
    ----------
    error
        The error.
    rank
        The MPI rank to name; None for none.
    """
    if os.environ.get("DMCMC_DEBUG") == "1":
        traceback.print_exception(error)
    where = "" if rank is None else f"rank {rank}: "
    print_line(f"dmcmc: {where}{describe(error)}")


def print_line(text: str) -> None:
    """Print a line to standard error, or nothing if standard error cannot be written."""
    with suppress(OSError):
        print(text.encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings of dmcmc as one line each, without the place in the code."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, DivisionWarning | CheckpointWarning | FileWarning):
                print(f"dmcmc: warning: {message}", file=sys.stderr, flush=True)
            else:
                others(message, category, *place, **options)

        warnings.showwarning = show
        yield


def _place(error: BaseException) -> str:
    """Return `` (file:line)`` of the innermost frame in the code of dmcmc; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        for root in _ROOTS:
            if path.is_relative_to(root):
                prefix = "dmcmc" if root == _PACKAGE else f"dmcmc/{root.name}"
                return f" ({prefix}/{path.relative_to(root).as_posix()}:{frame.lineno})"
    return ""
