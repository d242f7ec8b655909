"""An algorithm of cycles from its start to a result: the clock, the best assignment so far, messages, the trace."""

import time
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from dmcmc.algorithms.contract import Algorithm, Value
from dmcmc.algorithms.network import Network
from dmcmc.config.settings import Settings
from dmcmc.generators import registry as generators
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import readable
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Worth, judge, worth_of
from dmcmc.results.provenance import provenance
from dmcmc.results.result import AgentMetrics, Result, Solution, TracePoint
from dmcmc.run.monitoring.interrupt import Ending, Interrupt
from dmcmc.run.monitoring.progress import Progress, Silent
from dmcmc.run.planning.divided_problem import sharing_memory

_WARM_CYCLES = 30  # of a small problem: all kernels are called, those of who is stuck too


def solve_in_cycles(
    algorithm: Algorithm,
    values: Mapping[str, Value],
    problem: Problem,
    settings: Settings,
    world: World | None = None,
    progress: Progress | None = None,
    ending: Ending | None = None,
) -> Result | None:
    """Run an algorithm until its cycles or its time are over, or nothing is left to do.

    Parameters
    ----------
    algorithm, values
        What to run, with all of its parameters.
    problem, settings, world, progress, ending
        As for :func:`dmcmc.run.solve.solve`.

    Returns
    -------
    Result or None
        The best assignment of all cycles on rank 0, without a bound; None on the others.

    Raises
    ------
    ResourceError
        If the tables do not fit ``budget.memory``.
    """
    world, progress = world or World(), progress or Silent()
    try:
        config = sharing_memory(settings, world)
        dense = _dense(problem, config)
        _warm_up(algorithm, values)
        run = _Run(algorithm, problem, Network(dense, world), config, progress)
        timed = config.budget.time is not None
        until = run.begun + (config.budget.time or float("inf"))
        watching = ending or Ending()
        stop = Stop(until, wish=watching.wish)
        with watching.watched(stop), Interrupt(stop, armed=timed and ending is None):
            if world.rank == 0:
                watching.best = run.best_so_far
            run.go(algorithm.steps(run.network, _random(config.seed), values), stop)
        return run.result()
    except BaseException as error:
        world.give_up(error)
        raise


