"""Carry a finished run over to a changed problem: division, pseudo-tree and choices, of which most stays.

Factors are matched by their tables, which changes of other factors leave as they are. The local problem of an agent is
made anew if its own factors, its variables, their values or its interface have changed. All others keep their
elimination orders, plans and tables, and the pseudo-tree is repaired (:mod:`.changed_tree`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import NamedTuple

from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.exact_sum import Exact, exact_sum
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.run.incremental.changed_tables import CONSTANT, CROSSING, FactorPlace, TableChanges, with_changes
from dmcmc.run.incremental.changed_tree import CrossingChanges, changed_tree
from dmcmc.run.incremental.numbering import Numbering
from dmcmc.run.incremental.tree_part import paths_to_roots
from dmcmc.samplers.auto.choose import AgentChoice, choose, fixed_choice
from dmcmc.samplers.auto.survey import count_agent_work
from dmcmc.solving.planning.setup import Setup

_NO_FACTOR = Factor.of((), 0)  # in place of a removed factor between agents, so that the others keep their numbers


class ChangedProblem(NamedTuple):
    """A changed problem in the numbering of the run that it continues.

    Attributes
    ----------
    setup : Setup
        The plan.
    numbering : Numbering
        The numbers of variables and agents.
    places : list of FactorPlace
        Where the division holds each factor of the problem.
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
    numbering: Numbering
    places: list[FactorPlace]
    positions: list[int]
    local_agents: set[int]
    agents: set[int]
    growth: Exact


def with_new_tables(last: ChangedProblem, changes: TableChanges) -> ChangedProblem:
    """Return the problem with new tables of the same scopes."""
    tree, crossing = last.setup.tree, set(changes.crossing())
    local_agents = set(changes.local_agents())
    placed = {a for a, numbers in enumerate(tree.placed) if not crossing.isdisjoint(numbers)} if crossing else set()
    return last._replace(
        setup=replace(last.setup, division=with_changes(last.setup.division, changes)),
        local_agents=local_agents,
        agents=local_agents | placed,
        growth=changes.magnitude,
    )


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
    numbering = last.numbering.of_changed(after)
    removed_names = len(numbering.known_variables) - after.n_variables
    given_order = last.setup.config.local.order is not None
    if not last.positions or removed_names > after.n_variables or given_order:
        return None
    problem = numbering.renumbered(after, last.setup.problem)
    matched = _matched(last, before, after, numbering, _moved(last.setup.problem, problem))
    factors = _Factors.of(last, before, after, numbering, matched, problem)
    if factors is None:
        return None
    division, local_agents = _changed_division(last.setup, numbering, problem, factors)
    positions = [*last.positions]  # new agents are eliminated first
    positions += [min(last.positions, default=0) - 1 - i for i in range(problem.n_agents - len(positions))]
    moved = _moved(last.setup.problem, problem)
    owners = {int(part.owner[v]) for v in moved for part in (last.setup.problem, problem)}
    scopes = [factor.scope for factor in division.crossing]
    crossing = CrossingChanges(factors.removed, factors.added, scopes, moved, problem.owner)
    tree, tree_agents = changed_tree(last.setup.tree, positions, crossing, owners)
    setup = _changed_setup(last.setup, problem, division, tree, local_agents)
    agents = local_agents | tree_agents
    if setup is None or _path_cells(setup, agents) > last.setup.tree_size.cells:
        return None
    return ChangedProblem(setup, numbering, factors.places, positions, local_agents, agents, factors.growth)


def _moved(before: Problem, after: Problem) -> set[int]:
    """Return the variables that had another owner before, by their numbers."""
    known = before.n_variables
    return set((before.owner != after.owner[:known]).nonzero()[0].tolist())


