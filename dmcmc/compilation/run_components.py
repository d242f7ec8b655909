"""The components of one run: whether they are ready to work, and what works until they are.

The main path of a run names no kernels. It asks here for what it needs next, and whether that is ready.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from dmcmc.compilation.components import (
    AgentKernels,
    Ending,
    SearchComponents,
    SolveTiny,
    agent_work,
    before_plan,
    first_search_of,
    for_improvers,
    planning,
    soon,
)
from dmcmc.compilation.kernel_supply import ConcurrentWork, KernelSupply, raise_out_of_time
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import ORDER_SEARCH
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.registry import own_engine
from dmcmc.solving.observe import ProgressReporter, Watch

if TYPE_CHECKING:
    from dmcmc.anytime.local_search import IncumbentSearch
    from dmcmc.compilation.gpu_components import GpuPreparation, PreparedRun
    from dmcmc.solving.planning.divided_problem import DividedProblem
    from dmcmc.solving.planning.plan import Setup


class RunComponents(KernelSupply):
    """The components of one run; all ranks call its methods, unless they say otherwise.

    Parameters
    ----------
    world, config, progress
        As for :class:`.KernelSupply`.
    solve_tiny
        Solves a tiny problem in the way of the run; a function of a module, so that other processes find it. None for a
        run without a plan.
    """

    def __init__(
        self, world: World, config: Settings, progress: ProgressReporter, solve_tiny: SolveTiny | None = None
    ) -> None:
        super().__init__(world, config, progress)
        self.config, self.solve_tiny = config, solve_tiny
        self._before_plan: Sequence[KernelSet] = ()
        self._can_plan = True

    def begin(self, problem: Problem | None) -> float:
        """Request what a run needs until it has divided the problem; return the seconds that are no run time."""
        if self.is_off:
            return 0.0
        self._before_plan = self.world.on_first_rank(partial(before_plan, problem, self.config))
        if not self.timed:
            return self.request(*self._before_plan)
        used_soon = self.world.on_first_rank(partial(soon, problem, self.config, self.compiles_first))
        return self.request(*self._before_plan, *used_soon)

    def begin_private(self) -> None:
        """Request what a run needs to plan private inputs."""
        self.request(planning(self.config), ORDER_SEARCH)

    def is_plan_ready(self) -> bool:
        """Return whether this rank can divide and plan the problem."""
        return self.is_ready(*self._before_plan)

    def can_plan_by(self, stop: Deadline) -> bool:
        """Wait until all ranks can divide and plan the problem; return whether they can before the deadline."""
        try:
            self.wait(self._before_plan, stop)
        except OutOfTime:
            self._can_plan = False
        return self._can_plan

    def check_plan(self) -> None:
        """Raise OutOfTime on all ranks if they cannot plan."""
        if not self._can_plan:
            self.world.on_first_rank(raise_out_of_time)

    def is_first_search_ready(self, problem: Problem) -> bool:
        """Return whether this rank can find a greedy assignment of a problem as given, and climb from it."""
        return first_search_of(problem).is_ready()

    def of_search(self, parts: "DividedProblem") -> SearchComponents | None:
        """Return the components of this rank's local search; None on ranks that do not search."""
        return None if self.world.rank and parts.scattered else SearchComponents.of(parts)

    def request_searches(self, search: "IncumbentSearch") -> float:
        """Request what the searches over the whole assignment need; return the seconds that are no run time."""
        sets = list(own_engine(search.engine.name))
        if search.searches and not search.decodes_only and search.components is not None:
            *local, constraints = search.components
            sets += [*local, *([constraints] if search.quality.negated_violation < 0 else [])]
        return self.request(*sets)

    def of_plan(
        self,
        setup: "Setup",
        search: "IncumbentSearch",
        whole_problem: str | None,
        gpu: "GpuPreparation | None" = None,
    ) -> "PlanComponents":
        """Return the components of a plan, while which are missing a search goes on.

        ``whole_problem`` is the bound provider of the whole problem; None if it is not bounded. ``gpu`` is the
        preparation of the GPU, if the run uses one.
        """
        ending: Ending = "none" if search.stop is NO_DEADLINE else "deadline"
        return PlanComponents(self, setup, ending, whole_problem, search.delay, search, gpu)

    def open_gpu(
        self,
        setup: "Setup",
        progress: ProgressReporter,
        search: "IncumbentSearch | None" = None,
        whole_problem: str | None = None,
    ) -> "PreparedRun":
        """Open the GPU if a plan uses one that is ready; otherwise prepare it; see :func:`.prepare_gpu`."""
        from dmcmc.compilation import gpu_components  # fixed work needs no scheduler

        def on_cpu() -> list[KernelSet]:
            return PlanComponents(self, setup, "deadline", whole_problem).agents.tables

        return gpu_components.prepare_gpu(setup, self.world, progress, self, on_cpu, self.search_while_waiting(search))

    def search_while_waiting(self, search: "IncumbentSearch | None") -> ConcurrentWork | None:
        """Return the local search in the background as work for the time of waiting.

        The compiler goes first. Where both have one core, the search is brief.
        """
        if search is None:
            return None
        chains = self.world.bcast(None if search.components is None else search.components.chains)
        brief_seconds = tuning.UNNOTICED_SHARE * max(0.0, search.stop.left)
        background = partial(search.in_background, cores() > 1, low_priority=True, brief_seconds=brief_seconds)
        return ConcurrentWork(chains, background)

    def ahead(self, watch: Watch, can_end_early: bool) -> Watch:
        """Return an observer of a run with fixed work that also requests what the plan needs, at its first call.

        Such a run does not wait: it compiles what it calls, unless another process was faster.

        Parameters
        ----------
        watch
            The observer of the run.
        can_end_early
            Whether the run may be asked to end: work with a deadline has other kernels.
        """
        if self.is_off:
            return watch
        seen = list["Setup"]()

        def planned(setup: "Setup") -> None:
            if seen:  # the plan may change while tables are made
                return
            seen.append(setup)
            methods = PlanComponents(self, setup, "deadline" if can_end_early else "none")
            self.request(*methods.agents.tables)
            if not setup.will_prove and setup.divided.config.local_search != "none":
                self.request(*self.world.on_first_rank(partial(SearchComponents.of, setup.divided))[:3])
            methods.request()

        return watch.with_planned(planned)


