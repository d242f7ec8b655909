"""A DCOP ⟨X, D, F, A, α⟩: variables, finite domains, factors, agents and owners (DMCMC paper §2).

Always a maximisation inside: a cost problem is negated when it is built and reported in its own sense.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.flat_tables import FlatTables, flatten, laid_out, magnitudes
from dmcmc.inference.model.tables import as_array, forbidden, forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.memo import LARGEST, Known, Memo, digest
from dmcmc.inference.runtime.types import Array

if TYPE_CHECKING:
    from dmcmc.inference.model.builder import Builder

Label = str | int | float

_KIN = Memo[Known](64)  # by shapes


@dataclass(frozen=True, eq=False)
class Factor:
    """A utility table over a scope.

    Factors of one kind are equal that have the same scope, name and utilities, of the same dtype.

    Subclasses know their utilities in another way (:mod:`dmcmc.inference.model.sparse_factor`,
    :mod:`dmcmc.inference.model.automaton`) and make ``table`` only when it is asked for;
    :func:`dmcmc.inference.model.densify.densify` says which should.

    Attributes
    ----------
    scope : tuple of int
        Variable indices, no repeats. Empty for a constant.
    table : ndarray, shape (domain size of scope[0], domain size of scope[1], ...)
        Utilities as :func:`dmcmc.inference.model.tables.normalise` leaves them (already negated in a cost problem).
    name : str
        Used in messages only.
    """

    scope: tuple[int, ...]
    table: Array
    name: str = ""

    @classmethod
    def of(cls, scope: Sequence[int], values: ArrayLike, sense: str = "max", name: str = "") -> "Factor":
        """Build a factor from utilities, or from costs with ``sense="min"``."""
        return cls(tuple(int(v) for v in scope), normalise(values, sense, f"factor {name or list(scope)}"), name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Domain sizes of the scope."""
        return self.table.shape

    def renamed(self, scope: Sequence[int], name: str) -> "Factor":
        """Return the same utilities over another scope."""
        return Factor(tuple(scope), self.table, name)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one value a variable of the scope; None where it is forbidden."""
        entry = self.table[tuple(values)]
        utility: int | float | None = None if entry == forbidden_value(self.table.dtype) else entry.item()
        return utility

    def forbidden_entries(self) -> int:
        """Return how many entries are −∞."""
        return int(forbidden(self.table).sum())

    def arrays(self) -> tuple[Array, ...]:
        """Return what holds the utilities."""
        return (self.table,)

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not type(self) or not isinstance(other, Factor):
            return self is other
        if (self.scope, self.name, self.shape) != (other.scope, other.name, other.shape):
            return False
        ours, theirs = self.arrays(), other.arrays()
        return len(ours) == len(theirs) and all(
            a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.scope, self.name, self.shape))


class Evaluation(NamedTuple):
    """What an assignment is worth.

    ``objective`` is in the problem's own sense and sums the entries that are not forbidden (exact Python integers
    where the tables are integers); ``violation`` counts the forbidden entries that the assignment hits.
    """

    objective: int | float
    violation: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A validated, immutable DCOP. Problems are equal that have equal parts.

    Attributes
    ----------
    variables : sequence of str
        Distinct names, one a variable.
    domains : ndarray of int64, shape (n,)
        Domain sizes, each at least 1.
    agents : sequence of str
        Distinct names, one an agent. An agent may own no variable.
    owner : ndarray of int64, shape (n,)
        Index of the agent that owns each variable.
    factors : tuple of Factor
        Any arity, several on one scope allowed.
    labels : sequence of (tuple or None)
        Value labels of each variable, or None where the values are 0, 1, ...; empty for none at all.
    sense : {"max", "min"}
        How the problem is reported.
    name : str
        For the reader.

    Raises
    ------
    ProblemError
        When the parts do not fit together; names the variable or factor.
    """

    variables: Sequence[str]
    domains: NDArray[np.int64]
    agents: Sequence[str]
    owner: NDArray[np.int64]
    factors: tuple[Factor, ...]
    labels: Sequence[tuple[Label, ...] | None] = ()
    sense: str = "max"
    name: str = ""

    def __post_init__(self) -> None:
        domains, owner = _whole(self.domains, "domains"), _whole(self.owner, "owner")
        object.__setattr__(self, "domains", domains)
        object.__setattr__(self, "owner", owner)
        object.__setattr__(self, "labels", tuple(self.labels) or (None,) * len(self.variables))
        self._check_variables()
        for position, factor in enumerate(self.factors):
            self._check_factor(position, factor)

    def _check_variables(self) -> None:
        n = len(self.variables)
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")
        if len(set(self.variables)) != n:
            last = {name: i for i, name in enumerate(self.variables)}
            repeated = next(v for i, v in enumerate(self.variables) if last[v] != i)
            raise ProblemError(f"variable {repeated!r} is named twice")
        if len(set(self.agents)) != len(self.agents):
            raise ProblemError("two agents have the same name")
        for what, have in (
            ("domain sizes", len(self.domains)),
            ("owners", len(self.owner)),
            ("label lists", len(self.labels)),
        ):
            if have != n:
                raise ProblemError(f"{n} variables but {have} {what}; each variable needs exactly one")
        for i in np.flatnonzero(self.domains < 1)[:1]:
            raise ProblemError(
                f"variable {self.variables[i]!r} has domain size {self.domains[i]}; at least 1 is needed"
            )
        for i in np.flatnonzero((self.owner < 0) | (self.owner >= len(self.agents)))[:1]:
            raise ProblemError(
                f"variable {self.variables[i]!r} has no owner: agent {self.owner[i]} does not exist"
                f" (agents are 0..{len(self.agents) - 1})"
            )
        for i, labels in enumerate(self.labels):
            if labels is None:
                continue
            if len(labels) != self.domains[i]:
                raise ProblemError(
                    f"variable {self.variables[i]!r} has {self.domains[i]} values but {len(labels)} labels"
                )
            if len(set(labels)) != len(labels):
                raise ProblemError(f"variable {self.variables[i]!r} has a label twice")

    def _check_factor(self, position: int, factor: Factor) -> None:
        what = f"factor {factor.name or position}"
        for v in factor.scope:
            if not 0 <= v < len(self.variables):
                raise ProblemError(f"{what}: variable {v} does not exist (0..{len(self.variables) - 1})")
        if len(set(factor.scope)) != len(factor.scope):
            twice = next(v for i, v in enumerate(factor.scope) if v in factor.scope[:i])
            raise ProblemError(f"{what}: variable {self.variables[twice]!r} stands twice in its scope")
        for axis, (v, size) in enumerate(zip(factor.scope, factor.shape, strict=False)):
            if size != self.domains[v]:
                raise ProblemError(
                    f"{what}: axis {axis} has {size} entries but variable"
                    f" {self.variables[v]!r} has {self.domains[v]} values"
                )
        if len(factor.shape) != len(factor.scope):
            raise ProblemError(f"{what}: a scope of {len(factor.scope)} variables but a {len(factor.shape)}-d table")

    @classmethod
    def of_parts(cls, **parts: Any) -> "Problem":
        """Return a problem of parts that fit together: they are taken as they are, and not looked at."""
        problem = object.__new__(cls)
        for name, part in parts.items():
            object.__setattr__(problem, name, part)
        return problem

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Problem):
            return self is other
        return (
            all(getattr(self, part) == getattr(other, part) for part in ("variables", "agents", "labels"))
            and (self.sense, self.name) == (other.sense, other.name)
            and np.array_equal(self.domains, other.domains)
            and np.array_equal(self.owner, other.owner)
            and self.factors == other.factors
        )

    def __hash__(self) -> int:
        return hash((self.variables, self.agents, self.sense, self.name))

    @classmethod
    def build(cls, sense: str = "max", name: str = "") -> "Builder":
        """Begin a problem that is written by hand, by names and labels.

        >>> p = Problem.build()
        >>> p.variable("a", ["red", "green"]), p.variable("b", 2, agent="bob")
        ('a', 'b')
        >>> p.factor(("a", "b"), [[1, 2], [3, float("-inf")]]).problem().evaluate({"a": "green", "b": 0}).objective
        3
        """
        from dmcmc.inference.model.builder import Builder

        return Builder(sense, name)

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.agents)

    @cached_property
    def dense(self) -> bool:
        """Whether all factors are tables as they are."""
        return set(map(type, self.factors)) <= {Factor}

    @cached_property
    def flat(self) -> FlatTables:
        """All tables in one array, in the order of the factors."""
        return flatten([f.scope for f in self.factors], [f.table for f in self.factors])

    @cached_property
    def known(self) -> Known:
        """What has been worked out of it: it does not change."""
        return Known()

    @cached_property
    def kin(self) -> Known:
        """What has been worked out of problems that differ from it in names and entries alone, where it is small."""
        if self.n_variables + len(self.factors) > LARGEST:
            return Known()
        flat: FlatTables | None = self.__dict__.get("flat")  # no copy of all tables for their scopes alone
        start, scope = laid_out([f.scope for f in self.factors]) if flat is None else (flat.scope_start, flat.scope)
        if self.n_variables + start.size + scope.size > LARGEST:
            return Known()
        key = digest(np.array(self.n_agents), self.domains, self.owner, start, scope)
        return _KIN.get(key, Known)

    def take_flat(self, flat: FlatTables) -> None:
        """Take tables that lie in one array already, in the order of the factors, in place of a copy."""
        self.__dict__["flat"] = flat

    def to_own_sense(self, utility: int | float) -> int | float:
        """Return a utility as the problem reports it: itself, or the cost it stands for."""
        return utility if self.sense == "max" else 0 - utility  # never -0.0

    def evaluate(self, assignment: Sequence[int] | NDArray[np.int64] | Mapping[str, Label]) -> Evaluation:
        """Evaluate a complete assignment on the original factors.

        Parameters
        ----------
        assignment
            Value indices, one a variable, or a mapping from variable name to value label.

        Raises
        ------
        ProblemError
            If a variable has no value, or one outside its domain.

        Examples
        --------
        >>> p = Problem(("a", "b"), [2, 2], ("me",), [0, 0], (Factor.of((0, 1), [[1, 2], [3, float("-inf")]]),))
        >>> p.evaluate([1, 0])
        Evaluation(objective=3, violation=0)
        >>> p.evaluate({"a": 1, "b": 1})
        Evaluation(objective=0, violation=1)
        """
        values = self.values_of(assignment) if isinstance(assignment, Mapping) else np.asarray(assignment)
        if values.shape != self.domains.shape:
            raise ProblemError(f"{values.size} values for {self.n_variables} variables")
        for i in np.flatnonzero((values < 0) | (values >= self.domains))[:1]:
            raise ProblemError(f"variable {self.variables[i]!r}: value {values[i]} is not in 0..{self.domains[i] - 1}")
        return self._evaluation(self._entries(values))

    def appraise(self, values: NDArray[np.int64]) -> tuple[Evaluation, Exact]:
        """Return what value indices are worth, and :meth:`utility_inside` of them."""
        if "flat" in self.__dict__ and self._alike and self.flat.data.dtype == np.int32:  # sums fit an int64
            found = self.flat.found(values, self._strides)
            allowed = found != forbidden_value(found.dtype)
            total = int(found[allowed].sum(dtype=np.int64))
            violation = found.size - int(np.count_nonzero(allowed))
            inside = total
            if self._constants.size:
                constants = self._constants[allowed[self._constants]]
                inside -= int(found[constants].sum(dtype=np.int64))
            return Evaluation(self.to_own_sense(total), violation), inside
        entries = self._entries(values)
        return self._evaluation(entries), self._inside(entries)

    def utility_inside(self, values: NDArray[np.int64]) -> Exact:
        """Return the exact utility of value indices without constants, forbidden entries left out: to be maximised."""
        return self._inside(self._entries(values))

    def _evaluation(self, entries: Sequence[int | float | None]) -> Evaluation:
        allowed = [entry for entry in entries if entry is not None]
        # However large some are, they take nothing away from the rest, and their order does not matter.
        total = nearest(exact_sum(allowed))
        return Evaluation(self.to_own_sense(total), len(entries) - len(allowed))

    def _inside(self, entries: Sequence[int | float | None]) -> Exact:
        pairs = zip(self.factors, entries, strict=True)
        return exact_sum(entry for factor, entry in pairs if entry is not None and factor.scope)

    @cached_property
    def magnitudes(self) -> list[int | float]:
        """Each factor's largest finite |entry|, in the order of the factors."""
        return magnitudes(self.flat)

    def _entries(self, values: NDArray[np.int64]) -> list[int | float | None]:
        """Return each factor's entry at an assignment; None where it is forbidden."""
        if "flat" in self.__dict__ and self._alike:
            return self.flat.entries(values, self._strides)
        chosen = values.tolist()
        return [factor.entry([chosen[v] for v in factor.scope]) for factor in self.factors]

    @cached_property
    def _alike(self) -> bool:
        """Whether flat tables have every entry as it is."""
        return self.dense and len({factor.table.dtype for factor in self.factors}) == 1

    @cached_property
    def _constants(self) -> NDArray[np.int64]:
        """The numbers of factors without variables."""
        return np.flatnonzero(np.diff(self.flat.scope_start) == 0)

    @cached_property
    def _strides(self) -> NDArray[np.int64]:
        """Of each variable of each scope in flat tables."""
        return self.flat.strides(self.domains)

    def label(self, variable: int, value: int) -> Label:
        """Return the label of a value index."""
        labels = self.labels[variable]
        return int(value) if labels is None else labels[value]

    def assignment(self, values: Sequence[int] | NDArray[np.int64]) -> dict[str, Label]:
        """Return value indices as a mapping from variable name to label."""
        indices = np.asarray(values)[: self.n_variables].tolist()
        own = zip(self.variables, self.labels, indices, strict=True)
        return {name: value if labels is None else labels[value] for name, labels, value in own}

    def values_of(self, assignment: Mapping[str, Label]) -> NDArray[np.int64]:
        """Return a mapping from variable name to label as value indices; the inverse of :meth:`assignment`."""
        values = np.zeros(self.n_variables, dtype=np.int64)
        for i, name in enumerate(self.variables):
            if name not in assignment:
                raise ProblemError(f"variable {name!r} has no value")
            labels = self.labels[i]
            known: Sequence[Label] = range(int(self.domains[i])) if labels is None else labels
            if assignment[name] not in known:
                raise ProblemError(f"variable {name!r}: {assignment[name]!r} is not one of its values")
            values[i] = known.index(assignment[name])
        return values

    def forbidden_entries(self) -> int:
        """Return how many table entries are −∞."""
        return sum(f.forbidden_entries() for f in self.factors)


def _whole(given: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return a read-only int64 vector, or say why it cannot be one."""
    array = as_array(given, what)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{what}: a vector of integers is needed, not {array.dtype} of shape {array.shape}")
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array
