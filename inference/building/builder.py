"""Problems written by hand: variables and factors by name, with tables, functions or mappings of the values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np

from dmcmc.inference.building.counting_constraints import CountingConstraints
from dmcmc.inference.building.given_tables import Utilities, factor_of
from dmcmc.inference.building.named_variables import NamedVariables
from dmcmc.inference.building.scheduling_constraints import SchedulingConstraints
from dmcmc.inference.levels.weights import weighted_or_separate
from dmcmc.inference.model.factor import Factor, Level
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.unknown_names import list_values
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Label

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
