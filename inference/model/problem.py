"""A problem: variables, agents and factors, and its numbers in one line.

A DCOP ⟨X, D, F, A, α⟩: variables, finite domains, factors, agents and owners (DMCMC paper §2).

Every problem is a maximisation internally. A minimisation problem is negated when it is built, and its results are
reported as costs.

Short descriptions of problems, and of other objects, as text and as HTML for notebooks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.model.arithmetic import Exact, exact_sum, nearest
from dmcmc.inference.model.factor import Factor as Factor
from dmcmc.inference.model.factor import Level as Level
from dmcmc.inference.model.factor import choose_arithmetic as choose_arithmetic
from dmcmc.inference.model.factor import has_booleans
from dmcmc.inference.model.flat_tables import FlatTables, TableRanges, flatten, flatten_scopes, table_ranges
from dmcmc.inference.model.names import list_values, suggest_name
from dmcmc.inference.model.tables import TABLE_DTYPES, as_array, forbidden_value
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.memo import DerivedFacts, Memo, digest, is_short_key
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Label as Label
from dmcmc.inference.tuning import MAX_CHAIN_ENTRIES

if TYPE_CHECKING:
    from dmcmc.inference.building.builder import Builder


SENSES = {"max": "maximise", "min": "minimise"}
"""The verb for the objective, by the sense of a problem."""


def problem_facts(problem: "Problem") -> dict[str, str]:
    """Return the sizes of a problem as texts, by their names.

    Parameters
    ----------
    problem : Problem
        The problem. No table is expanded.

    Returns
    -------
    dict of str to str
        The facts in the order in which they are shown.
    """
    domains, factors = problem.domains, problem.factors
    facts = {"variables": f"{problem.n_variables:,}"}
    if domains.size:
        least, largest = int(domains.min()), int(domains.max())
        facts["values per variable"] = f"{least:,}" if least == largest else f"{least:,} to {largest:,}"
    facts["agents"], facts["factors"] = f"{problem.n_agents:,}", f"{len(factors):,}"
    if factors:
        facts["variables per factor"] = f"at most {max(len(factor.scope) for factor in factors):,}"
        facts["stored numbers"] = f"{sum(array.size for factor in factors for array in factor.arrays()):,}"
    facts["sense"] = SENSES[problem.sense]
    return facts


def one_line(kind: str, facts: Mapping[str, str]) -> str:
    """Return a ``repr`` of facts in angle brackets.

    Parameters
    ----------
    kind : str
        The class of the object, and its name if it has one.
    facts : mapping from str to str
        Texts by their names.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> one_line("Problem 'office'", {"variables": "3", "sense": "maximise"})
    "<Problem 'office': variables 3, sense maximise>"
    """
    return f"<{kind}: {', '.join(f'{name} {text}' for name, text in facts.items())}>"


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return names and values as an HTML table; all texts are escaped.

    Parameters
    ----------
    title : str
        Caption of the table.
    rows : mapping from str to object
        Value by name, one row each.

    Returns
    -------
    str
        A ``table`` element.

    Examples
    --------
    >>> html_table("a < b", {})
    '<table><caption>a &lt; b</caption></table>'
    """
    left = 'style="text-align: left"'
    cells = (
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(cells)}</table>"


_BYTES_PER_VALUE = 64  # bytes per value of a variable in the least work: a greedy assignment, presolve and the answer
_FACTS_BY_SHAPE = Memo[DerivedFacts].for_shapes()  # by a digest of a small problem's structure


