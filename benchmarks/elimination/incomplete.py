"""Incomplete tables: rows a second beside the bytes moved and beside dense, and what filtering leaves of instances.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.incomplete [--seconds 60] [--only TEXT] [--output FILE]

FOLDER holds instances/. First a bucket: three tables over three variables each, of some density, joined over six
variables, of which one is eliminated; incomplete and dense, all cores. Copied: what reading and writing the rows of the
message once takes at this machine's speed. Then instances, with the known optimum as incumbent, or the best of a search
in a tenth of the seconds: rows that were kept, bytes of all messages, and what the process has grown by, beside the
bytes of the dense plan.
"""

import time
from functools import partial

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc import Problem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.incomplete.bucket import Making, Room
from dmcmc.inference.incomplete.filtering import Filtering, z_within
from dmcmc.inference.incomplete.outside import Relaxing
from dmcmc.inference.incomplete.steps import Bucket, Input, steps_of
from dmcmc.inference.incomplete.table import Incomplete
from dmcmc.inference.model.arithmetic import choose_arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import resident_memory
from dmcmc.inference.runtime.threads import cores

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SIZE, SCOPES = 12, ((0, 1, 2), (0, 3, 4), (0, 2, 5))
MOST = 8 << 30  # bytes of messages
# Utilities of the known optima; where there is none, a search of a tenth of the time finds the incumbent.
OPTIMA = {
    "spot5/42b.wcsp": 155050,
    "spot5/404.wcsp": 114,
    "iscas89/s1196.wcsp": 95,
    "iscas89/c499.wcsp": None,
    "linkage/pedigree13.uai": None,
    "celar/CELAR6-SUB1-24.wcsp.xz": 2656,
    "celar/CELAR7-SUB0.wcsp.xz": 10310,
    "coloring_wcsp/queen5_5_3.wcsp": 29,
    "coloring_wcsp/myciel5g_4.wcsp": 4,
    "grids/90-20-5.uai": None,
    "grids/75-26-5.uai": None,
    "spot5_from_uai/408.wcsp": 6228,
    "tb2_default/cap131.wcsp": 7934385,
}


def sparse_bucket(density: float) -> Query:
    """Return the tables of a bucket, of some density."""
    rng, domains = np.random.default_rng(0), np.full(6, SIZE)
    factors = []
    for scope in SCOPES:
        values = rng.integers(0, 99, [SIZE] * len(scope)).astype(float)
        factors.append(Factor.of(scope, np.where(rng.random(values.shape) < density, values, -np.inf)))
    arithmetic = choose_arithmetic(factors)
    return Query([arithmetic.encode(f) for f in factors], domains, [0], range(1, 6), arithmetic)


def join(query: Query) -> Incomplete:
    """Return the bucket's message from incomplete tables."""
    listed = [Input(Incomplete.of(t, query.domains, query.arithmetic), (t,)) for t in query.tables]
    bucket = Bucket(0, tuple(query.keep), listed, (), query.domains, query.arithmetic)
    scope, steps = steps_of(bucket, Relaxing(query.domains, query.arithmetic, 2))
    making = Making(scope, steps, SIZE, query.arithmetic, query.arithmetic.threshold, Room(1 << 40))
    return making.go_on(cores())


def densities(say: Report) -> None:
    """Measure a bucket at every density."""
    block = np.zeros(1 << 24, dtype=np.uint8)
    _, copied = timed(block.copy, 5)
    rate = 2 * block.size / copied.least
    columns = Columns(
        ("density", "8g"), ("fill", ">8.4f"), ("rows", ">9d"), ("ms", ">9.2f"), ("Mrows/s", ">9.1f"),
        ("copied ms", ">10.2f"), ("dense ms", ">9.2f"), ("dense/incomplete", ">17.2f"),
    )  # fmt: skip
    say(columns.head)
    for density in DENSITIES:
        query = sparse_bucket(density)
        plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
        message, rows = timed(partial(join, query), 3, enough=2)
        _, dense = timed(partial(eliminate, query.tables, plan, query.arithmetic, cores()), 3)
        bytes_moved = 2 * message.bytes
        say(
            columns.line(
                density, message.rows / SIZE**5, message.rows, 1e3 * rows.least, message.rows / rows.least / 1e6,
                1e3 * bytes_moved / rate, 1e3 * dense.least, dense.least / rows.least,
            )
        )  # fmt: skip


def query_of(problem: Problem) -> Query:
    """Return the elimination of all of a problem."""
    dense = densify(problem, 1 << 30).problem
    factors = [f for f in dense.factors if f.scope]
    arithmetic = choose_arithmetic(factors)
    order = best_order([f.scope for f in factors], dense.domains, range(dense.n_variables), budget=SEARCH_LONG)
    return Query([arithmetic.encode(f) for f in factors], dense.domains, order.variables, (), arithmetic)


def incumbent_of(problem: Problem, query: Query, known: float | None, seconds: float) -> float | None:
    """Return the utility, without constants, of the best that is known."""
    objective = known
    if objective is None:
        objective = dmcmc.solve(problem, timeout=seconds, method="annealing", bound="none").objective
    if objective is None:
        return None
    constants = sum(f.table.item() for f in problem.factors if not f.scope)
    utility = (objective if problem.sense == "max" else -objective) - constants
    return round(utility) if query.arithmetic.exact else float(utility)


def filtered(problem: Problem, known: float | None, seconds: float) -> tuple[object, ...]:
    """Return what filtering makes of an instance: the cells of a line."""
    query = query_of(problem)
    exact = plan_elimination(query.scopes, query.domains, query.order)
    incumbent, before = incumbent_of(problem, query, known, seconds / 10), resident_memory()
    begun = time.perf_counter()
    for entries in (20_000, 6_000_000, 60_000_000):
        z = z_within(query, entries)
        work = Filtering(query, incumbent, z, MOST, cores())
        try:
            better = work.go_on(Stop(begun + seconds)).utility
            how = "optimal" if better is None else f"better: {better}"
        except ResourceError as error:
            how = type(error).__name__
        if how != "TooMuch":
            break
    rows, took = sum(m.rows for m in work.messages), time.perf_counter() - begun
    dense, grown = exact.entries * query.arithmetic.dtype.itemsize, resident_memory() - before
    return (z, exact.width, dense / 2**20, rows, work.held / 2**20, grown / 2**20, took, how)


def main() -> None:
    """Measure a bucket at every density, then instances."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    say = Report(__file__, given)
    if not given.only:
        densities(say)
    columns = Columns(
        ("instance", "32s"), ("z", ">4d"), ("width", ">6d"), ("dense MiB", ">11.4g"), ("rows", ">11d"),
        ("MiB", ">9.1f"), ("grown MiB", ">10.1f"), ("s", ">8.2f"), ("", "s"),
    )  # fmt: skip
    say()
    say(columns.head)
    for name, known in OPTIMA.items():
        path = instances("instances") / name
        if given.only in name and path.exists():
            say(columns.line(name, *filtered(dmcmc.load(path), known, given.seconds)))
    say.keep()


if __name__ == "__main__":
    main()
