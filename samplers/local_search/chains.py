"""Chains of a local search, and the order of their sweeps.

Candidates of a tournament round: chains annealed from a given assignment, and moves of pairs of variables.

A chain makes *sweeps*, draws of every variable given the others, at falling temperature. It reads either *score
columns* (a factor's utilities for all values of one variable, as small integers in *chain units*: utilities times a
power of two) or the factor graph itself. A *score* is what candidates are compared by: an int in chain units, with −2^k
per violation, or (violations, negated; utility).

The order in which a sweep visits the variables: agents of one colour share no factor and can move simultaneously.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph, graph_of_tables
from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.graph_kernels import (
    anneal,
    anneal_graph,
    begin,
    evaluate_graph,
    pair_moves,
    typical_spread,
)
from dmcmc.samplers.model.chain_model import ChainModel, chain_key, score_columns
from dmcmc.samplers.model.state_kernels import new_arrays


class SweepOrder(NamedTuple):
    """Variables sorted by the colours of their agents, then by agent.

    Attributes
    ----------
    variables : (n,) int64
        Variables in the order of the sweep.
    colours : (colours + 1,) int64
        The variables of colour c are ``variables[colours[c]:colours[c + 1]]``.
    agents : (agents with variables + 1,) int64
        Offsets of the agents' variables in ``variables``; agents without variables are left out.
    """

    variables: NDArray[np.int64]
    colours: NDArray[np.int64]
    agents: NDArray[np.int64]


def sweep_order(problem: Problem) -> SweepOrder:
    """Return a sweep order by a greedy colouring of the agents, those with the most neighbours first."""
    colour = np.array(colour_agents(neighbours_of(problem)), dtype=np.int64)
    of_variable = colour[problem.owner] if problem.n_variables else np.zeros(0, dtype=np.int64)
    variables = np.lexsort((np.arange(problem.n_variables), problem.owner, of_variable))
    counts = np.bincount(of_variable, minlength=1)
    changes = np.flatnonzero(np.diff(problem.owner[variables])) + 1
    agents = np.concatenate([[0], changes, [problem.n_variables]])[problem.n_variables == 0 :]
    return SweepOrder(variables, np.append(0, np.cumsum(counts[counts > 0])), agents)


def neighbours_of(problem: Problem) -> list[set[int]]:
    """Return for each agent the set of agents that share a factor with it."""
    owner = problem.owner.tolist()
    neighbours: list[set[int]] = [set() for _ in problem.agents]
    for factor in problem.factors:
        owners = {owner[v] for v in factor.scope}
        if len(owners) > 1:
            for agent in owners:
                neighbours[agent] |= owners
    for agent, others in enumerate(neighbours):
        others.discard(agent)
    return neighbours


def colour_agents(neighbours: Sequence[set[int]]) -> list[int]:
    """Return a colour for each agent: the smallest colour that none of its neighbours has."""
    colours = [-1] * len(neighbours)
    for agent in sorted(range(len(neighbours)), key=lambda a: (-len(neighbours[a]), a)):
        taken, colour = {colours[other] for other in neighbours[agent]}, 0
        while colour in taken:
            colour += 1
        colours[agent] = colour
    return colours


# The plain Python function: kernels inline it, so it has no cache on disk and each process would compile it again.
_new_arrays = getattr(new_arrays, "py_func", new_arrays)

Values = NDArray[np.int64]
Halt = NDArray[np.uint8]


class TemperatureRange(NamedTuple):
    """The temperatures of an annealed chain, in units of the typical spread of a variable's conditional utilities.

    Attributes
    ----------
    first, last : float
        First and last temperature; those between are a geometric sequence.
    penalty : float
        Utility that a violation costs. Lower than in chain models: the best state may lie behind a violation.
    """

    first: float
    last: float
    penalty: float = 4.0


@dataclass(frozen=True)
class ChainStart:
    """Start of a candidate.

    Attributes
    ----------
    values : (n,) int64
        Values of the original variables.
    seed, number : int
        Seed and number of the chain, which key its random numbers.
    utility : int, (float, float) or None
        The score of ``values`` in the units of the factory that makes the chain; None if unknown.
    """

    values: Values
    seed: int
    number: int
    utility: Any = None

    @property
    def key(self) -> NDArray[np.uint64]:
        """The key of the random numbers, (2,) uint64; no agent has this key."""
        return np.array(chain_key(self.seed, -1), dtype=np.uint64)


class ColumnChainFactory:
    """Makes chains with score columns: all variables of a dense problem in one model, numbered in sweep order.

    Scores of the chains of one factory can be compared.

    Attributes
    ----------
    hard : bool
        Whether the problem has forbidden entries.
    slow : bool
        Whether a sweep takes a millisecond or more.
    order : SweepOrder
        The order of the variables.
    model : ChainModel
        The problem, its variables numbered in sweep order.
    sweeps_per_visit : int
        Number of consecutive sweeps that a block of variables makes.
    visit_order : tuple
        Argument ``order`` of the kernel ``anneal``: offsets of the parts among the blocks, first variables of the
        blocks, ``sweeps_per_visit``.
    """

    def __init__(self, problem: Problem) -> None:
        self.order: SweepOrder = sweep_order(problem)
        n = problem.n_variables
        number = np.zeros(n, dtype=np.int64)
        number[self.order.variables] = np.arange(n)
        flat = problem.flat
        renumbered = flat._replace(scope=number[flat.scope])
        self.model: ChainModel = score_columns(graph_of_tables(renumbered, problem.domains[self.order.variables], n))
        self.hard = self.model.violation > 0
        colours, agents = self.order.colours, self.order.agents
        self.sweeps_per_visit = (
            tuning.SWEEPS_PER_VISIT
            if self.model.data.nbytes > tuning.CACHE_BYTES and n >= tuning.MIN_AGENT_VARIABLES * (agents.size - 1)
            else 1
        )
        single_blocks = (np.arange(colours.size), colours)
        self.slow = self.model.data.nbytes > 4 * tuning.MAX_COPIED_ENTRIES
        self.visit_order = (
            *(single_blocks if self.sweeps_per_visit == 1 else (np.searchsorted(agents, colours), agents)),
            self.sweeps_per_visit,
        )
        exact = flat.data.dtype.kind == "i" and self.model.scale >= 1.0
        # Scaled utilities are rounded; 1 % of the typical spread is taken as the possible error of a score.
        self._slack = 0.0 if exact else 0.01 * self.model.spread

    def chain(self, start: ChainStart, span: TemperatureRange, sweeps: int) -> "ColumnChain":
        """Return a chain that anneals over a temperature range."""
        return ColumnChain(self, start, span, sweeps)

    def pairs(self, start: ChainStart) -> "PairDescent":
        """Return a search by moves of pairs of variables."""
        return PairDescent(self, start)

    def may_beat(self, score: Any, values: Values) -> bool:
        """Return whether an assignment with this score could be better than the assignment ``values``."""
        reference = _ColumnState(self, ChainStart(values, 0, 0))
        return bool(score > reference.begin() - self._slack)


class _ColumnState:
    """A state of a column model with its scores, and the best state so far.

    ``begin`` must be called before moves; until then ``best_score`` is the lowest int64 and ``begun`` is False.

    Attributes
    ----------
    sweeps_done : int
        Number of sweeps made so far.
    finished : bool
        Whether the search is complete.
    """

    def __init__(self, factory: ColumnChainFactory, start: ChainStart) -> None:
        self.factory, self.start, self.sweeps_done, self.finished = factory, start, 0, False
        self.z, self.scores, self.scratch = _new_arrays(factory.model)
        self.z[:] = start.values[factory.order.variables]
        self.best = self.z.copy()
        self.utilities = np.full(2, np.iinfo(np.int64).min, dtype=np.int64)  # current, best

    def begin(self) -> int:
        """Fill the scores and return the utility of the state; it is the best utility, too."""
        utility = int(begin(self.factory.model, self.z, self.scores))
        self.utilities[:] = utility if self.start.utility is None else int(self.start.utility)
        return int(self.utilities[0])

    @property
    def begun(self) -> bool:
        """Whether the scores are filled."""
        return self.best_score > np.iinfo(np.int64).min

    @property
    def best_score(self) -> int:
        """The utility of the best state, in chain units."""
        return int(self.utilities[1])

    @property
    def end_score(self) -> int:
        """The utility of the current state, in chain units."""
        return int(self.utilities[0])

    def best_values(self) -> Values:
        """Return the best state in the order of the problem's variables."""
        return self.numbered(self.best)

    def end_values(self) -> Values:
        """Return the current state in the order of the problem's variables."""
        return self.numbered(self.z)

    def numbered(self, state: NDArray[np.int32]) -> Values:
        """Convert a state to the order of the problem's variables."""
        values = np.zeros(state.size, dtype=np.int64)
        values[self.factory.order.variables] = state
        return values


