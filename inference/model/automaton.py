"""Factors over many variables as deterministic automata that read the scope variable by variable.

Each transition contributes a utility: a factor f(x_1, ..., x_k) is the sum of the utilities of the transitions from
state 0 on. Layer i maps each (state, value of x_i) to (utility, next state). Thus a factor over 50 variables may need
only a few numbers. With one hidden variable for the state between two layers, the factor becomes a chain of small
tables (``dmcmc.inference.model.densify``). This transformation is exact for sums as well as for maxima, because the
values determine the states.
"""

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor, check_expansion, format_count
from dmcmc.inference.model.tables import forbidden, forbidden_value, magnitude, normalise
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, MAX_EXPANDED_ENTRIES

# (position in the scope, state, value) -> (next state, utility); a utility of None forbids the transition.
StepFunction = Callable[[int, Any, int], tuple[Hashable, int | float | None]]


class Layer(NamedTuple):
    """The transitions for one variable, as tables over (state before the variable, value of the variable).

    Attributes
    ----------
    following : ndarray of int32, shape (states, values)
        The next state; arbitrary where the utility is forbidden.
    utility : ndarray of int32, int64 or float64, shape (states, values)
        The utility of each transition, in the form that ``dmcmc.inference.model.tables.normalise`` returns.
    """

    following: NDArray[np.int32]
    utility: Array


class SumBounds(NamedTuple):
    """A linear constraint: ``low`` ≤ Σ_i ``weights[i][x_i]`` ≤ ``high``.

    Attributes
    ----------
    weights : tuple of ndarray of int64, shape (values,)
        For each variable of a scope, the weight of each of its values.
    low, high : int or None
        The bounds on the sum; None if there is no such bound.
    """

    weights: tuple[NDArray[np.int64], ...]
    low: int | None
    high: int | None


