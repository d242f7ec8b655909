"""What samplers do per second, and what an agent's table takes.

Rates of this machine for the choices of ``auto``: measured once and stored in a file; never a reason to fail.

A *rate* is the time of one unit of work in seconds. The file lies next to the kernel cache and is named after the node
and the state of the kernels' sources. It has a checksum; rates of a damaged file are measured again. Where the result
must not depend on the machine, :data:`NOMINAL` is used.

Estimate the time of a planned elimination on one core of a nominal machine, per bucket, in nanoseconds.

A *bucket* eliminates one variable: it joins its input tables; *cells* are the entries of the joined table.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import Factor, choose_arithmetic
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.interpreted import is_interpreting
from dmcmc.inference.storage.cache_folders import all_versions, current_name, report_once, usable_folders
from dmcmc.inference.storage.checked_file import CachedFileError, read_checked, write_checked
from dmcmc.samplers.contract import tuning


class BucketTimes(NamedTuple):
    """Nanoseconds of an elimination on one core, measured by ``benchmarks.elimination.buckets``.

    Attributes
    ----------
    bucket : float
        Per bucket, whatever its size.
    small_cell, cell : float
        Per joined cell of a small bucket, and of a large one.
    row : float
        Per row of trailing variables of a large bucket.
    contiguous, gathered : float
        Per cell and table that is added to a row: contiguous in memory, or gathered from several places.
    """

    bucket: float
    small_cell: float
    cell: float
    row: float
    contiguous: float
    gathered: float


NOMINAL_TIMES = BucketTimes(bucket=1e4, small_cell=0.4, cell=0.06, row=30.0, contiguous=0.1, gathered=0.55)


def bucket_efforts(plan: EliminationPlan) -> NDArray[np.float64]:
    """Return each bucket's time in nanoseconds.

    :mod:`dmcmc.inference.elimination.join_kernels` adds tables to rows of trailing variables. A table that depends on
    the last variable before the row is added for every row, others less often; the cells of a row share its cost.
    """
    program = plan.program
    efforts = NOMINAL_TIMES.bucket + NOMINAL_TIMES.small_cell * np.minimum(program.cells, tuning.REFINED_CELLS)
    for b in np.flatnonzero(program.cells >= tuning.REFINED_CELLS).tolist():
        efforts[b] = NOMINAL_TIMES.bucket + float(program.cells[b]) * _nanoseconds_per_cell(plan, b)
    return efforts


def _nanoseconds_per_cell(plan: EliminationPlan, b: int) -> float:
    """Return the nanoseconds per joined cell of bucket b."""
    domains, row_axes = plan.program.domains, int(plan.program.row_axes[b])
    separator = plan.scope(plan.output(b))
    row = set(separator[len(separator) - row_axes :])
    fastest = separator[-row_axes - 1] if row_axes < len(separator) else -1
    cost = NOMINAL_TIMES.cell + NOMINAL_TIMES.row / prod(int(domains[v]) for v in row)
    for t in plan.inputs(b):
        others = plan.scope(t)[1:]
        inside = sum(v in row for v in others)
        if inside and inside < len(others):
            frequency = 1.0 if fastest in others else 1.0 / int(domains[fastest])
            cost += frequency * (NOMINAL_TIMES.contiguous if inside == row_axes else NOMINAL_TIMES.gathered)
    return cost


_KIND = "rates"  # beginning of the names of rates files


@dataclass(frozen=True)
class Rates:
    """Seconds per unit of work, on one core and on the GPU.

    The defaults of ``elimination``, ``update`` and ``sweep`` are replaced by measurements, see ``measure``; the others
    are constants.

    Attributes
    ----------
    elimination : float
        Per nanosecond of elimination on a nominal machine, as estimated by :mod:`dmcmc.samplers.auto.rates`; 1e-9 is a
        machine as fast as the nominal one.
    byte : float
        Per byte of new memory: the system must supply the pages of large tables. Not measured, as memory that was just
        freed is faster.
    update : float
        Per draw of one variable from 24 values by a sampler, see ``update_seconds``.
    sweep : float
        Per unit (see ``sweep_units``) of a sweep of dual ascent, one pass over all pairs and triangles of an agent's
        graph, which improves the agent's upper bound.
    gpu_cell : float
        On the GPU: per cell of a joined table.
    gpu_bucket : float
        On the GPU: per bucket (elimination of one variable), for the launches of its kernels.
    gpu_trip, gpu_open : float
        Per round trip of an agent's data to the GPU and back; once, for the start of the GPU.
    gpu_update : float
        On the GPU: per draw of one variable.
    gpu_sweep : float
        On the GPU: per unit of sweeps over some hundred rows (assignments of the boundary variables) at once.
    gpu_shift : float
        On the GPU: per unit of sweeps with free boundary variables, of about ten agents at once.

    Notes
    -----
    GPU rates are those of an H200 and not measured: to start the GPU takes longer than most runs.
    """

    elimination: float = 1e-9
    byte: float = 5e-10
    update: float = 7.5e-8
    sweep: float = 7.8e-9
    gpu_cell: float = 1.7e-12
    gpu_bucket: float = 5e-5
    gpu_trip: float = COSTS.gpu_round_trip
    gpu_open: float = COSTS.gpu_start
    gpu_update: float = 8e-11
    gpu_sweep: float = 5e-11
    gpu_shift: float = 6e-10


NOMINAL = Rates()


def update_seconds(rates: Rates, values: float) -> float:
    """Return the seconds per draw from a number of values: ``rates.update`` · (15 + values) / 39.

    A draw has a constant cost, here as much as 15 values (chosen by measurement); 39 = 15 + 24 makes the result
    ``rates.update`` for 24 values.
    """
    return rates.update * (15 + values) / 39


def sweep_units(pairs: int, triangles: int, values: float) -> float:
    """Return the work of a sweep over a graph: the table entries of its triangles and, with less weight, its pairs.

    With d values per variable this is pairs · (d² + 300) / 10 + triangles · (d² + 50). The constants 300 and 50 are
    costs per pair and triangle in entries; all weights are chosen by measurement.

    Parameters
    ----------
    pairs, triangles : int
        Pairs of variables with a common binary factor, and triples of variables that are pairwise such pairs.
    values : float
        Mean domain size.
    """
    return pairs * (values * values + 300) / 10 + triangles * (values * values + 50)


def load_rates() -> Rates:
    """Return this machine's rates from the file, or measure and store them.

    While kernels are interpreted or being compiled, these are the nominal rates: Python's speed is not the machine's.
    """
    if is_interpreting():
        return NOMINAL
    path = rates_file()
    rates = None if path is None else read_rates(path)
    if rates is None and not RATE_KERNELS.is_ready():
        return NOMINAL
    if rates is None:
        rates = measure()
        if path is not None:
            _write(path, rates)
    return rates


def rates_file() -> Path | None:
    """Return the path of this node's rates file; None if there is no folder for cached files."""
    root = usable_folders().root
    return None if root is None else root / current_name(_KIND)


