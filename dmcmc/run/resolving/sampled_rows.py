"""Sample the best assignment of each row of a problem with one boundary variable."""

from collections.abc import Iterator, Sequence

import numpy as np

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.types import Ints
from dmcmc.samplers import registry as samplers
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.contract.protocol import Sampling


def sampled_rows(
    local: LocalProblem, arithmetic: Arithmetic, start: Ints | None, seed: int, backend: Backend, seconds: float
) -> Iterator[tuple[int, Ints]]:
    """Yield the best assignment that chains find for each row of a subproblem with one boundary variable."""
    sampling = Sampling(arithmetic, seed, backend=backend, seconds=seconds, incumbent=start)
    (table,) = samplers.get(SAMPLER).solve([local], sampling)
    (v,) = local.interface
    for row in range(local.rows):
        hidden = table.witness({v: row})
        yield row, joined(local, row, [hidden[u] for u in local.hidden])


def joined(local: LocalProblem, row: int, hidden: Sequence[int] | Ints) -> Ints:
    """Return the assignment that consists of a row and of values of the hidden variables."""
    values = np.zeros(local.domains.size, dtype=np.int64)
    values[[*local.hidden, *local.interface]] = [*hidden, row]
    return values
