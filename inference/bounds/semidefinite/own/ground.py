"""What all cases of some agents share, laid out once: pairs' utilities, in units and in whole numbers."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.bounds.dual.tables.entries import DEAD
from dmcmc.inference.bounds.semidefinite.batch import columns_of, shape_of, sizes_of
from dmcmc.inference.bounds.semidefinite.descent import Descent
from dmcmc.inference.bounds.semidefinite.steps import Arrays, Shape


class Ground:
    """Agents that have been laid out.

    Parameters
    ----------
    descents
        Of the agents.
    arrays : Arrays

    Attributes
    ----------
    shape : Shape
        Of one case.
    columns
        Where each agent's values are.
    sizes : (agents, h) int32
        Of domains.
    utilities : (agents, n, n) float32, there
    pairs : (agents, n, n) int32, there
    """

    def __init__(self, descents: Sequence[Descent], arrays: Arrays) -> None:
        self.descents, self.arrays = descents, arrays
        self.shape = case_shape(descents)
        h, d, n = self.shape.h, self.shape.d, self.shape.n
        networks = [descent.network for descent in descents]
        self.columns, self.sizes = [columns_of(network, d) for network in networks], sizes_of(networks, h)
        utilities = np.zeros((len(descents), n, n), dtype=np.float32)
        pairs = np.full((len(descents), n, n), DEAD, dtype=np.int32)
        for b, (descent, columns) in enumerate(zip(descents, self.columns, strict=True)):
            places = np.ix_(columns, columns)
            utilities[b][places] = descent.in_units(descent.network.pairs)
            pairs[b][places] = descent.network.pairs
        self.utilities, self.pairs = arrays.put(utilities), arrays.put(pairs)


def case_shape(descents: Sequence[Descent]) -> Shape:
    """Return the sizes of one case of some agents."""
    return shape_of(descents, 1)._replace(agents=1, o=1)
