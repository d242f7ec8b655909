"""The plug-in protocol of DCOP algorithms: a name, parameters, and either message cycles or a reformulated problem.

``dmcmc.algorithms.registry`` finds algorithms by name. ``dmcmc.algorithms.choice`` runs an :class:`Algorithm` cycle by
cycle, and a :class:`Rewriting` as an ordinary run with other settings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmcmc.algorithms.network import AgentNetwork
from dmcmc.inference.model.names import plain_value
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.types import Ints

Value = int | float | str
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an algorithm: its default, and the values that it accepts.

    Attributes
    ----------
    default : bool, int, float or str
        Default value. It also fixes the type that is accepted; a float parameter accepts whole numbers, too.
    least, most : float
        Smallest and largest number that is accepted.
    choices : sequence of str
        Words that a parameter of type ``str`` accepts.
    text : str
        Short help text.
    """

    default: Value
    least: float = -np.inf
    most: float = np.inf
    choices: Sequence[str] = ()
    text: str = ""

    def checked(self, value: Any, where: str) -> Value:
        """Return a value converted to the parameter's type; raise an error if it is not allowed.

        Parameters
        ----------
        value
            Value as the user gave it.
        where : str
            Name of the setting, which begins the error message.

        Raises
        ------
        ConfigError
            If the value has the wrong type or is out of range.
        """
        if isinstance(self.default, str):
            if value in self.choices:
                return str(value)
            raise ConfigError(f"{where}: expected one of {', '.join(self.choices)}, got {value!r}")
        if isinstance(self.default, bool):
            if isinstance(value, bool):
                return value
            raise ConfigError(f"{where}: expected true or false, got {value!r}")
        whole, value = isinstance(self.default, int), plain_value(value)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ConfigError(f"{where}: expected a {'whole ' * whole}number, got {value!r}")
        if not self.least <= value <= self.most:
            raise ConfigError(f"{where}: expected a number from {self.least:g} to {self.most:g}, got {value!r}")
        return int(value) if whole else float(value)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that runs in synchronous message cycles.

    Attributes
    ----------
    name, summary : str
        Name in the settings, and one line for the list of algorithms.
    steps : callable
        ``steps(network, rng, values)`` yields one assignment (value indices, shape (n,), int64) after each cycle. It
        returns when no later cycle can change anything. ``rng`` is a NumPy generator in the same state on all ranks.
        ``values`` maps parameter names to values. The algorithm counts its messages with
        :meth:`dmcmc.algorithms.network.AgentNetwork.sends`. The caller keeps the best assignment.
    parameters : mapping of str to Parameter
        Parameters by name.
    cycles : int
        Number of cycles if the user sets neither a number of cycles nor a time budget.
    kind : str
        ``local``, ``message passing`` or ``sampling``.
    paper : str
        The paper that the algorithm is from.
    """

    name: str
    summary: str
    steps: Callable[[AgentNetwork, Any, Values], Iterator[Ints]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    cycles: int = 200
    kind: str = "local"
    paper: str = ""


@dataclass(frozen=True)
class Rewriting:
    """An algorithm that is a dmcmc run on a reformulated problem with other settings.

    Attributes
    ----------
    name, summary : str
        Name in the settings, and one line for the list of algorithms.
    rewrite : callable
        ``rewrite(problem)`` returns the problem to solve. Each of its assignments is an assignment of ``problem``.
    sections : callable
        ``sections(values)`` returns settings by section and key, such as ``{"combine": {"method": "exact"}}``.
    parameters : mapping of str to Parameter
        Parameters by name.
    kind, paper : str
        Kind of the algorithm, and the paper that it is from.
    """

    name: str
    summary: str
    rewrite: Callable[[Problem], Problem]
    sections: Callable[[Values], Mapping[str, Mapping[str, Any]]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    kind: str = "complete"
    paper: str = ""


def checked(algorithm: Any, given: Mapping[str, Any], where: str) -> dict[str, Value]:
    """Return the values of all parameters of an algorithm: the given ones, and defaults for the rest.

    Parameters
    ----------
    algorithm : Algorithm, Rewriting or subclass of Agent
        The algorithm that declares the parameters.
    given : mapping of str to object
        Values as the user gave them.
    where : str
        Name of the settings section, which begins the error message.

    Raises
    ------
    ConfigError
        If a name is unknown or a value is not allowed.
    """
    for name in given:
        if name not in algorithm.parameters:
            known = ", ".join(algorithm.parameters) or "it has none"
            raise ConfigError(f"{where}.{name}: unknown parameter of {algorithm.name} (known: {known})")
    return {
        name: parameter.checked(given[name], f"{where}.{name}") if name in given else parameter.default
        for name, parameter in algorithm.parameters.items()
    }
