"""What ranks with private inputs agree on: the problem, the start, and each rank's part of the assignment.

All ranks call these functions. Everything is computed by exact sums over ranks, so that it is the same on any number of
ranks, and equal to the values of a run that reads the problem from one file.

The start is the folder of agents' values that an earlier run has written next to its output file. Of the costs of
moving, other ranks learn the sum over all agents, and the number of variables that moved. The values of a rank's agents
are kept in the checkpoint, too.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import msgspec
import numpy as np

from dmcmc.config.settings import Combine, Settings
from dmcmc.files.write import plain_json, read_own, replace_file
from dmcmc.formats.agent_files import AgentIndex, values_file
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.slicing import MemoryShares, split_memory_after_tables
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import MAX_TOTAL_UTILITY, Arithmetic, Exact, exact_sum, narrowest, nearest
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ConfigError, FileError, ProblemError
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.results.result import Moves, Result
from dmcmc.solving.incumbent import SavedIncumbent
from dmcmc.solving.planning.presolve import CentredTables, centred_tables
from dmcmc.solving.planning.rank_view import RankView, rank_view_of
from dmcmc.solving.tuning import SHARED_MEMORY_FACTOR
from dmcmc.solving.warm_start import start_assignment


def agree_on_arithmetic(
    counted: Sequence[Factor], constants: Sequence[Factor], combine: Combine, world: World
) -> tuple[Arithmetic, int]:
    """Return the arithmetic in which the whole problem is solved, and its number of factors.

    Parameters
    ----------
    counted
        Factors that this rank evaluates.
    constants
        Factors without variables, which all ranks know.
    combine
        Settings of the combination.
    world
        The ranks.

    Raises
    ------
    ProblemError
        If the sum of all utilities does not fit a float64.
    """
    integer = all(world.allgather(all(factor.table.dtype.kind == "i" for factor in counted)))
    magnitudes = (magnitude(factor.table) if integer else float(magnitude(factor.table)) for factor in counted)
    parts = world.allgather((exact_sum(magnitudes), len(counted)))
    arithmetic = world.on_all_ranks(lambda: narrowest(nearest(sum(total for total, _ in parts)), integer))
    if exact_sum(magnitude(f.table) for f in constants) > MAX_TOTAL_UTILITY:
        world.agree(ProblemError(f"constants add up to more than {MAX_TOTAL_UTILITY:.3g}; scale them down"))
    if combine.method == "mini-bucket" and combine.moment_matching:
        arithmetic = with_headroom(arithmetic)
    return arithmetic, sum(count for _, count in parts) + len(constants)


def agree_on_view(
    index: "AgentIndex",
    parts: Mapping[int, Problem],
    agents: Sequence[int],
    placed: Sequence[Sequence[int]],
    combine: Combine,
    world: World,
) -> RankView:
    """Return the problem as this rank knows it, with tables around 0 where integers need it to be summed exactly.

    What the middles of all tables add up to becomes a constant that all ranks know. A run that reads the problem from
    one file does the same.

    Parameters
    ----------
    index
        Public data of all agents.
    parts
        Problem of each agent that this rank knows.
    agents
        Agents of this rank.
    placed
        For each agent the factors between agents that it evaluates.
    combine
        Settings of the combination.
    world
        The ranks.
    """
    view = rank_view_of(index, parts)
    counted, constants = view.counted(agents, placed), view.division.constants
    arithmetic, _ = agree_on_arithmetic(counted, constants, combine, world)
    if arithmetic.exact or not arithmetic.integral:
        return view
    centred = centred_tables(counted)
    moved = CentredTables(centred.factors, sum(world.allgather(centred.constant)))
    fits = abs(moved.constant) < 1 << 63
    if not fits or not agree_on_arithmetic(centred.factors, constants, combine, world)[0].exact:
        return view
    given = {agent: replace(part, factors=tuple(centred_tables(part.factors).factors)) for agent, part in parts.items()}
    return rank_view_of(index, given, moved.constants)


def share_magnitudes(division: Division, agents: Sequence[int], placed: Sequence[Sequence[int]], world: World) -> None:
    """Share with all ranks the magnitudes of each agent's factors (summed) and of each factor between agents.

    Moment matching needs headroom by that: the rank that makes an agent's step has to know it for all agents below.

    Parameters
    ----------
    division
        All agents; receives the magnitudes.
    agents
        Agents of this rank.
    placed
        For each agent the factors between agents that it evaluates.
    world
        The ranks.
    """
    agent_magnitudes = {a: sum(magnitude(f.table) for f in division.locals[a].factors) for a in agents}
    between = {i: magnitude(division.crossing[i].table) for a in agents for i in placed[a]}
    of_agents, of_factors = world.union(agent_magnitudes), world.union(between)
    magnitudes = (
        [of_agents[a] for a in range(len(division.locals))],
        [of_factors[i] for i in range(len(division.crossing))],
    )
    division.__dict__["magnitudes"] = magnitudes


def divide_memory(counted: Sequence[Factor], budget: int, world: World) -> MemoryShares:
    """Divide a rank's memory budget; if tables are small, as if the rank had all of them.

    Tables are small if twice the size of all ranks' tables fits the budget. Choices then equal those of a run that
    reads the problem from one file.

    Raises
    ------
    ResourceError
        If a rank's own tables take all of its budget.
    """
    sizes = world.allgather(sum(factor.table.nbytes for factor in counted))
    size = sum(sizes) if SHARED_MEMORY_FACTOR * sum(sizes) <= budget else max(sizes)
    return world.on_all_ranks(lambda: split_memory_after_tables(size, budget))


class PartialUtility(NamedTuple):
    """Utility of the factors that one rank evaluates.

    Attributes
    ----------
    violations : int
        Number of forbidden entries.
    utility : Exact
        Exact sum of the other entries.
    """

    violations: int
    utility: Exact


def partial_utility(counted: Iterable[Factor], values: Mapping[int, int]) -> PartialUtility:
    """Evaluate the factors of a rank for an assignment."""
    entries = [factor.entry([values[v] for v in factor.scope]) for factor in counted]
    return PartialUtility(sum(entry is None for entry in entries), exact_sum(e for e in entries if e is not None))


def total_quality(parts: Sequence[PartialUtility], problem: Problem, constants: Sequence[Factor]) -> AssignmentQuality:
    """Return violations and utility of an assignment from the parts that the ranks have evaluated.

    Parameters
    ----------
    parts
        Violations and utility of each rank's factors.
    problem
        The problem, for the sense of the objective.
    constants
        Factors without variables, which all ranks know.
    """
    entries = [factor.entry(()) for factor in constants]
    utility_of_ranks = sum(part.utility for part in parts)
    total = nearest(utility_of_ranks + exact_sum(entry for entry in entries if entry is not None))
    violations = sum(part.violations for part in parts) + sum(entry is None for entry in entries)
    return AssignmentQuality(-violations, utility_of_ranks, problem.to_own_sense(total))


class AgentsStart:
    """The start of some agents, which no other rank knows.

    Parameters
    ----------
    index : AgentIndex
        Public data of all agents.
    parts : dict of int to Problem
        The problems of the agents.
    settings : Settings
        Settings with ``start`` and ``stay``.

    Raises
    ------
    DmcmcError
        If a file cannot be read, or has an unknown variable or value.
    """

    def __init__(self, index: AgentIndex, parts: Mapping[int, Problem], settings: Settings) -> None:
        if settings.stay is not None and settings.start is None:
            raise ConfigError("stay: needs an assignment to stay close to; give start")
        self._index, self._stay = index, settings.stay
        self._costs = dict[int, start_assignment.MovingCosts]()
        for agent, part in parts.items() if settings.start is not None else ():
            start = _own_values(index, agent, part, str(settings.start))
            weight: start_assignment.Weight = 0 if settings.stay is None else settings.stay.weight
            by_name = weight if isinstance(weight, Mapping) else dict.fromkeys(part.variables, weight)
            self._costs[agent] = start_assignment.MovingCosts(
                part, start, [by_name.get(name, 0) for name in part.variables]
            )

    def with_costs(self, parts: Mapping[int, Problem]) -> dict[int, Problem]:
        """Return the agents' problems with the costs of moving their own variables."""
        if self._stay is None:
            return dict(parts)
        return {agent: self._costs[agent].problem for agent in parts}

    def values(self, agents: Iterable[int]) -> dict[int, int]:
        """Return the values of some agents' own variables in the start, by the numbers of the variables."""
        found = dict[int, int]()
        for agent in agents if self._costs else ():
            numbered = zip(self._index.known_variables(agent), self._costs[agent].start, strict=True)
            found |= {v: value for v, value in numbered if value != start_assignment.NO_VALUE}
        return found

    def report(
        self, result: Result | None, mine: list[int], values: Mapping[int, int], share_assignment: bool, world: World
    ) -> Result | None:
        """Return the result of rank 0 together with what moved; called by all ranks.

        Parameters
        ----------
        result
            The result on rank 0, None on the others.
        mine
            The agents of this rank.
        values
            The values of the variables that this rank knows.
        share_assignment
            Whether rank 0 may know which variables moved.
        world
            The ranks.
        """
        if self._stay is None:
            return result
        cost, count, names = Fraction(0), 0, dict[str, Label]()
        for agent in mine if values else ():
            costs, known = self._costs[agent], self._index.known_variables(agent)
            moved = costs.moved({position: values[v] for position, v in enumerate(known) if v in values})
            cost, count = cost + costs.cost(moved), count + len(moved)
            names |= costs.former_values(moved) if share_assignment else {}
        parts = world.gather((cost, count, names))
        if parts is None or result is None or result.status == "infeasible":
            return result
        total = sum(part[0] for part in parts)
        exact = int(total) if total.denominator == 1 else total
        moves = Moves(
            objective=start_assignment.without_cost(result.objective, exact, result.sense),
            cost=nearest(exact),
            count=sum(part[1] for part in parts),
            moved={name: value for part in parts for name, value in part[2].items()},
        )
        return msgspec.structs.replace(result, moves=moves)


