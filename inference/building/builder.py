"""Building a problem by hand, with names of variables, values and constraints.

Problems written by hand: variables and factors by name, with tables, functions or mappings of the values.

Constraints that count values, as methods of the builder of problems.

Constraints on intervals of time, as methods of the builder of problems.

Shared parts of the methods that add global constraints, and those for constraints of any class.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np

from dmcmc.inference.building.given_tables import NamedVariables, Utilities, factor_of
from dmcmc.inference.building.levels import weighted_or_separate
from dmcmc.inference.constraints import registry
from dmcmc.inference.constraints.count import count_variable
from dmcmc.inference.model.factor import Factor, Level
from dmcmc.inference.model.names import cost_per_unit, list_values, whole_number
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Label


class GlobalConstraints(ABC):
    """Methods that add a constraint to a problem under construction.

    Attributes
    ----------
    sense : {"max", "min"}
        Whether the factors are utilities ("max") or costs ("min").
    _named : NamedVariables
        The variables added so far.
    """

    sense: str
    _named: NamedVariables

    @abstractmethod
    def factor(self, scope: Iterable[str], utilities: Any, default: float = 0, name: str = "") -> Self:
        """Add a factor with a table."""

    @abstractmethod
    def _append(self, factor: Any) -> Self:
        """Add a factor whose variables are indices."""

    def constraint(
        self,
        kind: str,
        variables: Iterable[str],
        parameters: Mapping[str, Any],
        cost: float | None = None,
        name: str = "",
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ConfigError
            If the class is unknown.
        ProblemError
            If a variable is unknown or repeated, or a parameter is missing or does not fit.
        """
        names = self._scope(variables, name or kind)
        return self._constrain(kind, names, parameters, cost, name)

    def regular(self, variables: Iterable[str], automaton: Any, name: str = "") -> Self:
        """Add a constraint: an automaton accepts the values of some variables, read one after another.

        Parameters
        ----------
        variables : iterable of str
            Names of variables, at least one.
        automaton : dmcmc.inference.constraints.count.Automaton
            The automaton; its transitions may have utilities or costs.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        ResourceError
            If the automaton has too many states.
        """
        names = self._scope(variables, name or "regular")
        domains = [self._named.domains[v] for v in names]
        return self._append(automaton.factor(self._named.indices(names), domains, self.sense, name))

    def element(
        self,
        index: str,
        entries: Sequence[str] | Sequence[Label],
        result: str,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or the index has more values than there are entries.
        """
        what = name or "element"
        self._scope((index, result), what)
        if len(self._named.domains[index]) > len(entries):
            raise ProblemError(f"constraint {what!r}: {index!r} has more values than the {len(entries)} entries")
        if not all(isinstance(entry, str) and entry in self._named.domains for entry in entries):
            price = cost_per_unit(cost, f"constraint {what}")
            lost = (float("inf") if price is None else price) * (1 if self.sense == "min" else -1)
            constants = entries[: len(self._named.domains[index])]
            table = [[0 if entry == label else lost for label in self._named.domains[result]] for entry in constants]
            return self.factor((index, result), table, name=what)
        used = list(dict.fromkeys(str(entry) for entry in entries[: len(self._named.domains[index])]))
        scope_names = self._scope((index, result, *used), what)
        selected = [used.index(str(entry)) for entry in entries[: len(self._named.domains[index])]]
        given = {"codes": self._named.codes(scope_names[1:]), "selected": selected}
        return self._constrain("element", scope_names, given, cost, name)

    def _constrain(
        self, kind: str, names: Sequence[str], parameters: Mapping[str, Any], cost: float | None, name: str
    ) -> Self:
        """Add a global constraint over known variables."""
        found = registry.get(kind)
        shape = [len(self._named.domains[v]) for v in names]
        try:
            factor = found.from_parameters(self._named.indices(names), shape, cost, name or kind, parameters)
        except (KeyError, TypeError, ValueError) as error:
            raise ProblemError(f"constraint {name or kind}: a parameter is missing or no number: {error}") from None
        return self._append(factor)

    def _scope(self, variables: Iterable[str], what: str) -> tuple[str, ...]:
        """Return the names of a constraint's variables; ``what`` names the constraint in errors.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        """
        names = as_names(variables)
        self._named.check_scope(names, f"constraint {what!r}")
        return names


def as_names(variables: Iterable[str]) -> tuple[str, ...]:
    """Return names of variables as a tuple; a single name is one variable."""
    return (variables,) if isinstance(variables, str) else tuple(variables)


class CountingConstraints(GlobalConstraints):
    """Methods that limit how many variables take some values."""

    def at_most(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> Self:
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
        Self
            This builder, so that calls can be chained.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        return self.count(variables, values, (0, k), cost, name or "at_most")

    def at_least(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names, k = as_names(variables), whole_number(k, f"constraint {name or 'at_least'}: the number")
        return self.count(names, values, (k, max(k, len(names))), cost, name or "at_least")

    def count(
        self,
        variables: Iterable[str],
        values: Iterable[Label],
        number: int | tuple[int, int] | str,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names, wanted = as_names(variables), set(values)
        if isinstance(number, str):
            scope = self._scope((*names, number), name or "count")
            counted = [*self._named.counted(names, wanted), self._named.numbers(number)]
            return self._append(count_variable(self._named.indices(scope), counted, cost, name or "count"))
        low, high = number if isinstance(number, tuple | list) and len(number) == 2 else (number, number)
        self._scope(names, name or "count")
        return self._constrain(
            "count", names, {"counted": self._named.counted(names, wanted), "low": low, "high": high}, cost, name
        )

    def all_different(
        self, variables: Iterable[str], exempt: Iterable[Label] = (), cost: float | None = None, name: str = ""
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        """
        names = self._scope(variables, name or "all_different")
        return self._constrain("all_different", names, {"codes": self._named.codes(names, set(exempt))}, cost, name)


class SchedulingConstraints(GlobalConstraints):
    """Methods that restrict when intervals start, whose starts are variables."""

    def no_overlap(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int],
        places: Iterable[str] | None = None,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or there is not one duration, and one place or none, per start.
        """
        names = as_names(starts)
        where = None if places is None else as_names(places)
        scope = self._scope((*names, *(where or ())), name or "no_overlap")
        given = {
            "times": [self._named.numbers(v) for v in names],
            "durations": _per_variable(durations, len(names)),
            "places": None if where is None else self._named.codes(where),
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
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = self._scope(starts, name or "cumulative")
        given = {
            "times": [self._named.numbers(v) for v in names],
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
    ) -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = self._scope(starts, name or "breaks")
        times = [self._named.numbers(v) for v in names]
        given = {"times": times, "durations": _per_variable(durations, len(names)), "high": at_most}
        return self._constrain("breaks", names, given, cost, name)

    def precedence(self, first: str, second: str, distance: int = 0, cost: float | None = None, name: str = "") -> Self:
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
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or both are the same.
        """
        names = self._scope((first, second), name or "precedence")
        given = {"numbers": [self._named.numbers(v) for v in names], "distance": distance}
        return self._constrain("precedence", names, given, cost, name)


def _per_variable(numbers: int | Iterable[int], count: int) -> list[int]:
    """Return one number per variable, given one per variable or one for all."""
    return list(numbers) if isinstance(numbers, Iterable) else [numbers] * count


_DEFAULT_AGENT = "all"  # the agent that owns variables without a named agent


@dataclass
class Builder(CountingConstraints, SchedulingConstraints):
    """A problem under construction; ``Problem.build`` returns an empty one.

    The methods that add global constraints are those of the base classes.

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
    _named: NamedVariables = field(default_factory=NamedVariables, init=False, repr=False)
    _agents: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # index of each agent
    _owner: list[int] = field(default_factory=list, init=False, repr=False)
    _factors: list[Factor] = field(default_factory=list, init=False, repr=False)
    # Number of factors at each change of the level, with the new level.
    _level_changes: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")

    def level(self, name: str) -> Self:
        """Add the next factors and constraints to a level of the objective.

        Parameters
        ----------
        name : str
            A name from ``levels``. Before the first call, factors belong to the first level.

        Returns
        -------
        Self
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
        if not isinstance(name, str) or not isinstance(agent, str):
            raise ProblemError(
                f"variable {name!r}: names of variables and agents must be strings, not {name!r} and {agent!r}"
            )
        self._named.add(name, domain)
        self._owner.append(self._agents.setdefault(agent, len(self._agents)))
        return name

    def factor(self, scope: str | Iterable[str], utilities: Utilities, default: float = 0, name: str = "") -> Self:
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
        Self
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
        return self._append(factor_of(self._named, names, utilities, default, self.sense, name))

    def _append(self, factor: Factor) -> Self:
        """Add a factor whose variables are indices."""
        self._factors.append(factor)
        return self

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
        factors, level_of = tuple(self._factors), list[int]()
        levels: tuple[Level, ...] = ()
        if self.levels:
            for (begin, level), (end, _) in pairwise([(0, 0), *self._level_changes, (len(factors), 0)]):
                level_of += [level] * (end - begin)
            factors, levels = weighted_or_separate(factors, self.levels, level_of)
        domains = self._named.domains
        return Problem(
            variables=tuple(domains),
            domains=np.array([len(values) for values in domains.values()], dtype=np.int64),
            agents=tuple(self._agents),
            owner=np.array(self._owner, dtype=np.int64),
            factors=factors,
            labels=tuple(None if isinstance(v, range) else tuple(v) for v in domains.values()),
            sense=self.sense,
            name=self.name,
            levels=levels,
            level_of=tuple(level_of),
        )


Problem.builder = Builder


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
