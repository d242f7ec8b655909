"""Solve many random problems on ranks whose clocks, memory and caches differ, and check that they stay in step.

    PYTHONPATH=tests python -m benchmarks.robustness.perturbed_ranks [--runs 100] [--ranks 2 3 4] [--first 0]
        [--output FILE]

The runs and the checks are those of ``tests/support/perturbed_ranks.py``, ``--runs`` of them on each number of ranks.
The exit code is 1 if ranks hang, end differently, or give a wrong answer.
"""

import sys

from support import ranks as launching

from benchmarks.harness import Report, options

_LIMIT_SECONDS = 7200  # seconds: time limit of all runs on one number of ranks


def main() -> None:
    """Run the problems on each number of ranks, and print the outcomes."""
    parser = options(__file__, __doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    report, failed = Report(__file__, given), False
    for position, number in enumerate(given.ranks):
        first = given.first + position * given.runs
        arguments = ["-m", "support.perturbed_ranks", str(first), str(given.runs)]
        done = launching.start(number, *arguments, limit=_LIMIT_SECONDS, OMP_NUM_THREADS="1")
        report(done.stdout.strip() or done.stderr.strip()[-2000:])
        failed = failed or done.returncode != 0
    report.keep()
    sys.exit(failed)


if __name__ == "__main__":
    main()
