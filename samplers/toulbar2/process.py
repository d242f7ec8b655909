"""The toulbar2 process of a search."""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.external.process import EngineProcess, SearchedProblem, SearchProgress

# Lines of toulbar2's output: the values of all variables of an assignment; a lower bound on the cost.
_ASSIGNMENT = re.compile(r"\d+( \d+)*")
_LOWER = re.compile(r"(?:Optimality gap|bounds): \[(\d+), *\d+\]|^Dual bound: (\d+)")
_LIMIT_MESSAGE = "Time limit expired"  # printed by toulbar2 if a search has not been completed in time


def available() -> bool:
    """Return whether toulbar2 is installed."""
    return importlib.util.find_spec("pytoulbar2") is not None


@dataclass
class Toulbar2Progress(SearchProgress):
    """The results of a search by toulbar2 so far."""

    _limited: bool = False

    def _parse(self, line: str, variables: int) -> None:
        """Take the content of a line that toulbar2 prints."""
        if _ASSIGNMENT.fullmatch(line) and len(words := line.split()) == variables:
            self.values = np.array([int(word) for word in words], dtype=np.int64)
        elif found := _LOWER.search(line):
            self.lower = max(self.lower, int(found[1] or found[2]))
        elif _LIMIT_MESSAGE in line:
            self._limited = True
        elif line == "done":
            self.complete, self.ended = not self._limited, True


class Toulbar2Process(EngineProcess):
    """A toulbar2 process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.
    known : callable
        Returns the best known assignment, whose values a search tries first: value indices of the first variables;
        None if there is none.

    Raises
    ------
    Unavailable
        If toulbar2 is not installed.
    """

    engine = Path(__file__).with_name("worker.py")

    def __init__(self, memory: int = 0, known: Callable[[], NDArray[np.int64] | None] = lambda: None) -> None:
        if not available():
            raise Unavailable("toulbar2 is not installed; pip install 'dmcmc[toulbar2]'")
        self._known = known
        super().__init__(memory)

    def _job(self, costs: SearchedProblem) -> dict[str, Any]:
        """Return the initial solution."""
        known = self._known()
        return {"known": None if known is None else known[: costs.domains.size].tolist()}

    def _progress(self) -> SearchProgress:
        """Return the object that reads toulbar2's output."""
        return Toulbar2Progress()
