"""A problem reduced and divided among its agents: what every rank knows before anything is planned."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import msgspec
import numpy as np

from dmcmc.config.settings import Settings, automatic_memory
from dmcmc.files.names import read_order
from dmcmc.formats import agent_files
from dmcmc.inference.dpop.division import Division, LocalProblem, divide
from dmcmc.inference.dpop.memory_shares import bytes_of_tables
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.estimate_cost import cells_at_most
from dmcmc.inference.orders.exact_order import FEW
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.run.distribution.rank_view import view_of
from dmcmc.run.distribution.scatter_problem import dealt
from dmcmc.run.planning.combination_plan import arithmetic_for
from dmcmc.run.presolve.presolve_problem import reduction_of
from dmcmc.run.presolve.restore_result import Asked

_PLANNED, _WORDS = 0.05, 3e8  # of the time, at most, for one order; words of search in a second, counted
_SOON, _SOON_SHARE, _STEP = 0.2, 0.02, 3e-4  # seconds, and the part of the time; those of an agent at least
_LARGE, _OBJECT = 1 << 25, 1 << 10  # bytes of problems that rank 0 keeps to itself; of a factor beside its table
_COPIES, _IN_USE, _PART = 3, 10 << 10, 0.25  # of tables on a rank that searches; bytes of a factor there; of the memory
_TOLD, _TOLD_SHARE = 1e-4, 0.05  # seconds of an agent's part of the result, on all ranks; of the time, at most
_SLOW = 0.1  # of the time: then orders and trees are taken as they are, wherever so many words take longer


@dataclass(frozen=True)
class Divided:
    """A problem divided among its agents: what every rank knows before anything is planned.

    Attributes
    ----------
    asked : Asked
        What was asked, and the way back to it: the answer is evaluated on it.
    original : Problem
        That, or what reductions have left of it.
    problem : Problem
        The same as dense tables; variables beyond the original ones are hidden states.
    arithmetic : Arithmetic
        The numbers that it is solved in: nothing is looked for where they would not hold its sums.
    dealt : bool
        Whether rank 0 alone knows all of it; others know their agents' parts (:mod:`dmcmc.run.distribution`).
    """

    asked: Asked
    original: Problem
    problem: Problem
    config: Settings
    division: Division
    arithmetic: Arithmetic
    dealt: bool = field(default=False, kw_only=True)

    @cached_property
    def shared(self) -> frozenset[int]:
        """The variables of what was asked that share a factor with another agent's."""
        owner = self.asked.problem.owner
        scopes = (factor.scope for factor in self.asked.problem.factors)
        return frozenset(v for scope in scopes if len({int(owner[v]) for v in scope}) > 1 for v in scope)

    @cached_property
    def owned(self) -> tuple[list[int], list[int]]:
        """Of each agent how many variables it has of what was asked, and how many of them are shared."""
        asked = self.asked.problem

        def counted() -> tuple[list[int], list[int]]:
            both = asked.owner, asked.owner[sorted(self.shared)]
            every, shared = (np.bincount(owner, minlength=asked.n_agents).tolist() for owner in both)
            return every, shared

        return asked.kin.once("owned", counted) if asked.dense else counted()

    @property
    def timed(self) -> bool:
        """Whether there is a time budget."""
        return self.config.budget.time is not None


def sharing_memory(settings: Settings, world: World) -> Settings:
    """Return settings in which ``budget.memory`` is a number, on all ranks what the narrowest machine allows."""
    if settings.budget.memory != "auto":
        return settings
    least = min(world.allgather(_automatic_memory(world.local_size, int(time.monotonic()))))
    return msgspec.structs.replace(settings, budget=settings.budget.shared(least))


@lru_cache(maxsize=1)
def _automatic_memory(ranks: int, _second: int) -> int:
    """Return :func:`automatic_memory`; the system is asked once a second, which takes longer than small problems do."""
    return automatic_memory(ranks)


def divided(asked: Problem, config: Settings, world: World, stop: Stop = NO_STOP) -> Divided:
    """Reduce the problem, and divide it among its agents; called by all ranks.

    Parameters
    ----------
    stop
        When to end reducing; not looked at on several ranks, which have to agree.
    """

    def division() -> Divided:
        original, memory = asked, config.budget.bytes
        problem = densify(original, memory).problem
        reduction = reduction_of(original, problem, config, stop if world.size == 1 else NO_STOP)
        if reduction is not None:
            original = reduction.problem
            problem = densify(original, memory).problem
        numbers = arithmetic_for(problem, config.combine)
        return Divided(Asked(asked, reduction), original, problem, config, divide(problem), numbers)

    return world.together(division)


def soon_proven(parts: Divided) -> bool:
    """Return whether exact tables should prove the answer in next to no time: all else may be left until it is needed.

    What combining takes is looked at where there are many agents. The same on all ranks, and on any machine.
    """
    config, seconds = parts.config, parts.config.budget.time
    if config.local.method not in ("auto", "exact") or config.combine.method == "mini-bucket":
        return False
    most = _SOON if seconds is None else min(_SOON, _SOON_SHARE * seconds)
    if config.local.cells != "auto" or config.local.order is not None:
        return False
    total = 0.0
    for local in parts.division.locals:
        total += _STEP + COSTS.cell * local.known.once("cells", partial(_cells_of, local))
        if total > most:
            return False
    return parts.problem.n_agents <= FEW or total + COSTS.cell * _combined_cells(parts) <= most


