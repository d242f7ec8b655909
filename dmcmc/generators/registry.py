"""Registry of the problem families (the generators) by name; ``dmcmc generate`` and ``problem.generator`` use it."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from dmcmc.generators import applications, meetings, networks
from dmcmc.generators.meetings import (
    BusinessMeetings,
    TimefoldMeetings,
    generate_business_meetings,
    generate_timefold_meetings,
)
from dmcmc.generators.networks import RandomDcop, generate_random_dcop
from dmcmc.generators.parameters import Parameters
from dmcmc.inference.model.names import plain_value
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError


class Family(NamedTuple):
    """A problem family.

    Attributes
    ----------
    summary : str
        Description in one line.
    parameters : type
        Class of its parameters.
    generate : callable
        Builds a problem from the parameters.
    """

    summary: str
    parameters: type[Parameters]
    generate: Callable[[Any], Problem]


def names() -> dict[str, str]:
    """Return the summary of every family by name."""
    return {name: family.summary for name, family in _FAMILIES.items()}


def get(name: str) -> Family:
    """Return a family by name.

    Raises
    ------
    ConfigError
        For an unknown name; lists the known ones.
    """
    if name not in _FAMILIES:
        raise ConfigError(f"unknown generator {name!r}{_hint(name, _FAMILIES)}; known are {', '.join(_FAMILIES)}")
    return _FAMILIES[name]


def defaults(name: str) -> dict[str, object]:
    """Return the default values of a family's parameters."""
    kind = get(name).parameters
    return dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))


def generate(name: str, parameters: Mapping[str, object]) -> Problem:
    """Generate a problem of a family.

    Parameters
    ----------
    name
        A family; :func:`names` lists them.
    parameters
        Parameters that differ from the defaults.

    Raises
    ------
    ConfigError
        For an unknown family, or for a parameter that is unknown, of the wrong type or out of range; in the latter
        cases the message starts with the parameter's name and a colon.
    ResourceError
        If the problem does not fit the memory; raised before anything is allocated.
    """
    family = get(name)
    known = family.parameters.__struct_fields__
    for key in parameters:
        if key not in known:
            raise ConfigError(f"{key}: unknown parameter of {name}{_hint(key, known)}; known are {', '.join(known)}")
    return family.generate(family.parameters(**{key: plain_value(value) for key, value in parameters.items()}))


def _hint(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt name in parentheses; empty if no known name is similar."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


_FAMILIES = {
    "meeting-scheduling": Family(
        "events of the members of a hierarchy get time slots (PEAV)", meetings.Meetings, meetings.generate_meetings
    ),
    "timefold-meetings": Family(
        "meetings with attendees and places, in three levels, like Timefold's data",
        TimefoldMeetings,
        generate_timefold_meetings,
    ),
    "business-meetings": Family(
        "meetings of pairs at tables, with few breaks (B2B)",
        BusinessMeetings,
        generate_business_meetings,
    ),
    "random": Family("random DCOP: dense local graphs, utilities 1..1000", RandomDcop, generate_random_dcop),
    "random-network": Family(
        "connected random network, costs 0..100, some forbidden", networks.RandomNetwork, networks.random_network
    ),
    "scale-free": Family(
        "Barabasi-Albert network, costs 0..100, some forbidden", networks.ScaleFree, networks.scale_free
    ),
    "colouring": Family(
        "random graph whose neighbours should differ, costs 1..100", networks.Colouring, networks.colouring
    ),
    "grid": Family("grid network, costs 0..100, some forbidden", networks.GridNetwork, networks.grid),
    "torus": Family("grid without a border, costs 0..100, some forbidden", networks.Torus, networks.torus),
    "spin-glass": Family("Edwards-Anderson spin glass on a torus, -1 or +1", networks.SpinGlass, networks.spin_glass),
    "ising": Family("Ising model with random couplings and fields on a torus", networks.Ising, networks.ising),
    "small-world": Family(
        "Newman-Watts network, costs 0..100, some forbidden", networks.SmallWorld, networks.small_world
    ),
    "dimes": Family("events of persons in slots (DiMES, PEAV or EAV)", meetings.Dimes, meetings.generate_dimes),
    "sensors": Family("each sensor of a grid tracks a target", applications.Sensors, applications.sensors),
    "secp": Family("smart lighting: lights, places and rules", applications.Lighting, applications.lighting),
    "smart-homes": Family("start times of homes' devices", applications.SmartHomes, applications.smart_homes),
    "resource-allocation": Family(
        "bundles of resources that do not overlap", applications.ResourceAllocation, applications.allocation
    ),
}
