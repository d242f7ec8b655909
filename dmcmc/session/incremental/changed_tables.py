"""Find the tables that differ between two problems of the same structure, and make the exact tables of their agents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import allows_more_rows
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.model.arithmetic import Exact, exact_sum
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.planning.plan import Setup
from dmcmc.tuning import run as tuning

if TYPE_CHECKING:
    from dmcmc.solving.combine_tables import FinishedCycle


T = TypeVar("T")

CROSSING, CONSTANT = -1, -2  # in place of the agent of a factor


class FactorPlace(NamedTuple):
    """Where a division holds a factor.

    Attributes
    ----------
    agent : int
        The agent whose own factor it is; −1 for a factor between agents, −2 for a factor without variables.
    number : int
        Its position among the agent's factors, among those between agents, or among those without variables.
    """

    agent: int
    number: int


class TableChanges(NamedTuple):
    """New tables of a divided problem.

    Attributes
    ----------
    factors : dict of FactorPlace to Factor
        The new factors, which have the scopes of the old ones.
    magnitude : int or Fraction
        By how much the sum of the largest absolute entries of all factors with variables grows.
    """

    factors: Mapping[FactorPlace, Factor]
    magnitude: Exact

    def local_agents(self) -> list[int]:
        """Return the agents with a change in a factor over their variables alone, ascending."""
        return sorted({place.agent for place in self.factors if place.agent >= 0})

    def crossing(self) -> list[int]:
        """Return the numbers of the changed factors between agents."""
        return [place.number for place in self.factors if place.agent == CROSSING]


def holder_of(agents: Set[int]) -> int:
    """Return the code of the holder of a factor, as in :class:`FactorPlace`, from the agents of its variables."""
    return CONSTANT if not agents else CROSSING if len(agents) > 1 else next(iter(agents))


def held_at(division: Division, place: FactorPlace) -> Factor:
    """Return the factor at a place."""
    if place.agent == CONSTANT:
        return division.constants[place.number]
    if place.agent == CROSSING:
        return division.crossing[place.number]
    return division.locals[place.agent].factors[place.number]


def places_of(problem: Problem) -> list[FactorPlace]:
    """Return where the division of a problem holds each of its factors, in the order of the factors."""
    counts, places = dict[int, int](), list[FactorPlace]()
    owner = problem.owner.tolist()
    for factor in problem.factors:
        agent = holder_of({owner[v] for v in factor.scope})
        number = counts.get(agent, 0)
        places.append(FactorPlace(agent, number))
        counts[agent] = number + 1
    return places


def changed_positions(before: Problem, after: Problem) -> list[int] | None:
    """Return the positions of the factors whose tables differ; None if the problems differ in anything else.

    Names of factors do not matter.
    """
    parts = ("variables", "agents", "labels", "sense", "name")
    if len(before.factors) != len(after.factors) or not all(
        getattr(before, part) is getattr(after, part) or getattr(before, part) == getattr(after, part) for part in parts
    ):
        return None
    for one, other in ((before.domains, after.domains), (before.owner, after.owner)):
        if one is not other and not (one.shape == other.shape and bool((one == other).all())):
            return None
    positions = list(_differing_positions(before.factors, after.factors))
    pairs = [(before.factors[i], after.factors[i]) for i in positions]
    if any(one.scope != other.scope or type(other) is not Factor for one, other in pairs):
        return None
    return positions


def _differing_positions(before: Sequence[Factor], after: Sequence[Factor]) -> Iterator[int]:
    """Yield the positions at which two sequences of factors differ.

    Parts of the sequences are compared as a whole, which does not look into factors that are the same objects.
    """
    for begin in range(0, len(before), tuning.COMPARED_AT_ONCE):
        part = slice(begin, begin + tuning.COMPARED_AT_ONCE)
        if before[part] != after[part]:
            for position, (one, other) in enumerate(zip(before[part], after[part], strict=True), begin):
                if one is not other and one != other:
                    yield position


def table_changes(
    before: Problem,
    after: Problem,
    positions: Iterable[int],
    places: Sequence[FactorPlace],
    numbers: NDArray[np.int64],
) -> TableChanges | None:
    """Return the new tables by their places; None if some become integers, which may change all tables' number type.

    Parameters
    ----------
    before, after
        The problems, which differ in tables only.
    positions
        The positions of the factors that differ.
    places
        Where the division holds each factor.
    numbers : (variables,) int64
        The number of each variable in the division.
    """
    positions = list(positions)
    pairs = [(before.factors[i], after.factors[i]) for i in positions]
    if any(one.table.dtype.kind != other.table.dtype.kind for one, other in pairs):
        return None
    growth = exact_sum(
        sign * magnitude(factor.table)
        for pair in pairs
        for factor, sign in zip(pair, (-1, 1), strict=True)
        if factor.scope
    )
    factors = {places[i]: after.factors[i] for i in positions}
    held = {p: f.renamed(tuple(int(numbers[v]) for v in f.scope), f.name) for p, f in factors.items()}
    return TableChanges(held, growth)


def with_changes(division: Division, changes: TableChanges) -> Division:
    """Return a division with new tables. Orders and plans of the agents are kept, since no scope changes.

    Its factors between agents are no tuple, so that they are encoded only where an agent needs them.
    """
    constants = list(division.constants)
    crossing: dict[int, Factor] = {}
    own = {agent: list(division.locals[agent].factors) for agent in changes.local_agents()}
    for place, factor in changes.factors.items():
        if place.agent == CROSSING:
            crossing[place.number] = factor
        else:
            (constants if place.agent == CONSTANT else own[place.agent])[place.number] = factor
    locals_ = {agent: _with_factors(division.locals[agent], tuple(factors)) for agent, factors in own.items()}
    return replace(
        division,
        locals=_with_entries(division.locals, locals_),
        crossing=_with_entries(division.crossing, crossing),
        constants=tuple(constants),
    )


def _with_entries(sequence: Sequence[T], entries: Mapping[int, T]) -> Sequence[T]:
    """Return a copy of a sequence with some other entries."""
    if isinstance(sequence, LazySequence):
        return sequence.with_entries(entries)
    changed = list(sequence)
    for position, entry in entries.items():
        changed[position] = entry
    return changed


def _with_factors(local: LocalProblem, factors: tuple[Factor, ...]) -> LocalProblem:
    """Return a local problem with other tables of the same scopes."""
    changed = object.__new__(LocalProblem)
    changed.__dict__.update(local.__dict__, factors=factors, tables=None)
    changed.__dict__.pop("ranges", None)  # of the entries of the old tables
    return changed


class NotRepeatable(ResourceError):
    """The last run cannot be continued; the problem has to be solved anew."""


def new_tables(setup: Setup, last: "FinishedCycle", agents: Sequence[int]) -> dict[int, SampledTable]:
    """Return the exact tables of agents whose own factors or variables have changed.

    Parameters
    ----------
    setup
        The changed plan.
    last
        The last cycle of messages.
    agents
        The agents, all of this rank.

    Raises
    ------
    NotRepeatable
        If the tables do not fit the time or the memory, or need rows that messages of children have left out.
    """
    pairs = [(setup.divided.division.locals[agent], setup.choices[agent].seconds) for agent in agents]
    found = eliminate_in_turn(pairs, setup.sampling_settings(), timed=False)
    if found.given_up:
        raise NotRepeatable("the tables of the changed agents do not fit the time or the memory")
    for local, _ in pairs:
        agent, table = local.agent, found.tables[local.agent]
        has_filter = last.needed is not None and bool(setup.tree.children[agent])
        if has_filter and allows_more_rows(last.tables[agent].lower, table.lower):
            raise NotRepeatable("the agent allows rows that its children have left out")
        if setup.divided.retained is not None:
            setup.divided.retained.keep_table(
                setup.divided.problem.agents[agent], local, setup.divided.arithmetic, table
            )
    return found.tables
