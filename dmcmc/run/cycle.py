"""One cycle over the agents' tree: UTIL up, VALUE down, the assignment evaluated, and what it proves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.compression import Compression
from dmcmc.inference.dpop.messages import UtilMessage, UtilStep, outside_steps, util_step
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.relaxation import EXACT, Relaxation
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.stop import NO_STOP, Stop
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.phases import NO_STEPS, Chosen, Post, Sent, Steps, Utils, outside_phase, util_phase, value_phase
from dmcmc.run.combination import relaxation_of, shift_rooms
from dmcmc.run.setup import Task
from dmcmc.samplers.contract.protocol import SampledTable

_FEW = 4  # more agents than these have a share of the memory each
_SHARE, _CELLS = 0.1, 3e8  # of the time budget: an agent's UTIL step; cells that a thread joins in a second
_SLOWER = 8  # times longer a byte of mini-buckets takes than one of exact tables: they are copied, and looked at
_OUTSIDE = Relaxation("auto", None, "scope", False)


@dataclass(frozen=True)
class Sides:
    """How tables are indexed: from below (sampled rows may be all there is), and from above."""

    lower: Compression
    upper: Compression

    @classmethod
    def plain(cls, task: Task) -> "Sides":
        """Return sides in which every interface is itself."""
        compression = Compression(task.problem.domains, task.problem.owner, {}, {})
        return cls(compression, compression)


@dataclass
class Cycle:
    """What this rank has of one cycle.

    Attributes
    ----------
    steps : dict
        Each agent's UTIL steps.
    values : dict
        Values of all variables of this rank's agents.
    chosen : dict
        Each agent's interface values, by the tables from below and by those from above, as those are indexed.
    roots : dict
        Upper UTIL values of the roots here; None where something has no bound.
    sent : list of dict
        Messages of each phase.
    """

    steps: dict[int, Steps]
    values: dict[int, int]
    chosen: dict[int, Chosen]
    roots: dict[int, Number | None]
    sent: list[dict[int, Sent]]


def run_cycle(
    task: Task,
    post: Post,
    clocks: dict[int, float],
    tables: Mapping[int, SampledTable],
    sides: Sides,
    stop: Stop | None = None,
) -> Cycle | ResourceError:
    """Send UTIL messages up and VALUE messages down.

    Parameters
    ----------
    clocks
        When each of this rank's agents is ready; moved on.
    tables
        Of this rank's agents.
    stop
        Where there is an answer already: when to give up. If it comes to that, or if some agent's tables do not fit the
        memory, all ranks return why. Without it the cycle takes what time it needs, and that is raised.
    """
    failure: ResourceError | None = None
    work = _util_work(task, tables, sides, replace(task.backend, stop=NO_STOP if stop is None else stop))

    def tolerated(agent: int, messages: list[Utils]) -> Steps:
        nonlocal failure
        try:
            if None in messages:  # what an agent sends that has failed
                raise ResourceError("an agent below has failed")
            return work(agent, messages)
        except ResourceError as error:
            failure = failure or error
            none: Steps = NO_STEPS
            return none

    steps, up = util_phase(task.tree, post, clocks, work if stop is None else tolerated)
    if stop is not None:
        failures: list[ResourceError] = [found for found in post.world.allgather(failure) if found is not None]
        if failures:
            return next((found for found in failures if isinstance(found, OutOfTime)), failures[0])
    separators = [(sides.lower.scope(s), sides.upper.scope(s)) if s else ((), ()) for s in task.tree.separators]
    chosen, down = value_phase(task.tree, post, clocks, steps, separators)
    values: dict[int, int] = {}
    for agent, choice in chosen.items():
        values |= sides.lower.expand(choice.lower) | tables[agent].witness(choice.lower)
    roots = {
        agent: None if step.upper is None else step.upper.total
        for agent, step in steps.items()
        if task.tree.parent[agent] < 0
    }
    return Cycle(steps, values, chosen, roots, [up, down])


def _util_work(
    task: Task, tables: Mapping[int, SampledTable], sides: Sides, backend: Backend
) -> Callable[[int, list[Utils]], Steps]:
    """Return the UTIL steps of an agent as a function of its children's messages."""
    attempts = _attempts(task)

    @cache
    def rooms() -> list[Number]:
        return shift_rooms(task.division, task.tree, task.arithmetic)

    def step(agent: int, side: Compression, own: UtilMessage, children: list[UtilMessage]) -> UtilStep:
        for how, memory in attempts[:-1]:
            try:
                return limited(agent, side, own, children, how, memory)
            except OutOfTime:
                raise
            except ResourceError:
                continue
        return limited(agent, side, own, children, *attempts[-1])

    def limited(
        agent: int, side: Compression, own: UtilMessage, children: list[UtilMessage], how: Relaxation, memory: int
    ) -> UtilStep:
        return util_step(
            [*own, *crossing_of(task, agent, side)],
            children,
            side.scope(task.division.locals[agent].interface),
            side.scope(task.tree.separators[agent]),
            side.sizes,
            task.arithmetic,
            backend=backend,
            memory=memory,
            name=task.problem.agents[agent],
            relaxation=how,
            room=lambda: rooms()[agent],
        )

    def work(agent: int, messages: list[Utils]) -> Steps:
        table, received = tables[agent], tuple(messages)
        lower = step(agent, sides.lower, table.lower, [m.lower for m in messages])
        uppers = [m.upper for m in messages if m.upper is not None]
        if table.upper is None or len(uppers) < len(messages):
            return Steps(lower, None, received)
        if table.exact and sides.lower is sides.upper and all(m.upper is m.lower for m in messages):
            return Steps(lower, lower, received)
        return Steps(lower, step(agent, sides.upper, table.upper, uppers), received)

    return work


