"""Measure the processor time of building a large problem in Python, by the form in which its factors are given.

    python -m benchmarks.formats.building [--factors 100000] [--variables 5000] [--values 3] [--repeat 3]

The factors are over random pairs of variables, each variable has its own agent. ``variables``, ``factors`` and
``problem`` are the calls of ``variable``, of ``factor``, and the final call of ``problem``; the best total of the
repeats is shown. A ``mapping`` lists one value and one forbidden combination per factor.
"""

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Columns, Report, options
from dmcmc import Problem

TABLE = Columns(
    ("given as", "<10"), ("variables [s]", ">14.2f"), ("factors [s]", ">12.2f"), ("problem [s]", ">12.2f"),
    ("total [s]", ">10.2f"), ("us per factor", ">14.1f"),
)  # fmt: skip


class Seconds(NamedTuple):
    """Processor seconds of the calls of one build, in the order of the columns."""

    variables: float
    factors: float
    problem: float


def utilities(form: str, size: int, rng: np.random.Generator) -> Iterator[Any]:
    """Yield the utilities of one factor after another in a form that ``Builder.factor`` takes."""
    arrays, lists = rng.integers(0, 100, (64, size, size)), rng.random((64, size, size)).tolist()
    while True:
        for array, nested in zip(arrays, lists, strict=True):
            match form:
                case "array":
                    yield array
                case "list":
                    yield nested
                case "mapping":
                    yield {("v0", "v0"): 5, ("v1", "v1"): -np.inf}
                case _:
                    yield lambda a, b: float(a == b)


def build(form: str, n_variables: int, n_factors: int, size: int) -> Seconds:
    """Build one problem and return the processor time of its parts."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, n_variables, n_factors)
    second = (first + rng.integers(1, n_variables, n_factors)) % n_variables
    given, labels = utilities(form, size, rng), [f"v{i}" for i in range(size)]
    seconds = []

    def timed(work: Callable[[], Any]) -> None:
        """Do a part of the work and note its processor time."""
        start = process_time()
        work()
        seconds.append(process_time() - start)

    p = Problem.build()
    names = [f"x{i}" for i in range(n_variables)]
    timed(lambda: [p.variable(name, labels, agent=f"agent {name}") for name in names])
    pairs = [(names[a], names[b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    timed(lambda: [p.factor(pair, values) for pair, values in zip(pairs, given, strict=False)])
    timed(p.problem)
    return Seconds(*seconds)


def main() -> None:
    """Print a line per form of the factors."""
    parser = options(__file__, __doc__)
    parser.add_argument("--factors", type=int, default=100_000)
    parser.add_argument("--variables", type=int, default=5000)
    parser.add_argument("--values", type=int, default=3, help="values per variable")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    report = Report(__file__, given, factors=f"{given.factors:,}", variables=f"{given.variables:,}")
    report(TABLE.head)
    build("array", 100, 1000, given.values)  # imports, and first use of NumPy's functions
    for form in ("array", "list", "mapping", "function"):
        runs = [build(form, given.variables, given.factors, given.values) for _ in range(given.repeat)]
        best = min(runs, key=sum)
        report(TABLE.line(form, *best, sum(best), 1e6 * sum(best) / given.factors))
    report.keep()


if __name__ == "__main__":
    main()