class ColumnChain(_ColumnState):
    """An annealed chain with score columns."""

    def __init__(self, factory: ColumnChainFactory, start: ChainStart, span: TemperatureRange, sweeps: int) -> None:
        super().__init__(factory, start)
        spread = factory.model.spread
        cooling = np.geomspace(span.first * spread, span.last * spread, sweeps)
        self.temperatures = np.append(cooling, np.zeros(10 * tuning.GRAPH_DESCENT_SWEEPS)).astype(np.float32)
        self.sweeps = self.temperatures.size
        self.model = factory.model._replace(penalty=float(np.float32(span.penalty * spread)) if factory.hard else 0.0)

    def run(self, halt: Halt) -> None:
        """Make the remaining sweeps, unless halted."""
        visit_order, number = self.factory.visit_order, self.start.number
        if not self.begun:
            self.begin()
        self.sweeps_done += anneal(
            self.model, visit_order, number % (visit_order[0].size - 1), self.z, self.scores, self.scratch, self.best,
            self.utilities, self.temperatures[self.sweeps_done :], 1 + self.sweeps_done, self.start.key, number, halt,
        )  # fmt: skip
        self.finished = not halt[0] or self.sweeps_done >= self.sweeps

    def skip_sweeps(self, share: float) -> None:
        """Drop annealed sweeps."""
        self.temperatures = _without_some(self.temperatures, self.sweeps_done, share, 10 * tuning.GRAPH_DESCENT_SWEEPS)
        self.sweeps = self.temperatures.size


