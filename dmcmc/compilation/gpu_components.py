"""The components of a run that work on a GPU, and the kernels that each of them needs.

A kernel set is named by what its kernels depend on, so that different problems share it. Which ones a run needs depends
on its agents, such as the widths of their tables. GPU kernels are cached on disk after compilation. The run's own
agents load them, with almost no work. The kernels of semidefinite relaxations depend on the sizes of the domains; they
are compiled while other improvers work.

The modules of kernels are imported when a set is compiled or loaded.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence, Set
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from enum import IntEnum
from functools import partial
from itertools import chain
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dmcmc.anytime.improvers.assignments import wanted
from dmcmc.anytime.whole_problem.whole_problem_agent import whole_problem_of, whole_problem_provider
from dmcmc.compilation.components import SearchVariant, tiny_search
from dmcmc.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.inference.bounds.search_rows import gpu_table_widths
from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS, load_joins, load_matched
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken, Deadline
from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_fault, is_gpu_in_use
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.results.result import BRANCH, SEMIDEFINITE
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods.blocks import BlockSolver
from dmcmc.samplers.methods.gibbs import uses_gibbs_kernel
from dmcmc.samplers.model.chain_model import build_model, is_compact
from dmcmc.solving.observe import ProgressReporter
from dmcmc.solving.planning.combination_plan import largest_join, may_split_buckets
from dmcmc.solving.planning.plan import Setup

if TYPE_CHECKING:
    from dmcmc.samplers.contract.protocol import Sampler
    from dmcmc.samplers.cuda.gibbs_kernels import GibbsKernelShape


def dual_ascent(width: int) -> list[KernelSet]:
    """Return the kernels of the dual ascent for tables with ``width`` columns, each as a set of its own."""
    return [
        KernelSet(f"GPU dual ascent of graphs, {width} columns", partial(_load_sweeps, width)),
        KernelSet(f"GPU dual ascent of rows, {width} columns", partial(_load_row_bounds, width)),
    ]


def branch_and_bound(width: int) -> KernelSet:
    """Return the kernels of branch and bound with the bounds of a dual ascent on tables with ``width`` columns."""
    return KernelSet(f"GPU branch and bound, {width} columns", partial(_load_branch_and_bound, width))


def relaxations(domain: int, backend: Backend) -> KernelSet:
    """Return the kernels of semidefinite relaxations whose largest domain has ``domain`` values."""
    return KernelSet(f"GPU relaxations, {domain} values", partial(_load_relaxation, domain, backend))


def large_relaxations(backend: Backend) -> KernelSet:
    """Return the kernels of array libraries that semidefinite relaxations use for large arrays."""
    return KernelSet("GPU relaxations, large arrays", partial(_load_large_relaxation, backend))


def search(variant: SearchVariant) -> KernelSet:
    """Return the kernels of the local search's chains."""
    return KernelSet(f"GPU search {variant.text}", partial(_load_search, variant))


def gibbs_sampling(shape: "GibbsKernelShape") -> KernelSet:
    """Return the kernel of Gibbs sampling with some compile-time parameters."""
    return KernelSet(f"GPU Gibbs sampling {' '.join(map(str, map(int, shape)))}", partial(_load_gibbs, shape))


def gibbs_sampling_of(sampler: "Sampler", locals_: Sequence[LocalProblem], runs: Set[int]) -> list[KernelSet]:
    """Return the kernels with which a sampler draws the hidden variables of agents, with some numbers of runs a row."""
    from dmcmc.samplers.cuda.launch import needed_shapes

    return [gibbs_sampling(shape) for shape in needed_shapes(sampler, [build_model(local) for local in locals_], runs)]


def joins(dtype: np.dtype[Any]) -> KernelSet:
    """Return the kernels of exact elimination with a number type."""
    return KernelSet(f"GPU elimination {dtype}", partial(load_joins, dtype))


def function_filtering(arithmetic: Arithmetic) -> KernelSet:
    """Return the kernels that extend the rows of function filtering."""
    return KernelSet(f"GPU function filtering {arithmetic.dtype}", partial(_load_filtering, arithmetic))


def matched_mini_buckets(dtype: np.dtype[Any]) -> KernelSet:
    """Return the kernels of mini-buckets whose max-marginals are matched, with a number type."""
    return KernelSet(f"GPU mini-buckets {dtype}", partial(load_matched, dtype))


def _load_search(variant: SearchVariant) -> None:
    """Load the kernels of the local search's chains."""
    from dmcmc.samplers.local_search.cuda.chains import load_kernels

    load_kernels(tiny_search(variant).ascent.graph)