class _Run:
    """A run of one algorithm on this rank."""

    def __init__(
        self, algorithm: Algorithm, problem: Problem, network: Network, config: Settings, progress: Progress
    ) -> None:
        self.algorithm, self.problem, self.network = algorithm, problem, network
        self.config, self.progress = config, progress
        self.division = divide(problem)
        asked = config.asked_algorithm.cycles
        untimed = config.budget.time is None
        self.most = asked if isinstance(asked, int) else algorithm.cycles if untimed else None
        self.begun, self.seconds, self.cycle, self.timeout = time.perf_counter(), 0.0, 0, False
        self.top: int | None = None
        self.best: Ints = np.zeros(problem.n_variables, dtype=np.int64)
        self.worth: Worth | None = None
        self.trace: list[TracePoint] = []

    def go(self, steps: Iterator[Ints], stop: Stop) -> None:
        """Go through the cycles; all ranks end after the same one."""
        self.progress.stage(self.algorithm.name, self.most)
        while True:
            begun = time.perf_counter()
            found = next(steps, None)
            self.seconds += (time.perf_counter() - begun) * self.network.parallel
            if found is None:
                return
            self._look_at(found)
            if self.most is not None and self.cycle >= self.most:
                return
            self.timeout = bool(self.network.world.bcast(stop.over))
            if self.timeout:
                return
            self.cycle += 1  # what comes first is the start
            self.progress.advance()

    def _look_at(self, values: Ints) -> None:
        """Keep an assignment that is better."""
        worth = self.network.worth(values)
        if self.top is None or worth > self.top:
            self.top, self.best = worth, values.copy()
            if self.network.world.rank == 0:
                self.worth = worth_of(self.problem, self.best)
                objective = None if self.worth.kept else self.worth.objective
                if objective is not None:
                    point = TracePoint(time.perf_counter() - self.begun, objective, None, self.algorithm.name)
                    self.trace.append(point)
                    self.progress.point(point)
                    self.progress.solution(partial(self._solution, point, objective))

    def _solution(self, point: TracePoint, objective: Number) -> Solution:
        return Solution(point.time, objective, self.problem.assignment(self.best), point.by)

    def best_so_far(self) -> Result | None:
        """Return the best so far as a result, at the end of the time."""
        return None if self.worth is None else self._result(self._own_metrics(), self.seconds, True)

    def result(self) -> Result | None:
        """Return the result on rank 0; called by all."""
        world = self.network.world
        parts = world.gather((self._own_metrics(), self.seconds))
        if parts is None:
            return None
        if self.worth is None:  # no cycle at all: no variables
            self.worth = worth_of(self.problem, self.best)
        return self._result(parts[0][0], max(seconds for _, seconds in parts), self.timeout)

    def _own_metrics(self) -> tuple[AgentMetrics, ...]:
        owned = np.bincount(self.problem.owner, minlength=self.problem.n_agents).tolist()
        return tuple(
            AgentMetrics(
                name=name,
                method=self.algorithm.name,
                exact=False,
                variables=owned[a],
                interface=len(self.division.locals[a].interface),
                rank=self.network.place[a],
                updates=owned[a] * self.cycle,
                msg_count=int(self.network.messages[a]),
                msg_size=int(self.network.bytes[a]),
            )
            for a, name in enumerate(self.problem.agents)
        )

    def _result(self, agents: tuple[AgentMetrics, ...], seconds: float, over: bool) -> Result:
        assert self.worth is not None
        outcome = judge(self.problem, self.worth, self.division.constants, None)
        took = time.perf_counter() - self.begun
        return Result(
            status="timeout" if over and outcome.status != "infeasible" else outcome.status,
            objective=outcome.objective,
            bound=outcome.bound,
            gap=outcome.gap,
            violation=outcome.violation,
            assignment=None if outcome.status == "infeasible" else self.problem.assignment(self.best),
            sense=self.problem.sense,
            time=took,
            simulated_time=seconds,
            msg_count=sum(agent.msg_count for agent in agents),
            msg_size=sum(agent.msg_size for agent in agents),
            cycle=self.cycle,
            agents=agents,
            trace=tuple(self.trace),
            provenance=provenance(self.config, self.network.world.size, 1, {"algorithm": self.algorithm.name}),
        )


def _dense(problem: Problem, config: Settings) -> Problem:
    """Return the problem with tables, or raise that the copies do not fit the memory."""
    dense = densify(problem, config.budget.bytes).problem
    needed = sum(8 * (1 + len(f.scope)) * float(np.prod(f.shape, dtype=float)) for f in dense.factors)
    if needed > config.budget.bytes or any(type(f) is not Factor for f in dense.factors):
        raise ResourceError(
            f"{config.asked_algorithm.name}: its tables would take {readable(int(min(needed, 2**62)))} of"
            f" {readable(config.budget.bytes)}; raise budget.memory, or use algorithm: dmcmc"
        )
    return dense


def _random(seed: int) -> np.random.Generator:
    """Return the numbers of a run, the same on all ranks."""
    return np.random.Generator(np.random.Philox(seed))


def _warm_up(algorithm: Algorithm, values: Mapping[str, Value]) -> None:
    """Run a small problem for some cycles: kernels are compiled then."""
    small = generators.generate("random", {"agents": 4, "variables_per_agent": 3, "domain_size": 3, "seed": 0})
    network = Network(small)
    for cycle, state in enumerate(algorithm.steps(network, _random(0), values)):
        network.worth(state)
        if cycle >= _WARM_CYCLES:
            break
