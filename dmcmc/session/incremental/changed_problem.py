"""Find what a change of a problem changes in a finished run: tables, numbering, division, pseudo-tree and choices.

Factors are matched by their tables, which changes of other factors leave as they are. The local problem of an agent is
made anew if its own factors, its variables, their values or its interface have changed. All others keep their
elimination orders, plans and tables.

A pseudo-tree is the elimination tree of an order of the agents: an agent's separator holds the variables of later
agents that share a factor with it or with its children's separators, and its parent is the first agent of the
separator. With the order fixed, only separators between a change and the root can change, and the work stops where a
separator stays as it was. A new factor between two branches merges their paths; where a path ends, an agent becomes a
root.

A problem numbers its variables and agents without gaps, so that a removal changes the numbers of all that follow. A
continued run keeps the first number of each name instead. A removed variable keeps its number, with one value, no
factor and no agent that chooses it; a removed agent keeps its number without variables. A name that returns gets its
former number.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import allows_more_rows
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Exact, exact_sum
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.samplers.auto.choose import AgentChoice, choose, count_agent_work, fixed_choice
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


class CrossingChanges(NamedTuple):
    """Changes of the factors between agents.

    Attributes
    ----------
    removed : set of int
        Numbers of the factors that are no longer there.
    added : list of int
        Numbers of the new factors.
    scopes : sequence of tuple of int
        The variables of all factors between agents, by their numbers.
    moved : set of int
        Variables with another owner than before. All factors over them count as removed and added.
    owner : (variables,) int64
        The agent of each variable after the change.
    """

    removed: set[int]
    added: list[int]
    scopes: Sequence[tuple[int, ...]]
    moved: set[int]
    owner: NDArray[np.int64]


class ChangedTree(NamedTuple):
    """A repaired pseudo-tree.

    Attributes
    ----------
    tree : PseudoTree
        The tree.
    agents : set of int
        The agents whose factors, children, separator or parent have changed.
    """

    tree: PseudoTree
    agents: set[int]


def changed_tree(
    tree: PseudoTree, positions: Sequence[int], changes: CrossingChanges, dirty: Iterable[int] = ()
) -> ChangedTree:
    """Return a pseudo-tree with other factors between agents, by the same elimination order.

    Parameters
    ----------
    tree
        The tree before the change.
    positions
        The position of each agent in the elimination order, also of agents that the tree does not have yet.
    changes
        The changes of the factors between agents.
    dirty
        More agents whose separators have to be found again: those that owned a moved variable, or own it now.
    """
    more, owners, scopes = len(positions) - len(tree.parent), changes.owner.tolist(), changes.scopes
    parent, agents = [*tree.parent, *[-1] * more], {*range(len(tree.parent), len(positions)), *dirty}
    children, placed = [*tree.children, *[()] * more], [*tree.placed, *[()] * more]
    separators = [*tree.separators, *[()] * more]
    if changes.moved:
        agents.update(agent for agent, separator in enumerate(separators) if not changes.moved.isdisjoint(separator))
    if changes.removed:
        for agent, numbers in enumerate(placed):
            if not changes.removed.isdisjoint(numbers):
                placed[agent] = tuple(number for number in numbers if number not in changes.removed)
                agents.add(agent)
    for number in changes.added:
        deepest = min({owners[v] for v in scopes[number]}, key=positions.__getitem__)
        placed[deepest] = (*placed[deepest], number)
        agents.add(deepest)
    queue = [(positions[agent], agent) for agent in agents]
    heapify(queue)
    while queue:
        _, agent = heappop(queue)
        reach = {v for number in placed[agent] for v in scopes[number]}
        reach.update(v for child in children[agent] for v in separators[child])
        separator = tuple(sorted(v for v in reach if owners[v] != agent))
        above = min((owners[v] for v in separator), key=positions.__getitem__, default=-1)
        below = parent[agent]
        if (separator, above) == (separators[agent], below):
            continue
        separators[agent], parent[agent] = separator, above
        if above != below and below >= 0:
            children[below] = tuple(child for child in children[below] if child != agent)
        if above != below and above >= 0:
            children[above] = tuple(sorted((*children[above], agent)))
        for other in {above, below} - {-1} - agents:
            agents.add(other)
            heappush(queue, (positions[other], other))
    bottom_up = array("i", sorted(range(len(parent)), key=positions.__getitem__))
    return ChangedTree(PseudoTree(array("i", parent), children, bottom_up, separators, placed), agents)


@dataclass(frozen=True)
class Numbering:
    """The numbers in a continued run of the variables and agents of the problem as it stands.

    Attributes
    ----------
    known_variables, known_agents : dict of str to int
        The number of every name since the run began.
    variables, agents : (variables,) and (agents,) int64
        The number of each variable and of each agent of the problem as it stands.
    """

    known_variables: dict[str, int]
    known_agents: dict[str, int]
    variables: NDArray[np.int64]
    agents: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> "Numbering":
        """Return the numbering of a new run: that of the problem."""
        variables, agents = ({name: i for i, name in enumerate(part)} for part in (problem.variables, problem.agents))
        return cls(variables, agents, np.arange(problem.n_variables), np.arange(problem.n_agents))

    def of_changed(self, problem: Problem) -> "Numbering":
        """Return the numbering of a changed problem; new names get the next numbers."""
        variables, agents = dict(self.known_variables), dict(self.known_agents)
        return Numbering(variables, agents, _numbers(problem.variables, variables), _numbers(problem.agents, agents))

    def renumbered(self, problem: Problem, before: Problem) -> Problem:
        """Return the variables and agents of a problem by these numbers, without factors.

        Parameters
        ----------
        problem
            The problem as it stands.
        before
            The result of this method for the last problem, or the problem of the first run: the owner of removed
            variables is taken from there.
        """
        domains = np.ones(len(self.known_variables), dtype=np.int64)
        domains[self.variables] = problem.domains
        owner = np.zeros(len(domains), dtype=np.int64)
        owner[: before.n_variables] = before.owner
        owner[self.variables] = self.agents[problem.owner]
        labels: list[tuple[Label, ...] | None] = [None] * len(domains)
        for number, own in zip(self.variables.tolist(), problem.labels, strict=True):
            labels[number] = own
        return Problem.of_parts(
            variables=tuple(self.known_variables),
            domains=domains,
            agents=tuple(self.known_agents),
            owner=owner,
            labels=tuple(labels),
            sense=problem.sense,
            name=problem.name,
            initial_values={},
            factors=(),
        )


def _numbers(names: Sequence[str], known: dict[str, int]) -> NDArray[np.int64]:
    """Return the numbers of some names; names that are not known get the next ones, in ``known``."""
    for name in names:
        known.setdefault(name, len(known))
    return np.fromiter((known[name] for name in names), dtype=np.int64, count=len(names))


def paths_to_roots(tree: PseudoTree, agents: Iterable[int]) -> set[int]:
    """Return some agents and all of their ancestors."""
    found = set[int]()
    for agent in agents:
        while agent >= 0 and agent not in found:
            found.add(agent)
            agent = tree.parent[agent]
    return found


def part_of(tree: PseudoTree, agents: set[int], depth_first_position: Sequence[int]) -> PseudoTree:
    """Return the tree with some of its agents; the children of each are those among them.

    Parameters
    ----------
    tree
        The whole tree.
    agents
        The agents of the part.
    depth_first_position
        The position of each agent in ``tree.bottom_up``.
    """
    children = {agent: tuple(child for child in tree.children[agent] if child in agents) for agent in agents}
    return replace(
        tree,
        bottom_up=sorted(agents, key=depth_first_position.__getitem__),
        children=LazySequence[tuple[int, ...]](len(tree.parent), lambda _: (), children),
    )


_NO_FACTOR = Factor.of((), 0)  # in place of a removed factor between agents, so that the others keep their numbers


@dataclass(frozen=True)
class Continuation:
    """A plan, and the agents whose part of a finished run is repeated.

    Attributes
    ----------
    setup : Setup
        The plan.
    positions : list of int
        The position of each agent in the elimination order of the pseudo-tree.
    local_agents : set of int
        The agents whose tables have to be made again.
    agents : set of int
        These agents, and all others whose UTIL steps have other inputs than their children's messages.
    growth : int or Fraction
        By how much the sum of the largest absolute entries of all factors with variables grows.
    """

    setup: Setup
    positions: list[int]
    local_agents: set[int]
    agents: set[int]
    growth: Exact

    @classmethod
    def of(cls, setup: Setup) -> "Continuation":
        """Return the state after a new run, of which nothing is repeated yet."""
        positions = [0] * setup.divided.problem.n_agents
        for position, agent in enumerate(setup.tree.bottom_up):
            positions[agent] = position
        return cls(setup, positions, set(), set(), 0)


@dataclass(frozen=True)
class ChangedProblem:
    """A changed problem in the numbering of the run that it continues.

    Attributes
    ----------
    todo : Continuation
        The plan, and the agents whose work is repeated.
    numbering : Numbering
        The numbers of variables and agents.
    places : list of FactorPlace
        Where the division holds each factor of the problem.
    """

    todo: Continuation
    numbering: Numbering
    places: list[FactorPlace]


def with_new_tables(last: Continuation, changes: TableChanges) -> Continuation:
    """Return the agents whose work is repeated after a change of tables that keeps the scopes."""
    tree, crossing = last.setup.tree, set(changes.crossing())
    local_agents = set(changes.local_agents())
    placed = {a for a, numbers in enumerate(tree.placed) if not crossing.isdisjoint(numbers)} if crossing else set()
    setup = replace(
        last.setup, divided=replace(last.setup.divided, division=with_changes(last.setup.divided.division, changes))
    )
    return Continuation(setup, last.positions, local_agents, local_agents | placed, changes.magnitude)


def with_new_structure(last: ChangedProblem, before: Problem, after: Problem) -> ChangedProblem | None:
    """Return a problem that differs in more than tables.

    Parameters
    ----------
    last
        The last problem.
    before, after
        The last and the changed problem as given, with dense factors.

    Returns
    -------
    ChangedProblem or None
        The changed problem; None if a new run is needed: numbers need another type, the order of eliminations was
        given, an agent is to be sampled, or the messages on the changed paths may take more work than all messages of
        the last tree.
    """
    numbering, known, old = last.numbering.of_changed(after), last.todo.positions, last.todo.setup
    removed_names = len(numbering.known_variables) - after.n_variables
    given_order = old.divided.config.local.order is not None
    if not known or removed_names > after.n_variables or given_order:
        return None
    problem = numbering.renumbered(after, old.divided.problem)
    moved = _moved(old.divided.problem, problem)
    matched = _matched(last, before, after, numbering, moved)
    factors = _changed_factors(last, (before, after), numbering, problem, matched)
    if factors is None:
        return None
    division, local_agents = _changed_division(old, numbering, problem, factors)
    first, new_agents = min(known), problem.n_agents - len(known)
    positions = [*known, *range(first - 1, first - 1 - new_agents, -1)]  # new agents are eliminated first
    owners = {int(part.owner[v]) for v in moved for part in (old.divided.problem, problem)}
    scopes = [factor.scope for factor in division.crossing]
    crossing = CrossingChanges(factors.removed, factors.added, scopes, moved, problem.owner)
    tree, tree_agents = changed_tree(old.tree, positions, crossing, owners)
    setup = _changed_setup(old, problem, division, tree, local_agents)
    agents = local_agents | tree_agents
    if setup is None or _path_cells(setup, agents) > old.tree_size.cells:
        return None
    todo = Continuation(setup, positions, local_agents, agents, factors.growth)
    return ChangedProblem(todo, numbering, factors.places)


def _moved(before: Problem, after: Problem) -> set[int]:
    """Return the variables that had another owner before, by their numbers."""
    known = before.n_variables
    return set((before.owner != after.owner[:known]).nonzero()[0].tolist())


def _matched(last: ChangedProblem, before: Problem, after: Problem, numbering: Numbering, moved: set[int]) -> list[int]:
    """Return the position before of each factor; −1 if it is new or has a moved variable in its scope."""
    old, new = last.numbering.variables.tolist(), numbering.variables.tolist()
    at = {id(factor.table): position for position, factor in enumerate(before.factors)}
    unchanged, matched = new[: len(old)] == old, list[int]()
    for factor in after.factors:
        position = at.pop(id(factor.table), -1)
        if position >= 0:
            known = before.factors[position]
            if unchanged:
                is_same = known is factor or known.scope == factor.scope
            else:
                is_same = [old[v] for v in known.scope] == [new[v] for v in factor.scope]
            if not is_same or (moved and not moved.isdisjoint(new[v] for v in factor.scope)):
                position = -1
        matched.append(position)
    return matched


class _Factors(NamedTuple):
    """The factors of a changed problem.

    Attributes
    ----------
    lists : dict of int to list of Factor
        The own factors of each agent that has lost or got some. By the codes of :class:`FactorPlace` also those between
        agents, which keep their numbers, and those without variables.
    removed : set of int
        Numbers of the factors between agents that were removed.
    added : list of int
        Numbers of the factors between agents that were added.
    places : list of FactorPlace
        Where each factor is held.
    growth : int or Fraction
        By how much the sum of the largest absolute entries grows.
    """

    lists: dict[int, list[Factor]]
    removed: set[int]
    added: list[int]
    places: list[FactorPlace]
    growth: Exact


def _changed_factors(
    last: ChangedProblem, given: tuple[Problem, Problem], numbering: Numbering, problem: Problem, matched: list[int]
) -> _Factors | None:
    """Return the factors of the changed problem; None if they need another type of numbers than those before.

    Parameters
    ----------
    last
        The last problem.
    given
        The last and the changed problem as given.
    numbering
        The numbers of variables and agents.
    problem
        The changed variables and agents, by these numbers.
    matched
        The position before of each factor, or −1.
    """
    (before, after), division, places = given, last.todo.setup.divided.division, last.places
    number, owner = numbering.variables.tolist(), problem.owner.tolist()
    gone = set(range(len(before.factors))).difference(matched)
    fresh = {
        position: factor.renamed(tuple(number[v] for v in factor.scope), factor.name)
        for position, factor in enumerate(after.factors)
        if matched[position] < 0
    }
    if not _numbers_fit(last.todo.setup, fresh.values(), after):
        return None
    holders = {position: holder_of({owner[v] for v in factor.scope}) for position, factor in fresh.items()}
    removed = {places[i].number for i in gone if places[i].agent == CROSSING}
    made_anew = {CONSTANT, *(places[i].agent for i in gone), *holders.values()} - {CROSSING}
    lists: dict[int, list[Factor]] = {holder: [] for holder in made_anew}
    lists[CROSSING] = [_NO_FACTOR if n in removed else factor for n, factor in enumerate(division.crossing)]
    new_places = list[FactorPlace]()
    for position, known in enumerate(matched):
        if known >= 0 and places[known].agent not in made_anew:
            new_places.append(places[known])
            continue
        holder = holders[position] if known < 0 else places[known].agent
        new_places.append(FactorPlace(holder, len(lists[holder])))
        lists[holder].append(fresh[position] if known < 0 else held_at(division, places[known]))
    sizes = [magnitude(factor.table) for factor in fresh.values() if factor.scope]
    sizes += [-magnitude(before.factors[i].table) for i in gone if before.factors[i].scope]
    added = list(range(len(division.crossing), len(lists[CROSSING])))
    return _Factors(lists, removed, added, new_places, exact_sum(sizes))


def _numbers_fit(setup: Setup, fresh: Iterable[Factor], after: Problem) -> bool:
    """Return whether the numbers of new factors fit the run's: integers, or floats of which some remain."""
    if setup.divided.arithmetic.integral:
        return all(factor.table.dtype.kind != "f" for factor in fresh)
    return any(factor.table.dtype.kind == "f" for factor in after.factors)


