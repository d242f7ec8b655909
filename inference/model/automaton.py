"""Factors over many variables as automata: the scope is read variable by variable, each step pays a utility.

A factor f(x_1, ..., x_k) is the sum of what the steps pay from state 0; layer i has a table from (state, value of x_i)
to (utility, next state). So a factor over 50 variables may take a few numbers, and with a hidden variable for the state
between two layers it becomes a chain of small tables (:mod:`dmcmc.inference.model.densify`), exactly: states follow
from the values, so this holds for sums as well as for maxima.
"""

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor, check_expansion
from dmcmc.inference.model.sparse_factor import count as readable
from dmcmc.inference.model.tables import forbidden, forbidden_value, normalise
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Array

_MOST_EDGES = 2**20  # (state, value) pairs that are unrolled one by one
_MOST_CELLS = 2**27  # (state, value) pairs of the automaton of a sparse factor
_MOST_EXPANDED = 2**28  # entries of a table that is expanded on demand

Step = Callable[[int, Any, int], tuple[Hashable, int | float | None]]


class Layer(NamedTuple):
    """One step: tables over (states before, values of a variable).

    Attributes
    ----------
    following : (states, values) int32
        The state afterwards; anything where the utility is forbidden.
    utility : (states, values)
        As :func:`dmcmc.inference.model.tables.normalise` leaves it.
    """

    following: NDArray[np.int32]
    utility: Array


class AutomatonFactor(Factor):
    """A factor given by layers, one a variable of its scope (at least one). ``table`` is expanded on demand."""

    layers: tuple[Layer, ...]

    def __init__(self, scope: Sequence[int], layers: Sequence[Layer], name: str = "") -> None:
        for field, value in {"scope": tuple(scope), "layers": tuple(layers), "name": name}.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        return f"AutomatonFactor(scope={self.scope}, states={self.states}, name={self.name!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Domain sizes of the scope."""
        return tuple(layer.following.shape[1] for layer in self.layers)

    @property
    def states(self) -> tuple[int, ...]:
        """Number of states before each variable."""
        return tuple(layer.following.shape[0] for layer in self.layers)

    @property
    def table(self) -> Array:
        """All entries; ResourceError where they are too many."""
        check_expansion(self, _MOST_EXPANDED)
        exact = all(layer.utility.dtype.kind == "i" for layer in self.layers)
        total = np.zeros(1, dtype=np.int64 if exact else np.float64)
        state, hard = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=bool)
        for following, utility in self.layers:
            bad = forbidden(utility)
            total = (total[:, None] + np.where(bad, 0, utility)[state]).reshape(-1)
            hard = (hard[:, None] | bad[state]).reshape(-1)
            state = following[state].reshape(-1)
        total[hard] = forbidden_value(total.dtype)
        return normalise(total.reshape(self.shape))

    def renamed(self, scope: Sequence[int], name: str) -> "AutomatonFactor":
        """Return the same utilities over another scope."""
        return AutomatonFactor(scope, self.layers, name)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one value a variable of the scope; None where it is forbidden."""
        state, total = 0, 0
        for (following, utility), value in zip(self.layers, values, strict=True):
            paid = utility[state, value]
            if paid == forbidden_value(utility.dtype):
                return None
            total += paid.item()
            state = int(following[state, value])
        return total

    def arrays(self) -> tuple[Array, ...]:
        """Return the layers' tables."""
        return tuple(part for layer in self.layers for part in layer)

    def listed(self) -> SparseFactor:
        """Return the factor as a list of its words: of what is possible."""
        exact = all(layer.utility.dtype.kind == "i" for layer in self.layers)
        total = np.zeros(1, dtype=np.int64 if exact else np.float64)
        state, words = np.zeros(1, dtype=np.int32), np.zeros((1, 0), dtype=np.int32)
        alive = self._alive()
        for (following, utility), left in zip(self.layers, alive[1:], strict=True):
            row, value = np.nonzero((~forbidden(utility) & left[following])[state])
            total = total[row] + utility[state[row], value]
            words = np.column_stack([words[row], value.astype(np.int32)])
            state = following[state[row], value]
        utilities = normalise(np.append(total, np.array(forbidden_value(total.dtype), dtype=total.dtype)))
        return SparseFactor(self.scope, self.shape, words, utilities, self.name)

    def _alive(self) -> list[NDArray[np.bool_]]:
        """Return which states before each variable, and at the end, some word goes through."""
        alive: list[NDArray[np.bool_]] = [np.ones(1 + int(self.layers[-1].following.max()), dtype=np.bool_)]
        for following, utility in reversed(self.layers):
            goes_on: NDArray[np.bool_] = np.any(~forbidden(utility) & alive[-1][following], axis=1)
            alive.append(goes_on)
        return alive[::-1]

    def forbidden_entries(self) -> int:
        """Return how many entries are −∞."""
        allowed = {0: 1}  # ways to reach a state
        for following, utility in self.layers:
            ways: dict[int, int] = {}
            free = ~forbidden(utility)
            for state, count in allowed.items():
                for to in following[state][free[state]].tolist():
                    ways[to] = ways.get(to, 0) + count
            allowed = ways
        return prod(self.shape) - sum(allowed.values())