def _cells_of(local: LocalProblem) -> float:
    """Return the joined cells of an agent's elimination, from above."""
    return cells_at_most([factor.scope for factor in local.factors], local.domains, local.hidden)


def _combined_cells(parts: Divided) -> float:
    """Return the joined cells of combining agents' tables, from above: tables are over whole interfaces."""
    locals_, problem = parts.division.locals, parts.problem
    hidden = {v for local in locals_ for v in local.hidden}
    scopes = [local.interface for local in locals_ if local.hidden]
    scopes += [factor.scope for factor in problem.factors if hidden.isdisjoint(factor.scope)]
    return cells_at_most(scopes, problem.domains, [v for v in range(problem.n_variables) if v not in hidden])


def is_dealt_out(problem: Problem, config: Settings, world: World) -> bool:
    """Return whether rank 0 keeps a problem to itself, and hands each rank its own agents' parts.

    That is where it takes much memory: with a time budget, in which each rank would search all of it, a good part of
    what a rank may take.
    """
    if world.size == 1 or problem.n_agents == 1 or not may_be_dealt_out(config):
        return False
    tables, factors = bytes_of_tables(problem), len(problem.factors)
    if config.budget.time is None or tables + _OBJECT * factors <= _LARGE:
        return tables + _OBJECT * factors > _LARGE
    memory = config.budget.shared(_automatic_memory(world.local_size, int(time.monotonic()))).bytes
    return _COPIES * tables + _IN_USE * factors > _PART * memory


def may_be_dealt_out(config: Settings) -> bool:
    """Return whether nothing is asked for that needs the whole problem on all ranks."""
    return config.local.order is None and config.asked_algorithm.name == "dmcmc"


@dataclass(frozen=True)
class Deal:
    """A problem that rank 0 alone knows, before agents have their places.

    Attributes
    ----------
    parts : Divided
        On other ranks with no agent's part.
    index : Index
        What everybody may know.
    magnitudes : tuple of list
        How large the entries are: sums of each agent's, and of each factor between agents.
    agents : sequence of Problem or None
        All agents' parts, on rank 0.
    """

    parts: Divided
    index: agent_files.Index
    magnitudes: tuple[list[Number], list[Number]]
    agents: Sequence[Problem] | None

    def hand_out(self, owner: Sequence[int], helpers: Sequence[Sequence[int]], world: World) -> Divided:
        """Hand each rank the parts of its agents, and of one that it helps; return the problem as it knows it then."""
        known: list[list[int]] = [[] for _ in range(world.size)]
        for agent, rank in enumerate(owner):
            known[rank].append(agent)
            for other in helpers[agent]:
                known[other].append(agent)
        own = dealt(self.agents, known, world)
        if self.agents is not None:
            return self.parts
        return _known(self.index, own, self.parts.config, self.parts.arithmetic, self.magnitudes)


def dealing(asked: Problem | None, config: Settings, world: World) -> Deal:
    """Reduce and divide a problem that rank 0 alone has; called by all ranks."""

    def division() -> Deal | None:
        if not may_be_dealt_out(config):
            raise Unavailable(
                "rank 0 alone has the problem: local.order and other algorithms need it on all ranks; give it to them,"
                " or leave these out"
            )
        if asked is None:
            return None
        parts = replace(divided(asked, config, World()), dealt=True)
        index, agents = agent_files.divided(parts.problem, config.budget.bytes)
        return Deal(parts, index, parts.division.magnitudes, agents)

    deal = world.together(division)
    told = None if deal is None else (deal.index, deal.parts.arithmetic, deal.magnitudes)
    index, arithmetic, magnitudes = world.bcast(told, "deal")
    return deal or Deal(_known(index, {}, config, arithmetic, magnitudes), index, magnitudes, None)


def _known(
    index: agent_files.Index,
    own: Mapping[int, Problem],
    config: Settings,
    arithmetic: Arithmetic,
    magnitudes: tuple[list[Number], list[Number]],
) -> Divided:
    """Return a problem as one rank knows it that has some agents' parts."""
    problem, division = view_of(index, own)
    division.__dict__["magnitudes"] = magnitudes
    return Divided(Asked(problem), problem, problem, config, division, arithmetic, dealt=True)


def end_of(start: float, seconds: float, agents: int) -> float:
    """Return when work by the clock ends: what putting many agents' parts of the result together takes is left over."""
    return start + seconds - min(_TOLD * agents, _TOLD_SHARE * seconds)


def words_for(seconds: float) -> float:
    """Return how many words one order may be searched for with a time budget."""
    return _PLANNED * seconds * _WORDS


def searching(parts: Divided, world: World, stop: Stop) -> Division:
    """Return the division with the orders that somebody wants, or with an end to the search for them."""
    division, config = parts.division, parts.config
    if config.local.order is not None:
        division = _ordered(division, parts.problem, config.local.order, world)
    if config.budget.time is not None:
        soon = stop.by(time.perf_counter() + _SLOW * config.budget.time)
        division = division.searching(words_for(config.budget.time), soon)
    return division


def _ordered(division: Division, problem: Problem, path: str, world: World) -> Division:
    """Return a division whose agents eliminate their variables as a file says, which rank 0 reads for all."""
    hidden = [problem.variables[v] for local in division.locals for v in local.hidden]
    places = world.decided(lambda: read_order(path, hidden))
    return division.ordered({v: places[name] for v, name in enumerate(problem.variables) if name in places})