def _matched(
    last: ChangedProblem, before: Problem, after: Problem, numbering: Numbering, moved: set[int]
) -> list[int]:
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
    own : dict of int to list of Factor
        The new lists of own factors, by agent whose list has changed.
    crossing : list of Factor
        The factors between agents.
    constants : tuple of Factor
        The factors without variables.
    removed, added
        Numbers of the factors between agents that were removed and added.
    places : list of FactorPlace
        Where each factor is held.
    growth : int or Fraction
        By how much the sum of the largest absolute entries grows.
    """

    own: dict[int, list[Factor]]
    crossing: list[Factor]
    constants: tuple[Factor, ...]
    removed: set[int]
    added: list[int]
    places: list[FactorPlace]
    growth: Exact

    @classmethod
    def of(
        cls,
        last: ChangedProblem,
        before: Problem,
        after: Problem,
        numbering: Numbering,
        matched: Sequence[int],
        problem: Problem,
    ) -> "_Factors | None":
        """Return the factors; None if they need another type of numbers than those before."""
        new, owner, old = numbering.variables.tolist(), problem.owner.tolist(), last.setup.division
        gone = set(range(len(before.factors))).difference(matched)
        fresh = {
            j: factor.renamed(tuple(new[v] for v in factor.scope), factor.name)
            for j, (factor, position) in enumerate(zip(after.factors, matched, strict=True))
            if position < 0
        }
        if not _numbers_fit(last.setup, fresh.values(), after):
            return None
        agents = {j: {owner[v] for v in factor.scope} for j, factor in fresh.items()}
        own: dict[int, list[Factor]] = {last.places[i].agent: [] for i in gone if last.places[i].agent >= 0}
        own |= {agent: [] for owners in agents.values() if len(owners) == 1 for agent in owners}
        removed = {last.places[i].number for i in gone if last.places[i].agent == CROSSING}
        crossing = [_NO_FACTOR if n in removed else f for n, f in enumerate(old.crossing)] if removed else old.crossing
        crossing, constants, places = list(crossing), list[Factor](), list[FactorPlace]()
        for j, position in enumerate(matched):
            place = FactorPlace(CONSTANT, 0) if position < 0 else last.places[position]
            if position < 0 and agents[j]:
                place = FactorPlace(CROSSING if len(agents[j]) > 1 else min(agents[j]), 0)
            if place.agent == CONSTANT:
                target = constants
            elif place.agent == CROSSING:
                target = crossing
            elif place.agent in own:
                target = own[place.agent]
            else:
                places.append(place)
                continue
            if position < 0:
                factor = fresh[j]
            elif place.agent == CROSSING:
                places.append(place)
                continue
            else:
                held = old.constants if place.agent == CONSTANT else old.locals[place.agent].factors
                factor = held[place.number]
            places.append(FactorPlace(place.agent, len(target)))
            target.append(factor)
        sizes = [magnitude(f.table) for f in fresh.values() if f.scope]
        sizes += [-magnitude(before.factors[i].table) for i in gone if before.factors[i].scope]
        added = list(range(len(old.crossing), len(crossing)))
        return cls(own, crossing, tuple(constants), removed, added, places, exact_sum(sizes))


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
    old, before, owner = setup.division, setup.problem, problem.owner.tolist()
    known, alive = before.n_variables, set(numbering.variables.tolist())
    shared = {v for local in old.locals for v in local.interface}
    uncertain = {v for n in factors.removed for v in old.crossing[n].scope}
    uncertain.update(v for n in factors.added for v in factors.crossing[n].scope)
    if uncertain:
        still = uncertain.intersection(chain.from_iterable(factor.scope for factor in factors.crossing))
        differing = uncertain & (shared ^ still)
        shared = (shared - uncertain) | still
    else:
        differing = set[int]()
    owned = {v for local in old.locals for v in (*local.interface, *local.hidden)}
    differing |= owned ^ alive
    differing.update((before.domains != problem.domains[:known]).nonzero()[0].tolist(), _moved(before, problem))
    differing.update(v for v in range(known) if before.labels[v] != problem.labels[v])
    agents = {*factors.own, *(owner[v] for v in differing), *range(len(old.locals), problem.n_agents)}
    agents.update(int(before.owner[v]) for v in differing if v < known)
    variables: dict[int, list[int]] = {agent: [] for agent in agents}
    for v in sorted(alive):
        if owner[v] in variables:
            variables[owner[v]].append(v)
    locals_: list[LocalProblem] = [*old.locals, *[old.locals[0]] * (problem.n_agents - len(old.locals))]
    for agent, mine in variables.items():
        given = tuple(factors.own[agent]) if agent in factors.own else locals_[agent].factors
        given = () if agent >= len(old.locals) and agent not in factors.own else given
        interface, hidden = (tuple(v for v in mine if (v in shared) is side) for side in (True, False))
        budget = locals_[agent].order_budget
        locals_[agent] = LocalProblem(agent, interface, hidden, given, problem.domains, budget)
    return Division(locals_, factors.crossing, factors.constants), agents


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
