"""Shared parts of the methods that add global constraints, and those for constraints of any class."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from dmcmc.inference.building.named_variables import NamedVariables
from dmcmc.inference.constraints import registry
from dmcmc.inference.model.python_number import cost_per_unit
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
        automaton : dmcmc.inference.constraints.regular.Automaton
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
