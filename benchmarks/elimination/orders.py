"""Elimination orders on real and random instances: width, cells, and the milliseconds that they take.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.orders [--only TEXT] [--output FILE]

FOLDER holds instances/ and generated/ with extensional .wcsp files. Times are of one core, warm, the least and the most
of some repeats, and include building the graph from the scopes.
"""

from pathlib import Path

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError

TABLE = Columns(
    ("file", "<32"), ("n", ">5"), ("tables", ">6"), ("width", ">5"), ("cells", ">10.3g"), ("largest", ">10.3g"),
    ("ms", ">7.1f"), ("most", ">7.1f"), ("rule", "<"),
)  # fmt: skip


def measure(file: Path, repeats: int) -> str:
    """Return one line about a file."""
    try:
        problem = dmcmc.load(file)
    except DmcmcError as error:
        return f"{file.name:32} {str(error).replace(str(file), '').strip(': ')}"
    scopes = [f.scope for f in problem.factors]
    order, times = timed(lambda: best_order(scopes, problem.domains, range(problem.n_variables)), repeats)
    size = (problem.n_variables, len(scopes), order.width, order.cells, order.largest)
    return TABLE.line(file.name, *size, 1e3 * times.least, 1e3 * times.most, order.rule)


def main() -> None:
    """Measure every file whose name has the text in it."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    found = [f for part in ("generated", "instances") for f in sorted(instances(part).rglob("*.wcsp*"))]
    say = Report(__file__, given, times_of="one core", repeats=given.repeats)
    say(TABLE.head)
    for file in found:
        if given.only in file.name:
            say(measure(file, given.repeats))
    say.keep()


if __name__ == "__main__":
    main()