def unroll(
    scope: Sequence[int], shape: Sequence[int], start: Hashable, step: Step, sense: str = "max", name: str = ""
) -> AutomatonFactor:
    """Build a factor from a step function.

    Parameters
    ----------
    scope, shape
        Variables (at least one) and their domain sizes.
    start
        The first state.
    step
        ``step(position, state, value)`` gives the next state and the utility (the cost with ``sense="min"``) of taking
        ``value`` at a position of the scope; None for the utility forbids it. What the end of the scope costs is paid
        by the last step.

    Raises
    ------
    ResourceError
        If there are too many states.
    """
    numbers: dict[Hashable, int] = {start: 0}
    raw: list[tuple[NDArray[np.int32], list[list[int | float | None]]]] = []
    edges, alive = 0, True
    for position, size in enumerate(shape):
        edges += len(numbers) * size
        if edges > _MOST_EDGES:
            raise ResourceError(f"factor {name or list(scope)}: needs an automaton of more than {_MOST_EDGES} steps")
        following = np.zeros((len(numbers), size), dtype=np.int32)
        paid: list[list[int | float | None]] = []
        reached: dict[Hashable, int] = {}
        for row, state in enumerate(numbers):
            paid.append([])
            for value in range(size):
                to, utility = step(position, state, value) if alive else (None, None)
                paid[row].append(utility)
                if utility is not None:
                    following[row, value] = reached.setdefault(to, len(reached))
        raw.append((following, paid))
        alive = bool(reached)
        numbers = reached if alive else {None: 0}
    layers = [Layer(following, _utilities(paid, sense, name or str(list(scope)))) for following, paid in raw]
    return AutomatonFactor(scope, _merged(layers), name)


def automaton_of(factor: SparseFactor) -> AutomatonFactor:
    """Return a sparse factor as an automaton: the tree of its tuples' prefixes, equal branches merged.

    Raises
    ------
    ResourceError
        If it has too many states.
    """
    tuples, shape = factor.tuples, factor.shape
    count, arity = tuples.shape
    starts = np.ones((arity, count), dtype=bool)  # starts[i]: rows that differ from the one before in columns 0..i
    for i in range(arity):
        new = np.append(True, tuples[1:, i] != tuples[:-1, i])[:count]
        starts[i] = new | starts[i - 1] if i else new
    layers: list[Layer] = []
    branch = np.arange(count)  # the state after each row's prefix
    ending: NDArray[np.intp] | None = None  # the state after the last variable is always 0
    for i in reversed(range(arity)):
        prefix = np.cumsum(starts[i - 1]) - 1 if i else np.zeros(count, dtype=np.int64)
        states = int(prefix[-1]) + 1 if count else 1
        rows = states + (i > 0)  # the last state: no tuple begins so
        if rows * shape[i] > _MOST_CELLS:
            what = f"factor {factor.name or list(factor.scope)}"
            raise ResourceError(f"{what}: needs an automaton of {readable(rows * shape[i])} steps; raise budget.memory")
        following = np.zeros((rows, shape[i]), dtype=np.int32)
        if ending is None:
            utility = np.full((rows, shape[i]), factor.utilities[-1], dtype=factor.utilities.dtype)
            utility[prefix, tuples[:, i]] = factor.utilities[:-1]
        else:
            following[:] = ending[-1]
            following[prefix, tuples[:, i]] = ending[branch]
            utility = np.zeros((rows, shape[i]), dtype=np.int32)
        following, utility, ending = _merge(following, utility, keep_order=not i)
        layers.append(Layer(following, utility))
        branch = prefix
    return AutomatonFactor(factor.scope, layers[::-1], factor.name)


def _utilities(paid: Sequence[Sequence[int | float | None]], sense: str, name: str) -> Array:
    """Return what the steps pay as utilities."""
    whole = all(isinstance(u, int) for row in paid for u in row if u is not None)
    if whole:
        exact = np.array([[np.iinfo(np.int64).min if u is None else u for u in row] for row in paid], dtype=np.int64)
        return normalise(exact, sense, f"factor {name}")
    hard = np.inf if sense == "min" else -np.inf
    return normalise(np.array([[hard if u is None else u for u in row] for row in paid], dtype=np.float64), sense, name)


def _merged(layers: Sequence[Layer]) -> list[Layer]:
    """Merge states with the same future, last layer first."""
    merged: list[Layer] = []
    ending = np.zeros(1, dtype=np.intp)
    for i, (following, utility) in reversed(list(enumerate(layers))):
        to = ending[following] if i + 1 < len(layers) else np.zeros_like(following, dtype=np.intp)
        to[forbidden(utility)] = 0
        following, utility, ending = _merge(to.astype(np.int32), utility, keep_order=not i)
        merged.append(Layer(following, utility))
    return merged[::-1]


def _merge(
    following: NDArray[np.int32], utility: Array, keep_order: bool
) -> tuple[NDArray[np.int32], Array, NDArray[np.intp]]:
    """Return the distinct rows of a layer and where each row went; the first layer stays as it is."""
    if keep_order or len(following) < 2:
        return following, utility, np.arange(len(following))
    both = np.concatenate([following.view(np.uint8), np.ascontiguousarray(utility).view(np.uint8)], axis=1)
    keys = np.ascontiguousarray(both).view(np.dtype((np.void, both.shape[1]))).reshape(-1)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return following[first], utility[first], place.reshape(-1)