class Evaluation(NamedTuple):
    """The objective of an assignment, and the number of hard constraints that it violates.

    Attributes
    ----------
    objective : int or float
        Sum of the entries that are not forbidden, in the problem's sense (a utility or a cost). It is an exact Python
        integer if all tables have an integer dtype.
    violation : int
        Number of forbidden entries that the assignment selects; a violated global constraint counts with its degree of
        violation.
    """

    objective: int | float
    violation: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A validated, immutable DCOP.

    Two problems are equal if all their attributes but ``initial_values`` are equal.

    Attributes
    ----------
    variables : sequence of str
        Distinct names, one per variable.
    domains : ndarray of int64, shape (n_variables,)
        Domain sizes, each at least 1.
    agents : sequence of str
        Distinct names, one per agent. An agent may own no variable.
    owner : ndarray of int64, shape (n_variables,)
        Index of the agent that owns each variable.
    factors : tuple of Factor
        Factors of any arity; several factors may have the same scope.
    labels : sequence of (tuple or None)
        The value labels of each variable, or None for a variable whose values are 0, 1, ...; an empty sequence means
        None for all variables.
    sense : {"max", "min"}
        Whether results are reported as utilities ("max") or as costs ("min").
    name : str
        Name of the problem, used in messages and reports.
    initial_values : mapping from str to label, or None
        An assignment of some variables from which a search may start. It is no part of the problem: equality ignores
        it, and only pyDCOP's files have it.
    levels : sequence of Level
        Levels of the objective (:mod:`dmcmc.inference.levels`); empty for an objective without levels.
    level_of : sequence of int
        The level of each factor; empty without levels.
    builder : type of Builder
        What ``build`` starts; :mod:`dmcmc.inference.building.builder`, which imports this module, sets it.

    Raises
    ------
    ProblemError
        If the attributes are inconsistent; the message names the variable or factor.
    """

    variables: Sequence[str]
    domains: NDArray[np.int64]
    agents: Sequence[str]
    owner: NDArray[np.int64]
    factors: tuple[Factor, ...]
    labels: Sequence[tuple[Label, ...] | None] = ()
    sense: str = "max"
    name: str = ""
    initial_values: Mapping[str, Label] | None = None
    levels: Sequence[Level] = ()
    level_of: Sequence[int] = ()
    builder: ClassVar[type["Builder"]]

    def __post_init__(self) -> None:
        domains, owner = _integer_vector(self.domains, "domains"), _integer_vector(self.owner, "owner")
        object.__setattr__(self, "domains", domains)
        object.__setattr__(self, "owner", owner)
        for part in ("variables", "agents", "factors"):
            given = getattr(self, part)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise ProblemError(f"{part}: a tuple or a list is needed, not {type(given).__name__}")
            if isinstance(given, list):
                object.__setattr__(self, part, tuple(given))
        object.__setattr__(self, "labels", self._label_tuples() or (None,) * len(self.variables))
        self._check_variables()
        sizes = domains.tolist()
        for position, factor in enumerate(self.factors):
            try:  # a fast check, which consistent factors pass
                scope, is_array = factor.scope, type(factor) is not Factor or factor.table.dtype in TABLE_DTYPES
                fits = is_array and factor.shape == tuple([sizes[v] for v in scope]) and min(scope, default=0) >= 0
                consistent = fits and len(set(scope)) == len(scope) and isinstance(factor.name, str)
            except (AttributeError, IndexError, TypeError):
                consistent = False
            if not consistent:
                self._check_factor(position, factor)

    def _label_tuples(self) -> tuple[tuple[Label, ...] | None, ...]:
        """Return the labels as tuples; raise ProblemError if they are none."""
        try:
            return tuple([tuple(labels) if isinstance(labels, list) else labels for labels in self.labels])
        except TypeError:
            raise ProblemError(
                f"labels: a sequence with the value labels of each variable is needed, not {self.labels!r}"
            ) from None

    def _check_variables(self) -> None:
        """Raise ProblemError if names, domains, owners or labels are inconsistent."""
        n = len(self.variables)
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")
        for part in ("variables", "agents"):
            for name in getattr(self, part):
                if not isinstance(name, str):
                    raise ProblemError(f"{part}: names must be strings, not {name!r}")
        if len(set(self.variables)) != n:
            last = {name: i for i, name in enumerate(self.variables)}
            repeated = next(v for i, v in enumerate(self.variables) if last[v] != i)
            raise ProblemError(f"variable {repeated!r} is defined twice")
        for noun, names in (("agents", self.agents), ("levels", [level.name for level in self.levels])):
            if len(set(names)) != len(names):
                raise ProblemError(f"two {noun} have the same name")
        for noun, count in (
            ("domain sizes", len(self.domains)),
            ("owners", len(self.owner)),
            ("label lists", len(self.labels)),
        ):
            if count != n:
                raise ProblemError(f"{n} variables but {count} {noun}; each variable needs exactly one")
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
            if not isinstance(labels, tuple):
                raise ProblemError(
                    f"variable {self.variables[i]!r}: labels are a tuple or a list of values, not {labels!r}"
                )
            if len(labels) != self.domains[i]:
                raise ProblemError(
                    f"variable {self.variables[i]!r} has {self.domains[i]} values but {len(labels)} labels"
                )
            if len(set(labels)) != len(labels):
                raise ProblemError(f"variable {self.variables[i]!r} has a label twice")

    def _check_factor(self, position: int, factor: Factor) -> None:
        """Raise ProblemError if a factor's scope or shape does not fit the variables."""
        if not isinstance(factor, Factor):
            raise ProblemError(
                f"factor {position}: a Factor is needed, not {type(factor).__name__}; use Factor.of(scope, values)"
            )
        what = f"factor {factor.name or position}"
        if not isinstance(factor.name, str):
            raise ProblemError(f"factor {position}: its name must be text, not {factor.name!r}")
        if type(factor) is Factor and getattr(factor.table, "dtype", None) not in TABLE_DTYPES:
            raise ProblemError(f"{what}: its table is no array of utilities; use Factor.of(scope, values)")
        for v in factor.scope:
            if not 0 <= v < len(self.variables):
                raise ProblemError(f"{what}: variable {v} does not exist (0..{len(self.variables) - 1})")
        if len(set(factor.scope)) != len(factor.scope):
            twice = next(v for i, v in enumerate(factor.scope) if v in factor.scope[:i])
            raise ProblemError(f"{what}: variable {self.variables[twice]!r} appears twice in its scope")
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
        """Return a problem from attributes that are known to be consistent, without checking or copying them.

        Parameters
        ----------
        **parts : Any
            All attributes of the problem by name, in the form that the constructor stores.

        Returns
        -------
        Problem
            The problem.
        """
        problem = object.__new__(cls)
        for name, part in parts.items():
            object.__setattr__(problem, name, part)
        return problem

    def __repr__(self) -> str:
        return one_line(f"Problem {self.name!r}" if self.name else "Problem", problem_facts(self))

    def _repr_html_(self) -> str:
        """Return the sizes of the problem as a table for notebooks."""
        return html_table(f"Problem {self.name}".strip(), problem_facts(self))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Problem):
            return self is other
        return (
            all(getattr(self, part) == getattr(other, part) for part in ("variables", "agents", "labels"))
            and (self.sense, self.name) == (other.sense, other.name)
            and np.array_equal(self.domains, other.domains)
            and np.array_equal(self.owner, other.owner)
            and self.factors == other.factors
            and (tuple(self.levels), tuple(self.level_of)) == (tuple(other.levels), tuple(other.level_of))
        )

    def __hash__(self) -> int:
        return hash((self.variables, self.agents, self.sense, self.name))

    @classmethod
    def build(cls, sense: str = "max", name: str = "", levels: Iterable[str] = ()) -> "Builder":
        """Start a problem that is written by hand, with variable names and value labels.

        Parameters
        ----------
        sense : {"max", "min"}
            Whether the factors are utilities ("max") or costs ("min").
        name : str
            Name of the problem.
        levels : iterable of str
            Names of the levels of the objective; an earlier level counts more than all later ones. Utilities are then
            integers, and ``Builder.level`` says to which level the next factors belong.

        Returns
        -------
        Builder
            An empty builder; add variables and factors, then call ``problem()``.

        Examples
        --------
        >>> p = Problem.build()
        >>> p.variable("a", ["red", "green"]), p.variable("b", 2, agent="bob")
        ('a', 'b')
        >>> p.factor(("a", "b"), [[1, 2], [3, float("-inf")]]).problem().evaluate({"a": "green", "b": 0}).objective
        3
        """
        return cls.builder(sense, name, tuple(levels))

    @property
    def n_variables(self) -> int:
        """The number of variables."""
        return len(self.variables)

    @property
    def n_agents(self) -> int:
        """The number of agents."""
        return len(self.agents)

    @cached_property
    def dense(self) -> bool:
        """Whether all factors are dense tables."""
        return set(map(type, self.factors)) <= {Factor}

    @property
    def has_separate_levels(self) -> bool:
        """Whether the levels have no weights, so that they are solved one after the other."""
        return any(not level.weight for level in self.levels)

    @cached_property
    def tabular(self) -> bool:
        """Whether tables can stand for all factors: no factor is a global constraint or has a large share of chains."""
        return self.dense or (not self.has_large_chains and all(factor.is_tabular for factor in self.factors))

    @cached_property
    def has_large_chains(self) -> bool:
        """Whether the chains of tables that stand for automata are too large together, so that some are relaxed."""
        return sum(factor.chain_entries for factor in self.factors) > MAX_CHAIN_ENTRIES

    @cached_property
    def flat(self) -> FlatTables:
        """All tables in one array, in the order of the factors."""
        return flatten([f.scope for f in self.factors], [f.table for f in self.factors])

    @property
    def scope_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The offsets and the variables of all scopes, as in ``flat``, without copying any table."""
        flat: FlatTables | None = self.__dict__.get("flat")
        return flatten_scopes([f.scope for f in self.factors]) if flat is None else (flat.scope_start, flat.scope)

    @cached_property
    def facts(self) -> DerivedFacts:
        """A cache of facts derived from this problem; they stay valid because the problem is immutable."""
        return DerivedFacts()

    @cached_property
    def shape_facts(self) -> DerivedFacts:
        """A cache of facts derived from the structure alone, shared by all problems with the same structure.

        Problems share it if they differ only in names and table entries. A large problem (``is_short_key``)
        does not share its cache.
        """
        if not is_short_key(self.n_variables + len(self.factors)):
            return DerivedFacts()
        start, scope = self.scope_arrays
        if not is_short_key(self.n_variables + start.size + scope.size):
            return DerivedFacts()
        key = digest(np.array(self.n_agents), self.domains, self.owner, start, scope)
        return _FACTS_BY_SHAPE.get(key, DerivedFacts)

    def share_shape_facts(self, other: "Problem") -> None:
        """Share the cache ``shape_facts`` of another problem if the structure is the same, whatever its size.

        Parameters
        ----------
        other : Problem
            A problem that usually differs in table entries only.
        """
        if (
            self.n_agents == other.n_agents
            and np.array_equal(self.domains, other.domains)
            and np.array_equal(self.owner, other.owner)
            and [factor.scope for factor in self.factors] == [factor.scope for factor in other.factors]
        ):
            self.__dict__["shape_facts"] = other.shape_facts

    def take_flat(self, flat: FlatTables) -> None:
        """Adopt tables that are already stored in one array, so that ``flat`` does not copy them.

        Parameters
        ----------
        flat : FlatTables
            The tables of all factors, in the order of the factors.
        """
        self.__dict__["flat"] = flat

    def to_own_sense(self, utility: int | float) -> int | float:
        """Convert an internal utility to the problem's sense.

        Parameters
        ----------
        utility : int or float
            A utility, to be maximised.

        Returns
        -------
        int or float
            The utility itself if ``sense`` is "max", its negation (the cost) if it is "min".
        """
        return utility if self.sense == "max" else 0 - utility  # 0 - x never yields -0.0

    def evaluate(self, assignment: Sequence[int] | NDArray[np.int64] | Mapping[str, Label]) -> Evaluation:
        """Evaluate a complete assignment on the original factors.

        Parameters
        ----------
        assignment : sequence of int, ndarray of int64 or mapping from str to label
            One value index per variable, in the order of the variables, or the value label of each variable by its
            name.

        Returns
        -------
        Evaluation
            The objective and the number of violated hard constraints.

        Raises
        ------
        ProblemError
            If a variable has no value or a value outside its domain, or if a variable does not exist.

        Examples
        --------
        >>> p = Problem(("a", "b"), [2, 2], ("me",), [0, 0], (Factor.of((0, 1), [[1, 2], [3, float("-inf")]]),))
        >>> p.evaluate([1, 0])
        Evaluation(objective=3, violation=0)
        >>> p.evaluate({"a": 1, "b": 1})
        Evaluation(objective=0, violation=1)
        """
        values = self.values_of(assignment) if isinstance(assignment, Mapping) else _value_vector(assignment)
        self._check_values(values)
        return self._evaluation(self._entries(values), values)

    def _check_values(self, values: NDArray[np.int64]) -> None:
        """Raise ProblemError unless there is one value index inside its domain for each variable."""
        if values.shape != self.domains.shape:
            raise ProblemError(f"{values.size} values for {self.n_variables} variables")
        for i in np.flatnonzero((values < 0) | (values >= self.domains))[:1]:
            raise ProblemError(f"variable {self.variables[i]!r}: value {values[i]} is not in 0..{self.domains[i] - 1}")

    def appraise(self, values: NDArray[np.int64]) -> tuple[Evaluation, Exact]:
        """Return the evaluation of an assignment together with its exact utility without constants.

        Parameters
        ----------
        values : ndarray of int64, shape (n_variables,)
            One value index per variable, inside the domains.

        Returns
        -------
        evaluation : Evaluation
            The result of ``evaluate``.
        utility : int or Fraction
            The result of ``utility_inside``.
        """
        if "flat" in self.__dict__ and self._flat_is_exact and self.flat.data.dtype == np.int32:  # the sum fits int64
            selected = self.flat.selected_entries(values, self._strides)
            allowed = selected != forbidden_value(selected.dtype)
            total = int(selected[allowed].sum(dtype=np.int64))
            violation = selected.size - int(np.count_nonzero(allowed))
            inside = total
            if self._constants.size:
                constants = self._constants[allowed[self._constants]]
                inside -= int(selected[constants].sum(dtype=np.int64))
            return Evaluation(self.to_own_sense(total), violation), inside
        entries = self._entries(values)
        return self._evaluation(entries, values), self._exact_utility(entries)

    def utility_inside(self, values: NDArray[np.int64]) -> Exact:
        """Return the exact utility of an assignment without constants and forbidden entries.

        Parameters
        ----------
        values : ndarray of int64, shape (n_variables,)
            One value index per variable, inside the domains.

        Returns
        -------
        int or Fraction
            The exact sum of the selected, allowed entries of all factors with a scope; to be maximised.
        """
        return self._exact_utility(self._entries(values))

    def _evaluation(self, entries: Sequence[int | float | None], values: NDArray[np.int64]) -> Evaluation:
        """Return the evaluation of an assignment, given each factor's entry."""
        allowed = [entry for entry in entries if entry is not None]
        # The exact sum does not depend on the order of the entries, and large entries do not absorb small ones.
        total, violation = nearest(exact_sum(allowed)), len(entries) - len(allowed)
        if violation and not self.tabular:
            pairs = zip(self.factors, entries, strict=True)
            broken = [factor for factor, entry in pairs if entry is None]
            violation = sum(factor.violation(values[list(factor.scope)].tolist()) for factor in broken)
        return Evaluation(self.to_own_sense(total), violation)

    def _exact_utility(self, entries: Sequence[int | float | None]) -> Exact:
        """Return the exact utility without constants and forbidden entries, given each factor's entry."""
        pairs = zip(self.factors, entries, strict=True)
        return exact_sum(entry for factor, entry in pairs if entry is not None and factor.scope)

    @cached_property
    def ranges(self) -> TableRanges:
        """The smallest and largest entries of each factor's table, in the order of the factors."""
        return table_ranges(self.flat)

    def find_ranges(self, stop: Deadline) -> None:
        """Compute ``ranges`` before a deadline, if that has not been done.

        Parameters
        ----------
        stop : Deadline
            Checked between pieces of the tables.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        if "ranges" not in self.__dict__:
            self.__dict__["ranges"] = table_ranges(self.flat, stop)

    @cached_property
    def magnitudes(self) -> list[int | float]:
        """The largest finite absolute entry of each factor, in the order of the factors."""
        return self.ranges.magnitudes

    def _entries(self, values: NDArray[np.int64]) -> list[int | float | None]:
        """Return each factor's entry at an assignment; None for a forbidden entry."""
        if "flat" in self.__dict__ and self._flat_is_exact:
            return self.flat.entries(values, self._strides)
        chosen = values.tolist()
        return [factor.entry([chosen[v] for v in factor.scope]) for factor in self.factors]

    @cached_property
    def _flat_is_exact(self) -> bool:
        """Whether the flat tables hold every entry unchanged, because all factors are dense and of one dtype."""
        return self.dense and len({factor.table.dtype for factor in self.factors}) == 1

    @cached_property
    def _constants(self) -> NDArray[np.int64]:
        """The indices of the factors with an empty scope."""
        return np.flatnonzero(np.diff(self.flat.scope_start) == 0)

    @cached_property
    def _strides(self) -> NDArray[np.int64]:
        """The stride of each variable of each scope in the flat tables, shape (total scope length,)."""
        return self.flat.strides(self.domains)

    def label(self, variable: int, value: int) -> Label:
        """Return the label of a value index.

        Parameters
        ----------
        variable : int
            Index of the variable.
        value : int
            Value index inside the variable's domain.

        Returns
        -------
        str, int or float
            The label, or the value index itself for a variable without labels.
        """
        labels = self.labels[variable]
        return int(value) if labels is None else labels[value]

    def assignment(self, values: Sequence[int] | NDArray[np.int64]) -> dict[str, Label]:
        """Convert value indices to a mapping from variable name to value label.

        Parameters
        ----------
        values : sequence of int or ndarray of int64
            One value index per variable; further entries (values of hidden variables) are ignored.

        Returns
        -------
        dict of str to label
            The label of each variable's value, in the order of the variables.
        """
        vector = _value_vector(values)[: self.n_variables]
        self._check_values(vector)
        indices = vector.tolist()
        chosen_values = zip(self.variables, self.labels, indices, strict=True)
        return {name: value if labels is None else labels[value] for name, labels, value in chosen_values}

    def values_of(self, assignment: Mapping[str, Label]) -> NDArray[np.int64]:
        """Convert a mapping from variable name to value label to value indices; the inverse of ``assignment``.

        Parameters
        ----------
        assignment : mapping from str to label
            The value label of each variable (the value index for a variable without labels).

        Returns
        -------
        ndarray of int64, shape (n_variables,)
            One value index per variable.

        Raises
        ------
        ProblemError
            If a variable has no value or a value that is not in its domain, or if a variable does not exist.
        """
        variables = set(self.variables)
        for name in assignment:
            if name not in variables:
                raise ProblemError(f"variable {name!r} does not exist{suggest_name(name, self.variables)}")
        values = np.zeros(self.n_variables, dtype=np.int64)
        for i, name in enumerate(self.variables):
            if name not in assignment:
                raise ProblemError(f"variable {name!r} has no value")
            labels = self.labels[i]
            known: Sequence[Label] = range(int(self.domains[i])) if labels is None else labels
            try:
                values[i] = known.index(assignment[name])
            except ValueError:  # no such label, or a label that cannot be compared, such as an array
                given = f"{assignment[name]!r} is not one of its values"
                raise ProblemError(f"variable {name!r}: {given}; {list_values(known)}") from None
        return values

    def forbidden_entries(self) -> int:
        """Return the number of forbidden entries (−∞) of all factors.

        Returns
        -------
        int
            Number of forbidden entries.
        """
        return sum(f.forbidden_entries() for f in self.factors)


