"""Run a baseline algorithm of :mod:`dmcmc.algorithms`: as agents, in cycles, or as a run on a reformulated problem.

Agents, or the steps of an algorithm that is compiled for all variables at once, only give values. The clock, the best
assignment of all cycles, the measures of each cycle and the trace are kept here.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from dmcmc.algorithms import registry
from dmcmc.algorithms.agent import AllRandom, DcopAgent, SynchronousAgent
from dmcmc.algorithms.contract import Algorithm, Rewriting, Value, checked
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.population import AlgorithmError, Delays, Snapshot, bad_value, fault, is_foreign
from dmcmc.algorithms.simulator import run_agents
from dmcmc.anytime import solve as dmcmc_run
from dmcmc.config.make_settings import settings_of
from dmcmc.config.settings import Settings
from dmcmc.files.document import Document
from dmcmc.generators import registry as generators
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, ResourceError
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, SolveOutcome, gap_of, judge, quality_of
from dmcmc.results.result import AgentMetrics, Effort, MessageCount, Result, Solution, TracePoint
from dmcmc.results.stored_result import provenance
from dmcmc.solving.metrics import levels_of, messages_of
from dmcmc.solving.observe import Explain, Interrupt, NoProgress, ProgressReporter, RunHandle
from dmcmc.solving.planning.divided_problem import with_memory_limit


def agent_metrics(
    problem: Problem, network: AgentNetwork, method: str, cycles: int, interfaces: Sequence[int]
) -> tuple[AgentMetrics, ...]:
    """Return the metrics of all agents after some cycles of an algorithm.

    Parameters
    ----------
    problem, network
        The problem, and the agents with the messages that they have sent.
    method
        Name of the algorithm.
    cycles
        Cycles so far.
    interfaces
        Number of interface variables of each agent, see :func:`interface_sizes`.
    """
    owned = np.bincount(problem.owner, minlength=problem.n_agents).tolist()
    sent = network.sent_by_kind()
    messages = [
        {kind: MessageCount(int(one.messages[a]), int(one.bytes[a])) for kind, one in sent.items() if one.messages[a]}
        for a in range(problem.n_agents)
    ]
    return tuple(
        AgentMetrics(
            name=name,
            method=method,
            exact=False,
            variables=owned[a],
            interface=interfaces[a],
            rank=network.place[a],
            updates=owned[a] * cycles,
            msg_count=sum(one.count for one in messages[a].values()),
            msg_size=sum(one.size for one in messages[a].values()),
            messages=messages[a],
        )
        for a, name in enumerate(problem.agents)
    )


def interface_sizes(problem: Problem) -> list[int]:
    """Return the number of each agent's variables that share a factor with another agent's."""
    return [len(local.interface) for local in divide(problem).locals]


def derived_fields(problem: Problem, values: Ints | None, agents: Sequence[AgentMetrics]) -> dict[str, Any]:
    """Return the fields of a result that follow from its assignment and its agents: levels, and counts of messages."""
    return {
        "levels": levels_of(problem, values, None),
        "messages": messages_of(agents),
        "msg_count": sum(agent.msg_count for agent in agents),
        "msg_size": sum(agent.msg_size for agent in agents),
    }


_COMPILE_CYCLES = 30  # cycles on a small problem that call all kernels, also those for stuck variables (DGLS)


def with_dense_tables(problem: Problem, config: Settings) -> Problem:
    """Return the problem with dense tables; raise an error if their copies do not fit the memory."""
    dense = densify(problem, config.budget.bytes).problem
    needed = sum(8 * (1 + len(f.scope)) * float(np.prod(f.shape, dtype=float)) for f in dense.factors)
    if needed > config.budget.bytes or any(type(f) is not Factor for f in dense.factors):
        raise ResourceError(
            f"{config.algorithm_settings.name}: its tables would take {format_bytes(int(min(needed, 2**62)))} of"
            f" {format_bytes(config.budget.bytes)}; raise budget.memory, or use algorithm: dmcmc"
        )
    return dense


def generator(seed: int) -> np.random.Generator:
    """Return the random number generator of a run, the same on all ranks."""
    return np.random.Generator(np.random.Philox(seed))


def _compile_kernels(algorithm: Algorithm, values: Mapping[str, Value]) -> None:
    """Run a small problem for some cycles, which compiles the kernels."""
    small = generators.generate("random", {"agents": 4, "variables_per_agent": 3, "domain_size": 3, "seed": 0})
    network = AgentNetwork(small)
    for cycle, state in enumerate(algorithm.steps(network, generator(0), values)):
        network.total_score(state)
        if cycle >= _COMPILE_CYCLES:
            break


def solve_in_cycles(
    algorithm: Algorithm | type[DcopAgent],
    values: Mapping[str, Value],
    problem: Problem,
    settings: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    ending: RunHandle | None = None,
) -> Result | None:
    """Run an algorithm until its cycles or its time are over, or its agents have finished; called by all ranks.

    Parameters
    ----------
    algorithm, values
        The algorithm, and the values of all its parameters.
    problem, settings, world, progress, ending
        As for :func:`dmcmc.anytime.solve.solve`.

    Returns
    -------
    Result or None
        The best assignment of all cycles on rank 0; None on other ranks. It has a bound if a complete algorithm has
        ended.

    Raises
    ------
    ResourceError
        If the tables do not fit ``budget.memory``.
    """
    world, progress = world or World(), progress or NoProgress()
    try:
        config = with_memory_limit(settings, world)
        dense = with_dense_tables(problem, config)
        given = config.algorithm_settings
        needs_agents = given.needs_agents or bool(values.get("anytime"))
        compiled = algorithm if isinstance(algorithm, Algorithm) else None if needs_agents else algorithm.compiled
        if compiled is not None and registry.is_built_in(algorithm.name):
            _compile_kernels(compiled, values)
        run = _AlgorithmRun(algorithm, problem, AgentNetwork(dense, world), config, progress)
        timed = config.budget.time is not None
        end = run.start_time + (config.budget.time or float("inf"))
        handle = ending or RunHandle()
        stop = Deadline(end, cancellation=handle.cancellation)
        with handle.deliver_if_late(stop), Interrupt(stop, armed=timed and ending is None):
            if world.rank == 0:
                handle.best = run.best_so_far
            if compiled is not None:
                rng = generator(config.seed) if compiled is algorithm else AllRandom(config.seed, problem.n_variables)
                run.go(_states(compiled.steps(run.network, rng, values)), stop, ends_by_clock=False)
            elif isinstance(algorithm, type):
                delays = Delays(given.delay, given.loss, config.seed)
                run.go(run_agents(algorithm, run.network, values, config.seed, delays, stop), stop, ends_by_clock=True)
        return run.result()
    except BaseException as error:
        world.abort_on_exit(error)
        raise


def _states(steps: Iterator[Ints]) -> Iterator[Snapshot]:
    """Yield the state after each step of a compiled algorithm."""
    for cycle, values in enumerate(steps):
        yield Snapshot(values, None, cycle)


_MAX_POINTS = 2000  # cycles with measures; when there are more, every second one is left out


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
    last_score : int or None
        That of the present values.
    quality : AssignmentQuality or None
        Violations and utility of ``best``, on rank 0.
    cycle : int
        Cycles so far.
    seconds : float
        Simulated time so far, as if each agent had its own machine.
    """

    def __init__(
        self,
        algorithm: Algorithm | type[DcopAgent],
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
        default = algorithm.cycles or None if untimed else None  # 0: until the agents have finished
        self.max_cycles = configured_cycles if isinstance(configured_cycles, int) else default
        self.constant = sum(factor.table.item() for factor in problem.factors if not factor.scope)
        self.proven, self._cycles_apart, self.course = False, 1, list[Effort]()
        self.start_time, self.seconds, self.cycle, self.timeout = time.perf_counter(), 0.0, 0, False
        self.best_score: int | None = None
        self.last_score: int | None = None  # of the present values
        self.best: Ints = np.zeros(problem.n_variables, dtype=np.int64)
        self.quality: AssignmentQuality | None = None
        self.trace: list[TracePoint] = []

    def go(self, states: Iterator[Snapshot], stop: Deadline, ends_by_clock: bool) -> None:
        """Run the cycles; all ranks end after the same one.

        Parameters
        ----------
        states
            The state after each cycle, or after each change of a value.
        stop
            The deadline.
        ends_by_clock
            Whether ``states`` ends at the deadline by itself.
        """
        algorithm, network = self.algorithm, self.network
        in_cycles = not isinstance(algorithm, type) or issubclass(algorithm, SynchronousAgent)
        self.progress.stage(algorithm.name, self.max_cycles)
        while True:
            cycle_start = time.perf_counter()
            state = self._next(states)
            work = (time.perf_counter() - cycle_start) * network.parallel
            self.seconds = network.simulated or self.seconds + work
            if state is None:
                self.cycle += in_cycles and not network.ended
                self.timeout = ends_by_clock and bool(network.world.bcast(stop.over and not network.ended))
                self._prove()
                return
            if state.cycle > self.cycle:
                self.progress.advance()
            self.cycle = state.cycle
            if state.values is not None:
                self._look(state.values, state.score)
            if self.max_cycles is not None and self.cycle >= self.max_cycles:
                return
            self.timeout = bool(network.world.bcast(stop.over))
            if self.timeout:
                return

    def _next(self, states: Iterator[Snapshot]) -> Snapshot | None:
        """Return the next state, or None at the end; a fault of a plug-in becomes an error that names its line."""
        try:
            state = next(states, None)
        except DmcmcError:
            raise
        except Exception as error:
            if is_foreign(error):
                raise AlgorithmError(fault(self.algorithm.name, error)) from error
            raise
        if state is not None and isinstance(self.algorithm, Algorithm) and state.values is not None:
            self._check(state.values)
        return state

    def _check(self, values: Ints) -> None:
        """Raise an error if an algorithm has given values that the variables cannot take."""
        name, given, n = self.algorithm.name, np.asarray(values), self.problem.n_variables
        if given.shape != (n,) or given.dtype.kind not in "iu":
            shape = f"{given.dtype} of shape {given.shape}"
            raise AlgorithmError(f"algorithm {name}: gave values as {shape}; expected whole numbers of shape ({n},)")
        bad = np.flatnonzero((given < 0) | (given >= self.problem.domains))
        if bad.size:
            v = int(bad[0])
            raise AlgorithmError(
                bad_value(name, self.problem.variables[v], int(given[v]), int(self.problem.domains[v]))
            )

    def _prove(self) -> None:
        """Take the values of a complete algorithm that has ended as proven; lost messages prove nothing."""
        algorithm, loses = self.algorithm, self.config.algorithm_settings.loss > 0
        self.proven = self.network.ended and isinstance(algorithm, type) and algorithm.proves and not loses
        if self.proven and self.last_score != self.best_score:
            raise AlgorithmError(
                f"algorithm {algorithm.name}: ended with values that it calls optimal, but had better ones before"
            )

    def _look(self, values: Ints, score: int | None) -> None:
        """Keep an assignment if it is the best so far, and note the measures of the cycle."""
        score = self.network.total_score(values) if score is None else score
        self.last_score, improves = score, self.best_score is None or score > self.best_score
        if improves:
            self.best_score, self.best = score, values.copy()
            if self.network.world.rank == 0:
                self.quality = quality_of(self.problem, self.best)
        if self.quality is None:
            return
        objective = None if self.quality.negated_violation else self.quality.objective
        if not self.course or self.cycle >= self.course[-1].cycle + self._cycles_apart:
            self.course.append(self._effort(score, objective))
            if len(self.course) > _MAX_POINTS:
                self.course, self._cycles_apart = self.course[::2], 2 * self._cycles_apart
        if improves and objective is not None:
            point = TracePoint(time.perf_counter() - self.start_time, objective, None, self.algorithm.name)
            self.trace.append(point)
            self.progress.point(point)
            self.progress.solution(partial(self._solution, point, objective))

    def _effort(self, score: int, best: Number | None) -> Effort:
        """Return the measures so far, given the total score of the present values and the best objective."""
        network, layout = self.network, self.network.layout
        breaks = 2 * score < -layout.violation  # a violation costs more than twice all utilities
        utility = self.constant + (score if layout.scale == 1 else score / layout.scale)
        return Effort(
            cycle=self.cycle,
            time=time.perf_counter() - self.start_time,
            now=None if breaks else self.problem.to_own_sense(utility),
            best=best,
            messages=max(network.total_messages, network.all_messages),
            bytes=max(network.total_bytes, network.all_bytes),
            ncccs=network.checks,
            operations=network.operations,
            simulated_time=self.seconds,
        )

    def _solution(self, point: TracePoint, objective: Number) -> Solution:
        """Return the best assignment as a solution of the trace."""
        return Solution(point.time, objective, self.problem.assignment(self.best), point.found_by)

    def best_so_far(self) -> Result | None:
        """Return the best assignment so far as the result of a run whose time is over."""
        return None if self.quality is None else self._result(self._metrics(), self.seconds, True)

    def result(self) -> Result | None:
        """Return the result on rank 0; called by all ranks."""
        world = self.network.world
        if world.size > 1:
            self.network.gather_counts()  # those of agents; what is compiled is counted by each rank
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
        outcome = self._proven(judge(self.problem, self.quality, constants, None))
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
            ncccs=self.network.checks,
            cycle=self.cycle,
            course=tuple(self.course),
            agents=agents,
            trace=tuple(self.trace),
            provenance=provenance(self.config, self.network.world.size, 1, {"algorithm": self.algorithm.name}),
        )

    def _proven(self, outcome: SolveOutcome) -> SolveOutcome:
        """Return an outcome with what a complete algorithm has proven, or one with a bound.

        Whole numbers are exact. Others are rounded to some twelve digits of their sum, so that the bound is as much
        looser, and nothing is called optimal.
        """
        layout, score = self.network.layout, self.network.bound
        if self.proven and outcome.status != "infeasible":
            if outcome.objective is None:
                return SolveOutcome("infeasible", None, None, None, None)
            score = self.best_score
        if score is None or outcome.objective is None or 2 * score > layout.violation:
            return outcome
        is_exact = layout.scale == 1 and all(factor.table.dtype.kind == "i" for factor in self.problem.factors)
        slack = 0 if is_exact else len(self.problem.factors)
        utility = score + slack if is_exact else (score + slack) / layout.scale
        bound = self.problem.to_own_sense(self.constant + utility)
        if is_exact and bound == outcome.objective:
            return outcome._replace(status="optimal", bound=bound, gap=0.0)
        return outcome._replace(bound=bound, gap=gap_of(outcome.objective, bound))


