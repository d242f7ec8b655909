"""Improvers of the assignment: local search, a search in the background, chains on a GPU, and recombination.

The improver of the search in the background only proposes that the engine continues; the engine works in its own
process or thread (:mod:`dmcmc.anytime.engines`). The chains on a GPU run in a thread (:class:`BackgroundGpuChains`) and
report their assignments to the incumbent; after each cycle they get the seconds of their allocation, or pause without
one. A recombination combines the agents' tables again with a larger limit of table size: exactly, or with mini-buckets
of a larger z, which give an upper bound instead of the exact value.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice, WholeProblemWork
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Needs, Properties, Proposal
from dmcmc.config.settings import Settings
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_problem
from dmcmc.results.result import EXTERNAL_SEARCH, GPU_CHAINS, LOCAL_SEARCH, RECOMBINATION
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.cuda.background_search import BackgroundChains, IncumbentObserver
from dmcmc.samplers.local_search.cuda.chains import DeviceAnnealingChains, chains_of, fits_device
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import chain_key
from dmcmc.solving.incumbent import Incumbent


class LocalSearchImprover(Improver):
    """Continue the local search from the incumbent."""

    name, summary = LOCAL_SEARCH, "search the whole assignment"
    properties = Properties(Needs.ALL_RANKS, Effect.ASSIGNMENTS, first_part=0.25, idle_part=0.06)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the local search for all ranks, with an unknown gain (inf) and the weight of this rank's agents."""
        return [Proposal(self.name, float("inf"), weight=sum(map(state.weight, state.agents)))]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Search on all ranks at the same time."""
        start = time.perf_counter()
        objective_gain = time_slice.whole.search(sum(allocation.seconds for allocation in allocations))
        return [MeasuredGain(self.name, time.perf_counter() - start, objective_gain=objective_gain)]


class ExternalSearchImprover(Improver):
    """Let the external search continue in the background, or wait for it if there is no other work."""

    name, summary = EXTERNAL_SEARCH, "let the search engine run"
    properties = Properties(Needs.PROCESS, Effect.ASSIGNMENTS | Effect.BOUNDS)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the external search while it may gain something; without an allocation, it ends.

        The gain is unknown (inf).
        """
        return [Proposal(self.name, float("inf"))] if state.external_search_active else []

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Wait for the external search if it is the only work that has an allocation."""
        time_slice.whole.wait_for_engine(sum(allocation.seconds for allocation in allocations))
        return []

    def begin(self, whole: WholeProblemWork, allocations: Sequence[Allocation]) -> None:
        """Let the external search go on; without an allocation, it ends."""
        whole.continue_engine(bool(allocations))


_LOG = logging.getLogger(__name__)
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # one of these files exists if there is a GPU


class GpuChainsImprover(Improver):
    """Let the background chains use some seconds of the GPU."""

    name, summary = GPU_CHAINS, "run local-search chains on a GPU"
    properties = Properties(Needs.GPU, Effect.ASSIGNMENTS, first_part=0.25)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the chains while they run, with an unknown gain (inf); without an allocation, they pause."""
        return [Proposal(self.name, float("inf"))] if state.gpu_chains_active else []

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Return no gains: the chains run in their own thread, and report their gains themselves."""
        return []

    def begin(self, whole: WholeProblemWork, allocations: Sequence[Allocation]) -> None:
        """Let the chains use the allocated seconds of the GPU."""
        whole.allow_gpu_seconds(sum(allocation.seconds for allocation in allocations))


class BackgroundGpuChains:
    """Chains over the whole assignment that run on the GPU in the background.

    Parameters
    ----------
    search : LocalSearch
        Knows the problem, and makes assignments that the chains find 1-optimal.
    incumbent : Incumbent
        The best assignment so far, where the chains record better ones.
    alone : bool
        Whether no other work uses the GPU: the chains may then use all of it, whatever their allocation.
    stop : Deadline
        Deadline of the run.
    """

    def __init__(
        self,
        search: LocalSearch,
        incumbent: Incumbent,
        alone: bool,
        stop: Deadline,
    ) -> None:
        def incumbent_values() -> NDArray[np.int64]:
            assert incumbent.values is not None
            return incumbent.values

        def make_chains() -> DeviceAnnealingChains | None:
            graph = search.graph_from(incumbent_values())
            if not fits_device(graph):
                return None
            key = np.array(chain_key(search.seed, -1), dtype=np.uint64)
            return DeviceAnnealingChains(graph, key, chains=lambda layout: chains_of(layout, n, alone))

        def take_found(values: NDArray[np.int64]) -> None:
            before = incumbent.utility
            incumbent.update(search.one_opt(values), GPU_CHAINS)
            after = incumbent.utility
            self._objective_gain += 0.0 if before is None or after is None else max(0.0, float(after - before))

        n = search.original.n_variables
        self._alone, self._objective_gain, self._seconds = alone, 0.0, 0.0
        self._chains = BackgroundChains(
            make_chains, IncumbentObserver(lambda: incumbent_values()[:n], take_found), stop
        )
        self.allow(tuning.UNTRIED_SHARE * max(0.0, stop.until - time.perf_counter()))

    @property
    def running(self) -> bool:
        """Whether the chains may still gain something."""
        return self._chains.on

    def allow(self, seconds: float) -> None:
        """Let the chains use some seconds of the GPU; all that they can use if no other work uses it."""
        self._chains.set_device_time(float("inf") if self._alone else seconds)

    def take_gains(self) -> list[MeasuredGain]:
        """Return the cost and gain since the last call; an empty list if the chains have used no time since."""
        seconds, objective_gain = self._chains.seconds, self._objective_gain
        if seconds == self._seconds:
            return []
        gain = MeasuredGain(GPU_CHAINS, seconds - self._seconds, objective_gain=objective_gain)
        # The chains' thread may have added gains concurrent: they stay for the next call.
        self._seconds, self._objective_gain = seconds, self._objective_gain - objective_gain
        return [gain]

    def end(self) -> None:
        """End the chains."""
        self._chains.end()
        if self._chains.failed:
            _LOG.warning(f"dmcmc: the chains on the GPU ended early: {self._chains.failed}")


def start(search: LocalSearch, incumbent: Incumbent, alone: bool, stop: Deadline) -> BackgroundGpuChains | None:
    """Start chains in the background if they are wanted (rank 0).

    If agents' tables use the GPU, too, the chains get only a part of its time.

    Parameters
    ----------
    search, incumbent, stop
        As for :class:`BackgroundGpuChains`.
    alone : bool
        Whether no agent's tables use the GPU.
    """
    return BackgroundGpuChains(search, incumbent, alone, stop) if wanted(incumbent.settings) else None


def wanted(settings: Settings) -> bool:
    """Return whether a run with these settings runs chains on the GPU, if a GPU can be used."""
    seconds, device = settings.budget.time, settings.device
    if seconds is None or device == "cpu" or settings.local_search == "none":
        return False
    if device == "auto" and (
        seconds < tuning.PAYBACK_FACTOR * COSTS.gpu_start or not any(Path(name).exists() for name in _DRIVERS)
    ):
        return False
    return gpu_problem() is None and allows_concurrent_use()


def outlook(settings: Settings) -> str:
    """Return the line of ``--explain`` about the chains; an empty string if they are not wanted."""
    if not wanted(settings):
        return ""
    return "chains over the whole assignment run on the GPU in the background, unless tables prove the optimum first"


class RecombinationImprover(Improver):
    """Allow larger tables in the next combination, if tables were split to save time rather than memory."""

    name, summary = RECOMBINATION, "combine again, with larger tables"
    properties = Properties(Needs.ALL_RANKS)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose a recombination, with an unknown gain (inf), if tables of this rank's agents were split."""
        if state.recombination_seconds is None:
            return []
        return [Proposal(self.name, float("inf"), None, state.recombination_seconds)]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Raise the limit; the next combination takes the time, and records it."""
        time_slice.whole.enlarge_tables(allocations[0].seconds)
        return []
