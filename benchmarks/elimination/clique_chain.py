"""Compute the marginals of a chain of wide cliques on a GPU and on the CPU: time of passes and largest difference.

    python -m benchmarks.elimination.clique_chain [--variables 128] [--values 256] [--bandwidth 2] [--triples]
        [--output FILE]

Every variable shares a factor with the next ``--bandwidth`` variables, so a clique has one variable more than that.
``--triples``: one factor over each clique instead, which is read twice per pass. ``all`` computes all messages and all
marginals anew, evidence included; ``up`` only the upward messages and the total. Least and median time of ten calls.
"""

import time

import numpy as np

from benchmarks.harness import Columns, Report, options
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import describe_gpu, gpu_problem

TABLE = Columns(
    ("semiring", "<10"), ("device", "<8"), ("cliques", ">8d"), ("cells", ">14,"), ("plan s", ">8.2f"),
    ("up ms", ">9.3f"), ("median", ">9.3f"), ("all ms", ">9.3f"), ("median", ">9.3f"), ("difference", ">11.1e"),
)  # fmt: skip


def chain(variables: int, values: int, bandwidth: int, whole: bool) -> Problem:
    """Return a problem with pairwise factors between nearby variables, or with one factor per clique (``whole``)."""
    rng, builder = np.random.default_rng(0), Problem.build()
    names = [builder.variable(f"v{i}", values) for i in range(variables)]
    for i in range(variables - 1):
        near = names[i : i + bandwidth + 1]
        if whole and len(near) > bandwidth:
            builder.factor(near, rng.normal(size=(values,) * len(near)))
        elif not whole:
            for other in near[1:]:
                builder.factor((names[i], other), rng.normal(size=(values, values)))
    return builder.problem()


def timed(tree: JunctionTree, all_marginals: bool, repeats: int) -> tuple[float, float]:
    """Return the least and median milliseconds to compute all messages anew."""
    seconds = []
    for _ in range(repeats + 1):
        tree.forget()
        start = time.perf_counter()
        if all_marginals:
            tree.propagate()
        tree.total()
        seconds.append(1e3 * (time.perf_counter() - start))
    return min(seconds[1:]), float(np.median(seconds[1:]))


def main() -> None:
    """Measure sums and maxima."""
    parser = options(__file__, __doc__)
    parser.add_argument("--variables", type=int, default=128)
    parser.add_argument("--values", type=int, default=256)
    parser.add_argument("--bandwidth", type=int, default=2)
    parser.add_argument("--triples", action="store_true")
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    report = Report(__file__, given, GPU=describe_gpu())
    problem = chain(given.variables, given.values, given.bandwidth, given.triples)
    report(TABLE.head)
    for maximise in (False, True):
        expected = None
        for device in ("cpu", "cuda") if gpu_problem() is None else ("cpu",):
            start = time.perf_counter()
            tree = JunctionTree(problem, maximise, device=device)
            plan = time.perf_counter() - start
            repeats = given.repeats if device == "cuda" else 1
            up_times, all_times = timed(tree, False, repeats), timed(tree, True, repeats)
            rows = [list(row.values()) for row in tree.marginals().values()]
            found = np.array([[np.nan if one is None else one for one in row] for row in rows], dtype=float)
            difference = 0.0 if expected is None else float(np.abs(found - expected).max())
            expected = found
            semiring = "maxima" if maximise else "sums"
            report(
                TABLE.line(semiring, device, len(tree.tree.scopes), tree.cells, plan, *up_times, *all_times, difference)
            )
    report.keep()


if __name__ == "__main__":
    main()
