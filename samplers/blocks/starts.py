"""Where chains of blocks begin: by dual variables and by mini-buckets.

Informed start assignments, drawn backwards through mini-bucket messages.

All variables are eliminated with mini-buckets, parts of a variable's bucket whose joined tables have a bounded size,
and with moment matching, which moves utility between tables as dual ascent does. Then each variable, last first, is
drawn given those after it by the sum of its mini-buckets. At temperature 0 this rounds the reparametrised tables; above
0 it gives many different assignments, most with few violations. Chains of block moves begin at them.

Start states of the chains of an agent's rows: the rounded result of a short dual ascent, given each row.

A row is an assignment of the agent's boundary variables. Dual ascent reparametrises the agent's factors such that local
decisions agree as far as possible; rounding then assigns the hidden variables one after the other.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import MAX_ROUNDED_VARIABLES, WHOLE_SWEEPS_PER_ROW_SWEEP
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.rounding import Ints, rounding_of
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import plan_within
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, scaling_exponent
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES
from dmcmc.samplers.blocks.block_gibbs_kernels import typical_spread
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import draw_backward
from dmcmc.samplers.contract import tuning

_SUM_BITS = 44  # bits of the sum of all scaled tables: leaves headroom in int64 for the messages
LOWEST = int(np.iinfo(np.int64).min) // ADDENDS  # −∞ in the tables; a sum of up to ``ADDENDS`` of them fits int64


class MiniBucketStarts:
    """Start assignments of a graph, by number.

    Parameters
    ----------
    done : Elimination
        Elimination of all variables with mini-buckets, in int64.
    spread : float
        Typical spread of a variable's conditional utilities, in the units of the tables.
    key : (2,) uint64
        Key of the random numbers.
    """

    def __init__(self, done: Elimination, spread: float, key: NDArray[np.uint64]) -> None:
        self.done, self.spread, self.key = done, spread, key

    def draw(self, chain: int, number: int, given: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return a chain's start with the given number; equal arguments give equal starts.

        Parameters
        ----------
        chain, number : int
            The chain, and the number of its start.
        given : (n,) int64, optional
            Values of the variables that are not eliminated.
        """
        program = self.done.plan.program
        values = np.zeros(program.domains.size, dtype=np.int64) if given is None else given.copy()
        temperature = float(self.temperatures(np.array(chain + number)))
        draw_backward(
            program.domains, program.scope_start, program.scope, program.at, program.variable, program.input_start,
            program.inputs, self.done.arena, LOWEST, temperature, *self.key, chain, number, values, 0, 0,
            program.variable.size,
        )  # fmt: skip
        return values

    def temperatures(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the temperature of each start; ``numbers`` are chain number plus start number."""
        return self.spread * np.array(tuning.START_TEMPERATURES)[numbers % len(tuning.START_TEMPERATURES)]


def starts_of(
    graph: FactorGraph, order: NDArray[np.int64], values: NDArray[np.int64], key: NDArray[np.uint64], stop: Deadline
) -> MiniBucketStarts | None:
    """Return starts of a graph of dense tables; None if memory or time is too short.

    Parameters
    ----------
    graph : FactorGraph
        The graph.
    order : (n,) int64
        Elimination order; variables that are not in it must be given when a start is drawn.
    values : (n,) int64
        Any assignment, at which the typical spread is measured.
    key : (2,) uint64
        Key of the random numbers.
    stop : Deadline
        Ends the elimination.
    """
    factors = graph.factors
    if not 0 < factors <= tuning.MAX_START_FACTORS or graph.dense < factors:
        return None
    entries = int(MEMORY_ACCOUNT.budget_share(tuning.COPY_MEMORY_SHARE / (2 * 8), tuning.LARGE_ENTRIES))
    keep = np.setdiff1d(np.arange(graph.domains.size), order).tolist()
    try:
        _, plan = plan_within(graph.scopes(), graph.domains, order.tolist(), keep, entries, shifts=True, stop=stop)
        if plan.entries > entries:
            return None
        graph = _scaled(graph)
        flat = _to_integers(graph)
        total = int(sum(np.abs(np.where(flat.data == LOWEST, 0, flat.data)).tolist()))
        done = eliminate_matched(flat, plan, Arithmetic(np.dtype(np.int64), LOWEST, total), stop=stop)
    except (OutOfMemory, OutOfTime):
        return None
    return MiniBucketStarts(done.elimination, float(typical_spread(graph, values)), key)


def _scaled(graph: FactorGraph) -> FactorGraph:
    """Return a graph whose utilities are multiplied by a power of two.

    The power makes the sum of the largest absolute entries of all tables about 2^44. The utility of a violation may
    become −∞.
    """
    finite = np.where(graph.data <= graph.forbidden_entry, 0.0, graph.data)
    exponent = scaling_exponent(
        2.0**_SUM_BITS, float(np.maximum.reduceat(np.abs(finite), graph.table_start[:-1]).sum())
    )
    with np.errstate(over="ignore", under="ignore"):
        return graph._replace(
            data=np.ldexp(graph.data, exponent), forbidden_entry=float(np.ldexp(graph.forbidden_entry, exponent))
        )


def _to_integers(graph: FactorGraph) -> FlatTables:
    """Return the tables of a scaled graph as int64, with ``LOWEST`` for forbidden entries."""
    is_forbidden = graph.data <= graph.forbidden_entry
    data = np.where(is_forbidden, LOWEST, np.rint(np.where(is_forbidden, 0.0, graph.data)).astype(np.int64))
    return graph.flat._replace(data=data)


_SWEEPS = 3 * WHOLE_SWEEPS_PER_ROW_SWEEP  # sweeps of the dual ascent, with free boundary variables


def dual_states(local: LocalProblem, backend: Backend) -> Ints | None:
    """Return hidden values for every row of an agent's table, (rows, hidden); None if the agent is too large.

    Parameters
    ----------
    local : LocalProblem
        The agent's problem.
    backend : Backend
        Where and until when to compute.
    """
    n = len(local.hidden) + len(local.interface)
    if (
        not local.hidden
        or n > MAX_ROUNDED_VARIABLES
        or sum(factor.table.size for factor in local.factors) > MAX_EXAMINED_ENTRIES
    ):
        return None
    state = DualState(local, triangles=False, backend=backend)
    state.improve(sweeps=_SWEEPS // WHOLE_SWEEPS_PER_ROW_SWEEP, rows=())
    rounding = rounding_of(state, 0, fixed_interface=True)
    return None if rounding is None else rounding.rows(np.arange(local.rows), backend)