class PlanComponents:
    """The components of a plan: they make, combine and bound the agents' tables, and bound the whole problem.

    Parameters
    ----------
    run
        The components of the run.
    setup
        The plan.
    ending : {"none", "deadline"}
        How the run ends.
    whole_problem
        Bound provider of the whole problem; None if it is not bounded.
    delay
        Called with seconds that do not count as run time.
    search
        The local search, which works while other components are not ready; None if there is none.
    gpu
        The preparation of the GPU; None if the run uses none.

    Attributes
    ----------
    agents : AgentKernels
        What the plan's agents need.
    """

    def __init__(
        self,
        run: RunComponents,
        setup: "Setup",
        ending: Ending = "deadline",
        whole_problem: str | None = None,
        delay: Callable[[float], object] = float,
        search: "IncumbentSearch | None" = None,
        gpu: "GpuPreparation | None" = None,
    ) -> None:
        self._run, self._delay, self._search, self._gpu, solve_tiny = run, delay, search, gpu, run.solve_tiny
        assert solve_tiny is not None, "a run with a plan has tiny problems"

        def needed() -> tuple[AgentKernels, dict[str, list[KernelSet]]]:
            agents = agent_work(setup, ending, solve_tiny, whole_problem)
            return agents, for_improvers(setup, agents)

        self.agents, self._later = run.world.on_first_rank(needed)

    def request(self) -> None:
        """Request the components: those of the whole problem first, then those of tables, then other improvers."""
        self._delay(self._run.request(*self.agents.before_tables, at_once=True))
        self._delay(self._run.request(*self.agents.tables, *chain.from_iterable(self._later.values())))

    def are_ready(self) -> bool:
        """Return whether all ranks can make and combine tables."""
        return self._run.all_ready(*self.agents.tables)

    def wait(self, stop: Deadline, for_whole_problem: bool = False) -> None:
        """Search until tables can be made, or the whole problem can be bounded.

        Raises
        ------
        OutOfTime
            On all ranks, if the deadline passes before that.
        """
        needed = self.agents.before_tables[:1] if for_whole_problem else self.agents.tables
        self._delay(self._run.wait(needed, stop, self._run.search_while_waiting(self._search)))

    def is_ready(self, improver: str) -> bool:
        """Return whether an improver, given by its name, can work on this rank."""
        on_gpu = {} if self._gpu is None or not self._gpu.is_used else self._gpu.later
        return all(self._run.is_ready(*needed.get(improver, ())) for needed in (self._later, on_gpu))