def read_rates(path: Path) -> Rates | None:
    """Return the rates in a file, or None if it holds no plausible rates; report a damaged file."""
    try:
        contents = read_checked(path, path.name)
        if contents is None:
            return None
        found = json.loads(contents)
        rates = Rates(**{f.name: float(found[f.name]) for f in fields(Rates)})
    except CachedFileError as error:
        report_once("rates", f"the rates of this machine are measured again: {error}")
        return None
    except (OSError, ArithmeticError, ValueError, TypeError, LookupError, RecursionError, MemoryError):
        return None
    return rates if rates == _clamped(rates) else None


def measure() -> Rates:
    """Measure the rates on small problems, about 0.1 s with compiled kernels; the minimum of some repetitions."""
    measured = {
        "elimination": _elimination_seconds(),
        "update": _update_seconds(),
        "sweep": _sweep_seconds(),
    }
    return _clamped(replace(NOMINAL, **measured))


def compile_measured_kernels() -> None:
    """Compile the kernels that :func:`measure` runs."""
    measure()


RATE_KERNELS = KernelSet("rates", compile_measured_kernels)


def _clamped(rates: Rates) -> Rates:
    """Return rates limited to [nominal / 8, 8 · nominal] each (``MAX_DEVIATION`` = 8)."""
    nominal = asdict(NOMINAL)
    return Rates(
        **{
            k: min(tuning.MAX_DEVIATION * nominal[k], max(nominal[k] / tuning.MAX_DEVIATION, v))
            for k, v in asdict(rates).items()
        }
    )


def _write(path: Path, rates: Rates) -> None:
    """Write the rates file atomically and delete those of other states of the sources.

    If that fails, the next run measures again.
    """
    try:
        write_checked(path, path.name, json.dumps(asdict(rates)).encode())
        for old in all_versions(path.parent, _KIND):
            if old != path:
                old.unlink(missing_ok=True)
    except OSError:
        return


def _clique(domains: tuple[int, ...], interface: int = 1) -> tuple[LocalProblem, Arithmetic]:
    """Return an agent with a random table for every pair of its variables.

    The first ``interface`` variables are its boundary variables, the others are hidden.
    """
    draw, n = np.random.default_rng(0), len(domains)
    factors = tuple(
        Factor.of((a, b), draw.integers(0, 100, (domains[a], domains[b]))) for a in range(n) for b in range(a + 1, n)
    )
    local = LocalProblem(0, tuple(range(interface)), tuple(range(interface, n)), factors, np.array(domains))
    return local, choose_arithmetic(factors)


def _min_seconds(work: Callable[[], object]) -> float:
    """Return the minimum time of some repetitions in seconds, after a first call that may compile."""
    work()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _elimination_seconds() -> float:
    """Measure the seconds per nominal nanosecond of elimination, on a clique of six variables of 16 values."""
    local, arithmetic = _clique((16,) * 6)
    tables, plan = [arithmetic.encode(f) for f in local.factors], local.plan
    return _min_seconds(lambda: eliminate(tables, plan, arithmetic, 1)) / float(bucket_efforts(plan).sum())


def _update_seconds() -> float:
    """Measure the seconds per draw from 24 values, with the sampler ``annealing`` on 24 rows."""
    from dmcmc.samplers import registry
    from dmcmc.samplers.contract.protocol import Sampling

    local, arithmetic = _clique((24,) * 8)
    solver, sampling = registry.get("annealing"), Sampling(arithmetic, runs=4, samples=40)
    updates = solver.solve([local], sampling)[0].updates
    return _min_seconds(lambda: solver.solve([local], sampling)) / max(1, updates)


def _sweep_seconds() -> float:
    """Measure the seconds per unit of a bound's sweep, on four rows of a clique of eight variables of 24 values."""
    local, _ = _clique((24,) * 8)
    state = DualState(local, triangles=True)
    hidden, rows = state.layout.hidden, np.arange(4)
    seconds = _min_seconds(lambda: state.improve(sweeps=1, rows=rows))
    units = sweep_units(hidden.pairs.shape[0], hidden.triangles.shape[0], 24)
    return seconds / (1.5 * rows.size * units)  # conditioning a row takes about half a sweep