class AutomatonFactor(Factor):
    """A factor given by layers, one per variable of a non-empty scope; ``table`` is expanded on demand.

    Attributes
    ----------
    scope : tuple of int
        Variable indices without repetition.
    layers : tuple of Layer
        The transitions for each variable, in the order of the scope.
    name : str
        Name of the factor, used in messages only.
    sum_bounds : SumBounds or None
        The linear constraint that the automaton stands for: its utility is 0 where the constraint holds, and other
        assignments are forbidden. None if it is not known to stand for one.
    """

    layers: tuple[Layer, ...]
    sum_bounds: SumBounds | None

    def __init__(
        self, scope: Sequence[int], layers: Sequence[Layer], name: str = "", sum_bounds: SumBounds | None = None
    ) -> None:
        given = {"scope": tuple(scope), "layers": tuple(layers), "name": name, "sum_bounds": sum_bounds}
        for field, value in given.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        return f"AutomatonFactor(scope={self.scope}, states={self.states}, name={self.name!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain sizes of the scope."""
        return tuple(layer.following.shape[1] for layer in self.layers)

    @property
    def states(self) -> tuple[int, ...]:
        """The number of states before each variable."""
        return tuple(layer.following.shape[0] for layer in self.layers)

    @property
    def table(self) -> Array:
        """The dense table of all entries; raises ResourceError if it is too large."""
        check_expansion(self, MAX_EXPANDED_ENTRIES)
        exact = all(layer.utility.dtype.kind == "i" for layer in self.layers)
        total = np.zeros(1, dtype=np.int64 if exact else np.float64)
        state, is_forbidden = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=bool)
        for following, utility in self.layers:
            forbidden_transitions = forbidden(utility)
            total = (total[:, None] + np.where(forbidden_transitions, 0, utility)[state]).reshape(-1)
            is_forbidden = (is_forbidden[:, None] | forbidden_transitions[state]).reshape(-1)
            state = following[state].reshape(-1)
        total[is_forbidden] = forbidden_value(total.dtype)
        return normalise(total.reshape(self.shape))

    @property
    def chain_sizes(self) -> list[int]:
        """The number of entries of each table of the factor's chain: states · values · next states."""
        states = self.states
        return [a * size * b for a, size, b in zip(states, self.shape, (*states[1:], 1), strict=True)]

    @property
    def chain_entries(self) -> int:
        """The entries of the factor's chain, or of its table if that is smaller."""
        return min(sum(self.chain_sizes), prod(self.shape))

    def upper_bound(self) -> Factor:
        """Return a constant factor that is at least the utility of every assignment; −∞ if all are forbidden."""
        largest = sum(magnitude(layer.utility) for layer in self.layers)
        dtype = np.float64 if isinstance(largest, float) else np.int64 if largest < 2**62 else object
        accepting = self._coaccessible_states()
        best: Array = np.zeros(accepting[-1].size, dtype=dtype)
        for (following, utility), next_accepting in zip(reversed(self.layers), reversed(accepting[1:]), strict=True):
            allowed = ~forbidden(utility) & next_accepting[following]
            best = np.where(allowed, best[following] + np.where(allowed, utility, 0), -largest).max(axis=1)
        bound = best.tolist()[0] if accepting[0][0] else -np.inf
        margin = 2.0**-52 * len(self.layers) * largest if isinstance(largest, float) else 0
        return Factor.of((), bound + margin, name=self.name)

    def renamed(self, scope: Sequence[int], name: str) -> "AutomatonFactor":
        """Return a factor with the same utilities, another scope and another name."""
        return AutomatonFactor(scope, self.layers, name, self.sum_bounds)

    def restricted(self, remaining: Sequence[NDArray[np.int64]]) -> "AutomatonFactor":
        """Return the factor over some values of its variables.

        Parameters
        ----------
        remaining : sequence of ndarray of int64
            For each variable of the scope, its remaining values.

        Returns
        -------
        AutomatonFactor
            The factor with the remaining values numbered 0, 1, ...
        """
        layers = [
            Layer(np.ascontiguousarray(following[:, values]), np.ascontiguousarray(utility[:, values]))
            for (following, utility), values in zip(self.layers, remaining, strict=True)
        ]
        bounds = self.sum_bounds
        if bounds is not None:
            weights = tuple(w[values] for w, values in zip(bounds.weights, remaining, strict=True))
            bounds = bounds._replace(weights=weights)
        return AutomatonFactor(self.scope, layers, self.name, bounds)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one combination of values, or None if it is forbidden."""
        state, total = 0, 0
        for (following, utility), value in zip(self.layers, values, strict=True):
            step_utility = utility[state, value]
            if step_utility == forbidden_value(utility.dtype):
                return None
            total += step_utility.item()
            state = int(following[state, value])
        return total

    def arrays(self) -> tuple[Array, ...]:
        """Return the tables of all layers, ``following`` and ``utility`` alternating."""
        return tuple(part for layer in self.layers for part in layer)

    def to_sparse(self) -> SparseFactor:
        """Return the factor as a sparse factor that lists its words (allowed tuples)."""
        exact = all(layer.utility.dtype.kind == "i" for layer in self.layers)
        total = np.zeros(1, dtype=np.int64 if exact else np.float64)
        state, words = np.zeros(1, dtype=np.int32), np.zeros((1, 0), dtype=np.int32)
        accepting = self._coaccessible_states()
        for (following, utility), next_accepting in zip(self.layers, accepting[1:], strict=True):
            row, value = np.nonzero((~forbidden(utility) & next_accepting[following])[state])
            total = total[row] + utility[state[row], value]
            words = np.column_stack([words[row], value.astype(np.int32)])
            state = following[state[row], value]
        utilities = normalise(np.append(total, np.array(forbidden_value(total.dtype), dtype=total.dtype)))
        return SparseFactor(self.scope, self.shape, words, utilities, self.name)

    def _coaccessible_states(self) -> list[NDArray[np.bool_]]:
        """Return, before each variable and at the end, which states can still be completed to an allowed tuple."""
        accepting: list[NDArray[np.bool_]] = [np.ones(1 + int(self.layers[-1].following.max()), dtype=np.bool_)]
        for following, utility in reversed(self.layers):
            can_continue: NDArray[np.bool_] = np.any(~forbidden(utility) & accepting[-1][following], axis=1)
            accepting.append(can_continue)
        return accepting[::-1]

    def forbidden_entries(self) -> int:
        """Return the number of forbidden entries (−∞) of the expanded table."""
        paths = {0: 1}  # number of paths to each reachable state
        for following, utility in self.layers:
            next_paths: dict[int, int] = {}
            is_allowed = ~forbidden(utility)
            for state, n_paths in paths.items():
                for next_state in following[state][is_allowed[state]].tolist():
                    next_paths[next_state] = next_paths.get(next_state, 0) + n_paths
            paths = next_paths
        return prod(self.shape) - sum(paths.values())


def unroll(
    scope: Sequence[int], shape: Sequence[int], start: Hashable, step: StepFunction, sense: str = "max", name: str = ""
) -> AutomatonFactor:
    """Build an automaton from a transition function, by enumerating the reachable states.

    Parameters
    ----------
    scope : sequence of int
        Variable indices without repetition; at least one.
    shape : sequence of int
        Domain sizes of the scope.
    start : hashable
        The initial state.
    step : callable
        ``step(position, state, value)`` returns the next state and the utility (for ``sense="min"``: the cost) of
        taking ``value`` at a position of the scope. A utility of None forbids the transition. A utility that depends on
        the final state is part of the last step.
    sense : {"max", "min"}
        Whether ``step`` returns utilities ("max") or costs ("min").
    name : str
        Name of the factor, used in messages only.

    Returns
    -------
    AutomatonFactor
        The automaton; states with the same future are merged.

    Raises
    ------
    ResourceError
        If there are too many states.
    """
    state_numbers: dict[Hashable, int] = {start: 0}
    raw_layers: list[tuple[NDArray[np.int32], list[list[int | float | None]]]] = []
    n_transitions, is_satisfiable = 0, True
    for position, size in enumerate(shape):
        n_transitions += len(state_numbers) * size
        if n_transitions > MAX_ENUMERATED_ENTRIES:
            raise ResourceError(
                f"factor {name or list(scope)}: needs an automaton of more than {MAX_ENUMERATED_ENTRIES} steps"
            )
        following = np.zeros((len(state_numbers), size), dtype=np.int32)
        step_utilities: list[list[int | float | None]] = []
        reached: dict[Hashable, int] = {}
        for row, state in enumerate(state_numbers):
            step_utilities.append([])
            for value in range(size):
                next_state, utility = step(position, state, value) if is_satisfiable else (None, None)
                step_utilities[row].append(utility)
                if utility is not None:
                    following[row, value] = reached.setdefault(next_state, len(reached))
        raw_layers.append((following, step_utilities))
        is_satisfiable = bool(reached)
        state_numbers = reached if is_satisfiable else {None: 0}
    layers = [
        Layer(following, _utilities(step_utilities, sense, name or str(list(scope))))
        for following, step_utilities in raw_layers
    ]
    return AutomatonFactor(scope, _merge_layers(layers), name)


def automaton_of_sum(
    scope: Sequence[int], weights: Sequence[NDArray[np.int64]], utilities: Array, name: str = ""
) -> AutomatonFactor:
    """Build the automaton of a function of a sum of weights: ``utilities``[Σ_i ``weights``[i][x_i]].

    Parameters
    ----------
    scope : sequence of int
        Variable indices without repetition; at least one.
    weights : sequence of ndarray of int64, shape (values,)
        For each variable, the weight of each of its values, at least 0.
    utilities : ndarray, shape (largest sum + 1,)
        The utility of each sum, or −∞; entries of sums that do not occur are not read.
    name : str
        Name of the factor, used in messages only.

    Returns
    -------
    AutomatonFactor
        The automaton; states with the same future are merged.

    Raises
    ------
    ResourceError
        If there are too many states.
    """
    sums = [np.zeros(1, dtype=np.int64)]
    for w in weights:
        totals = (sums[-1][:, None] + w).reshape(-1)
        sums.append(np.flatnonzero(np.bincount(totals)))
        if sums[-1].size * w.size > MAX_EXPANDED_ENTRIES:
            raise ResourceError(
                f"factor {name or list(scope)}: needs an automaton of more than {MAX_EXPANDED_ENTRIES} steps"
            )
    merged_state, doomed = np.zeros(sums[-1].size, dtype=np.intp), np.zeros(1, dtype=np.bool_)
    layers: list[Layer] = []
    lowest = forbidden_value(utilities.dtype)
    for i in reversed(range(len(weights))):
        totals = sums[i][:, None] + weights[i]
        if i == len(weights) - 1:
            following, utility = np.zeros(totals.shape, dtype=np.int32), utilities[totals]
        else:
            state_of_sum = np.zeros(int(sums[i + 1][-1]) + 1, dtype=np.int32)
            state_of_sum[sums[i + 1]] = merged_state
            following = state_of_sum[totals]
            utility = np.where(doomed[following], lowest, np.zeros(totals.shape, dtype=utilities.dtype))
        following[utility == lowest] = 0
        following, utility, merged_state = _merge_rows(following, utility, keep_order=not i)
        doomed = (utility == lowest).all(axis=1)
        layers.append(Layer(np.ascontiguousarray(following), normalise(utility)))
    return AutomatonFactor(scope, layers[::-1], name)


def automaton_of(factor: SparseFactor) -> AutomatonFactor:
    """Return a sparse factor as an automaton: the tree of the prefixes of its tuples, with equal subtrees merged.

    Raises
    ------
    ResourceError
        If it has too many states.
    """
    tuples, shape = factor.tuples, factor.shape
    count, arity = tuples.shape
    starts = np.ones((arity, count), dtype=bool)  # starts[i]: rows that differ from the previous row in columns 0..i
    for i in range(arity):
        differs = np.append(True, tuples[1:, i] != tuples[:-1, i])[:count]
        starts[i] = differs | starts[i - 1] if i else differs
    layers: list[Layer] = []
    branch = np.arange(count)  # the state after each row's prefix
    merged_state: NDArray[np.intp] | None = None  # the state after the last variable is always 0
    for i in reversed(range(arity)):
        prefix = np.cumsum(starts[i - 1]) - 1 if i else np.zeros(count, dtype=np.int64)
        states = int(prefix[-1]) + 1 if count else 1
        n_rows = states + (i > 0)  # the last state is for prefixes that no tuple has
        if n_rows * shape[i] > MAX_EXPANDED_ENTRIES:
            what = f"factor {factor.name or list(factor.scope)}"
            raise ResourceError(
                f"{what}: needs an automaton of {format_count(n_rows * shape[i])} steps; raise budget.memory"
            )
        following = np.zeros((n_rows, shape[i]), dtype=np.int32)
        if merged_state is None:
            utility = np.full((n_rows, shape[i]), factor.utilities[-1], dtype=factor.utilities.dtype)
            utility[prefix, tuples[:, i]] = factor.utilities[:-1]
        else:
            following[:] = merged_state[-1]
            following[prefix, tuples[:, i]] = merged_state[branch]
            utility = np.zeros((n_rows, shape[i]), dtype=np.int32)
        following, utility, merged_state = _merge_rows(following, utility, keep_order=not i)
        layers.append(Layer(following, utility))
        branch = prefix
    return AutomatonFactor(factor.scope, layers[::-1], factor.name)


def _utilities(step_utilities: Sequence[Sequence[int | float | None]], sense: str, name: str) -> Array:
    """Return the utilities of the transitions as a utility table; None becomes −∞."""
    exact = all(isinstance(u, int) for row in step_utilities for u in row if u is not None)
    lost = np.iinfo(np.int64).min if exact else np.inf if sense == "min" else -np.inf
    numbers = [[lost if u is None else u for u in row] for row in step_utilities]
    return normalise(np.array(numbers, dtype=np.int64 if exact else np.float64), sense, f"factor {name}")


def _merge_layers(layers: Sequence[Layer]) -> list[Layer]:
    """Merge states with the same future, from the last layer to the first."""
    merged: list[Layer] = []
    merged_state = np.zeros(1, dtype=np.intp)
    for i, (following, utility) in reversed(list(enumerate(layers))):
        next_state = merged_state[following] if i + 1 < len(layers) else np.zeros_like(following, dtype=np.intp)
        next_state[forbidden(utility)] = 0
        following, utility, merged_state = _merge_rows(next_state.astype(np.int32), utility, keep_order=not i)
        merged.append(Layer(following, utility))
    return merged[::-1]


def _merge_rows(
    following: NDArray[np.int32], utility: Array, keep_order: bool
) -> tuple[NDArray[np.int32], Array, NDArray[np.intp]]:
    """Return the distinct rows of a layer and each row's new number; ``keep_order`` leaves the layer unchanged.

    The first layer is left unchanged, because its first row is the initial state 0.
    """
    if keep_order or len(following) < 2:
        return following, utility, np.arange(len(following))
    row_bytes = np.concatenate([following.view(np.uint8), np.ascontiguousarray(utility).view(np.uint8)], axis=1)
    keys = np.ascontiguousarray(row_bytes).view(np.dtype((np.void, row_bytes.shape[1]))).reshape(-1)
    _, first, row_number = np.unique(keys, return_index=True, return_inverse=True)
    return following[first], utility[first], row_number.reshape(-1)
