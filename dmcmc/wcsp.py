"""Read extensional ``.wcsp`` files: weighted CSPs as toulbar2 writes them, plain or compressed.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. Shared and global cost functions
are refused by name.
"""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dmcmc.inference.errors import FileError, Unavailable
from dmcmc.inference.problem import Factor, Problem
from dmcmc.memory import memory_limit, readable

_OPENERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}


def load(path: str | os.PathLike[str]) -> Problem:
    """Read a ``.wcsp`` file (also ``.gz``, ``.xz``, ``.bz2``); one agent owns every variable.

    Raises
    ------
    FileError
        If the file is not well formed; names the constraint.
    Unavailable
        For shared and global cost functions.
    ResourceError
        If a table does not fit the memory.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        opener = _OPENERS.get(file.suffix)
        text = (opener(data) if opener else data).decode("ascii", "replace")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from None
    header, _, body = text.partition("\n")
    words = header.split()
    try:
        name, (n, _, count, top) = words[0], (int(w) for w in words[1:5])
    except (IndexError, ValueError):
        raise FileError(f"{path}: line 1: expected 'name variables largest-domain constraints top'") from None
    try:
        numbers = np.array(body.split(), dtype=np.int64)
    except (ValueError, OverflowError):
        raise _refusal(path, body) from None
    reader = _Reader(path, numbers, top)
    domains = reader.take(n, "domain sizes")
    factors = tuple(reader.factor(i, domains) for i in range(count))
    variables = tuple(f"x{i}" for i in range(n))
    return Problem(variables, domains, ("all",), np.zeros(n, dtype=np.int64), factors, sense="min", name=name)


def _refusal(path: str | os.PathLike[str], body: str) -> Exception:
    """Return the error for a body that is not all integers."""
    for number, line in enumerate(body.splitlines(), start=2):
        for word in line.split():
            try:
                int(word)
            except ValueError:
                return Unavailable(f"{path}: line {number}: {word[:40]!r} is not a whole number (global cost functions"
                                   " are not available in this version)")  # fmt: skip
    return FileError(f"{path}: a number has more than 63 bits")


class _Reader:
    """Takes numbers off the body of a file."""

    def __init__(self, path: str | os.PathLike[str], numbers: np.ndarray, top: int) -> None:
        self.path, self.numbers, self.top, self.at = path, numbers, top, 0

    def take(self, count: int, what: str) -> np.ndarray:
        """Return the next ``count`` numbers."""
        if count < 0 or self.at + count > self.numbers.size:
            raise FileError(
                f"{self.path}: {what}: {count} numbers are expected, {self.numbers.size - self.at} are left"
            )
        self.at += count
        return self.numbers[self.at - count : self.at]

    def factor(self, index: int, domains: np.ndarray) -> Factor:
        """Read one constraint: arity, scope, default cost, tuples."""
        what = f"constraint {index}"
        arity = int(self.take(1, what)[0])
        if arity < 0:
            raise Unavailable(f"{self.path}: {what}: shared cost functions are not available in this version")
        scope = self.take(arity, what)
        default, tuples = (int(x) for x in self.take(2, what))
        if default < 0 or tuples < 0:
            raise Unavailable(f"{self.path}: {what}: shared or global cost functions are not available in this version")
        if arity and not (0 <= scope.min() and scope.max() < domains.size):
            raise FileError(f"{self.path}: {what}: a variable that does not exist in scope {scope.tolist()}")
        shape = tuple(int(d) for d in domains[scope])
        cells = int(np.prod([float(s) for s in shape]))
        if 8 * cells > memory_limit():
            raise FileError(f"{self.path}: {what}: a table of {readable(8 * cells)} over {arity} variables")
        rows = self.take(tuples * (arity + 1), what).reshape(tuples, arity + 1)
        if arity and tuples and ((rows[:, :-1] < 0).any() or (rows[:, :-1] >= domains[scope]).any()):
            raise FileError(f"{self.path}: {what}: a value outside its domain")
        costs = np.full(shape, default, dtype=np.int64)
        costs[tuple(rows[:, :-1].T)] = rows[:, -1]
        hard = np.iinfo(np.int64).min
        return Factor.of(scope.tolist(), np.where(costs >= self.top, hard, costs), "min", f"c{index}")
