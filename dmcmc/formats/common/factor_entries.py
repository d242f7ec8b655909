"""The entries of factors as files list them: what the readers and the writers of several formats share.

Numbers of a text are converted exactly to the entries of a table. Writers represent factors as sparse entries, give
them unique names, and check or drop the features of a problem that a format cannot express.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dmcmc.inference.model.densify import tabular_factors
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError, ProblemError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

Cost = int | float | None  # None is forbidden

_MAX_SHIFT = 2**62  # limit for a constant that "constant" adds; it must fit int64

DROPPABLE = {
    "agents": "owners of variables: one agent owns all",
    "digits": "decimals after the sixth",
    "labels": "value labels: values are numbered",
    "names": "names of variables: x0, x1, ...",
    "sense": "whether the objective is minimised or maximised: its sign may change",
    "constant": "a constant that makes the objective negative: all costs are shifted by it",
}
"""Features that :func:`drop_features` removes, with their descriptions."""


class Inexpressible(ProblemError):
    """A problem has features that a format cannot express; the message lists all of them.

    Attributes
    ----------
    features : tuple of str
        Features of :data:`DROPPABLE` without which the format can express the problem.
    """

    def __init__(self, message: str, features: Collection[str] = ()) -> None:
        super().__init__(message)
        self.features = tuple(features)


@dataclass(frozen=True)
class FactorEntries:
    """A factor as a default and the entries that differ from it, in the problem's sense; None is a forbidden entry.

    Attributes
    ----------
    scope : tuple of int
        Indices of the variables.
    shape : tuple of int
        Domain sizes.
    rows : list of list of int
        Value indices of the listed entries.
    costs : list of number or None
        One per row.
    default : number or None
        Cost of all other entries.
    """

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    rows: list[list[int]]
    costs: list[Cost]
    default: Cost

    @property
    def all_costs(self) -> list[Cost]:
        """Costs of the rows, followed by the default."""
        return [*self.costs, self.default]


def factor_entries(factor: Factor, sense: str) -> FactorEntries:
    """Return a factor's default and the entries that differ from it.

    The default is the factor's most frequent value; a sparse factor has its own. ``sense`` (``"min"`` or ``"max"``) is
    that of the problem: for ``"min"`` the costs are negated utilities.
    """
    if isinstance(factor, SparseFactor):
        costs = _in_sense(factor.utilities, sense)
        return FactorEntries(factor.scope, factor.shape, factor.tuples.tolist(), costs[:-1], costs[-1])
    flat = factor.table.reshape(-1)
    values, counts = np.unique(flat, return_counts=True)
    default = values[counts.argmax()]
    listed = np.flatnonzero(flat != default)
    rows = np.stack(np.unravel_index(listed, factor.shape), axis=1) if factor.shape else np.empty((0, 0), dtype=int)
    costs = _in_sense(np.append(flat[listed], default), sense)
    return FactorEntries(factor.scope, factor.shape, rows.tolist(), costs[:-1], costs[-1])


def _in_sense(utilities: Array, sense: str) -> list[Cost]:
    """Return utilities in the problem's sense: negated if the problem has costs; None for forbidden entries."""
    hard = forbidden(utilities).tolist()
    return [
        None if is_forbidden else value if sense == "max" else 0 - value
        for is_forbidden, value in zip(hard, utilities.tolist(), strict=True)
    ]


def named_factor_entries(problem: Problem, constants: bool = True) -> Iterator[tuple[str, FactorEntries]]:
    """Yield every factor under a unique name.

    Parameters
    ----------
    problem
        The problem.
    constants
        Whether the format has factors without variables; otherwise they become factors over the first variable.

    Raises
    ------
    ProblemError
        For a constant in a problem without variables.
    """
    factors = tabular_factors(problem, relax=False)
    name_counts: Counter[str] = Counter(factor.name for factor in factors)
    for i, factor in enumerate(factors):
        name = factor.name
        if not name or name_counts[name] > 1:
            name = f"c{i}"
            while name in name_counts:
                name += "_"
        entries = factor_entries(factor, problem.sense)
        if not entries.scope and not constants:
            if not problem.n_variables:
                raise ProblemError("a constant needs a variable in this format, and the problem has none")
            entries = FactorEntries((0,), (int(problem.domains[0]),), [], [], entries.default)
        yield name, entries