def _allowance(task: Task) -> int:
    """Return the bytes that an agent's UTIL step may take: all agents' tables stay until VALUE has been by."""
    memory = task.config.budget.memory
    many = task.problem.n_agents > _FEW and task.config.combine.method != "exact"
    return max(1, memory // task.problem.n_agents) if many else memory


def _attempts(task: Task) -> list[tuple[Relaxation, int]]:
    """Return how an agent's UTIL step may be done, and in how many bytes of tables; the first that fits is taken.

    With a time budget, exact tables and mini-buckets have to fit the time too: else mini-buckets would become as large
    as the memory, however short the time. The last attempt is what fits the memory. The same in all cycles.
    """
    relaxation, memory = relaxation_of(task.config.combine), _allowance(task)
    seconds, last = task.config.budget.time, (relaxation, memory)
    if seconds is None or relaxation.method == "exact" or relaxation.z is not None:
        return [last]
    values = float(task.problem.domains.mean()) if task.problem.n_variables else 1.0
    entries = _SHARE * seconds * task.backend.threads * _CELLS / values
    quick = int(entries) * task.arithmetic.dtype.itemsize
    if quick >= memory:
        return [last]
    sizes, size = [], quick // _SLOWER  # larger ones only where what is joined takes more already
    while size < memory:
        sizes.append(size)
        size = 4 * max(1, size)
    split = [*((relaxation, size) for size in sizes), last]
    return split if relaxation.method == "mini-bucket" else [(EXACT, quick), *split]


def crossing_of(task: Task, agent: int, side: Compression) -> list[Table]:
    """Return the crossing factors placed at an agent, encoded."""
    placed = [task.arithmetic.encode(task.division.crossing[i]) for i in task.tree.placed[agent]]
    return [side.table(*table) for table in placed]


def run_outside(
    task: Task, post: Post, cycle: Cycle, tables: Mapping[int, SampledTable], side: Compression
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell each agent a bound on what the rest of its component adds to its rows (after a cycle with bounds)."""

    def work(agent: int, outside: UtilMessage) -> tuple[UtilMessage, list[UtilMessage]]:
        upper = tables[agent].upper
        assert upper is not None, "only after a cycle in which all had bounds"
        return outside_steps(
            upper,
            crossing_of(task, agent, side),
            [message.upper or () for message in cycle.steps[agent].received],
            outside,
            side.scope(task.division.locals[agent].interface),
            side.scope(task.tree.separators[agent]),
            [side.scope(task.tree.separators[child]) for child in task.tree.children[agent]],
            side.sizes,
            task.arithmetic,
            _OUTSIDE,
            _allowance(task),
            task.backend,
        )

    return outside_phase(task.tree, post, work)


def rows_of(task: Task, interface: tuple[int, ...], sizes: NDArray[np.int64], tables: UtilMessage) -> NDArray[Any]:
    """Return the sum of tables over parts of an interface as one array of its rows, flat (encoded)."""
    shape = [int(sizes[v]) for v in interface]
    total = np.zeros(shape, dtype=task.arithmetic.dtype)
    for scope, values in tables:
        order = sorted(range(len(scope)), key=lambda axis: interface.index(scope[axis]))
        wide = [shape[i] if v in scope else 1 for i, v in enumerate(interface)]
        total = task.arithmetic.add(total, values.transpose(order).reshape(wide))
    return total.reshape(-1)
