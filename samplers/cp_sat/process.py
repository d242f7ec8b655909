"""The CP-SAT process of a search."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.external.process import EngineProcess, PrintedProgress, SearchedProblem, SearchProgress


def available() -> bool:
    """Return whether CP-SAT is installed."""
    return importlib.util.find_spec("ortools") is not None


class CpSatProcess(EngineProcess):
    """A CP-SAT process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.
    known : callable
        Returns the best known assignment, from which a search starts: value indices of the first variables; None if
        there is none.
    workers : int
        Number of CP-SAT's workers (threads).

    Raises
    ------
    Unavailable
        If CP-SAT is not installed.
    """

    engine = Path(__file__).with_name("worker.py")
    max_discarded_seconds = 1.0  # of its presolve; later a better assignment gains less than learned clauses are worth

    def __init__(
        self, memory: int = 0, known: Callable[[], NDArray[np.int64] | None] = lambda: None, workers: int = 1
    ) -> None:
        if not available():
            raise Unavailable("CP-SAT is not installed; pip install 'dmcmc[search]'")
        self._known, self._workers = known, workers
        super().__init__(memory)

    def _progress(self) -> SearchProgress:
        """Return the object that reads the worker's output."""
        return PrintedProgress()

    def _job(self, costs: SearchedProblem) -> dict[str, Any]:
        """Return the number of workers and the hint."""
        known = self._known()
        return {"workers": self._workers, "hint": None if known is None else known[: costs.domains.size].tolist()}
