"""Elimination orders on real and random instances: width, cells, and the milliseconds that they take.

    DMCMC_INSTANCES=... python benchmarks/orders.py [pattern ...]

The folder holds ``instances/`` and ``generated/`` with extensional .wcsp files. Printed and kept in results/orders.txt.
Times are of one core, warm, the least of five, and include building the graph from the scopes.
"""

import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

from dmcmc.formats.registry import load
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError

_REPEATS = 5
_RESULTS = Path(__file__).parent / "results" / "orders.txt"


def measure(file: Path) -> str:
    """Return one line about a file."""
    problem = load(file)
    scopes = [f.scope for f in problem.factors]
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        order = best_order(scopes, problem.domains, range(problem.n_variables))
        times.append(time.perf_counter() - start)
    return (
        f"{file.name:32} {problem.n_variables:5} {len(scopes):6} {order.width:5} {order.cells:10.3g}"
        f" {order.largest:10.3g} {1e3 * min(times):7.1f} {1e3 * max(times):7.1f}  {order.rule}"
    )


def main() -> int:
    """Measure every file whose name contains one of the arguments; all without arguments."""
    folder = os.environ.get("DMCMC_INSTANCES")
    if not folder:
        print("set DMCMC_INSTANCES to the folder that holds instances/ and generated/", file=sys.stderr)
        return 2
    found = (f for part in ("generated", "instances") for f in Path(folder, part).rglob("*.wcsp*"))
    files = sorted(f for f in found if not sys.argv[1:] or any(a in f.name for a in sys.argv[1:]))
    best_order([(0, 1), (1, 2), (2, 3), (3, 0)], np.array([2, 3, 2, 3]), range(4))  # compiles
    lines = [
        f"# python benchmarks/orders.py {' '.join(sys.argv[1:])}".rstrip(),
        f"# {platform.machine()}, Python {platform.python_version()}, one core; times: least and most of {_REPEATS}",
        f"{'file':32} {'n':>5} {'tables':>6} {'width':>5} {'cells':>10} {'largest':>10} {'ms':>7} {'most':>7}  rule",
    ]
    print(*lines, sep="\n")
    for file in files:
        try:
            line = measure(file)
        except DmcmcError as error:
            line = f"{file.name:32} {str(error).replace(str(file), '').strip(': ')}"
        print(line, flush=True)
        lines.append(line)
    _RESULTS.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
