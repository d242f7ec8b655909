"""Contestants of a race: chains that cool from the best assignment so far, and moves of pairs of variables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.local_search.anneal_kernels import anneal, begin, pair_moves
from dmcmc.samplers.local_search.factor_graph import Graph
from dmcmc.samplers.local_search.graph_chain_kernels import anneal_graph, typical_spread
from dmcmc.samplers.local_search.graph_kernels import weigh
from dmcmc.samplers.local_search.sweep_order import SweepOrder, sweep_order
from dmcmc.samplers.model.chain_model import ChainModel, build_model
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.state_kernels import new_arrays

_DESCENT, _STEPS = 30, 3  # sweeps at temperature 0 after those that cool: on columns, on graphs
# Where columns take more bytes than processors keep near, an agent of so many variables or more makes several sweeps
# in turn: its own columns stay there meanwhile, and few others depend on it.
_NEAR, _MANY, _VISIT = 1 << 21, 16, 8
_SLOW = 1 << 26  # bytes of tables or columns: sweeps take about a thousandth of a second

# As plain Python: kernels take it in, so it is not kept on disk, and each process would compile it.
_new_arrays = getattr(new_arrays, "py_func", new_arrays)

Values = NDArray[np.int64]
Halt = NDArray[np.uint8]


class Range(NamedTuple):
    """What a chain cools through, in typical spreads of a conditional.

    Attributes
    ----------
    first, last : float
        Temperatures.
    penalty : float
        Of a violation: less than in chain models, since the best may lie behind a violation.
    """

    first: float
    last: float
    penalty: float = 4.0


@dataclass(frozen=True)
class Start:
    """Where a contestant begins.

    Attributes
    ----------
    values : (n,) int64
        Of the original variables.
    seed, number : int
        Key its random numbers.
    utility : int or None
        What the values are worth in chain units, where that is known.
    """

    values: Values
    seed: int
    number: int
    utility: Any = None

    @property
    def key(self) -> NDArray[np.uint64]:
        """The two words that key random numbers; no agent has this one."""
        return np.array(chain_key(self.seed, -1), dtype=np.uint64)


class Contestant(Protocol):
    """One search from one start.

    Attributes
    ----------
    sweeps, made : int
        That it makes in all, and that it has made.
    through : bool
        Whether there is nothing left to do.
    """

    sweeps: int
    made: int
    through: bool

    def run(self, halt: Halt) -> None:
        """Search on, until it is through or told to halt."""
        ...

    def hasten(self, share: float) -> None:
        """Leave out sweeps, evenly: only a share of what is left of them is made."""
        ...

    @property
    def worth(self) -> Any:
        """Orders what the contestants of a field have found."""
        ...

    def values(self) -> Values:
        """Return the best assignment that it has found."""
        ...

    @property
    def end(self) -> Any:
        """The worth of where it is now."""
        ...

    def last(self) -> Values:
        """Return where it is now."""
        ...


class Field(Protocol):
    """Makes contestants whose worths compare; it says whether anything is forbidden, and whether sweeps take long."""

    hard: bool
    slow: bool

    def chain(self, start: Start, span: Range, sweeps: int) -> Contestant:
        """Return a chain that cools over a range of temperatures."""
        ...

    def pairs(self, start: Start) -> "Pairs | None":
        """Return moves of pairs, if there are any here."""
        ...

    def may_beat(self, worth: Any, values: Values) -> bool:
        """Return whether what has this worth could be better than an assignment."""
        ...


class ColumnField:
    """All variables of a problem of dense tables in one model, numbered in the order that sweeps take.

    Attributes
    ----------
    visit : int
        Sweeps that a block of variables makes in turn.
    turns : tuple
        What the kernel is told of it: where parts begin among the blocks, the blocks' first variables, ``visit``.
    """

    def __init__(self, problem: Problem) -> None:
        self.order: SweepOrder = sweep_order(problem)
        n = problem.n_variables
        number = np.zeros(n, dtype=np.int64)
        number[self.order.variables] = np.arange(n)
        flat = problem.flat
        local = LocalProblem(0, (), tuple(range(n)), problem.factors, problem.domains[self.order.variables])
        self.model: ChainModel = build_model(local, flat._replace(scope=number[flat.scope]))
        self.hard = self.model.violation > 0
        colours, agents = self.order.colours, self.order.agents
        self.visit = _VISIT if self.model.data.nbytes > _NEAR and n >= _MANY * (agents.size - 1) else 1
        each = (np.arange(colours.size), colours)
        self.slow = self.model.data.nbytes > _SLOW
        self.turns = (*(each if self.visit == 1 else (np.searchsorted(agents, colours), agents)), self.visit)
        whole = flat.data.dtype.kind == "i" and self.model.scale >= 1.0
        self._slack = 0.0 if whole else 0.01 * self.model.spread

    def chain(self, start: Start, span: Range, sweeps: int) -> Contestant:
        """Return a chain that cools over a range of temperatures."""
        return ColumnChain(self, start, span, sweeps)

    def pairs(self, start: Start) -> "Pairs | None":
        """Return moves of pairs."""
        return Pairs(self, start)

    def may_beat(self, worth: int, values: Values) -> bool:
        """Return whether what has this worth could be better than an assignment."""
        reference = _ColumnState(self, Start(values, 0, 0))
        return worth > reference.begin() - self._slack


class _ColumnState:
    """A state of a column field with its scores."""

    def __init__(self, field: ColumnField, start: Start) -> None:
        self.field, self.start, self.made, self.through = field, start, 0, False
        self.z, self.scores, self.scratch = _new_arrays(field.model)
        self.z[:] = start.values[field.order.variables]
        self.kept = self.z.copy()
        self.utilities = np.full(2, np.iinfo(np.int64).min, dtype=np.int64)  # of the state and of the best one

    def begin(self) -> int:
        """Fill the scores; return the utility, which the best state has too."""
        utility = int(begin(self.field.model, self.z, self.scores))
        self.utilities[:] = utility if self.start.utility is None else int(self.start.utility)
        return int(self.utilities[0])

    @property
    def begun(self) -> bool:
        """Whether there are scores."""
        return self.worth > np.iinfo(np.int64).min

    @property
    def worth(self) -> int:
        """The utility of the best state, in chain units."""
        return int(self.utilities[1])

    @property
    def end(self) -> int:
        """The utility of the present state, in chain units."""
        return int(self.utilities[0])

    def values(self) -> Values:
        """Return the best state in the order of the problem's variables."""
        return self.numbered(self.kept)

    def last(self) -> Values:
        """Return the present state in the order of the problem's variables."""
        return self.numbered(self.z)

    def numbered(self, state: NDArray[np.int32]) -> Values:
        """Return a state in the order of the problem's variables."""
        values = np.zeros(state.size, dtype=np.int64)
        values[self.field.order.variables] = state
        return values