def _changed_division(
    setup: Setup, numbering: Numbering, problem: Problem, factors: _Factors
) -> tuple[Division, set[int]]:
    """Return the division of the changed problem, and the agents whose local problems are new.

    Parameters
    ----------
    setup
        The last plan.
    numbering
        The numbers of variables and agents.
    problem
        The changed variables and agents, by these numbers.
    factors
        The changed factors.
    """
    old, owner, known = setup.divided.division, problem.owner.tolist(), setup.divided.problem.n_variables
    alive, crossing = set(numbering.variables.tolist()), factors.lists[CROSSING]
    shared = {v for local in old.locals for v in local.interface}
    uncertain = {v for n in factors.removed for v in old.crossing[n].scope}
    uncertain.update(v for n in factors.added for v in crossing[n].scope)
    still = uncertain.intersection(chain.from_iterable(factor.scope for factor in crossing)) if uncertain else set()
    differing = (uncertain & (shared ^ still)) | _differing_variables(setup, problem, alive)
    shared = (shared - uncertain) | still
    agents = {*factors.lists, *(owner[v] for v in differing), *range(len(old.locals), problem.n_agents)}
    agents.update(int(setup.divided.problem.owner[v]) for v in differing if v < known)
    agents -= {CROSSING, CONSTANT}
    variables: dict[int, list[int]] = {agent: [] for agent in agents}
    for v in sorted(alive):
        if owner[v] in variables:
            variables[owner[v]].append(v)
    budget = old.locals[0].order_budget
    locals_: list[LocalProblem] = [*old.locals]
    locals_ += [LocalProblem(a, (), (), (), problem.domains, budget) for a in range(len(locals_), problem.n_agents)]
    for agent, own in variables.items():
        interface, hidden = (tuple(v for v in own if (v in shared) is side) for side in (True, False))
        held = tuple(factors.lists[agent]) if agent in factors.lists else locals_[agent].factors
        locals_[agent] = LocalProblem(agent, interface, hidden, held, problem.domains, budget)
    return Division(locals_, crossing, tuple(factors.lists[CONSTANT])), agents