def labels_of(problem: Problem, variable: int) -> Sequence[Label]:
    """Return a variable's labels; 0, 1, ... if it has none."""
    labels = problem.labels[variable]
    return range(int(problem.domains[variable])) if labels is None else labels


def missing_features(problem: Problem, *supported: str, sense: str | None = None) -> dict[str, str]:
    """Return the features of the problem that a format cannot express, each with its description for messages.

    Parameters
    ----------
    problem
        The problem.
    *supported
        Features that the format can express, of ``"agents"``, ``"labels"`` and ``"names"``.
    sense
        The only sense that the format has; None if it has both.
    """
    maximised = "minimisation" if sense == "max" else "maximisation"
    missing = {
        "agents": problem.n_agents > 1 and f"no agents (the problem has {problem.n_agents})",
        "labels": any(map(_has_labels, problem.labels)) and "no value labels",
        "names": problem.variables != _numbered(problem.n_variables) and "no names of variables",
        "sense": sense not in (None, problem.sense) and f"no {maximised} (without it, the objective changes its sign)",
    }
    return {feature: text for feature, text in missing.items() if text and feature not in supported}


def check_missing(missing: Mapping[str, str], besides: str = "") -> None:
    """Raise an error that lists everything that a format cannot express, if there is anything.

    Parameters
    ----------
    missing
        Features of :data:`DROPPABLE` with their descriptions, such as ``no value labels``.
    besides
        Another reason why the format cannot express the problem, which no ``--drop`` removes.

    Raises
    ------
    Inexpressible
        If ``missing`` or ``besides`` is not empty.
    """
    if missing:
        *first, last = missing.values()
        listed = f"{', '.join(first)} and {last}" if first else last
        every = ", or --drop all," if first else ""
        message = f"the format has {listed}; --drop {','.join(missing)}{every} leaves that out"
        raise Inexpressible(f"{message}; besides, {besides}" if besides else message, missing)
    if besides:
        raise Inexpressible(besides)


def check_expressible(problem: Problem, *supported: str, sense: str | None = None) -> None:
    """Raise ``Inexpressible`` if the problem has features that a format cannot express; see ``missing_features``."""
    check_missing(missing_features(problem, *supported, sense=sense))


def least_total_cost(listings: Sequence[FactorEntries]) -> int | None:
    """Return the sum of the least costs of some factors: no assignment costs less. None if one is not a whole number.

    Forbidden entries do not count.
    """
    least = [min((cost for cost in listing.all_costs if cost is not None), default=0) for listing in listings]
    return sum(map(int, least)) if all(cost == int(cost) for cost in least) else None


def drop_features(problem: Problem, features: Collection[str], sense: str | None = None) -> Problem:
    """Return the problem without features that a format cannot express.

    Parameters
    ----------
    problem
        The problem; it is not changed.
    features
        Features to remove, from :data:`DROPPABLE`.
    sense
        The sense that the format has, for ``"sense"``: utilities stay, but the sign of the reported objective may
        change.

    Notes
    -----
    Without ``"constant"``, the cost of each assignment of a minimisation problem is larger by the amount by which the
    sum of the factors' least costs is below 0.
    """
    problem = replace(problem, factors=tuple(tabular_factors(problem, relax=False)))
    if "agents" in features:
        problem = replace(problem, agents=("all",), owner=np.zeros(problem.n_variables, dtype=np.int64))
    if "labels" in features:
        problem = replace(problem, labels=())
    if "names" in features:
        problem = replace(problem, variables=_numbered(problem.n_variables))
    if "digits" in features:
        problem = replace(problem, factors=tuple(map(_rounded, problem.factors)))
    if "sense" in features and sense is not None:
        problem = replace(problem, sense=sense)
    if "constant" in features and problem.sense == "min":
        least = least_total_cost([factor_entries(factor, "min") for factor in problem.factors])
        if least is not None and -_MAX_SHIFT < least < 0:
            problem = replace(problem, factors=(*problem.factors, Factor.of((), -least, "min", "shift")))
    return problem


def _rounded(factor: Factor) -> Factor:
    """Return a factor with its entries rounded to six decimals."""
    if isinstance(factor, SparseFactor):
        utilities = Factor.of((0,), np.round(factor.utilities, 6)).table
        return SparseFactor(factor.scope, factor.shape, factor.tuples, utilities, factor.name)
    if factor.table.dtype.kind != "f":
        return factor
    return Factor.of(factor.scope, np.round(factor.table, 6), name=factor.name)


