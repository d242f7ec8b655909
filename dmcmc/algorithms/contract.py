"""What an algorithm promises: its name, its parameters, and cycles of messages, or another problem to solve instead."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmcmc.algorithms.network import Network
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.types import Ints

Value = int | float | str
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Parameter:
    """One parameter: its default, and what it may be.

    Attributes
    ----------
    default : int, float or str
        A value has its type; whole numbers are floats, too.
    least, most : float
        Limits of a number, both allowed.
    choices : sequence of str
        What a word may be.
    text : str
        A few words of help.
    """

    default: Value
    least: float = -np.inf
    most: float = np.inf
    choices: Sequence[str] = ()
    text: str = ""

    def checked(self, value: Any, where: str) -> Value:
        """Return a value, or raise what is wrong with it."""
        if isinstance(self.default, str):
            if value in self.choices:
                return str(value)
            raise ConfigError(f"{where}: expected one of {', '.join(self.choices)}, got {value!r}")
        whole = isinstance(self.default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ConfigError(f"{where}: expected a {'whole ' * whole}number, got {value!r}")
        if not self.least <= value <= self.most:
            raise ConfigError(f"{where}: expected a number from {self.least:g} to {self.most:g}, got {value!r}")
        return int(value) if whole else float(value)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of synchronous cycles.

    Attributes
    ----------
    name, summary : str
    steps : callable
        ``steps(network, rng, values)`` yields an assignment, value indices (n,), after each cycle, and returns where no
        cycle can change anything any more. ``rng`` is a NumPy generator that is the same on all ranks; ``values`` has
        the parameters by name. Messages are told by :meth:`.Network.sends`. The best assignment of all is kept by the
        caller.
    parameters : mapping of str to Parameter
    cycles : int
        How many there are where neither a number nor a time is asked for.
    """

    name: str
    summary: str
    steps: Callable[[Network, np.random.Generator, Values], Iterator[Ints]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    cycles: int = 200


@dataclass(frozen=True)
class Rewriting:
    """An algorithm that this project's own run is, on another problem with other settings.

    Attributes
    ----------
    name, summary : str
    rewrite : callable
        Returns the problem to solve; its assignments are assignments of the problem given.
    sections : callable
        ``sections(values)`` returns settings by section and key: ``{"combine": {"method": "exact"}}``.
    parameters : mapping of str to Parameter
    """

    name: str
    summary: str
    rewrite: Callable[[Problem], Problem]
    sections: Callable[[Values], Mapping[str, Mapping[str, Any]]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def checked(algorithm: Algorithm | Rewriting, given: Mapping[str, Any], where: str) -> dict[str, Value]:
    """Return all parameters of an algorithm, those given and the defaults of others.

    Raises
    ------
    ConfigError
        For one that there is not, or a value that is not allowed; ``where`` is named before its name.
    """
    for name in given:
        if name not in algorithm.parameters:
            known = ", ".join(algorithm.parameters) or "there are none"
            raise ConfigError(f"{where}.{name}: unknown parameter of {algorithm.name} (known: {known})")
    return {
        name: parameter.checked(given[name], f"{where}.{name}") if name in given else parameter.default
        for name, parameter in algorithm.parameters.items()
    }
