"""Exact local solving: eliminate the hidden variables, keep the interface free.

What is left are small tables over parts of the interface. They are not joined, so an agent with many interface
variables never has its rows enumerated.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import check_memory, plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.flat_tables import FlatTables, side_by_side
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.contract.team import share_of

_KEPT = 1 << 28  # bytes of an agent's tables that are kept until VALUE asks for hidden values
_LITTLE = 1 << 16  # bytes that are always kept
_DIVIDED, _SAVED = 1 << 26, 0.8  # cells of an agent that is divided among ranks, and the part of them left at most
_LOOKED_UP = 1 << 22  # rows times variables of an agent whose hidden values are all looked up before its tables go

Witness = Callable[[Mapping[int, int]], dict[int, int]]


class ExactSolver:
    """The local solver ``exact``: V = U = W."""

    name = "exact"
    summary = "bucket elimination of the hidden variables; proves its table"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Refuse an agent whose tables do not fit the memory."""
        what = f"local.method: exact for an agent of {len(local.hidden) + len(local.interface)} variables"
        check_memory(local.plan, arithmetic, memory, what, "use local.method: auto or gibbs, or raise budget.memory")

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Eliminate agents, as many at once as the backend likes; those whose tables are too large to keep alone.

        Raises
        ------
        OutOfTime
            As the backend says.
        """
        if sampling.team.size > 1 and len(problems) == 1:
            found = _solve_by_rows(problems[0], sampling)
            if found is not None or sampling.team.rank > 0:
                return [] if found is None else [found]
        size, most = sampling.arithmetic.dtype.itemsize, _most_kept()
        tables: dict[int, SampledTable] = {}
        batch: list[int] = []
        room = 0
        for i, local in enumerate(problems):
            entries = local.entries
            large = local.plan.entries * size > most
            if batch and (large or (room + entries) * size > most):
                tables |= zip(batch, _solve([problems[j] for j in batch], sampling), strict=True)
                batch, room, most = [], 0, _most_kept()
            if large:
                tables[i], most = _solve_large(local, sampling), _most_kept()
                sampling.progress(1)
            else:
                batch.append(i)
                room += entries
        tables |= zip(batch, _solve([problems[j] for j in batch], sampling), strict=True)
        return [tables[i] for i in range(len(problems))]


def _most_kept() -> int:
    """Return the bytes of an agent's tables up to which they are kept: fewer when a quarter of the budget is taken.

    What is not kept is made again when it is asked for: the answer is the same.
    """
    left, budget = ACCOUNT.left(), ACCOUNT.budget
    if left is None or budget is None:
        return _KEPT
    return max(_LITTLE, min(_KEPT, left - 3 * budget // 4))


def at_once(problems: Sequence[LocalProblem], backend: Backend | None) -> list[list[int]]:
    """Return which agents, by their places, are best eliminated together: all, or each by itself.

    Parameters
    ----------
    backend
        What would eliminate them; None where nobody waits for one in particular.
    """
    places = list(range(len(problems)))
    if places and (backend is None or backend.takes_at_once([local.plan for local in problems])):
        return [places]
    return [[place] for place in places]


def _solve(problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
    """Eliminate agents; what several took together counts for each by its cells."""
    if not problems:
        return []
    start, arithmetic = time.perf_counter(), sampling.arithmetic
    flat = _encoded_flat(problems, arithmetic)
    found = []
    for batch in sampling.backend.eliminate_all(flat, [local.plan for local in problems], arithmetic):
        lefts = [done.remaining() for done in batch]
        seconds = time.perf_counter() - start
        cells = sum(done.plan.cells for done in batch)
        for done, left in zip(batch, lefts, strict=True):
            mine = seconds * done.plan.cells / cells if cells else seconds / len(batch)
            found.append(_table(left, partial(_witness, done), mine, done.plan.cells))
        sampling.progress(len(batch))
        start = time.perf_counter()
    return found


def _encoded_flat(problems: Sequence[LocalProblem], arithmetic: Arithmetic) -> FlatTables:
    """Return the tables of all agents, one after another, encoded."""
    parts = [local.flat for local in problems]
    if len({part.data.dtype for part in parts}) > 1:
        return side_by_side([arithmetic.encode_flat(part) for part in parts])
    # Where they lie depends on the agents' shapes alone.
    key = "side by side", *(local.known for local in problems)
    layout: FlatTables | None = problems[0].known.find(key)
    if layout is None:
        whole = side_by_side(parts)
        problems[0].known.put(key, whole._replace(data=whole.data[:0].copy()))
        return arithmetic.encode_flat(whole)
    return arithmetic.encode_flat(layout._replace(data=np.concatenate([part.data for part in parts])))


def _solve_large(local: LocalProblem, sampling: Sampling) -> SampledTable:
    """Eliminate an agent whose tables are not kept."""
    start, arithmetic = time.perf_counter(), sampling.arithmetic
    done = sampling.backend.eliminate([arithmetic.encode(f) for f in local.factors], local.plan, arithmetic)
    left = tuple(Table(s, v.copy() if np.may_share_memory(v, done.arena) else v) for s, v in done.remaining())
    witness: Witness
    if local.rows * local.domains.size <= _LOOKED_UP:
        witness = partial(_witness_found, local, _all_witnesses(local, done))
    else:
        witness = _later(local, sampling)
    return _table(left, witness, time.perf_counter() - start, done.plan.cells)


def _solve_by_rows(local: LocalProblem, sampling: Sampling) -> SampledTable | None:
    """Eliminate an agent on several ranks, each for some values of an interface variable.

    Returns
    -------
    SampledTable or None
        None where the first of the ranks does all of it: little is to be done, or floats would be added in another
        order.
    """
    start, team, arithmetic = time.perf_counter(), sampling.team, sampling.arithmetic

    def chosen() -> list[Array]:
        return [np.array([_divided_variable(local, team.size, arithmetic), *local.order.variables], dtype=np.int64)]

    v, *order = team.together(chosen)[0][0].tolist()
    if v < 0:
        return None

    def share() -> list[Array]:
        begin, end = share_of(int(local.domains[v]), team)
        if begin == end:
            return []
        tables = [
            Table(scope, values[tuple(slice(begin, end) if u == v else slice(None) for u in scope)])
            for scope, values in map(arithmetic.encode, local.factors)
        ]
        plan = plan_elimination([t.scope for t in tables], _with_size(local, v, end - begin), order, local.interface)
        left = sampling.backend.eliminate(tables, plan, arithmetic).remaining()
        return [array for scope, values in left for array in (np.array(scope, dtype=np.int64), values)]

    parts = [part for part in team.together(share) if part]
    found = []
    for number in range(0, len(parts[0]), 2):
        scope = tuple(parts[0][number].tolist())
        pieces = [part[number + 1] for part in parts]
        found.append(Table(scope, np.concatenate(pieces, axis=scope.index(v)) if v in scope else pieces[0].copy()))
    sampling.progress(1)
    return _table(tuple(found), _later(local, sampling), time.perf_counter() - start, local.plan.cells)


def _divided_variable(local: LocalProblem, ranks: int, arithmetic: Arithmetic) -> int:
    """Return the interface variable by whose values an elimination is best divided among ranks; −1 for none."""
    best, least = -1, _SAVED * local.plan.cells
    if not arithmetic.exact or local.plan.cells < _DIVIDED:
        return best
    for v in local.interface:
        sizes = _with_size(local, v, -(-int(local.domains[v]) // ranks))
        scopes = [f.scope for f in local.factors]
        cells = plan_elimination(scopes, sizes, local.order.variables, local.interface).cells
        if cells < least:
            best, least = v, cells
    return best


def _with_size(local: LocalProblem, variable: int, size: int) -> NDArray[np.int64]:
    """Return the domain sizes with another one of a variable."""
    sizes = local.domains.copy()
    sizes[variable] = size
    return sizes


def _later(local: LocalProblem, sampling: Sampling) -> Witness:
    """Return what eliminates an agent's row again when VALUE asks for it."""
    stop = sampling.backend.stop  # VALUE is after this agent's own end, but hears of Ctrl-C
    later = stop if stop is NO_STOP else replace(stop, until=float("inf"))
    return partial(witness_anew, local, sampling.arithmetic, replace(sampling.backend, stop=later))