def _load_sweeps(width: int) -> None:
    """Load the kernel of the dual ascent on whole graphs."""
    from dmcmc.inference.bounds.dual.cuda.device_ascent import load_sweeps

    load_sweeps(width)


def _load_row_bounds(width: int) -> None:
    """Load the kernel of the dual ascent of rows."""
    from dmcmc.inference.bounds.dual.cuda.device_ascent import load_row_bounds

    load_row_bounds(width)


def _load_branch_and_bound(width: int) -> None:
    """Load the kernels of branch and bound with the bounds of a dual ascent."""
    from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import load_kernels

    load_kernels(width)


def _load_gibbs(shape: "GibbsKernelShape") -> None:
    """Load a kernel of Gibbs sampling."""
    from dmcmc.samplers.cuda.launch import load_gibbs

    load_gibbs(shape)


def _load_filtering(arithmetic: Arithmetic) -> None:
    """Load the kernels of function filtering."""
    from dmcmc.inference.sparse.cuda.extend_rows import load_kernels

    load_kernels(arithmetic)


def _load_relaxation(domain: int, backend: Backend) -> None:
    """Load the kernels of semidefinite relaxations for a size of domains."""
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_relaxation_kernels

    load_relaxation_kernels(domain, backend)


def _load_large_relaxation(backend: Backend) -> None:
    """Load the kernels of array libraries for large arrays."""
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_large_array_kernels

    load_large_array_kernels(backend)


_LOG = logging.getLogger(__name__)


class GpuKernels(NamedTuple):
    """The kernels that a run's agents and its local search load on a GPU.

    Attributes
    ----------
    setup : Setup
        The plan, without its deadline.
    agents : list of int
        The agents.
    searches : bool
        Whether chains of the local search run on the GPU.
    """

    setup: Setup
    agents: list[int]
    searches: bool

    @property
    def first(self) -> list[KernelSet]:
        """The kernels that must be there before the first tables are made.

        Their names contain what the kernels depend on, so that other problems find them.
        """
        return [*self.known_by_plan, *self.sampling]

    @property
    def known_by_plan(self) -> list[KernelSet]:
        """Those of the first kernels that a plan tells; to know those of samplers takes kernels on the CPU."""
        found = [search(SearchVariant.of(self.setup.divided))] if self.searches else []
        found += chain.from_iterable(map(dual_ascent, _table_widths(self.setup, self.agents)))
        return found + elimination_needs(self.setup, self.agents).kernels

    @property
    def sampling(self) -> list[KernelSet]:
        """Those of the first kernels with which samplers sample the agents."""
        return sampling(self.setup, self.agents)

    @property
    def branching(self) -> list[KernelSet]:
        """The kernels of branch and bound."""
        return list(map(branch_and_bound, _table_widths(self.setup, self.agents)))

    @property
    def later(self) -> dict[str, list[KernelSet]]:
        """The kernels that improvers need, by the improver's name; they depend on the domains of the agents."""
        if not (_gpu_available(self.setup) and self.setup.divided.timed):
            return {}
        found = {BRANCH: self.branching, SEMIDEFINITE: relaxations_of_agents(self.setup, self.agents)}
        return {improver: sets for improver, sets in found.items() if sets}


def _gpu_available(setup: Setup) -> bool:
    """Return whether agents may use a GPU."""
    return setup.backend.device == "cuda" or (setup.backend.device == "auto" and (setup.limits.gpu or is_gpu_in_use()))


class EliminationNeeds(NamedTuple):
    """The kernels of exact elimination, of mini-buckets and of function filtering that a run needs on a GPU.

    Attributes
    ----------
    joins : tuple of dtype
        Number types of the tables that are joined.
    filtered : tuple of Arithmetic
        Arithmetic of the rows of function filtering.
    matched : tuple of dtype
        Number types of the mini-buckets whose max-marginals are matched.
    """

    joins: tuple[np.dtype[Any], ...]
    filtered: tuple[Arithmetic, ...]
    matched: tuple[np.dtype[Any], ...]

    @property
    def kernels(self) -> list[KernelSet]:
        """The kernel sets."""
        found = [joins(dtype) for dtype in self.joins]
        found += [function_filtering(arithmetic) for arithmetic in self.filtered]
        return found + [matched_mini_buckets(dtype) for dtype in self.matched]


