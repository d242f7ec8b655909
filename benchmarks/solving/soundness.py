"""Check that every answer is sound: the checks of ``tests/support/soundness.py`` on many seeds.

    python -m benchmarks.solving.soundness [--problems 2000] [--first 0] [--simulated 40] [--output FILE]

``--simulated`` adds tiny problems with ``device: cuda`` under Numba's simulator. The exit code is 1 if any answer is
wrong; its line names the seed.
"""

import argparse
import collections
import os
import subprocess
import sys
import time
from typing import Any

from support import soundness

from benchmarks.harness import Report, options
from dmcmc.inference.execution import cost_model


def simulated(count: int) -> int:
    """Check tiny problems with ``device: cuda`` in a process that simulates a GPU; return its exit code."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    module = ["-m", "benchmarks.solving.soundness", "--problems", str(count), "--tiny"]
    return subprocess.run([sys.executable, "-W", "ignore", *module], env=environment, check=False).returncode


def check_all(
    first: int, problems: int, report: Report, options: dict[str, Any]
) -> tuple[int, collections.Counter[str]]:
    """Return the number of wrong answers, and the number of answers by outcome."""
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    for seed in range(first, first + problems):
        try:
            outcome, found = soundness.check(seed, **options)
        except Exception as error:
            outcome, found = "crashed", [f"{type(error).__name__}: {error}"]
        counts[outcome] += 1
        wrong += bool(found)
        for text in found[:3]:
            report(f"seed {seed}: {outcome}: {text}")
    return wrong, counts


def main() -> int:
    """Check all seeds, and print the counts."""
    parser = options(__file__, __doc__)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # tiny problems with device: cuda
    given = parser.parse_args()
    check_options: dict[str, Any] = {}
    if given.tiny:  # no work is too small for the GPU
        cost_model.COSTS = cost_model.CostModel(
            gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0, seconds_per_cell=1.0
        )
        check_options = {"tiny": True, "device": "cuda", "most_seconds": 0.05}
    report, start = Report(__file__, given), time.perf_counter()
    wrong, counts = check_all(given.first, given.problems, report, check_options)
    where = " (device: cuda, simulated)" if given.tiny else ""
    seconds = f"{time.perf_counter() - start:.0f} s"
    report(f"{given.problems} problems from seed {given.first}{where}: {wrong} wrong; {seconds}")
    for outcome, count in sorted(counts.items()):
        report(f"  {outcome:24s} {count:6d}")
    report.keep()
    exit_code = simulated(given.simulated) if given.simulated else 0
    return int(wrong > 0 or exit_code != 0)


if __name__ == "__main__":
    sys.exit(main())
