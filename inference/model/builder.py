"""Problems written by hand: variables and factors by name, with tables, functions or mappings of the values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import as_array, normalise
from dmcmc.inference.model.unknown_names import list_values, suggest_name
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

Utilities = ArrayLike | Sequence[Any] | Callable[..., float] | Mapping[Any, float]

_DEFAULT_AGENT = "all"  # the agent that owns variables without a named agent
_MAX_LIST_ENTRIES = 64  # tables of up to this many entries are filled as lists, which takes half of NumPy's time
_NUMBERS = (int, float)  # the types of most values; others are converted, NaN is rejected
_MAX_FUNCTION_CALLS = 10**7  # limit on the calls of one factor's function


@dataclass
class Builder:
    """A problem under construction; ``Problem.build`` returns an empty one.

    Attributes
    ----------
    sense : {"max", "min"}
        Whether the factors are utilities ("max") or costs ("min").
    name : str
        Name of the problem.
    levels : tuple of str
        Names of the levels of the objective, of which an earlier one counts more; empty for one objective.

    Raises
    ------
    ProblemError
        If ``sense`` is neither "max" nor "min".

    Examples
    --------
    >>> office = Problem.build(sense="max", name="office")
    >>> desk = office.variable("desk", ["window", "door"], agent="ann")
    >>> lamp = office.variable("lamp", 3, agent="bob")
    >>> office.factor(desk, {"window": 5}).factor((desk, lamp), lambda d, r: r if d == "door" else -r)
    Builder(sense='max', name='office')
    >>> office.problem().evaluate({"desk": "window", "lamp": 2})
    Evaluation(objective=3, violation=0)
    """

    sense: str = "max"
    name: str = ""
    levels: tuple[str, ...] = field(default=(), repr=False)
    _domains: dict[str, Sequence[Label]] = field(default_factory=dict, init=False, repr=False)
    _position: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # index of each variable
    _label_indices: dict[str, dict[Label, int]] = field(default_factory=dict, init=False, repr=False)
    _agents: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # index of each agent
    _owner: list[int] = field(default_factory=list, init=False, repr=False)
    _factors: list[Factor] = field(default_factory=list, init=False, repr=False)
    # Number of factors at each change of the level, with the new level.
    _level_changes: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")

    def level(self, name: str) -> "Builder":
        """Add the next factors and constraints to a level of the objective.

        Parameters
        ----------
        name : str
            A name from ``levels``. Before the first call, factors belong to the first level.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If there is no such level.
        """
        if name not in self.levels:
            raise ProblemError(f"level {name!r} does not exist; {list_values(self.levels)}")
        self._level_changes.append((len(self._factors), self.levels.index(name)))
        return self

    def variable(self, name: str, domain: int | Iterable[Label], agent: str = _DEFAULT_AGENT) -> str:
        """Add a variable and return its name.

        Parameters
        ----------
        name : str
            Name of the variable; it must not exist yet.
        domain : int or iterable of label
            The number of values (0, 1, ...), or their labels: distinct strings or numbers.
        agent : str
            The owner; an unknown name adds a new agent.

        Returns
        -------
        str
            ``name``.

        Raises
        ------
        ProblemError
            If the variable exists already, a name is not a string, or the domain is empty or invalid.
        """
        what = f"variable {name!r}"
        if not isinstance(name, str) or not isinstance(agent, str):
            raise ProblemError(f"{what}: names of variables and agents must be strings, not {name!r} and {agent!r}")
        if name in self._domains:
            raise ProblemError(f"{what} exists already")
        self._domains[name] = _domain_labels(domain, what)
        self._position[name] = len(self._position)
        self._owner.append(self._agents.setdefault(agent, len(self._agents)))
        return name

    def factor(self, scope: str | Iterable[str], utilities: Utilities, default: float = 0, name: str = "") -> "Builder":
        """Add a factor: the utility or cost of each combination of values of some variables.

        Parameters
        ----------
        scope : str or iterable of str
            The names of the variables. A single name may be given without a tuple; an empty tuple makes a constant.
        utilities : array_like, callable or mapping
            An array with one axis per variable, or a function of one label per variable, or a mapping from tuples of
            labels to numbers (from single labels for a scope of one variable). −inf (for costs: inf) forbids a
            combination.
        default : float
            The value of all combinations that a mapping does not list.
        name : str
            Name of the factor, used in messages and files.

        Returns
        -------
        Builder
            This builder, so that calls can be chained.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, the table has a wrong shape, a value is not a number, or a function
            takes another number of arguments.
        """
        if not isinstance(scope, Iterable):
            raise ProblemError(f"factor: the scope is the name of a variable, or several names, not {scope!r}")
        names = (scope,) if isinstance(scope, str) else tuple(scope)
        what = f"factor {name!r}" if name else f"factor over ({', '.join(map(str, names))})"
        for variable in names:
            if not isinstance(variable, str) or variable not in self._domains:
                known = suggest_name(variable, self._domains)
                raise ProblemError(f"{what}: variable {variable!r} does not exist{known}")
            if names.count(variable) > 1:
                raise ProblemError(f"{what}: variable {variable!r} appears twice in its scope")
        if isinstance(utilities, Mapping):
            factor = self._factor_of_mapping(names, utilities, default, what)
        else:
            domains = [self._domains[v] for v in names]
            table = _tabulate_function(names, domains, utilities, what) if callable(utilities) else utilities
            values = normalise(_check_shape(names, domains, table, what), self.sense, what)
            factor = Factor(tuple([self._position[v] for v in names]), values)
        self._factors.append(factor.renamed(factor.scope, name))
        return self

    def at_most(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> "Builder":
        """Add a constraint: at most ``k`` of some variables take one of some values.

        Parameters
        ----------
        k : int
            The largest number.
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted; variables that do not have a value cannot take it.
        cost : float or None
            Cost of each variable above the number, at least 0; it lowers the utility of a problem that is maximised.
            None for a hard constraint.
        name : str
            Name of the constraint, used in messages and files.

        Returns
        -------
        Builder
            This builder, so that calls can be chained.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        return self.count(variables, values, (0, k), cost, name or "at_most")

    def at_least(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> "Builder":
        """Add a constraint: at least ``k`` of some variables take one of some values.

        Parameters
        ----------
        k : int
            The smallest number.
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted.
        cost : float or None
            Cost of each variable below the number, at least 0; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names = _names(variables)
        return self.count(names, values, (k, max(k, len(names))), cost, name or "at_least")

    def count(
        self,
        variables: Iterable[str],
        values: Iterable[Label],
        number: int | tuple[int, int] | str,
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a constraint on the number of variables that take one of some values.

        Parameters
        ----------
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted.
        number : int, (int, int) or str
            The number, the smallest and the largest number, or the name of a variable whose value is the number.
        cost : float or None
            Cost per unit by which the number differs; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names, wanted = _names(variables), set(values)
        if isinstance(number, str):
            scope = (*names, number)
            self._check_scope(scope, name or "count")
            counted = [*self._counted(names, wanted), self._numbers(number)]
            factory = import_module("dmcmc.inference.constraints.count_variable").count_variable
            self._factors.append(factory(self._indices(scope), counted, cost, name or "count"))
            return self
        low, high = (number, number) if isinstance(number, int) else number
        self._check_scope(names, name or "count")
        return self._constrain(
            "count", names, {"counted": self._counted(names, wanted), "low": low, "high": high}, cost, name
        )

    def all_different(
        self, variables: Iterable[str], exempt: Iterable[Label] = (), cost: float | None = None, name: str = ""
    ) -> "Builder":
        """Add a constraint: no two variables take the same value.

        Parameters
        ----------
        variables : iterable of str
            Names of variables. Values are the same if their labels are.
        exempt : iterable of label
            Values that several variables may take.
        cost : float or None
            Cost of each variable that would have to change; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        """
        names = _names(variables)
        self._check_scope(names, name or "all_different")
        return self._constrain("all_different", names, {"codes": self._codes(names, set(exempt))}, cost, name)

    def no_overlap(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int],
        places: Iterable[str] | None = None,
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a constraint: intervals of time do not overlap, or not in the same place.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts. The time of a value is its label if all labels of
            the variable are integers, otherwise its index.
        durations : int or iterable of int
            The duration of each interval, or of all.
        places : iterable of str or None
            Names of the variables that say where each interval is; None if all are in the same place.
        cost : float or None
            Cost per unit of time for which two intervals overlap, for each pair; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or there is not one duration, and one place or none, per start.
        """
        names = _names(starts)
        where = None if places is None else _names(places)
        scope = names if where is None else (*names, *where)
        self._check_scope(scope, name or "no_overlap")
        given = {
            "times": [self._numbers(v) for v in names],
            "durations": _per_variable(durations, len(names)),
            "places": None if where is None else self._codes(where),
        }
        return self._constrain("no_overlap", scope, given, cost, name)

    def cumulative(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int],
        demands: int | Iterable[int],
        capacity: int,
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a constraint: at each time, the demands of the intervals that contain it are at most a capacity.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts; see ``no_overlap``.
        durations, demands : int or iterable of int
            The duration and the demand of each interval, or of all.
        capacity : int
            The capacity.
        cost : float or None
            Cost per unit of demand above the capacity and unit of time; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = _names(starts)
        self._check_scope(names, name or "cumulative")
        given = {
            "times": [self._numbers(v) for v in names],
            "durations": _per_variable(durations, len(names)),
            "demands": _per_variable(demands, len(names)),
            "capacity": capacity,
        }
        return self._constrain("cumulative", names, given, cost, name)

    def breaks(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int] = 1,
        at_most: int = 0,
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a constraint: the time from the first to the last interval has few breaks.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts; see ``no_overlap``.
        durations : int or iterable of int
            The duration of each interval, or of all, at least 1.
        at_most : int
            The largest number of breaks.
        cost : float or None
            Cost of each further break; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = _names(starts)
        self._check_scope(names, name or "breaks")
        times = [self._numbers(v) for v in names]
        given = {"times": times, "durations": _per_variable(durations, len(names)), "high": at_most}
        return self._constrain("breaks", names, given, cost, name)

    def regular(self, variables: Iterable[str], automaton: Any, name: str = "") -> "Builder":
        """Add a constraint: an automaton accepts the values of some variables, read one after another.

        Parameters
        ----------
        variables : iterable of str
            Names of variables, at least one.
        automaton : dmcmc.inference.constraints.regular.Automaton
            The automaton; its transitions may have utilities or costs.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        ResourceError
            If the automaton has too many states.
        """
        names = _names(variables)
        self._check_scope(names, name or "regular")
        domains = [self._domains[v] for v in names]
        self._factors.append(automaton.factor(self._indices(names), domains, self.sense, name))
        return self

    def precedence(
        self, first: str, second: str, distance: int = 0, cost: float | None = None, name: str = ""
    ) -> "Builder":
        """Add a constraint: one variable plus a distance is at most another variable.

        Parameters
        ----------
        first, second : str
            Names of the variables. The number of a value is its label if all labels of the variable are integers,
            otherwise its index.
        distance : int
            The least difference, for instance the duration of the first interval.
        cost : float or None
            Cost per unit by which the difference is too small; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or both are the same.
        """
        names = (first, second)
        self._check_scope(names, name or "precedence")
        given = {"numbers": [self._numbers(v) for v in names], "distance": distance}
        return self._constrain("precedence", names, given, cost, name)

    def element(
        self,
        index: str,
        entries: Sequence[str] | Sequence[Label],
        result: str,
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a constraint: a result equals the entry of an array that an index selects.

        Parameters
        ----------
        index : str
            Name of the variable whose value with index i selects the i-th entry.
        entries : sequence of str, or of label
            The names of variables if all entries are such names, otherwise constants.
        result : str
            Name of the variable that equals the selected entry: their labels are the same.
        cost : float or None
            Cost of a difference; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or the index has more values than there are entries.
        """
        what = name or "element"
        self._check_scope((index, result), what)
        if len(self._domains[index]) > len(entries):
            raise ProblemError(f"constraint {what!r}: {index!r} has more values than the {len(entries)} entries")
        if not all(isinstance(entry, str) and entry in self._domains for entry in entries):
            lost = float("-inf") if cost is None else -cost
            constants = entries[: len(self._domains[index])]
            table = [[0 if entry == label else lost for label in self._domains[result]] for entry in constants]
            self._factors.append(Factor(self._indices((index, result)), normalise(as_array(table, what)), what))
            return self
        used = list(dict.fromkeys(str(entry) for entry in entries[: len(self._domains[index])]))
        scope_names = (index, result, *used)
        self._check_scope(scope_names, what)
        selected = [used.index(str(entry)) for entry in entries[: len(self._domains[index])]]
        given = {"codes": self._codes(scope_names[1:]), "selected": selected}
        return self._constrain("element", scope_names, given, cost, name)

    def constraint(
        self,
        kind: str,
        variables: Iterable[str],
        parameters: Mapping[str, Any],
        cost: float | None = None,
        name: str = "",
    ) -> "Builder":
        """Add a global constraint of a class that is given by its name, for instance one of a plug-in.

        Parameters
        ----------
        kind : str
            Name of the class.
        variables : iterable of str
            The scope.
        parameters : mapping
            The parameters of the class (``GlobalConstraint.from_parameters``).
        cost : float or None
            Cost per unit of violation; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Builder
            This builder.

        Raises
        ------
        ConfigError
            If the class is unknown.
        ProblemError
            If a variable is unknown or repeated, or a parameter is missing or does not fit.
        """
        names = _names(variables)
        self._check_scope(names, name or kind)
        return self._constrain(kind, names, parameters, cost, name)

    def _constrain(
        self, kind: str, names: Sequence[str], parameters: Mapping[str, Any], cost: float | None, name: str
    ) -> "Builder":
        """Add a global constraint over known variables."""
        # Constraints import the model; the registry is loaded by its name, so that the packages have no cycle.
        found = import_module("dmcmc.inference.constraints.registry").get(kind)
        price = None if cost is None else _python_number(cost, f"constraint {name or kind}: the cost")
        shape = [len(self._domains[v]) for v in names]
        try:
            factor = found.from_parameters(self._indices(names), shape, price, name or kind, parameters)
        except (KeyError, TypeError, ValueError) as error:
            raise ProblemError(f"constraint {name or kind}: a parameter is missing or no number: {error}") from None
        self._factors.append(factor)
        return self

    def _check_scope(self, names: Sequence[str], what: str) -> None:
        """Raise ProblemError if a variable is unknown or repeated."""
        for variable in names:
            if not isinstance(variable, str) or variable not in self._domains:
                known = suggest_name(variable, self._domains)
                raise ProblemError(f"constraint {what!r}: variable {variable!r} does not exist{known}")
        if len(set(names)) < len(names):
            twice = next(v for i, v in enumerate(names) if v in names[:i])
            raise ProblemError(f"constraint {what!r}: variable {twice!r} appears twice")

    def _indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of known variables."""
        return tuple([self._position[v] for v in names])

    def _numbers(self, variable: str) -> list[int]:
        """Return the number of each value: its label if all labels are integers, otherwise its index."""
        labels = self._domains[variable]
        whole = [label for label in labels if isinstance(label, int)]
        return whole if len(whole) == len(labels) else list(range(len(labels)))

    def _counted(self, names: Sequence[str], values: set[Label]) -> list[list[int]]:
        """Return for each value of each variable 1 if its label is among the given values, else 0."""
        return [[int(label in values) for label in self._domains[v]] for v in names]

    def _codes(self, names: Sequence[str], exempt: set[Label] | None = None) -> list[list[int]]:
        """Return a number of each value of each variable, equal for equal labels; −1 for exempt ones."""
        number: dict[Label, int] = {}
        return [
            [-1 if exempt and label in exempt else number.setdefault(label, len(number)) for label in self._domains[v]]
            for v in names
        ]

    def problem(self) -> Problem:
        """Return the problem with the variables and factors added so far.

        Returns
        -------
        Problem
            The problem; the builder can be extended afterwards.

        Raises
        ------
        ProblemError
            If the parts are inconsistent.
        """
        factors, levels, level_of = tuple(self._factors), (), list[int]()
        if self.levels:
            for (begin, level), (end, _) in pairwise([(0, 0), *self._level_changes, (len(factors), 0)]):
                level_of += [level] * (end - begin)
            # Levels import the model; their module is loaded by its name, so that the packages have no cycle.
            weighted = import_module("dmcmc.inference.levels.weights").weighted_or_separate
            factors, levels = weighted(factors, self.levels, level_of)
        return Problem(
            variables=tuple(self._domains),
            domains=np.array([len(values) for values in self._domains.values()], dtype=np.int64),
            agents=tuple(self._agents),
            owner=np.array(self._owner, dtype=np.int64),
            factors=factors,
            labels=tuple(None if isinstance(v, range) else tuple(v) for v in self._domains.values()),
            sense=self.sense,
            name=self.name,
            levels=levels,
            level_of=tuple(level_of),
        )

    def _factor_of_mapping(
        self, names: Sequence[str], utilities: Mapping[Any, float], default: float, what: str
    ) -> Factor:
        """Return the factor that is given by a mapping from labels to numbers."""
        axes = [(len(self._domains[name]), self._indices_of_labels(name)) for name in names]
        flat_indices, values = [], []
        for key, value in utilities.items():
            labels = key if isinstance(key, tuple) else (key,)
            flat_index = 0
            try:
                for (size, indices), label in zip(axes, labels, strict=True):
                    flat_index = flat_index * size + indices[label]
            except (KeyError, ValueError):
                raise self._wrong_key(names, key, labels, what) from None
            flat_indices.append(flat_index)
            if type(value) not in _NUMBERS or value != value:
                value = _python_number(value, f"{what}: the value at {key!r}")
            values.append(value)
        default = _python_number(default, f"{what}: default")
        scope, shape = [self._position[name] for name in names], [size for size, _ in axes]
        if prod(shape) <= _MAX_LIST_ENTRIES:
            entries = [default] * prod(shape)
            for flat_index, value in zip(flat_indices, values, strict=True):
                entries[flat_index] = value
            return Factor(tuple(scope), normalise(as_array(entries, what).reshape(shape), self.sense, what))
        rows = np.array([_unravelled(flat_index, shape) for flat_index in flat_indices], dtype=np.int64)
        whose = what.removeprefix("factor ")  # tabulate puts the word in front of it
        return tabulate(scope, shape, rows, values, default, self.sense, whose)

    def _wrong_key(self, names: Sequence[str], key: object, labels: Sequence[Label], what: str) -> ProblemError:
        """Return the error for a key of a mapping with a wrong number of labels, or with an unknown label."""
        if len(labels) != len(names):
            return ProblemError(f"{what}: {key!r} has {len(labels)} values for {len(names)} variables")
        axis = next(i for i, label in enumerate(labels) if label not in self._indices_of_labels(names[i]))
        shown = repr(labels[axis]) + (f" in {key!r}" if isinstance(key, tuple) else "")
        values_known = list_values(self._domains[names[axis]])
        return ProblemError(f"{what}: {shown} is not a value of {names[axis]!r}; {values_known}")

    def _indices_of_labels(self, name: str) -> Mapping[Label, int]:
        """Return the index of each label of a variable, computed at the first use."""
        found = self._label_indices.get(name)
        if found is None:
            found = self._label_indices[name] = {label: i for i, label in enumerate(self._domains[name])}
        return found


def _names(variables: Iterable[str]) -> tuple[str, ...]:
    """Return names of variables as a tuple; a single name is one variable."""
    return (variables,) if isinstance(variables, str) else tuple(variables)


def _per_variable(numbers: int | Iterable[int], count: int) -> list[int]:
    """Return one number per variable, given one per variable or one for all."""
    return list(numbers) if isinstance(numbers, Iterable) else [numbers] * count


def _unravelled(flat_index: int, shape: Sequence[int]) -> list[int]:
    """Return the indices of an entry in a table of some shape, of which the size may exceed 64 bits."""
    indices = []
    for size in reversed(shape):
        flat_index, position = divmod(flat_index, size)
        indices.append(position)
    return indices[::-1]


def as_problem(source: object) -> Problem:
    """Return a problem, or the problem of a builder.

    Parameters
    ----------
    source : Problem or Builder
        The problem, or a builder with its variables and factors.

    Returns
    -------
    Problem
        The problem.

    Raises
    ------
    ProblemError
        If ``source`` is neither.
    """
    if isinstance(source, Problem):
        return source
    if isinstance(source, Builder):
        return source.problem()
    given = "None" if source is None else f"{type(source).__name__} object"
    raise ProblemError(f"expected a Problem, got {given}; dmcmc.load reads a file, Problem.build() starts a problem")


def _domain_labels(domain: int | Iterable[Label], what: str) -> Sequence[Label]:
    """Return the labels of a domain, or a range if its values are 0, 1, ..."""
    if isinstance(domain, int | np.integer) and not isinstance(domain, bool):
        if domain < 1:
            raise ProblemError(f"{what}: a domain needs at least 1 value, not {domain}")
        return range(int(domain))
    if isinstance(domain, str) or not isinstance(domain, Iterable):
        raise ProblemError(f"{what}: a domain is a number of values or a list of labels, not {domain!r}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in domain]
    if not labels:
        raise ProblemError(f"{what}: a domain needs at least 1 value")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int | float):
            raise ProblemError(f"{what}: labels must be strings or numbers, not {label!r}")
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        raise ProblemError(f"{what}: label {twice!r} appears twice")
    plain = all(isinstance(label, int) for label in labels) and labels == list(range(len(labels)))
    return range(len(labels)) if plain else labels


def _tabulate_function(
    names: Sequence[str], domains: Sequence[Sequence[Label]], function: Callable[..., float], what: str
) -> Array:
    """Return the table of a function's values; the last variable changes fastest."""
    calls = prod(len(d) for d in domains)
    if calls > _MAX_FUNCTION_CALLS:
        raise ProblemError(f"{what}: its function would be called {calls:,} times; give an array, or a mapping")

    def numbers() -> Iterator[int | float]:
        """Yield the function's values."""
        for labels in product(*domains):
            value = function(*labels)
            if type(value) not in _NUMBERS or value != value:
                where = ", ".join(f"{v}={label!r}" for v, label in zip(names, labels, strict=True))
                value = _python_number(value, f"{what}: the function at {where}")
            yield value

    try:
        values = list(numbers())
    except TypeError as error:
        if _takes(function, len(names)):
            raise
        raise ProblemError(f"{what}: its function has to take {len(names)} labels as arguments: {error}") from None
    return as_array(values, what).reshape([len(d) for d in domains])


def _takes(function: Callable[..., float], arguments: int) -> bool:
    """Return whether a function can be called with a number of arguments; True if this is not known."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def _python_number(value: Any, what: str) -> int | float:
    """Return a value as a Python int or float; raise ProblemError for anything else."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
    if isinstance(plain, bool):
        raise ProblemError(f"{what} is {plain}: a number is needed (0 to allow; -inf, or inf for costs, to forbid)")
    if not isinstance(plain, int | float):
        raise ProblemError(f"{what} is {plain!r}: a number is needed")
    if plain != plain:
        raise ProblemError(f"{what} is NaN: a number is needed")
    return plain


def _check_shape(names: Sequence[str], domains: Sequence[Sequence[Label]], table: ArrayLike, what: str) -> ArrayLike:
    """Return a table with one axis per variable; raise ProblemError if its shape is wrong."""
    shape = tuple(len(d) for d in domains)
    try:
        array = np.asarray(table)
    except ValueError:  # rows of different lengths
        raise ProblemError(f"{what}: expected a table of shape {shape}, got rows of different lengths") from None
    if array.shape != shape:
        sizes = ", ".join(f"{v} has {n}" for v, n in zip(names, shape, strict=True))
        values = f" (values: {sizes})" if sizes else ""
        raise ProblemError(f"{what}: expected a table of shape {shape}{values}, got {array.shape}")
    return array