def elimination_needs(setup: Setup, agents: list[int]) -> EliminationNeeds:
    """Return which kernels of elimination the agents and the combination need."""
    choices = setup.possible_choices(agents)
    may_eliminate_later = _gpu_available(setup) and any(setup.exact_seconds(agent) is not None for agent in agents)
    join_seconds = max([choice.seconds for _, choice in choices if choice.method == "exact"], default=0.0)
    join_seconds = max(join_seconds, COSTS.seconds_per_cell * largest_join(setup))  # largest join of the combination
    joins = may_eliminate_later or setup.backend.worth_gpu(join_seconds)
    filters = _gpu_available(setup) and any(map(setup.may_filter, agents))
    matched = (
        {setup.divided.arithmetic.dtype}
        if may_split_buckets(setup) and setup.divided.config.combine.moment_matching
        else set()
    )
    if any("mini-bucket" in choice.bound for _, choice in choices):
        matched.add(np.dtype(np.int64))
    return EliminationNeeds(
        (setup.divided.arithmetic.dtype,) if joins else (),
        (with_headroom(setup.divided.arithmetic),) if filters else (),
        tuple(sorted(matched, key=str)),
    )


def _bound_providers(setup: Setup, agents: list[int]) -> list[tuple[str, LocalProblem]]:
    """Return the bound providers of agents with their local problems."""
    return [(choice.bound, setup.divided.division.locals[agent]) for agent, choice in setup.possible_choices(agents)]


def _table_widths(setup: Setup, agents: list[int]) -> list[int]:
    """Return the widths of the tables of the bounds on a GPU: those of agents, and of the union of all agents."""
    seconds = (setup.divided.config.budget.time or 0.0) * setup.backend.threads
    bounds, provider = _bound_providers(setup, agents), whole_problem_provider(setup)
    if provider is not None:
        bounds.append((provider, whole_problem_of(setup)))
    return gpu_table_widths(bounds, setup.backend, seconds)


def relaxations_of_agents(setup: Setup, agents: list[int]) -> list[KernelSet]:
    """Return the kernels of the semidefinite relaxations of agents; empty if a GPU cannot compute them."""
    relaxed = _agents_with_relaxation(setup, agents)
    if not relaxed:
        return []
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import largest_domains, uses_large_arrays

    locals_ = [setup.divided.division.locals[agent] for agent in relaxed]
    sets = [relaxations(size, setup.backend) for size in largest_domains(locals_)]
    if any(map(uses_large_arrays, locals_)):
        sets.append(large_relaxations(setup.backend))
    return sets


def _agents_with_relaxation(setup: Setup, agents: list[int]) -> list[int]:
    """Return the agents that may have a semidefinite relaxation on a GPU."""
    choices = setup.possible_choices(agents)
    suitable = [
        agent for agent, choice in choices
        if choice.bound != "none" and is_suitable(setup.divided.division.locals[agent], True)
    ]  # fmt: skip
    if not suitable:
        return []
    from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import relaxation_gpu_problem

    reason = relaxation_gpu_problem()
    if reason is not None:
        _LOG.info(f"dmcmc: semidefinite bounds are computed on the CPU: {reason}")
        return []
    return list(dict.fromkeys(suitable))


def sampling(setup: Setup, agents: list[int]) -> list[KernelSet]:
    """Return the kernels with which samplers sample agents, if their draws are worth the transfer to a GPU."""
    by_method = _sampled_agents(setup, agents)
    return [kernels for method, sampled in by_method.items() for kernels in _sampling_kernels(setup, sampled, method)]


def _sampled_agents(setup: Setup, agents: list[int]) -> dict[str, list[int]]:
    """Return the agents that chains or blocks sample, by method."""
    sampled: dict[str, list[int]] = {}
    for agent, choice in setup.possible_choices(agents):
        if not choice.listed and isinstance(registry.get(choice.method), ChainSolver | BlockSolver):
            sampled.setdefault(choice.method, []).append(agent)
    return dict(sorted(sampled.items()))


def _numbers(setup: Setup) -> str:
    """Return what the kernels of chains depend on besides the method: the number types of tables, values and sums."""
    problem = setup.divided.problem
    is_wide = bool(problem.domains.max(initial=0) > 256)  # values do not fit a byte
    return f"{problem.flat.data.dtype} {setup.divided.arithmetic.dtype} {is_wide} {is_compact(problem)}"


def _sampling_kernels(setup: Setup, agents: list[int], method: str) -> list[KernelSet]:
    """Return the kernels with which a sampler samples agents, if their draws are worth the transfer to a GPU."""
    solver, sampling = registry.get(method), setup.sampling_settings()
    assert isinstance(solver, ChainSolver | BlockSolver), "only these have kernels on a GPU"
    locals_ = [setup.divided.division.locals[agent] for agent in agents]
    if not sampling.backend.samples_on_gpu(sum(int(setup.surveys[agent].updates) for agent in agents)):
        return []
    if isinstance(solver, ChainSolver) and uses_gibbs_kernel(solver.sampler):
        return gibbs_sampling_of(solver.sampler, locals_, {1, sampling.runs})
    name = f"GPU sampling by {method} {setup.divided.config.local.runs} {_numbers(setup)}"
    return [KernelSet(name, partial(solver.load, locals_, sampling))]


