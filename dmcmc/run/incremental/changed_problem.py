"""Carry a finished run over to a changed problem: division, pseudo-tree and choices, of which most stays.

Factors are matched by their tables, which changes of other factors leave as they are. The local problem of an agent is
made anew if its own factors, its variables, their values or its interface have changed. All others keep their
elimination orders, plans and tables, and the pseudo-tree is repaired (:mod:`.changed_tree`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import NamedTuple

from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Exact, exact_sum
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.run.incremental.changed_tables import (
    CONSTANT,
    CROSSING,
    FactorPlace,
    TableChanges,
    held_at,
    holder_of,
    with_changes,
)
from dmcmc.run.incremental.changed_tree import CrossingChanges, changed_tree
from dmcmc.run.incremental.numbering import Numbering
from dmcmc.run.incremental.tree_part import paths_to_roots
from dmcmc.samplers.auto.choose import AgentChoice, choose, fixed_choice
from dmcmc.samplers.auto.survey import count_agent_work
from dmcmc.solving.planning.setup import Setup

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
        positions = [0] * setup.problem.n_agents
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
    setup = replace(last.setup, division=with_changes(last.setup.division, changes))
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
    given_order = old.config.local.order is not None
    if not known or removed_names > after.n_variables or given_order:
        return None
    problem = numbering.renumbered(after, old.problem)
    moved = _moved(old.problem, problem)
    matched = _matched(last, before, after, numbering, moved)
    factors = _changed_factors(last, (before, after), numbering, problem, matched)
    if factors is None:
        return None
    division, local_agents = _changed_division(old, numbering, problem, factors)
    first, new_agents = min(known), problem.n_agents - len(known)
    positions = [*known, *range(first - 1, first - 1 - new_agents, -1)]  # new agents are eliminated first
    owners = {int(part.owner[v]) for v in moved for part in (old.problem, problem)}
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
    (before, after), division, places = given, last.todo.setup.division, last.places
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
    if setup.arithmetic.integral:
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
    old, owner, known = setup.division, problem.owner.tolist(), setup.problem.n_variables
    alive, crossing = set(numbering.variables.tolist()), factors.lists[CROSSING]
    shared = {v for local in old.locals for v in local.interface}
    uncertain = {v for n in factors.removed for v in old.crossing[n].scope}
    uncertain.update(v for n in factors.added for v in crossing[n].scope)
    still = uncertain.intersection(chain.from_iterable(factor.scope for factor in crossing)) if uncertain else set()
    differing = (uncertain & (shared ^ still)) | _differing_variables(setup, problem, alive)
    shared = (shared - uncertain) | still
    agents = {*factors.lists, *(owner[v] for v in differing), *range(len(old.locals), problem.n_agents)}
    agents.update(int(setup.problem.owner[v]) for v in differing if v < known)
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
    before, known = setup.problem, setup.problem.n_variables
    owned = {v for local in setup.division.locals for v in (*local.interface, *local.hidden)}
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
        problem=problem,
        original=problem,
        division=division,
        tree=tree,
        choices=choices,
        owner=tuple(owner),
        helpers=((),) * problem.n_agents,
        tree_messages={},
        facts=DerivedFacts(),
    )


def _choice(setup: Setup, local: LocalProblem) -> AgentChoice:
    """Return the method of an agent with a new local problem, chosen as in a new run."""
    options = setup.config.local
    runs, samples = options.runs, options.samples
    work = count_agent_work(local, 0, runs, samples, setup.limits.memory, setup.arithmetic)
    if options.method == "auto":
        return choose([work], setup.limits, setup.rates)[0]
    return fixed_choice(work, options.method, setup.limits, setup.rates)


def _path_cells(setup: Setup, agents: Iterable[int]) -> float:
    """Return an upper bound on the cells that UTIL joins on the paths from some agents to the roots."""
    domains, locals_, separators = setup.problem.domains, setup.division.locals, setup.tree.separators
    return sum(
        prod(float(domains[v]) for v in (*locals_[agent].interface, *separators[agent]))
        for agent in paths_to_roots(setup.tree, agents)
    )