def solve_by_baseline(
    problem: Problem | None,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None,
    explain: Explain | None,
    ending: RunHandle | None,
) -> Result | None:
    """Solve a problem with a baseline algorithm; the parameters are those of :func:`dmcmc.anytime.solve.solve`.

    Raises
    ------
    ConfigError
        On all ranks, if one of them has no problem, or a parameter is wrong.
    """
    algorithm_settings = settings.algorithm_settings
    rank_0_only = any(world.allgather(problem is None))  # on all ranks, which have to raise the error
    if problem is None or rank_0_only:
        name = algorithm_settings.name
        raise ConfigError(f"only rank 0 has the problem, but algorithm: {name} needs it on all ranks")
    algorithm = registry.get(algorithm_settings.name)
    values = checked(algorithm, algorithm_settings.parameters, "algorithm.parameters")
    if not isinstance(algorithm, Rewriting):
        return solve_in_cycles(algorithm, values, problem, settings, world, progress, ending)
    if algorithm_settings.cycles != "auto":
        raise ConfigError(f"algorithm.cycles: {algorithm.name} has none; leave it out")
    data = msgspec.to_builtins(settings) | {"algorithm": registry.OWN, "search": "none", "presolve": "none"}
    data.pop("problem", None)
    sections = {name: {**data[name], **keys} for name, keys in algorithm.sections(values).items()}
    changed = settings_of(Document("", data | sections))
    result = dmcmc_run.solve(algorithm.rewrite(problem), changed, world, progress, explain, ending)
    if result is None:
        return None
    config = msgspec.to_builtins(settings)
    return msgspec.structs.replace(result, provenance={**result.provenance, "config": config})