class PairDescent(_ColumnState):
    """Moves of pairs of variables until no pair gains."""

    sweeps = 0

    def run(self, halt: Halt) -> None:
        """Move pairs while that gains, unless halted."""
        if not self.begun:
            self.begin()
        while halt[0] == 0:
            gained = pair_moves(self.factory.model, self.z, self.scores, 0, self.z.size, halt)
            self.utilities += gained
            if gained == 0:
                break
        self.best, self.finished = self.z, not halt[0]

    def skip_sweeps(self, share: float) -> None:
        """Do nothing: there are no sweeps."""


class GraphChainFactory:
    """Makes chains that read the factor graph itself: slower, but for any factors and without memory for columns.

    It has the attributes ``hard`` and ``slow`` and the methods of :class:`ColumnChainFactory`.
    """

    def __init__(self, graph: FactorGraph, order: Sequence[int] | Values) -> None:
        self.graph, self.order = graph, np.asarray(order, dtype=np.int64)
        self.hard = bool((graph.data == graph.forbidden_entry).any())
        self.slow = graph.data.nbytes > 4 * tuning.MAX_COPIED_ENTRIES

    def chain(self, start: ChainStart, span: TemperatureRange, sweeps: int) -> "GraphChain":
        """Return a chain that anneals over a temperature range."""
        return GraphChain(self, start, span, sweeps)

    def pairs(self, start: ChainStart) -> None:
        """Return None: pair moves need score columns."""

    def may_beat(self, score: Any, values: Values) -> bool:
        """Return True: the caller compares the assignments exactly."""
        return True


class GraphChain:
    """An annealed chain on a factor graph; it has the attributes and methods of :class:`ColumnChain`."""

    def __init__(self, factory: GraphChainFactory, start: ChainStart, span: TemperatureRange, sweeps: int) -> None:
        self.factory, self.start, self.sweeps_done, self.finished, self._spread = factory, start, 0, False, 0.0
        self.z, self.best = start.values.copy(), start.values.copy()
        self.end_pair, self.best_pair = np.full(2, -np.inf), np.full(2, -np.inf)
        # in typical deviations
        self.temperatures = np.append(
            np.geomspace(span.first, span.last, sweeps), np.zeros(tuning.GRAPH_DESCENT_SWEEPS)
        )
        self.penalty = span.penalty
        self.sweeps = self.temperatures.size

    def run(self, halt: Halt) -> None:
        """Make the remaining sweeps, unless halted."""
        graph, z = self.factory.graph, self.z
        sums = np.zeros((3, graph.widest))
        self._spread = spread = self._spread or float(typical_spread(graph, z, sums)) or 1.0
        self.sweeps_done += anneal_graph(
            graph, self.factory.order, z, self.best, sums, self.best_pair,
            spread * self.temperatures[self.sweeps_done :], self.penalty * spread, 1 + self.sweeps_done,
            self.start.key, self.start.number, halt,
        )  # fmt: skip
        self.finished = not halt[0] or self.sweeps_done >= self.sweeps
        evaluate_graph(graph, z, sums)
        self.end_pair[:] = -sums[0, 0], sums[1, 0] + sums[2, 0]

    def skip_sweeps(self, share: float) -> None:
        """Drop annealed sweeps."""
        self.temperatures = _without_some(self.temperatures, self.sweeps_done, share, tuning.GRAPH_DESCENT_SWEEPS)
        self.sweeps = self.temperatures.size

    @property
    def best_score(self) -> tuple[float, float]:
        """Violations, negated, and utility of the best state."""
        return float(self.best_pair[0]), float(self.best_pair[1])

    def best_values(self) -> Values:
        """Return the best state."""
        return self.best

    @property
    def end_score(self) -> tuple[float, float]:
        """Violations, negated, and utility of the current state."""
        return float(self.end_pair[0]), float(self.end_pair[1])

    def end_values(self) -> Values:
        """Return the current state."""
        return self.z


Candidate = ColumnChain | PairDescent | GraphChain
"""One search from one start: it continues until it is finished or halted, and has a best and a current assignment."""
ChainFactory = ColumnChainFactory | GraphChainFactory


def _without_some(temperatures: NDArray[Any], made: int, share: float, last: int) -> NDArray[Any]:
    """Drop some of the remaining sweeps evenly, so that a share remains; the last ``last`` sweeps always stay."""
    cooling = np.arange(made, max(made, temperatures.size - last))
    indices = np.linspace(0, cooling.size, int(share * cooling.size), endpoint=False).astype(np.int64)
    return np.concatenate([temperatures[:made], temperatures[cooling[indices]], temperatures[cooling.size + made :]])
