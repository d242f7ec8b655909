"""Run a local algorithm (``dmcmc.algorithms``) in message cycles until its end, and return its result.

This part keeps the clock, the best assignment of all cycles, message counts and the trace; the algorithm only yields
assignments.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from dmcmc.algorithms.contract import Algorithm, Value
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, judge, quality_of
from dmcmc.results.result import AgentMetrics, Result, Solution, TracePoint
from dmcmc.results.stored_result import provenance
from dmcmc.run.algorithms.cycle_metrics import agent_metrics, derived_fields, interface_sizes
from dmcmc.run.algorithms.prepare_cycles import compile_kernels, generator, with_dense_tables
from dmcmc.solving.monitoring.interrupt import Interrupt, RunHandle
from dmcmc.solving.monitoring.progress import NoProgress, ProgressReporter
from dmcmc.solving.planning.divided_problem import with_memory_limit


def solve_in_cycles(
    algorithm: Algorithm,
    values: Mapping[str, Value],
    problem: Problem,
    settings: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    ending: RunHandle | None = None,
) -> Result | None:
    """Run an algorithm until its cycles or its time are over, or nothing can change any more; called by all ranks.

    Parameters
    ----------
    algorithm, values
        The algorithm, and the values of all its parameters.
    problem, settings, world, progress, ending
        As for :func:`dmcmc.run.solve.solve`.

    Returns
    -------
    Result or None
        The best assignment of all cycles on rank 0, without a bound; None on other ranks.

    Raises
    ------
    ResourceError
        If the tables do not fit ``budget.memory``.
    """
    world, progress = world or World(), progress or NoProgress()
    try:
        config = with_memory_limit(settings, world)
        dense = with_dense_tables(problem, config)
        compile_kernels(algorithm, values)
        run = _AlgorithmRun(algorithm, problem, AgentNetwork(dense, world), config, progress)
        timed = config.budget.time is not None
        end = run.start_time + (config.budget.time or float("inf"))
        handle = ending or RunHandle()
        stop = Deadline(end, cancellation=handle.cancellation)
        with handle.deliver_if_late(stop), Interrupt(stop, armed=timed and ending is None):
            if world.rank == 0:
                handle.best = run.best_so_far
            run.go(algorithm.steps(run.network, generator(config.seed), values), stop)
        return run.result()
    except BaseException as error:
        world.abort_on_exit(error)
        raise


class _AlgorithmRun:
    """One rank's run of an algorithm.

    Attributes
    ----------
    max_cycles : int or None
        Maximum number of cycles; None if only the time limits them.
    best : (n,) int64
        Best assignment so far.
    best_score : int or None
        Its total score in the integer units of the layout; None before the first cycle.
    quality : AssignmentQuality or None
        Violations and utility of ``best``, on rank 0.
    cycle : int
        Cycles so far.
    seconds : float
        Simulated time so far, as if each agent had its own machine.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        network: AgentNetwork,
        config: Settings,
        progress: ProgressReporter,
    ) -> None:
        self.algorithm, self.problem, self.network = algorithm, problem, network
        self.config, self.progress = config, progress
        self.interfaces = interface_sizes(problem)
        configured_cycles = config.algorithm_settings.cycles
        untimed = config.budget.time is None
        self.max_cycles = (
            configured_cycles if isinstance(configured_cycles, int) else algorithm.cycles if untimed else None
        )
        self.start_time, self.seconds, self.cycle, self.timeout = time.perf_counter(), 0.0, 0, False
        self.best_score: int | None = None
        self.best: Ints = np.zeros(problem.n_variables, dtype=np.int64)
        self.quality: AssignmentQuality | None = None
        self.trace: list[TracePoint] = []

    def go(self, steps: Iterator[Ints], stop: Deadline) -> None:
        """Run the cycles; all ranks end after the same one."""
        self.progress.stage(self.algorithm.name, self.max_cycles)
        while True:
            cycle_start = time.perf_counter()
            values = next(steps, None)
            self.seconds += (time.perf_counter() - cycle_start) * self.network.parallel
            if values is None:
                return
            self._keep_if_better(values)
            if self.max_cycles is not None and self.cycle >= self.max_cycles:
                return
            self.timeout = bool(self.network.world.bcast(stop.over))
            if self.timeout:
                return
            self.cycle += 1  # the first assignment is the initial one
            self.progress.advance()

    def _keep_if_better(self, values: Ints) -> None:
        """Keep an assignment if it is the best so far."""
        score = self.network.total_score(values)
        if self.best_score is None or score > self.best_score:
            self.best_score, self.best = score, values.copy()
            if self.network.world.rank == 0:
                self.quality = quality_of(self.problem, self.best)
                objective = None if self.quality.negated_violation else self.quality.objective
                if objective is not None:
                    point = TracePoint(time.perf_counter() - self.start_time, objective, None, self.algorithm.name)
                    self.trace.append(point)
                    self.progress.point(point)
                    self.progress.solution(partial(self._solution, point, objective))

    def _solution(self, point: TracePoint, objective: Number) -> Solution:
        """Return the best assignment as a solution of the trace."""
        return Solution(point.time, objective, self.problem.assignment(self.best), point.found_by)

    def best_so_far(self) -> Result | None:
        """Return the best assignment so far as the result of a run whose time is over."""
        return None if self.quality is None else self._result(self._metrics(), self.seconds, True)

    def result(self) -> Result | None:
        """Return the result on rank 0; called by all ranks."""
        world = self.network.world
        parts = world.gather((self._metrics(), self.seconds))
        if parts is None:
            return None
        if self.quality is None:  # there was no cycle, because the problem has no variables
            self.quality = quality_of(self.problem, self.best)
        return self._result(parts[0][0], max(seconds for _, seconds in parts), self.timeout)

    def _metrics(self) -> tuple[AgentMetrics, ...]:
        """Return the metrics of all agents."""
        return agent_metrics(self.problem, self.network, self.algorithm.name, self.cycle, self.interfaces)

    def _result(self, agents: tuple[AgentMetrics, ...], seconds: float, timed_out: bool) -> Result:
        """Return the result with the best assignment."""
        assert self.quality is not None
        constants = [factor for factor in self.problem.factors if not factor.scope]
        outcome = judge(self.problem, self.quality, constants, None)
        elapsed, known = time.perf_counter() - self.start_time, None if outcome.status == "infeasible" else self.best
        return Result(
            status="timeout" if timed_out and outcome.status != "infeasible" else outcome.status,
            objective=outcome.objective,
            bound=outcome.bound,
            gap=outcome.gap,
            violation=outcome.violation,
            assignment=None if known is None else self.problem.assignment(known),
            sense=self.problem.sense,
            time=elapsed,
            simulated_time=seconds,
            **derived_fields(self.problem, known, agents),
            cycle=self.cycle,
            agents=agents,
            trace=tuple(self.trace),
            provenance=provenance(self.config, self.network.world.size, 1, {"algorithm": self.algorithm.name}),
        )
