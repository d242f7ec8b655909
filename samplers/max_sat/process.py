"""The MaxSAT process of a search."""

import importlib.util
from pathlib import Path

from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.external.process import EngineProcess, PrintedProgress, SearchProgress


def available() -> bool:
    """Return whether python-sat is installed."""
    return importlib.util.find_spec("pysat") is not None


class MaxSatProcess(EngineProcess):
    """A MaxSAT process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.

    Raises
    ------
    Unavailable
        If python-sat is not installed.
    """

    engine = Path(__file__).with_name("worker.py")
    max_discarded_seconds = 0.0

    def __init__(self, memory: int = 0) -> None:
        if not available():
            raise Unavailable("MaxSAT needs python-sat; pip install 'dmcmc[search]'")
        super().__init__(memory)

    def _progress(self) -> SearchProgress:
        """Return the object that reads the worker's output."""
        return PrintedProgress()