_TITLE = "opening the GPU"
LOADING = "dmcmc GPU loading"  # name of the thread that loads kernels; no command waits for it at its end


class Stage(IntEnum):
    """How far a rank has prepared its GPU."""

    FINDING = 0  # it finds out which kernels it needs
    COMPILING = 1  # other processes compile them
    COMPILED = 2  # it loads them, as soon as all ranks have got so far
    LOADED = 3


class GpuPreparation:
    """Prepares the GPU of each rank for a plan in a thread, while the run works by a plan for the CPU.

    The thread requests the kernels after those of the CPU, and loads them. Loading may take long on a GPU that others
    use, and cannot be ended.

    Parameters
    ----------
    setup : Setup
        The plan that uses the GPU.
    on_cpu : list of KernelSet
        Kernels on the CPU that the plan needs, too.
    uses_gpu, searches : bool
        Whether this rank uses a GPU, and whether chains of the local search run on it.
    world, kernels
        As for :func:`prepare_gpu`.

    Attributes
    ----------
    stage : Stage
        How far this rank is.
    loaded : CancellationToken
        Requested when this rank's kernels are loaded: a plan that does without them may end soon.
    later : dict of str to list of KernelSet
        Kernels that improvers need by this plan, by the improver's name.
    is_used : bool
        Whether the run works by this plan.
    """

    def __init__(
        self,
        setup: Setup,
        on_cpu: list[KernelSet],
        uses_gpu: bool,
        searches: bool,
        world: World,
        kernels: KernelSupply,
    ) -> None:
        self.stage, self.loaded, self.is_used = Stage.FINDING, CancellationToken(), False
        self.later: dict[str, list[KernelSet]] = {}
        self._setup, self._on_cpu, self._world, self._kernels = setup, on_cpu, world, kernels
        own, plain = setup.agents_of_rank(world.rank), setup.with_stop(NO_DEADLINE)
        of_node = own if setup.divided.scattered else list(range(setup.divided.problem.n_agents))
        self._of_node, self._own = GpuKernels(plain, of_node, searches), GpuKernels(plain, own, searches)
        self._uses_gpu, self._first = uses_gpu, list[KernelSet]()
        self._all_are_compiled = Event()
        if world.size == 1:
            self._all_are_compiled.set()
        # missing kernels come from the processes of this run
        self._thread = Thread(target=copy_context().run, args=(self._run,), name=LOADING)

    def request(self) -> float:
        """Request all kernels; return the seconds that do not count as run time.

        All ranks call this before they call ``begin`` if kernels are compiled before the clock starts.
        """
        needed = self._of_node if self._uses_gpu and not self._world.local_rank else None
        seconds = self._requested([*self._on_cpu, *needed.known_by_plan] if needed else [])
        later = chain.from_iterable(needed.later.values()) if needed else ()
        seconds += self._kernels.request(*later, later=True)
        if needed:
            self._kernels.wait_alone(*self._on_cpu)  # code of the CPU finds the others
        seconds += self._requested(needed.sampling if needed else [])
        self._kernels.wait_alone(*self._first)
        return seconds

    def _requested(self, sets: list[KernelSet]) -> float:
        """Request kernels that must be there before the first tables are made; return the seconds that do not count."""
        self._first += sets
        seconds = self._kernels.request(*sets, later=True)
        if not self._kernels.is_ready(*sets):
            self.stage = Stage.COMPILING
        return seconds

    def begin(self) -> None:
        """Begin on this rank, if it uses a GPU."""
        if self._uses_gpu:
            self._thread.start()
        else:
            self.stage = Stage.LOADED
            self.loaded.request()

    def _run(self) -> None:
        """Prepare the GPU of this rank."""
        try:
            if not self._kernels.compiles_first:
                self.request()
            own = self._first[len(self._on_cpu) :] if self._world.size == 1 else self._own.first
            self.stage, self.later = Stage.COMPILED, self._own.later
            while not self._all_are_compiled.wait(tuning.CHECK_SECONDS):
                self._kernels.check_goes_on()
            load_sets([*own, *filter(self._kernels.is_ready, self._own.branching)])
        except OutOfTime:  # the run has ended
            return
        except Exception as error:  # the run itself reports the error
            _report(error)
        self.stage = Stage.LOADED
        self.loaded.request()

    def next_plan(self) -> Setup | None:
        """Return the plan that uses the GPU once all ranks have loaded its kernels, until then None; for all ranks."""
        stages = self._world.allgather(self.stage)
        if min(stages) >= Stage.COMPILED:
            self._all_are_compiled.set()
        self.is_used = min(stages) == Stage.LOADED
        return without_closed_gpu(self._setup) if self.is_used else None

    def wait(self, patience: float | None) -> Setup | None:
        """Wait until the plan can be used, for some seconds at most; return None at once if kernels are missing.

        All ranks call this. ``patience`` is None to wait without an end.
        """
        end = time.perf_counter() + (math.inf if patience is None else patience)
        while (plan := self.next_plan()) is None:
            waits = self.stage is not Stage.COMPILING and time.perf_counter() < end
            if not all(self._world.allgather(waits)):
                return None
            self._thread.join(tuning.CHECK_SECONDS if self._thread.ident is not None else 0.0)
        return plan


