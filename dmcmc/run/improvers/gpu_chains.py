"""Chains of the whole assignment on the GPU, beside all other work."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import gpu_problem, takes_threads
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import GPU_SEARCH, Brought, Grant, Offer
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.rng import chain_key

_LOG = logging.getLogger(__name__)
_OPENING = 5.0  # times what it takes to open a GPU: for runs of less time it is not opened for this
_FIRST = 0.1  # of the time that is left it may have before it is granted any
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # one of them is there where a GPU may be


class GpuSearch:
    """Let it have some seconds of the device beside all else."""

    name = GPU_SEARCH

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer it as long as it goes on; where it is not granted, it rests."""
        return [Offer(self.name, float("inf"))] if standing.on_gpu else []

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Do nothing: it goes on by itself."""


class OnGpu:
    """The search on the GPU beside a run.

    Parameters
    ----------
    search : LocalSearch
        Knows the problem; makes what is found 1-optimal.
    known : callable
        Returns the best assignment so far.
    take : callable
        Takes in an assignment; returns what the best is better by.
    alone : bool
        Whether nothing else uses the device: then it may have all of it, whatever it is granted.
    stop : Stop
    """

    def __init__(
        self,
        search: LocalSearch,
        known: Callable[[], NDArray[np.int64]],
        take: Callable[[NDArray[np.int64]], float],
        alone: bool,
        stop: Stop,
    ) -> None:
        from dmcmc.samplers.local_search.cuda.background_search import Beside, Listener
        from dmcmc.samplers.local_search.cuda.chains import DeviceChains, chains_of, usable

        n = search.original.n_variables

        def make() -> DeviceChains | None:
            graph = search.graph_from(known())
            if not usable(graph):
                return None
            key = np.array(chain_key(search.seed, -1), dtype=np.uint64)
            return DeviceChains(graph, key, chains=lambda layout: chains_of(layout, n, alone))

        def found(values: NDArray[np.int64]) -> None:
            self._raised += take(search.polish(values))

        self._alone, self._raised, self._seconds = alone, 0.0, 0.0
        self._beside = Beside(make, Listener(lambda: known()[:n], found), stop)
        self.allow(_FIRST * max(0.0, stop.until - time.perf_counter()))

    @property
    def on(self) -> bool:
        """Whether it may still bring something."""
        return self._beside.on

    def allow(self, seconds: float) -> None:
        """Let it have so many seconds of the device; all that it wants where nothing else does."""
        self._beside.allow(float("inf") if self._alone else seconds)

    def brought(self) -> list[Brought]:
        """Return what it has brought since this was last asked."""
        seconds, raised = self._beside.seconds, self._raised
        if seconds == self._seconds:
            return []
        one = Brought(GPU_SEARCH, seconds - self._seconds, objective=raised)
        self._seconds, self._raised = seconds, self._raised - raised
        return [one]

    def end(self) -> None:
        """End it."""
        self._beside.end()
        if self._beside.failed:
            _LOG.warning(f"dmcmc: the search on the GPU has ended early: {self._beside.failed}")


def wanted(settings: Settings) -> bool:
    """Return whether a run with such settings would have it beside, where there is a GPU that it has room on."""
    seconds, device = settings.budget.time, settings.device
    if seconds is None or device == "cpu" or settings.polish == "none":
        return False
    if device == "auto" and (seconds < _OPENING * COSTS.opening or not any(map(_exists, _DRIVERS))):
        return False
    return gpu_problem() is None and takes_threads()


def outlook(settings: Settings) -> str:
    """Return what ``--explain`` says of it; nothing where it is not wanted."""
    if not wanted(settings):
        return ""
    return "chains of the whole assignment go on beside the run, on the GPU, unless tables prove the answer at once"


def _exists(name: str) -> bool:
    return Path(name).exists()