def _own_values(index: AgentIndex, agent: int, part: Problem, folder: str) -> list[int]:
    """Return the start of an agent's problem: value indices of the agent's variables, and −1 for the others."""
    path = values_file(folder, agent)
    data = read_own(path, "JSON", plain_json)
    name = index.agents[agent]
    if not isinstance(data, dict) or data.get("agent") != name or not isinstance(data.get("assignment"), dict):
        raise FileError(f"{path}: is not a file with the values of agent {name!r}")
    values = start_assignment.value_indices(part, data["assignment"], str(path)).tolist()
    owned = set(index.variables_by_agent[agent])
    return [
        x if v in owned else start_assignment.NO_VALUE
        for v, x in zip(index.known_variables(agent), values, strict=True)
    ]


class RankAssignment:
    """Storage of the values of one rank's agents, which no other rank knows.

    Parameters
    ----------
    index
        Public data of all agents.
    mine
        Agents of this rank.
    problem
        The problem as this rank knows it, with names and labels of its own agents' variables.
    parts
        Problem of each agent of this rank.
    config
        Settings, with the output file and the checkpoint folder.
    """

    def __init__(
        self, index: AgentIndex, mine: Sequence[int], problem: Problem, parts: Mapping[int, Problem], config: Settings
    ) -> None:
        self._index, self._mine, self._problem = index, mine, problem
        self._output, folder = config.output, config.checkpoint
        self._saved: dict[int, SavedIncumbent] = {}
        if folder is not None:
            self._saved = {a: SavedIncumbent(folder, parts[a], f"incumbent-{a}.npz") for a in mine}
        self._writing, self._final = threading.Lock(), False

    def load(self) -> dict[int, int]:
        """Return the values of the agents' own variables that an earlier run saved."""
        values = dict[int, int]()
        for agent, file in self._saved.items():
            if (earlier := file.load()) is not None:
                own_variables, variables = (
                    set(self._index.variables_by_agent[agent]),
                    self._index.known_variables(agent),
                )
                values |= {v: x for v, x in zip(variables, earlier.tolist(), strict=True) if v in own_variables}
        return values

    def keep(self, values: Mapping[int, int]) -> None:
        """Save better values in the checkpoint, at most once per second, including values that neighbours share.

        A neighbour's value that this rank does not know is saved as 0: :meth:`load` reads the agents' own values only.
        """
        with self._writing:
            for agent, file in self._saved.items():
                file.save(np.array([values.get(v, 0) for v in self._index.known_variables(agent)], dtype=np.int64))

    def by_name(self, values: Mapping[int, int]) -> dict[int, dict[str, Label]]:
        """Return the values of this rank's agents by variable name."""
        problem = self._problem
        return {
            agent: {problem.variables[v]: problem.label(v, values[v]) for v in self._index.variables_by_agent[agent]}
            for agent in self._mine
        }

    def write(self, values: Mapping[int, int]) -> None:
        """Write each agent's values to a file if there is an output file; :meth:`leave` then writes nothing more.

        Raises
        ------
        FileError
            If a file cannot be written.
        """
        with self._writing:
            self._final = True
            self._write(values)

    def leave(self, values: Mapping[int, int]) -> None:
        """Write the values so far unless :meth:`write` was called; callable from any thread, and without an error."""
        with self._writing:
            if not self._final and values:
                with contextlib.suppress(FileError):
                    self._write(values)
            self._flush()

    def end(self) -> None:
        """Write unsaved values to the checkpoint."""
        with self._writing:
            self._flush()

    def _write(self, values: Mapping[int, int]) -> None:
        """Write one file per agent."""
        if self._output is None:
            return
        folder = f"{os.path.splitext(self._output)[0]}.agents"
        for agent, named_values in self.by_name(values).items():
            text = msgspec.json.encode({"agent": self._index.agents[agent], "assignment": named_values})
            replace_file(values_file(folder, agent), [text, "\n"])

    def _flush(self) -> None:
        """Write unsaved values of all agents to the checkpoint."""
        for file in self._saved.values():
            file.flush()
