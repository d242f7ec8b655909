"""Starts that know the problem: assignments drawn backward through mini-bucket messages.

All variables are eliminated with bounded tables and moment matching, which shifts utilities between tables as dual
ascent does. Then each variable, last first, is drawn given those after it by what its mini-buckets add up to: at
temperature 0 that rounds the shifted tables, else it gives many different assignments, most of which break little.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.minibuckets.choose_z import largest_fitting, most_z
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.samplers.blocks.block_workspace import Priced
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import draw_backward
from dmcmc.samplers.blocks.sweep_kernels import typical_spread

_ENTRIES, _SHARE = 1 << 22, 1 / 32  # of all tables at most, and the part of the budget for them
_FACTORS = 20_000  # more take too long to be planned
_BITS = 44  # of the sum of all tables: int64 leaves room for shifts
LOWEST = int(np.iinfo(np.int64).min) // ADDENDS
_TEMPERATURES = (0.0, 0.1, 0.3, 0.03)  # in turn, in typical spreads of a conditional


class Starts:
    """Assignments of a graph, by number.

    Parameters
    ----------
    done : Elimination
        Of all variables, with mini-buckets, in int64.
    spread : float
        Typical of a conditional, in the units of its tables.
    key : (2,) uint64
        Of random numbers.
    """

    def __init__(self, done: Elimination, spread: float, key: NDArray[np.uint64]) -> None:
        self.done, self.spread, self.key = done, spread, key

    def draw(self, chain: int, number: int, given: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return a chain's start of a number, the same every time; ``given`` has the values of what is not drawn."""
        program = self.done.plan.program
        values = np.zeros(program.domains.size, dtype=np.int64) if given is None else given.copy()
        temperature = float(self.temperatures(np.array(chain + number)))
        draw_backward(program, self.done.arena, values, LOWEST, temperature, self.key, chain, number)
        return values

    def temperatures(self, turns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the temperatures of some turns: a chain's number and its start's added up."""
        return self.spread * np.array(_TEMPERATURES)[turns % len(_TEMPERATURES)]


def starts_of(
    graph: Priced, order: NDArray[np.int64], values: NDArray[np.int64], key: NDArray[np.uint64], stop: Stop
) -> Starts | None:
    """Return starts of a graph of dense tables; None where there is no room or no time for them.

    Parameters
    ----------
    order : (n,) int64
        Of the elimination; variables that are not in it are given when a start is drawn.
    values : (n,) int64
        Any assignment: what a conditional's spread is measured at.
    """
    factors = graph.at.size
    if not 0 < factors <= _FACTORS or graph.dense < factors:
        return None
    entries, scopes, sequence = int(ACCOUNT.part(_SHARE / 8, _ENTRIES)), graph.scopes(), order.tolist()
    kept = tuple(np.setdiff1d(np.arange(graph.domains.size), order).tolist())

    def plan_of(z: int) -> Plan:
        stop.check()
        return plan_mini_buckets(scopes, graph.domains, sequence, kept, z, True)

    try:
        _, plan = largest_fitting(most_z(graph.domains, sequence, entries), least_z(scopes, sequence), entries, plan_of)
        if plan.entries > entries:
            return None
        flat, scale = _encoded(graph)
        total = int(sum(np.abs(np.where(flat.data == LOWEST, 0, flat.data)).tolist()))
        done = eliminate_matched(flat, plan, Arithmetic(np.dtype(np.int64), LOWEST, total), stop=stop)
    except (OutOfMemory, OutOfTime):
        return None
    return Starts(done.elimination, scale * float(typical_spread(graph, values)), key)


def _encoded(graph: Priced) -> tuple[FlatTables, float]:
    """Return the tables in whole numbers, −∞ where an entry is forbidden, and what a utility was multiplied by."""
    hard = graph.data <= graph.never
    finite = np.where(hard, 0.0, graph.data)
    largest = float(np.maximum.reduceat(np.abs(finite), graph.at).sum())
    scale = 2.0 ** math.floor(_BITS - math.log2(largest)) if largest > 0 else 1.0
    data = np.where(hard, LOWEST, np.rint(finite * scale).astype(np.int64))
    return FlatTables(graph.scope_start, graph.scope, np.append(graph.at, data.size), data), scale