def _table(left: tuple[Table, ...], witness: Witness, seconds: float, cells: int) -> SampledTable:
    return SampledTable(left, left, witness, "exact", seconds, cells)


def _witness(done: Elimination, values: Mapping[int, int]) -> dict[int, int]:
    """Return the best hidden values for an interface assignment."""
    chosen = dict(values)
    done.maximise(chosen)
    return {v: chosen[v] for v in chosen if v not in values}


def _all_witnesses(local: LocalProblem, done: Elimination) -> NDArray[np.int32]:
    """Return the best hidden values of every row, (rows, hidden)."""
    values = np.zeros((local.rows, local.domains.size), dtype=np.int64)
    if local.interface:
        rows = np.unravel_index(np.arange(local.rows), local.interface_shape)
        values[:, list(local.interface)] = np.stack(rows, axis=1)
    done.choose_all(values)
    return values[:, list(local.hidden)].astype(np.int32)


def _witness_found(local: LocalProblem, found: NDArray[np.int32], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values of a row that have been looked up."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, found[row].tolist(), strict=True))


def witness_anew(
    local: LocalProblem, arithmetic: Arithmetic, backend: Backend, values: Mapping[int, int]
) -> dict[int, int]:
    """Return the same by another elimination, of that one row: all tables of all agents need not be kept for it."""
    tables = []
    for scope, entries in map(arithmetic.encode, local.factors):
        row = entries[tuple(values.get(v, slice(None)) for v in scope)]
        tables.append(Table(tuple(v for v in scope if v not in values), np.ascontiguousarray(row)))
    plan = plan_elimination([t.scope for t in tables], local.domains, local.order.variables, ())
    return _witness(backend.eliminate(tables, plan, arithmetic), {})


SOLVER = ExactSolver()