class ColumnChain(_ColumnState):
    """A chain that cools."""

    def __init__(self, field: ColumnField, start: Start, span: Range, sweeps: int) -> None:
        super().__init__(field, start)
        spread = field.model.spread
        cooling = np.geomspace(span.first * spread, span.last * spread, sweeps)
        self.temperatures = np.append(cooling, np.zeros(_DESCENT)).astype(np.float32)
        self.sweeps = self.temperatures.size
        self.model = field.model._replace(penalty=float(np.float32(span.penalty * spread)) if field.hard else 0.0)

    def run(self, halt: Halt) -> None:
        """Make the sweeps that are left."""
        turns, number = self.field.turns, self.start.number
        if not self.begun:
            self.begin()
        self.made += anneal(
            self.model, turns, number % (turns[0].size - 1), self.z, self.scores, self.scratch, self.kept,
            self.utilities, self.temperatures[self.made :], 1 + self.made, self.start.key, number, halt,
        )  # fmt: skip
        self.through = not halt[0] or self.made >= self.sweeps

    def hasten(self, share: float) -> None:
        """Leave out sweeps that cool."""
        self.temperatures = _hastened(self.temperatures, self.made, share, _DESCENT)
        self.sweeps = self.temperatures.size


class Pairs(_ColumnState):
    """Moves of pairs of variables until none gains."""

    sweeps = 0

    def run(self, halt: Halt) -> None:
        """Move pairs as long as that gains."""
        if not self.begun:
            self.begin()
        while halt[0] == 0:
            gained = pair_moves(self.field.model, self.z, self.scores, 0, self.z.size, halt)
            self.utilities += gained
            if gained == 0:
                break
        self.kept, self.through = self.z, not halt[0]

    def hasten(self, share: float) -> None:
        """Do nothing: there are no sweeps."""


