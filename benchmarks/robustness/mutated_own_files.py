"""Damage files that dmcmc itself writes, and read them: an answer, a warning or one error line, and nothing else.

    PYTHONPATH=tests python -m benchmarks.robustness.mutated_own_files [--count 10000] [--seed 0] [--only KIND]

The kinds are an agent's checkpoint, a saved incumbent, the public index of agents' files, the journal and the plan of
an experiment, and a result. Half of the damaged copies have changed bytes; the others are well-formed, with odd values
(and right digests). Each copy is read by the functions that the commands use, and everything in it is used. ``read``
copies are accepted, ``recovered`` ones are ignored with one warning, ``refused`` ones are one error line. Any other
exception ends the script with the damaged file.
"""

import random
import tempfile
import time
from pathlib import Path

from support.damaged.own_files import KINDS, damaged, outcome, own_file

from benchmarks.harness import Columns, Report, options

TABLE = Columns(
    ("file", "<12"), ("bytes", ">7"), ("copies", ">7"), ("read", ">7"), ("recovered", ">10"), ("refused", ">8"),
    ("slowest [s]", ">12.2f"),
)  # fmt: skip


def main() -> None:
    """Damage files of each kind and print how reading them ended."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--count", type=int, default=10_000, help="damaged copies of each file")
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    for kind in KINDS:
        if given.only not in kind:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file, rng = own_file(kind, Path(folder)), random.Random(f"{given.seed} {kind}")
            counts, slowest = {"read": 0, "recovered": 0, "refused": 0}, 0.0
            for _ in range(given.count):
                copy = damaged(file, rng)
                file.path.write_bytes(copy)
                begun = time.perf_counter()
                try:
                    counts[outcome(file)] += 1
                except BaseException:
                    failed = Path(tempfile.gettempdir()) / f"damaged-{kind}{file.path.suffix}"
                    failed.write_bytes(copy)
                    report(f"{kind}: copy {sum(counts.values()) + 1} fails: {failed}")
                    raise
                slowest = max(slowest, time.perf_counter() - begun)
            report(TABLE.line(kind, len(file.whole), given.count, *counts.values(), slowest))
    report.keep()


if __name__ == "__main__":
    main()