class PreparedRun(NamedTuple):
    """A run whose GPU kernels are loaded or will be.

    Attributes
    ----------
    setup : Setup
        The plan by which the run begins: for the CPU alone until the GPU is open.
    seconds : float
        Seconds that do not count as run time.
    gpu : GpuPreparation or None
        The preparation of the GPU; None if the run does not use one.
    goes_on_with_gpu : bool
        Whether the run goes on by the plan that uses the GPU, once that is prepared.
    """

    setup: Setup
    seconds: float = 0.0
    gpu: GpuPreparation | None = None
    goes_on_with_gpu: bool = False


def prepare_gpu(
    setup: Setup,
    world: World,
    progress: ProgressReporter,
    kernels: KernelSupply,
    on_cpu: Callable[[], list[KernelSet]],
    concurrent: ConcurrentWork | None = None,
) -> PreparedRun:
    """Prepare the GPU of each rank, if a plan with a time budget uses one; called by all ranks.

    If kernels are missing, the run begins at once by a plan for the CPU alone, which it keeps with ``device: auto``.
    Otherwise it waits for the GPU for a share of its time.

    Parameters
    ----------
    setup
        The plan.
    world
        The ranks.
    progress
        Receives the progress.
    kernels
        The kernels of the run.
    on_cpu
        Returns the kernels on the CPU that the plan needs; called by all ranks.
    concurrent
        Work for the time in which the GPU is opened: the local search, whose chains may run on the GPU, too.
    """
    required = setup.backend.device == "cuda"
    uses_gpu = required or (setup.backend.device == "auto" and setup.limits.gpu)
    searches = concurrent is not None and world.rank == 0 and not setup.will_prove and wanted(setup.divided.config)
    uses_gpu = uses_gpu or searches
    if not any(world.allgather(uses_gpu)):
        return PreparedRun(setup)
    sets = on_cpu()
    gpu = GpuPreparation(setup, sets, uses_gpu, searches, world, kernels)
    seconds, plan = gpu.request() if kernels.compiles_first else 0.0, None
    gpu.begin()
    is_missing = not kernels.all_ready(*sets)
    if not is_missing:
        progress.stage(_TITLE)
        with nullcontext() if concurrent is None else concurrent.begin():
            plan = gpu.wait(_patience(kernels.stop) if allows_concurrent_use() else None)
        is_missing = any(world.allgather(gpu.stage is Stage.COMPILING))
    if plan is None:
        return PreparedRun(setup.chosen_for_cpu(world), seconds, gpu, required or not is_missing)
    return PreparedRun(plan, seconds, gpu)


def _patience(stop: Deadline) -> float | None:
    """Return the seconds for which a run waits for its GPU: a share of those that are left; None without an end."""
    return None if stop.left == math.inf else max(0.0, tuning.FIRST_SHARE * stop.left)


def load_sets(sets: list[KernelSet]) -> None:
    """Load kernels in this process."""
    for kernels in sets:
        kernels.compile()


def _report(error: Exception) -> None:
    """Report an error after which kernels are missing; a failure of the GPU has a line of its own."""
    if gpu_fault(error) is None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        _LOG.warning(f"dmcmc: not all kernels for the GPU are loaded: {reason}")


def without_closed_gpu(setup: Setup) -> Setup:
    """Return a plan that does not use a GPU that is not open yet: opening it now would take the run's time."""
    if setup.backend.device != "auto" or is_gpu_in_use():
        return setup
    return replace(setup, backend=replace(setup.backend, device="cpu"))
