"""Measure what one core takes for the papers' experiments, in processor time, which other processes do not change.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.papers.one_core [--only TEXT] [--seeds 3] [--output FILE]

The papers compare a GPU with one core. Each run solves a case of an experiment with one thread. ``whole`` is the
processor time of the whole run, ``tables`` that of the table work alone (``simulated_time``). A case whose first run
takes more than five seconds is run with one seed only. ``benchmarks/results/one_core.txt`` is read by
``benchmarks.papers.claims``.
"""

import json
import time
from datetime import date
from unittest.mock import patch

from benchmarks.harness import Columns, Report, one_core, options
from benchmarks.papers.gpu_runs import CONFIGS
from dmcmc.experiments.job import carry_out, warm_up
from dmcmc.experiments.plan import PlannedRun, read_experiment
from dmcmc.report.experiment.charts import case_name

METHODS = {
    "gpube-table1": "BE CPU",
    "gpube-table2": "BE CPU",
    "gpube-table3": "BE CPU",
    "cube-table3": "exact CPU",
    "cp2015-figure4": "BE CPU",
    "dmcmc-table1": "Gibbs CPU",
}
SKIPPED = ("nodes 24", "columns 25, domain_size 100")  # more than a minute or more memory than 8 GiB
_LONG = 5.0  # seconds after which a case is not repeated with another seed
TABLE = Columns(
    ("experiment", "<16"), ("method", "<10"), ("seed", ">4"), ("whole s", ">10.5f"), ("tables s", ">10.5f"),
    ("case", "s"),
)  # fmt: skip


def measure(run: PlannedRun, warmed: set[str]) -> tuple[float, float] | None:
    """Return the processor seconds of a run and of its table work, the least of two runs; None if it does not end."""
    job, least = {"data": json.loads(json.dumps(run.data))}, None
    warm_up(job, warmed)
    for _ in range(2):  # the first one may load kernels
        record = carry_out(job)
        if record is None or record.get("time") is None:
            return None
        found = record["time"], record["simulated_time"]
        least = found if least is None else min(least, found)
        if found[0] > _LONG:
            break
    return least


def main() -> None:
    """Measure all cases."""
    parser = options(__file__, __doc__ or "", only=True)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    report = Report(__file__, given, date=date.today())
    report(TABLE.head)
    for name, method in METHODS.items():
        long, warmed = set[str](SKIPPED), set[str]()
        for run in read_experiment(CONFIGS / f"{name}.yaml")[1]:
            case = case_name(run.case)
            if run.method != method or run.seed >= given.seeds or case in long or given.only not in f"{name} {case}":
                continue
            with one_core(), patch.object(time, "perf_counter", time.process_time):
                found = measure(run, warmed)
            if found is None or found[0] > _LONG:
                long.add(case)
            if found is not None:
                report(TABLE.line(name, method, run.seed, *found, case))
    report.keep(given.output)


if __name__ == "__main__":
    main()