def _numbered(count: int) -> tuple[str, ...]:
    """Return the names ``x0``, ``x1``, ..."""
    return tuple(f"x{i}" for i in range(count))


def _has_labels(labels: tuple[Label, ...] | None) -> bool:
    """Return whether a variable has labels other than 0, 1, ..."""
    return labels is not None and labels != tuple(range(len(labels)))


_MAX_MESSAGE_LENGTH = 640  # characters of an error message, so that it can be read in a terminal
_COPIES = 4  # arrays of a table's size that exist while its factor is built
_MAX_INT64 = 2**63 - 1
_BYTES_PER_VARIABLE = 200  # bytes of a name, of its entries in sets and of the variable's numbers; measured
_BYTES_PER_FACTOR = 500  # bytes of a factor with its name, scope and view of a table; measured
_FORBIDDEN = -(2**63)  # represents a forbidden entry in int64
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?")
_INFINITY = re.compile(r"([+-]?)(?:inf|infinity)", re.IGNORECASE)


def number(word: str) -> int | float | None:
    """Return the number that a word stands for (integers exactly), or None if it is not a number.

    >>> number("12"), number("-.5"), number("infinity"), number("nan")
    (12, -0.5, inf, None)
    """
    if _INTEGER.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word):
        value = float(word)
        return value if math.isfinite(value) else None
    infinite = _INFINITY.fullmatch(word)
    return None if infinite is None else -math.inf if infinite[1] == "-" else math.inf


def entries(values: Sequence[int | float], sense: str) -> Array:
    """Return costs or utilities as an array for ``Factor.of``: int64 if all are integers, else float64.

    In int64 the smallest number represents the forbidding infinity (+∞ for ``min``, −∞ for ``max``).

    Parameters
    ----------
    values
        Costs (``sense`` is ``min``) or utilities (``max``).
    sense
        ``min`` or ``max``.

    Raises
    ------
    OverflowError
        For integers that need more than 63 bits.
    """
    forbidding = math.inf if sense == "min" else -math.inf
    if all(isinstance(v, int) or v == forbidding for v in values):
        if any(abs(v) > _MAX_INT64 for v in values if v != forbidding):
            raise OverflowError("whole numbers of more than 63 bits; scale them down")
        return np.array([_FORBIDDEN if v == forbidding else int(v) for v in values], dtype=np.int64)
    return np.array([float(v) for v in values], dtype=np.float64)


def clipped_error(error: DmcmcError) -> DmcmcError:
    """Return an error with a message of one line and at most about 640 characters, as readers may raise it.

    The middle of a longer message is left out. A ``ConfigError`` becomes a ``FileError``.
    """
    message = " ".join(str(error).split())
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = f"{message[:400]} ... {message[-200:]}"
    error_type = FileError if isinstance(error, ConfigError) else type(error)
    return error_type(message)


def claim_structures(variables: int, factors: int) -> None:
    """Charge the names and objects of a problem to the memory, without its tables, before they are made.

    Raises
    ------
    OutOfMemory
        If they do not fit.
    """
    size = _BYTES_PER_VARIABLE * variables + _BYTES_PER_FACTOR * factors
    MEMORY_ACCOUNT.claim(size, f"{variables} variables and {factors} factors")


class TableBudget:
    """Check that all tables of one file together fit the memory, before each table is built.

    Attributes
    ----------
    entries : int
        Entries of all tables so far.
    """

    def __init__(self) -> None:
        """Start without tables."""
        self.entries = 0

    def reserve(self, shape: Sequence[int], place: Callable[[], str]) -> int:
        """Account for a table of this shape and return its number of entries.

        Raises
        ------
        FileError
            If the tables exceed the memory; ``place`` returns the place for the message and is called only then.
        """
        count, limit = math.prod(shape), memory_limit()
        if 8 * (self.entries + _COPIES * count) > limit:
            size = f"{count:.3g}" if count < 1e300 else "more than 1e300"
            raise FileError(f"{place()}: a table of {size} entries; tables may take {format_bytes(limit)} in all")
        self.entries += count
        return count
