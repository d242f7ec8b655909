"""What a square is for: one row of an agent, perhaps with further variables fixed, one of them to a part of its values.

The interface has one value then, whose vector is the sum of the row's: fixed variables' values add their own.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD
from dmcmc.inference.bounds.semidefinite.certificate import certified, row_vectors
from dmcmc.inference.bounds.semidefinite.descent import Descent, Point, Singles
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import MOMENTUM, SPREAD, CaseStep
from dmcmc.inference.bounds.semidefinite.row_tree import Fixed, Part
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.runtime.types import Ints

_COOLING, _SHORTER = 3.7, 2.0  # powers of the part of steps that are made
_RISING = 0.2  # of the steps: lengths are less before, since points are those of something else


class Case(NamedTuple):
    """A row; with variables, places among the hidden ones, fixed to values, one after the other, and another's part."""

    row: int
    fixed: Fixed = ()
    part: Part | None = None

    def left(self, network: Network) -> NDArray[np.bool_]:
        """Return which hidden variables are not fixed, (h,)."""
        found = np.ones(network.starts.size - 1, dtype=bool)
        found[[variable for variable, _ in self.fixed]] = False
        return found


class Plan(NamedTuple):
    """Steps and how temperatures and steps' lengths, in units, go down in them.

    They stay near where they begin for long: it is steps while much still counts that lead far.

    Attributes
    ----------
    steps : int
    warm, cold : float
        Temperatures.
    long, short : float
        Lengths.
    """

    steps: int
    warm: float
    cold: float
    long: float
    short: float

    def at(self, step: int) -> CaseStep:
        """Return what a step has."""
        part = step / max(1, self.steps - 1)
        slope = 1 / (self.warm * (self.cold / self.warm) ** part**_COOLING)
        length = self.long * (self.short / self.long) ** part**_SHORTER * min(1.0, (part + 1 / self.steps) / _RISING)
        return CaseStep(slope, length / (1 - MOMENTUM ** (step + 1)), (1 - SPREAD ** (step + 1)) ** -0.5)


# Tried on rows of meetings with both kinds of utilities and 25 and 50 variables.
ROW = Plan(140, 0.04, 0.0005, 0.018, 0.0003)
NODE = Plan(45, 0.04, 0.0005, 0.024, 0.0003)


def utilities_of(network: Network, cases: Sequence[Case]) -> tuple[Ints, Ints]:
    """Return what each hidden value is worth by itself, (cases, n), and what there is without them, in the scale."""
    digits = network.digits(np.array([case.row for case in cases], dtype=np.int64))
    values, constants = network.values(digits), network.constants(digits)
    for fixed in zip_longest(*(case.fixed for case in cases)):
        has = np.array([one is not None for one in fixed])
        at = np.array([network.starts[one[0]] + one[1] for one in fixed if one is not None])
        constants[has] += values[has, at]
        values[has] += network.pairs[at]
    for own, case in zip(values, cases, strict=True):
        if case.part is not None:
            start, end = network.starts[case.part.variable : case.part.variable + 2].tolist()
            own[[start + value for value in case.part.others(end - start)]] = DEAD
    return values, constants


def shared_start(descent: Descent, row: int) -> Singles:
    """Return the vector of a row where all rows share a square."""
    network, vectors = descent.network, descent.point.vectors
    found: Singles = row_vectors(network, vectors[network.owner.size :], network.digits(np.array([row])))[0]
    return found


def busiest_first(network: Network) -> list[int]:
    """Return the hidden variables in the order in which they are fixed.

    Each is the one that shares most pairs' tables with those after it.
    """
    first, found = network.starts[:-1], list[int]()
    shared = np.add.reduceat(np.add.reduceat(network.pairs != 0, first, axis=0, dtype=np.int64), first, axis=1) > 0
    left = shared.sum(axis=1)
    for _ in range(first.size):
        found.append(int(left.argmax()))
        left = left - shared[found[-1]]
        left[found] = -1
    return found


def alone(network: Network, case: Case) -> Network:
    """Return the network of a case: its interface has one value, and fixed variables are gone."""
    (values,), (constant,) = utilities_of(network, [case])
    left = case.left(network)
    kept = left[network.owner]
    sizes = np.diff(network.starts)[left]
    starts, owner = np.cumsum([0, *sizes], dtype=np.int64), np.repeat(np.arange(sizes.size), sizes)
    inside = (((0,), np.array([constant], dtype=np.int64)),)
    crossing = (np.zeros((1, owner.size), dtype=np.int64),)
    pairs = network.pairs[np.ix_(kept, kept)]
    return Network(starts, owner, pairs, values[kept], crossing, inside, (1,), network.scale)


def certified_alone(descent: Descent, case: Case, point: Point) -> int | None:
    """Return the bound of a case with a point, vectors of all hidden values and the row's; see :func:`certified`."""
    network, (vectors, shifts) = descent.network, descent.scaled(point)
    left = case.left(network)
    kept = left[network.owner]
    found = certified(
        alone(network, case), vectors[np.append(kept, True)], shifts[np.ix_(left, kept)], np.zeros(1, dtype=np.int64)
    )
    return None if found is None else int(found[0])
