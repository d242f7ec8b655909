"""Compare the time until a proof with that of toulbar2 alone, on files that toulbar2 reads itself.

    python -m benchmarks.with_toulbar2 [FILE ...] [--seconds 10] [--only TEXT] [--output FILE]

toulbar2 reads and searches each file in its own process, on one core. Then ``dmcmc solve`` solves it with toulbar2 in
the background, with a time limit of 1.5 times toulbar2's time and 2 s. Times of toulbar2 include reading; those of
dmcmc do not include reading and the compilation of kernels. Without files, the instances of toulbar2's validation are
read, and two auctions are made: they have binary variables, conflicts of pairs, and groups of which one or two may be
taken (cliques and knapsacks).
"""

import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options

_ALONE = """
import sys, time
from pytoulbar2 import CFN, tb2
start = time.perf_counter()
network = CFN(verbose=-1)
network.Read(sys.argv[1])
try:
    found = network.Solve(timeLimit=int(sys.argv[2]))
except tb2.Contradiction:
    found = None
limited = network.Limit is not None
print("FOUND", None if found is None else found[1], limited, time.perf_counter() - start, flush=True)
"""
_FACTOR, _SLACK_SECONDS = 1.5, 2.0  # dmcmc may take this many times as long, and seconds in addition
_BIDS, _BIDDERS, _PRICES = 172, 45, (150, 1250)  # size of an auction as in toulbar2's cat_paths instances


def auction(most: int, seed: int) -> str:
    """Return a file with bids that share items; at most ``most`` bids per item and one per bidder are taken."""
    rng = np.random.default_rng(seed)
    items = [np.sort(rng.permutation(_BIDS)[:size]).tolist() for size in rng.integers(3, 24, 40).tolist()]
    bidders = np.array_split(np.arange(_BIDS), _BIDDERS)
    pairs = {pair for bidder in bidders for pair in combinations(bidder.tolist(), 2)}
    if most == 1:
        pairs |= {pair for item in items for pair in combinations(item, 2)}
    prices = rng.integers(*_PRICES, _BIDS)
    top = int(prices.sum()) + 1
    lines = [f"2 {v} {u} 0 1\n1 1 {top}" for v, u in sorted(pairs)]
    lines += [f"1 {v} 0 1\n0 {price}" for v, price in enumerate(prices.tolist())]
    lines += [_at_most(most, item) for item in items]
    return f"auction {_BIDS} 2 {len(lines)} {top}\n{' '.join(['2'] * _BIDS)}\n" + "\n".join(lines) + "\n"


def _at_most(most: int, item: list[int]) -> str:
    """Return the constraint that at most ``most`` bids on an item are taken: a clique for one bid, else a knapsack."""
    bound = f"clique 1{' 1 1' * len(item)}" if most == 1 else f"knapsackp {-most}{' 1 1 -1' * len(item)}"
    return f"{len(item)} {' '.join(map(str, item))} -1 {bound}"


def search_alone(path: Path, seconds: int) -> tuple[float | None, bool, float] | None:
    """Return toulbar2's objective, whether it is proven, and its seconds; None if it cannot read the file."""
    command = [sys.executable, "-c", _ALONE, str(path), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20 * seconds + 100)
    for line in done.stdout.splitlines():
        if line.startswith("FOUND "):
            _, objective, limited, elapsed = line.split()
            return None if objective == "None" else float(objective), limited == "False", float(elapsed)
    return None


def main() -> None:
    """Compare both on all files."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=int, default=10, help="time limit of toulbar2 alone")
    args = parser.parse_args()
    columns = Columns(
        ("file", "<36"), ("toulbar2", ">12"), ("s", ">7.2f"), ("dmcmc", ">12"), ("s", ">7.2f"), ("proven", "<20")
    )
    report = Report(__file__, args)
    with tempfile.TemporaryDirectory() as folder:
        files = args.files or sorted(instances("instances/tb2_default").iterdir())
        for most in () if args.files else (1, 2):
            files.append(Path(folder) / f"auction_{most}.wcsp")
            files[-1].write_text(auction(most, seed=1))
        report(columns.head)
        for path in files:
            alone = search_alone(path, args.seconds) if args.only in path.name else None
            if alone is None or not alone[1]:
                continue
            problem, start = dmcmc.load(path), time.perf_counter()
            limit = _FACTOR * alone[2] + _SLACK_SECONDS
            result = dmcmc.solve(problem, timeout=limit)
            seconds = min(result.time, time.perf_counter() - start)
            proven = "proven" if result.status in ("optimal", "infeasible") else "NOT PROVEN"
            proven += f", {seconds - limit:.2f} s late" if seconds > limit else ""
            report(columns.line(path.name, str(alone[0]), alone[2], str(result.objective), seconds, proven))
    report.keep()


if __name__ == "__main__":
    main()
