"""How fast this machine is, for the choices of ``auto``: measured once, kept in a file, and never a reason to fail.

The file stands beside the kernels' cache and is named after the node and the state of the kernels' sources. Without it,
and where nothing may depend on the machine, :data:`NOMINAL` stands in.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numba import config

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.provider import TRIANGLES
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, choose_arithmetic
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.atomic_write import replacing
from dmcmc.inference.runtime.kernel_cache import cache_root, kernel_cache
from dmcmc.samplers.auto.effort import bucket_efforts

_TRUST = 8.0  # times the nominal rate, either way: what is further off was disturbed
_REPEATS = 3


@dataclass(frozen=True)
class Rates:
    """Seconds on one core, and on the GPU.

    Attributes
    ----------
    elimination : float
        Of a nanosecond's elimination on a nominal machine, see :mod:`dmcmc.samplers.auto.effort`.
    byte : float
        Of a byte of new memory: large tables are written to pages that the system has yet to find. Not measured, as
        memory that was just freed is quicker.
    update : float
        Of a draw from 24 values.
    sweep : float
        Of a bound's sweep, a unit of :func:`sweep_units`.
    gpu_cell, gpu_bucket, gpu_trip, gpu_open, gpu_update, gpu_sweep, gpu_shift : float
        Of a joined cell, of a bucket's launches, of the copies there and back, of opening it, of a draw; of a unit of
        sweeps of some hundred rows, of one with the interface free of about ten agents. An H200's; not measured, as
        to open the GPU for that would take longer than most runs.
    """

    elimination: float = 1e-9
    byte: float = 5e-10
    update: float = 7.5e-8
    sweep: float = 7.8e-9
    gpu_cell: float = 1.7e-12
    gpu_bucket: float = 5e-5
    gpu_trip: float = COSTS.trip
    gpu_open: float = COSTS.opening
    gpu_update: float = 8e-11
    gpu_sweep: float = 5e-11
    gpu_shift: float = 6e-10


NOMINAL = Rates()


def update_seconds(rates: Rates, values: float) -> float:
    """Return the seconds of a draw from so many values: some for the draw, some for each value."""
    return rates.update * (15 + values) / 39


def sweep_units(pairs: int, triangles: int, values: float) -> float:
    """Return the work of a sweep over a graph: table entries of its triangles, and for less those of its pairs."""
    return pairs * (values * values + 300) / 10 + triangles * (values * values + 50)


def load_rates() -> Rates:
    """Return this machine's rates: from the file, or measured now and kept for the next time.

    Where nothing is compiled (``NUMBA_DISABLE_JIT``) these are nominal: what Python takes is no rate of the machine's.
    """
    if config.DISABLE_JIT:
        return NOMINAL
    path = rates_file()
    found = read_rates(path)
    if found is None:
        found = measure()
        _keep(path, found)
    return found


def rates_file() -> Path:
    """Return where this node's rates are kept."""
    return cache_root() / f"rates-{kernel_cache().name.removeprefix('kernels-')}.json"


def read_rates(path: Path) -> Rates | None:
    """Return the rates in a file, or None where it holds none that can be believed."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rates = Rates(**{f.name: float(found[f.name]) for f in fields(Rates)})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return rates if rates == _believed(rates) else None


def measure() -> Rates:
    """Measure on tiny work, about 0.1 s with compiled kernels; the least of some repeats, as others work here too."""
    found = {
        "elimination": _elimination_seconds(),
        "update": _update_seconds(),
        "sweep": _sweep_seconds(),
    }
    return _believed(replace(NOMINAL, **found))


def _believed(rates: Rates) -> Rates:
    """Return the rates, those that are too far from the nominal ones moved nearer."""
    nominal = asdict(NOMINAL)
    return Rates(**{k: min(_TRUST * nominal[k], max(nominal[k] / _TRUST, v)) for k, v in asdict(rates).items()})


def _keep(path: Path, rates: Rates) -> None:
    """Write a file, all of it or nothing; without one, the next run measures again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            stream.write(json.dumps(asdict(rates)).encode())
        prefix = path.name.rsplit("-", 1)[0]
        for old in path.parent.glob(f"{prefix}-*.json"):
            if old != path and len(old.name) == len(path.name):  # of other states of the sources
                old.unlink(missing_ok=True)
    except OSError:
        return


def _clique(domains: tuple[int, ...], interface: int = 1) -> tuple[LocalProblem, Arithmetic]:
    """Return an agent whose variables are all joined in pairs."""
    draw, n = np.random.default_rng(0), len(domains)
    factors = tuple(
        Factor.of((a, b), draw.integers(0, 100, (domains[a], domains[b]))) for a in range(n) for b in range(a + 1, n)
    )
    local = LocalProblem(0, tuple(range(interface)), tuple(range(interface, n)), factors, np.array(domains))
    return local, choose_arithmetic(factors)


def _least(work: Callable[[], object]) -> float:
    """Return the least seconds of some repeats, after one that may compile."""
    work()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _elimination_seconds() -> float:
    local, arithmetic = _clique((16,) * 6)
    tables, plan = [arithmetic.encode(f) for f in local.factors], local.plan
    return _least(lambda: eliminate(tables, plan, arithmetic, 1)) / float(bucket_efforts(plan).sum())


def _update_seconds() -> float:
    from dmcmc.samplers import registry
    from dmcmc.samplers.contract.protocol import Sampling

    local, arithmetic = _clique((24,) * 8)
    solver, sampling = registry.get("annealing"), Sampling(arithmetic, runs=4, samples=40)
    updates = solver.solve([local], sampling)[0].updates
    return _least(lambda: solver.solve([local], sampling)) / max(1, updates)


def _sweep_seconds() -> float:
    local, _ = _clique((24,) * 8)
    state: DualState = TRIANGLES.start(local)
    hidden, rows = state.layout.hidden, np.arange(4)
    seconds = _least(lambda: state.improve(sweeps=1, rows=rows))
    units = sweep_units(hidden.pairs.shape[0], hidden.triangles.shape[0], 24)
    return seconds / (1.5 * rows.size * units)  # to fix a row takes about half a sweep
