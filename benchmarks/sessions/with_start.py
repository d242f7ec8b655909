"""Compare proofs with and without a start from the best known assignment.

    python -m benchmarks.sessions.with_start [FILE ...] [--seeds 101 102 103 104 105] [--timeout 60] [--output FILE]

Without files, the problems are random networks of 25 variables with 10 values and density 0.4, one for each seed. Each
problem is solved three times with the time limit: the first run finds the assignment to start from, so that plans are
known to both other runs; then it is solved without and with ``start``. Per run: seconds of wall-clock and processor
time, status, objective, bound, and the objective of the first point of the trace. With a start no point of the trace
may be worse than the assignment to start from.
"""

import time
from pathlib import Path
from typing import Any

import dmcmc
from benchmarks.harness import Report, options


def problems(files: list[str], seeds: list[int]) -> dict[str, dmcmc.Problem]:
    """Return the problems by name."""
    if files:
        return {Path(file).stem: dmcmc.load(file) for file in files}
    network = {"nodes": 25, "domain_size": 10, "density": 0.4, "tightness": 0}
    return {f"random {seed}": dmcmc.generate("random-network", seed=seed, **network) for seed in seeds}


def main() -> None:
    """Run the benchmark."""
    parser = options(__file__, __doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--seeds", type=int, nargs="*", default=[101, 102, 103, 104, 105])
    parser.add_argument("--timeout", type=float, default=60.0)
    given = parser.parse_args()
    report = Report(__file__, given)
    report("problem            run       seconds processor  status      objective         bound  first objective")
    for name, problem in problems(given.files, given.seeds).items():
        start, known = dict[str, Any](), 0.0
        for run in ("first", "without", "with"):
            begin, processor = time.perf_counter(), time.process_time()
            used = start if run == "with" else None
            result = dmcmc.solve(problem, timeout=given.timeout, start=used)
            times = time.perf_counter() - begin, time.process_time() - processor
            objectives = [point.objective for point in result.trace if point.objective is not None]
            report(
                f"{name:18} {run:8} {times[0]:8.1f} {times[1]:8.1f}  {result.status:10} {result.objective:>10}"
                f" {result.bound:>13.6g} {objectives[0]:>16}"
            )
            if run == "first":
                start = dict(result.assignment or {})
                known = problem.evaluate(start).objective
            elif run == "with":
                sign = 1 if problem.sense == "max" else -1
                assert all(sign * objective >= sign * known for objective in objectives), name
    report.keep()


if __name__ == "__main__":
    main()
