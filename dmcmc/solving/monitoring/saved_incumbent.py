"""The best assignment of a run with a time budget, saved on disk: a later run starts from it.

The file ``incumbent.npz`` in the checkpoint folder is written atomically. It has the values of all variables and two
digests: of the problem, and of the values. When it is read, all values are compared with their domains and the utility
is computed again, so nothing else is trusted.
"""

import hashlib
import time
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.archive import open_archive
from dmcmc.files.write import open_packed_atomically
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError
from dmcmc.solving.tuning import SAVING_INTERVAL

FILE_NAME = "incumbent.npz"


class SavedIncumbent:
    """The file that saves the best assignment: the whole one, by rank 0, or one agent's part in a private run.

    Parameters
    ----------
    folder : str
        Folder of the file; created if it is missing.
    problem : Problem
        The problem with dense tables, to which the assignment belongs.
    name : str
        Name of the file.
    """

    def __init__(self, folder: str, problem: Problem, name: str = FILE_NAME) -> None:
        self.path, self.problem = Path(folder) / name, problem
        self._problem_digest = np.frombuffer(_digest_of(problem), dtype=np.uint8)
        self._unsaved: NDArray[np.int64] | None = None
        self._written, self._failed = 0.0, False

    def load(self) -> NDArray[np.int64] | None:
        """Return the assignment that an earlier run saved; None if there is none for this problem."""
        try:
            with open_archive(self.path) as archive:
                made_from, digest = archive.array("made_from", "|u1"), archive.array("digest", "|u1")
                values: NDArray[np.int64] = archive.array("values", "<i8")
                if digest.tobytes() != hashlib.sha256(values.tobytes()).digest():
                    raise archive.fail("digest", "differs from the digest of the values")
            if made_from.tobytes() != self._problem_digest.tobytes():
                _warn(f"{self.path}: the file belongs to another problem; the search starts from scratch")
                return None
            if values.shape != self.problem.domains.shape or ((values < 0) | (values >= self.problem.domains)).any():
                raise FileError(f"{self.path}: array 'values': must hold a value of each variable's domain")
        except FileNotFoundError:
            return None
        except FileError as error:
            reason = str(error).removeprefix(f"{self.path}: ")
            _warn(f"{self.path}: the file is damaged; the search starts from scratch ({reason})")
            return None
        values.flags.writeable = True  # kernels are compiled for writable arrays
        return values

    def save(self, values: NDArray[np.int64]) -> None:
        """Save an assignment now, or once a second has passed since the last write; if the disk is full, warn once."""
        self._unsaved = values
        if time.perf_counter() - self._written >= SAVING_INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Write an assignment that is not saved yet."""
        values, self._unsaved = self._unsaved, None
        if values is None or self._failed:
            return
        digest = np.frombuffer(hashlib.sha256(values.tobytes()).digest(), dtype=np.uint8)
        try:
            with open_packed_atomically(self.path) as stream:
                np.savez(stream, values=values, made_from=self._problem_digest, digest=digest)
        except FileError as error:
            self._failed = True
            _warn(f"{error}; the best assignment is not saved")
        self._written = time.perf_counter()


def _warn(message: str) -> None:
    """Warn about the checkpoint."""
    warnings.warn(message, CheckpointWarning, stacklevel=3)


def _digest_of(problem: Problem) -> bytes:
    """Return a digest of the problem's domains and tables."""
    digest = hashlib.sha256(repr((1, problem.sense, problem.domains.tolist())).encode())
    for factor in problem.factors:
        digest.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
        digest.update(np.ascontiguousarray(factor.table).data)
    return digest.digest()
