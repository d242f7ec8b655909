"""Is every answer what it says? The checks of tests/support/soundness.py on as many seeds as there is time for.

    python -m benchmarks.solving.soundness [--problems 2000] [--first 0] [--simulated 40] [--output FILE]

``--simulated`` runs some more, tiny ones, with `device: cuda` under Numba's simulator. Exit code 1 if anything is
wrong; the line names the seed.
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
    """Check tiny problems with ``device: cuda`` in a process that simulates one."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    module = ["-m", "benchmarks.solving.soundness", "--problems", str(count), "--tiny"]
    return subprocess.run([sys.executable, "-W", "ignore", *module], env=environment, check=False).returncode


def check_all(first: int, problems: int, say: Report, how: dict[str, Any]) -> tuple[int, collections.Counter[str]]:
    """Return how many answers are wrong, and how many there are of each kind."""
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    for seed in range(first, first + problems):
        try:
            word, found = soundness.check(seed, **how)
        except Exception as error:
            word, found = "crashed", [f"{type(error).__name__}: {error}"]
        counts[word] += 1
        wrong += bool(found)
        for text in found[:3]:
            say(f"seed {seed}: {word}: {text}")
    return wrong, counts


def main() -> int:
    """Check, print counts."""
    parser = options(__file__, __doc__)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # tiny problems, device: cuda
    given = parser.parse_args()
    how: dict[str, Any] = {}
    if given.tiny:  # nothing is too little for the GPU
        cost_model.COSTS = cost_model.Costs(trip=-1.0, wave=0.0, matched=0.0, cell=1.0)
        how = {"tiny": True, "device": "cuda", "most_seconds": 0.05}
    say, start = Report(__file__, given), time.perf_counter()
    wrong, counts = check_all(given.first, given.problems, say, how)
    where = " (device: cuda, simulated)" if given.tiny else ""
    seconds = f"{time.perf_counter() - start:.0f} s"
    say(f"{given.problems} problems from seed {given.first}{where}: {wrong} wrong; {seconds}")
    for word, count in sorted(counts.items()):
        say(f"  {word:24s} {count:6d}")
    say.keep()
    failed = simulated(given.simulated) if given.simulated else 0
    return int(wrong > 0 or failed != 0)


if __name__ == "__main__":
    sys.exit(main())
