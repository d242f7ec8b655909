"""Measure function filtering on instances: retained rows, memory and time, compared with dense elimination.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.sparse_sizes [--seconds 60] [--memory 16GiB] [--jobs N]

FOLDER holds instances/ with its MANIFEST.csv. The incumbent is the known optimum if the file has whole numbers, or else
the best of a search in a tenth of the seconds. Each measurement is a separate process. ``dense``: bytes of the plan's
tables, the peak growth of the process during the elimination, and the seconds; skipped if the plan does not fit the
memory. ``rows``: the number of rows of the sparse messages, and their part of the entries of the same messages as dense
tables; ``MiB`` of all messages, the peak growth of the process, and the seconds, outside bounds included. Both use the
same order, whose time is not counted.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import dmcmc
from benchmarks.harness import Columns, Report, error_line, instances, options
from benchmarks.jobs import JsonLine, PinnedJob, add_options, run_jobs, run_pinned
from benchmarks.solving.solve_instances import CORRECTED, manifest_files
from dmcmc import Problem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import DmcmcError, OutOfTime
from dmcmc.inference.runtime.memory import resident_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.sparse.function_filtering import FunctionFiltering, compile_filtering, z_within
from dmcmc.inference.tuning import LONG_BUDGET

# sizes of the mini-buckets of the outside bounds; each is tried if the one before gave too many rows
ENTRIES = (20_000, 6_000_000, 60_000_000)
TABLE = Columns(
    ("instance", "36s"), ("width", ">6d"), ("dense MiB", ">11.4g"), ("growth", ">9.1f"), ("s", ">8.2f"), ("z", ">4d"),
    ("rows", ">12d"), ("of dense", ">9.2g"), ("MiB", ">9.1f"), ("growth", ">9.1f"), ("s", ">8.2f"), ("", "s"),
)  # fmt: skip


def peak_since(begin: bool = False) -> int:
    """Return the peak resident bytes of this process since the last call with ``begin=True``."""
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) << 10


def dense(query: EliminationQuery, seconds: float, memory: float) -> JsonLine:
    """Eliminate dense tables; return the measurements."""
    plan = plan_elimination(query.scopes, query.domains, query.order)
    need = plan.entries * query.arithmetic.dtype.itemsize
    line: JsonLine = {"width": plan.width, "dense": need / 2**20}
    if need > memory:
        return line
    tiny = EliminationQuery(query.tables[:1], query.domains, query.tables[0].scope, (), query.arithmetic)
    eliminate(tiny.tables, plan_elimination(tiny.scopes, tiny.domains, tiny.order), tiny.arithmetic, cores())
    before = resident_memory()
    peak_since(begin=True)
    begun = time.perf_counter()
    try:
        eliminate(query.tables, plan, query.arithmetic, cores(), stop=Deadline(begun + 2 * seconds))
    except OutOfTime:
        return line
    return line | {"dense s": time.perf_counter() - begun, "dense grown": (peak_since() - before) / 2**20}


def filtered(query: EliminationQuery, incumbent: float | None, seconds: float, memory: float) -> JsonLine:
    """Eliminate without the entries that cannot beat the incumbent, with tighter bounds from attempt to attempt."""
    compile_filtering(query.arithmetic)
    before = resident_memory()
    peak_since(begin=True)
    begun = time.perf_counter()
    line: JsonLine = {"how": "none"}
    for entries in ENTRIES:
        z = z_within(query, entries)
        try:
            work = FunctionFiltering(query, incumbent, z, int(memory) // 2, cores(), Deadline(begun + seconds))
        except DmcmcError as error:
            return line | {"how": type(error).__name__}
        try:
            better = work.resume(Deadline(begun + seconds)).utility
            how = "optimal" if better is None else f"better: {better}"
        except DmcmcError as error:
            how = type(error).__name__
        rows, dense_entries = sum(m.rows for m in work.messages), sum(m.entries for m in work.messages)
        line = {
            "z": z,
            "rows": rows,
            "part": rows / max(1.0, dense_entries),
            "held": work.message_bytes / 2**20,
            "how": how,
        }
        if how != "TooManyRows":
            break
    return line | {"s": time.perf_counter() - begun, "grown": (peak_since() - before) / 2**20}


def query_of(problem: Problem) -> EliminationQuery:
    """Return the elimination of all variables of a problem."""
    dense = densify(problem, 1 << 30).problem
    factors = [f for f in dense.factors if f.scope]
    arithmetic = choose_arithmetic(factors)
    order = best_order([f.scope for f in factors], dense.domains, range(dense.n_variables), budget=LONG_BUDGET)
    return EliminationQuery([arithmetic.encode(f) for f in factors], dense.domains, order.variables, (), arithmetic)


def incumbent_of(problem: Problem, query: EliminationQuery, known: float | None, seconds: float) -> float | None:
    """Return the utility of the best known assignment, without constants."""
    objective = known
    if objective is None:
        objective = dmcmc.solve(problem, timeout=seconds, method="annealing", bound="none").objective
    if objective is None:
        return None
    constants = sum(f.table.item() for f in problem.factors if not f.scope)
    utility = (objective if problem.sense == "max" else -objective) - constants
    return round(utility) if query.arithmetic.exact else float(utility)


def known_of(line: dict[str, str]) -> float | None:
    """Return the optimum of the manifest if it is whole and proven."""
    text = CORRECTED.get(line["file"], line["optimum"])
    proven = line["optimum_status"].startswith(("proved", "from"))
    return float(text) if proven and text.lstrip("-").isdigit() else None


def one(path: Path, how: str, known: float | None, seconds: float, memory: float) -> JsonLine:
    """Measure one instance in this process."""
    problem = dmcmc.load(path)
    query = query_of(problem)
    if not any(table.scope for table in query.tables):
        return {"how": "nothing to eliminate"}
    if how == "dense":
        return dense(query, seconds, memory)
    incumbent = incumbent_of(problem, query, known, seconds / 10)
    return filtered(query, incumbent, seconds, memory)


def measured(path: Path, line: dict[str, str], given: argparse.Namespace, cores: set[int]) -> JsonLine:
    """Measure one instance, dense and filtered, in separate processes."""
    known, found = known_of(line), JsonLine()
    for how, limit in (("dense", 2 * given.seconds + 120), ("filter", given.seconds + 300)):
        command = [sys.executable, "-m", "benchmarks.elimination.sparse_sizes", "--one", str(path), "--how", how]
        command += ["--seconds", str(given.seconds), "--memory", str(int(given.memory))]
        command += [] if known is None else ["--known", repr(known)]
        done = run_pinned(command, cores, limit)
        if done is None:
            found |= {"how": f"stopped after {limit:g} s"}
            continue
        try:
            found |= json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            found |= {"how": error_line(done)[:120]}
    names = "width", "dense", "dense grown", "dense s", "z", "rows", "part", "held", "grown", "s", "how"
    return {"text": TABLE.line("/".join(path.parts[-2:]), *(found.get(name) for name in names)), **found}


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", only=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", default="filter", help=argparse.SUPPRESS)
    parser.add_argument("--known", type=float, help=argparse.SUPPRESS)
    add_options(parser)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(one(given.one, given.how, given.known, given.seconds, given.memory)))
        return
    report = Report(__file__, given)
    report(TABLE.head)
    chosen = [(path, line) for path, line in manifest_files(instances("instances")) if given.only in str(path)]

    def job(path: Path, line: dict[str, str]) -> PinnedJob:
        return PinnedJob("/".join(path.parts[-2:]), lambda cores: measured(path, line, given, cores))

    run_jobs([job(path, line) for path, line in chosen], given, lambda line: report(str(line["text"])))
    report.keep()


if __name__ == "__main__":
    main()
