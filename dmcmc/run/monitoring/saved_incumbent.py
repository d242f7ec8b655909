"""The best assignment of a run that is ended by the clock, on disk: a later run begins with it.

``incumbent.npz`` in the checkpoint's folder, whole or not at all: values of all variables, and two digests, of the
problem that they are of and of themselves. What an assignment is worth is found out anew, so nothing else is trusted.
"""

import hashlib
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.write import writing
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError

NAME = "incumbent.npz"
_PAUSE = 1.0  # seconds between two writes
_BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


class KeptIncumbent:
    """Where the best assignment is kept: by rank 0, or of one agent's part by its rank.

    Parameters
    ----------
    folder
        Made where it is missing.
    problem : Problem
        What the assignment is of, as dense tables.
    name : str
        Of the file.
    """

    def __init__(self, folder: str, problem: Problem, name: str = NAME) -> None:
        self.path, self.problem = Path(folder) / name, problem
        self._made_from = np.frombuffer(_digest_of(problem), dtype=np.uint8)
        self._waiting: NDArray[np.int64] | None = None
        self._written, self._failed = 0.0, False

    def find(self) -> NDArray[np.int64] | None:
        """Return the assignment that an earlier run has kept; None where there is none of this problem."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                made_from, digest = file["made_from"], file["digest"]
                values: NDArray[np.int64] = file["values"]
            if digest.tobytes() != hashlib.sha256(values.tobytes()).digest():
                raise ValueError("damaged")
        except FileNotFoundError:
            return None
        except _BROKEN:
            _warn(f"{self.path}: is damaged; the search begins anew")
            return None
        if made_from.tobytes() != self._made_from.tobytes() or values.shape != (self.problem.n_variables,):
            _warn(f"{self.path}: is of another problem; the search begins anew")
            return None
        return values

    def keep(self, values: NDArray[np.int64]) -> None:
        """Keep an assignment, now or a second after the last one; a disk that is full is told once, and no error."""
        self._waiting = values
        if time.perf_counter() - self._written >= _PAUSE:
            self.flush()

    def flush(self) -> None:
        """Write what waits to be kept."""
        values, self._waiting = self._waiting, None
        if values is None or self._failed:
            return
        digest = np.frombuffer(hashlib.sha256(values.tobytes()).digest(), dtype=np.uint8)
        try:
            with writing(self.path) as stream:
                np.savez(stream, values=values, made_from=self._made_from, digest=digest)
        except FileError as error:
            self._failed = True
            _warn(f"{error}; the best assignment is not kept")
        self._written = time.perf_counter()


def _warn(what: str) -> None:
    warnings.warn(what, CheckpointWarning, stacklevel=3)


def _digest_of(problem: Problem) -> bytes:
    """Return a digest of what assignments are worth."""
    known = hashlib.sha256(repr((1, problem.sense, problem.domains.tolist())).encode())
    for factor in problem.factors:
        known.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
        known.update(np.ascontiguousarray(factor.table).data)
    return known.digest()