def _value_vector(assignment: object) -> NDArray[np.int64]:
    """Return a sequence of value indices as a vector; raise ProblemError for anything else."""
    try:
        values = np.asarray(assignment)
    except ValueError:  # rows of different lengths
        values = np.array(None)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        what = f"{type(assignment).__name__}{f' of {values.dtype}' if values.ndim else ''}"
        raise ProblemError(
            "an assignment is a mapping from the names of variables to their values, or one value index per variable,"
            f" not {what}"
        )
    return values


def _integer_vector(given: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return a read-only int64 vector; raise ProblemError if the values are not a vector of integers."""
    array = as_array(given, what)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu") or has_booleans(given):
        raise ProblemError(f"{what}: a vector of integers is needed, not {array.dtype} of shape {array.shape}")
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def check_domains(problem: Problem) -> None:
    """Raise ProblemError if what a run makes for each value of each variable does not fit the memory."""
    values, limit = problem.domains.sum(dtype=np.float64), memory_limit()
    if _BYTES_PER_VALUE * values > limit:
        i = int(problem.domains.argmax())
        raise ProblemError(
            f"variable {problem.variables[i]!r} has {problem.domains[i]} values; all variables together may have"
            f" {limit // _BYTES_PER_VALUE} with {format_bytes(limit)} of memory (budget.memory)"
        )


def bytes_of_tables(*problems: Problem) -> int:
    """Return the bytes of problems' dense tables; tables that they share count once."""
    different = [*{id(problem): problem for problem in problems}.values()]
    if len(different) == 1:
        return different[0].facts.get_or_compute("bytes", lambda: _bytes_of(different))
    return _bytes_of(different)


def _bytes_of(problems: Sequence[Problem]) -> int:
    """Return the bytes of the distinct dense tables of some problems."""
    return sum({id(f.table): f.table.nbytes for p in problems for f in p.factors if type(f) is Factor}.values())