class GraphField:
    """A problem as it was asked, any kinds of factors: slower, but nothing has to be laid out."""

    def __init__(self, graph: Graph, order: Sequence[int] | Values) -> None:
        self.graph, self.order = graph, np.asarray(order, dtype=np.int64)
        self.hard, self.slow = bool((graph.data == graph.never).any()), graph.data.nbytes > _SLOW

    def chain(self, start: Start, span: Range, sweeps: int) -> Contestant:
        """Return a chain that cools over a range of temperatures."""
        return _GraphChain(self, start, span, sweeps)

    def pairs(self, start: Start) -> "Pairs | None":
        """Return no moves of pairs."""
        return None

    def may_beat(self, worth: tuple[float, float], values: Values) -> bool:
        """Return whether what has this worth could be better than an assignment: that is found out exactly."""
        return True


class _GraphChain:
    """A chain that cools, on a graph."""

    def __init__(self, field: GraphField, start: Start, span: Range, sweeps: int) -> None:
        self.field, self.start, self.made, self.through, self._spread = field, start, 0, False, 0.0
        self.z, self.kept = start.values.copy(), start.values.copy()
        self.now, self.best = np.full(2, -np.inf), np.full(2, -np.inf)
        self.temperatures = np.append(np.geomspace(span.first, span.last, sweeps), np.zeros(_STEPS))  # in spreads
        self.penalty = span.penalty
        self.sweeps = self.temperatures.size

    def run(self, halt: Halt) -> None:
        """Make the sweeps that are left."""
        graph, z = self.field.graph, self.z
        sums = np.zeros((3, graph.widest))
        self._spread = spread = self._spread or float(typical_spread(graph, z, sums)) or 1.0
        self.made += anneal_graph(
            graph, self.field.order, z, self.kept, sums, self.best, spread * self.temperatures[self.made :],
            self.penalty * spread, 1 + self.made, self.start.key, self.start.number, halt,
        )  # fmt: skip
        self.through = not halt[0] or self.made >= self.sweeps
        weigh(graph, z, sums)
        self.now[:] = -sums[0, 0], sums[1, 0] + sums[2, 0]

    def hasten(self, share: float) -> None:
        """Leave out sweeps that cool."""
        self.temperatures = _hastened(self.temperatures, self.made, share, _STEPS)
        self.sweeps = self.temperatures.size

    @property
    def worth(self) -> tuple[float, float]:
        """Violations, negated, and utility of the best state."""
        return float(self.best[0]), float(self.best[1])

    def values(self) -> Values:
        """Return the best state."""
        return self.kept

    @property
    def end(self) -> tuple[float, float]:
        """Violations, negated, and utility of the present state."""
        return float(self.now[0]), float(self.now[1])

    def last(self) -> Values:
        """Return the present state."""
        return self.z


def _hastened(temperatures: NDArray[Any], made: int, share: float, last: int) -> NDArray[Any]:
    """Return a schedule without some of the sweeps that are left, evenly; never without the last ones."""
    cooling = np.arange(made, max(made, temperatures.size - last))
    kept = np.linspace(0, cooling.size, int(share * cooling.size), endpoint=False).astype(np.int64)
    return np.concatenate([temperatures[:made], temperatures[cooling[kept]], temperatures[cooling.size + made :]])