def _differing_variables(setup: Setup, problem: Problem, alive: set[int]) -> set[int]:
    """Return the variables that were added or removed, or have another domain, other labels or another owner."""
    before, known = setup.divided.problem, setup.divided.problem.n_variables
    owned = {v for local in setup.divided.division.locals for v in (*local.interface, *local.hidden)}
    resized = (before.domains != problem.domains[:known]).nonzero()[0].tolist()
    labels = zip(range(known), before.labels, problem.labels, strict=False)
    relabelled = {v for v, one, other in labels if one is not other and one != other}
    return (owned ^ alive) | {*resized} | relabelled | _moved(before, problem)


def _changed_setup(
    setup: Setup, problem: Problem, division: Division, tree: PseudoTree, agents: set[int]
) -> Setup | None:
    """Return the plan of the changed problem; None if an agent is not to be eliminated exactly.

    New agents run on the rank of their parent in the pseudo-tree, so that they send no message to another rank.
    """
    choices: list[AgentChoice] = [*setup.choices, *[setup.choices[0]] * (problem.n_agents - len(setup.choices))]
    for agent in agents:
        choices[agent] = _choice(setup, division.locals[agent])
    if any(choices[agent].method != "exact" for agent in agents):
        return None
    owner = [*setup.owner]
    for agent in range(len(owner), problem.n_agents):  # new agents come before those with lower numbers in the order
        owner.append(owner[tree.parent[agent]] if tree.parent[agent] >= 0 else 0)
    factors = chain(division.constants, division.crossing, *(local.factors for local in division.locals))
    problem = Problem.of_parts(**problem.__dict__ | {"factors": tuple(f for f in factors if f is not _NO_FACTOR)})
    return replace(
        setup,
        divided=replace(
            setup.divided,
            presolved=replace(setup.divided.presolved, problem=problem, original=problem),
            division=division,
        ),
        tree=tree,
        choices=choices,
        owner=tuple(owner),
        helpers=((),) * problem.n_agents,
        tree_messages={},
        facts=DerivedFacts(),
    )


def _choice(setup: Setup, local: LocalProblem) -> AgentChoice:
    """Return the method of an agent with a new local problem, chosen as in a new run."""
    options = setup.divided.config.local
    runs, samples = options.runs, options.samples
    work = count_agent_work(local, 0, runs, samples, setup.limits.memory, setup.divided.arithmetic)
    if options.method == "auto":
        return choose([work], setup.limits, setup.rates)[0]
    return fixed_choice(work, options.method, setup.limits, setup.rates)


def _path_cells(setup: Setup, agents: Iterable[int]) -> float:
    """Return an upper bound on the cells that UTIL joins on the paths from some agents to the roots."""
    domains, locals_, separators = setup.divided.problem.domains, setup.divided.division.locals, setup.tree.separators
    return sum(
        prod(float(domains[v]) for v in (*locals_[agent].interface, *separators[agent]))
        for agent in paths_to_roots(setup.tree, agents)
    )
