"""Global constraints and automata in the native problem file: records of a JSON object, and two arrays of numbers.

A record has the class (``kind``), the cost per unit of violation (null for a hard constraint) and the parameters. An
array among the parameters is written as ``{"array": [type, first, shape]}``: it is a part of the flat array
``parameters_int64`` (type ``i``) or ``parameters_float64`` (type ``f``).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from dmcmc.files.archive import Archive
from dmcmc.inference.constraints import registry
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, Layer, SumBounds
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ConfigError, ProblemError
from dmcmc.inference.runtime.types import Array

_AUTOMATON = "automaton"  # the class of automata in files
_TYPES = {"i": np.dtype(np.int64), "f": np.dtype(np.float64)}
ARRAYS = {"i": "parameters_int64", "f": "parameters_float64"}
"""Names of the flat arrays by type."""


class ConstraintRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A global constraint or automaton in the header of a file.

    Attributes
    ----------
    kind : str
        Name of the class, or ``automaton``.
    cost : int, float or None
        Cost per unit of violation; None for a hard constraint and for an automaton.
    parameters : dict
        Parameters by name; arrays as references.
    """

    kind: str
    cost: int | float | None
    parameters: dict[str, Any]


class ParameterWriter:
    """Collects the arrays of all records.

    Attributes
    ----------
    arrays : dict of str to list of ndarray
        The arrays by type, in the order in which they are written.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, list[Array]] = {"i": [], "f": []}
        self._used = {"i": 0, "f": 0}

    def record(self, factor: Factor) -> dict[str, Any]:
        """Return the record of a global constraint or an automaton as a JSON object."""
        if isinstance(factor, GlobalConstraint):
            return {"kind": factor.kind, "cost": factor.cost, "parameters": self._plain(factor.parameters())}
        assert isinstance(factor, AutomatonFactor)
        bounds = factor.sum_bounds
        parameters = {
            "following": [layer.following for layer in factor.layers],
            "utility": [layer.utility for layer in factor.layers],
            "sum_bounds": None if bounds is None else [list(bounds.weights), bounds.low, bounds.high],
        }
        return {"kind": _AUTOMATON, "cost": None, "parameters": self._plain(parameters)}

    def _plain(self, value: Any) -> Any:
        """Return parameters with references in place of arrays."""
        if isinstance(value, Mapping):
            return {name: self._plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(part) for part in value]
        if not isinstance(value, np.ndarray):
            return value.item() if isinstance(value, np.generic) else value
        kind = "f" if value.dtype.kind == "f" else "i"
        lowest = np.iinfo(value.dtype).min if value.dtype == np.int32 else None
        wide = value.astype(_TYPES[kind])
        if lowest is not None:
            wide[value == lowest] = np.iinfo(np.int64).min  # −∞
        first = self._used[kind]
        self._used[kind] += wide.size
        self.arrays[kind].append(wide)
        return {"array": [kind, first, list(value.shape)]}


def read_constraints(
    archive: Archive,
    records: Sequence[ConstraintRecord],
    places: Sequence[tuple[tuple[int, ...], tuple[int, ...], str]],
) -> list[Factor]:
    """Return the factors of records, given the scope, the shape and the name of each.

    Raises
    ------
    FileError
        If a record is damaged, or its class is unknown.
    """
    if not records:
        return []
    flat = {kind: archive.array(name, _TYPES[kind].newbyteorder("<").str) for kind, name in ARRAYS.items()}
    found: list[Factor] = []
    for record, (scope, shape, name) in zip(records, places, strict=True):
        try:
            given = {key: _resolved(value, flat) for key, value in record.parameters.items()}
            if record.kind == _AUTOMATON:
                found.append(_automaton(scope, shape, given, name))
            else:
                kind = registry.get(record.kind)
                found.append(kind.from_parameters(scope, shape, record.cost, name, given))
        except (ConfigError, ProblemError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise archive.fail("text", f"has a damaged constraint {name or record.kind!r}: {error}") from None
    return found


def _resolved(value: Any, flat: Mapping[str, Array]) -> Any:
    """Return parameters with arrays in place of references."""
    if isinstance(value, list):
        return [_resolved(part, flat) for part in value]
    if not isinstance(value, dict):
        return value
    kind, first, shape = value["array"]
    size = math.prod(shape)
    if min((first, *shape), default=0) < 0 or first + size > flat[kind].size:
        raise ValueError("an array lies outside the file")
    return flat[kind][first : first + size].reshape(shape)


def _automaton(scope: tuple[int, ...], shape: tuple[int, ...], given: Mapping[str, Any], name: str) -> AutomatonFactor:
    """Return the automaton of a record; raise ValueError if it is inconsistent."""
    layers = [
        Layer(np.ascontiguousarray(following, dtype=np.int32), normalise(utility))
        for following, utility in zip(given["following"], given["utility"], strict=True)
    ]
    states = [1, *(layer.following.shape[0] for layer in layers[1:]), 1]
    if not layers or [layer.following.shape for layer in layers] != list(zip(states[:-1], shape, strict=True)):
        raise ValueError("an automaton does not fit its scope")
    for layer, following_states in zip(layers, states[1:], strict=True):
        if layer.utility.shape != layer.following.shape:
            raise ValueError("an automaton has a step without a utility")
        if layer.following.min() < 0 or layer.following.max() >= following_states:
            raise ValueError("an automaton has a step to a state that does not exist")
    bounds = given["sum_bounds"]
    sum_bounds = None if bounds is None else SumBounds(tuple(bounds[0]), bounds[1], bounds[2])
    return AutomatonFactor(scope, layers, name, sum_bounds)
