"""Compare forms of factors with a default value: a chain of tables, one dense table, and rows with a default.

    python -m benchmarks.elimination.default_values [--output FILE]

Two factors over ``arity`` variables of 16 values each share two of them. ``chain`` and ``dense``: entries of the tables
that represent them, and the largest number of joined cells and the seconds of eliminating all variables, if there are
at most 2^26 entries. ``rows``: the number of rows of a join of two tables that store rows and a default: every row is
combined with all values of the other table's variables, where its sum differs from the default.
"""

from collections.abc import Sequence
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.harness import Columns, Report, options, timed
from dmcmc import Problem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, choose_arithmetic
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.orders.best_order import best_order

DOMAIN_SIZE = 16
MAX_ENTRIES = 1 << 26  # entries of tables up to which they are eliminated
MODULE = "dmcmc.inference.model.densify"
TABLE = Columns(
    ("arity", ">5d"), ("tuples", ">7,"), ("chain", ">12,"), ("cells", ">14,"), ("s", ">8.3f"), ("dense", ">14,"),
    ("cells", ">14,"), ("s", ">8.3f"), ("rows", ">14,"), ("equal", ">9s"),
)  # fmt: skip


def problem_of(arity: int, tuples: int) -> Problem:
    """Return two factors with ``tuples`` explicit rows each and a default of zero."""
    rng, builder = np.random.default_rng(0), Problem.build()
    n = 2 * arity - 2
    for v in range(n):
        builder.variable(f"v{v}", DOMAIN_SIZE)
    factors = []
    for scope in (range(arity), range(arity - 2, n)):
        rows = rng.integers(0, DOMAIN_SIZE, (tuples, arity))
        factors.append(tabulate(tuple(scope), (DOMAIN_SIZE,) * arity, rows, rng.integers(1, 99, tuples), 0))
    plain = builder.problem()
    return Problem(plain.variables, plain.domains, plain.agents, plain.owner, tuple(factors))


def eliminate_all(problem: Problem) -> tuple[EliminationPlan, float, int]:
    """Eliminate all variables; return the plan, the seconds and the best utility."""
    factors: Sequence[Factor] = problem.factors
    arithmetic = choose_arithmetic(factors)
    order = best_order([f.scope for f in factors], problem.domains, range(problem.n_variables)).variables
    plan = plan_elimination([f.scope for f in factors], problem.domains, order)
    tables = [arithmetic.encode(f) for f in factors]
    done, seconds = timed(lambda: eliminate(tables, plan, arithmetic), 1)
    return plan, seconds.least, sum(int(table.values.item()) for table in done.remaining())


def main() -> None:
    """Print and write the table."""
    given = options(__file__, __doc__).parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    for arity in (4, 5, 6, 8):
        for tuples in (30, 300, 3000):
            problem, row = problem_of(arity, tuples), list[Any]((arity, tuples))
            with patch(f"{MODULE}._EASY", 0), patch(f"{MODULE}._SHARE", 1 << 60), patch(f"{MODULE}._MOST_AXES", 0):
                chain = densify(problem, 1 << 33).problem
            entries, best = sum(f.table.size for f in chain.factors), None
            row += [entries, None, None]
            if entries <= MAX_ENTRIES:
                plan, seconds, best = eliminate_all(chain)
                row[-2:] = [int(plan.program.cells.max()), seconds]
            dense = sum(prod(f.shape) for f in problem.factors)
            same = "-"
            if dense <= MAX_ENTRIES:
                dense_factors = tuple(Factor(f.scope, f.table, f.name) for f in problem.factors)
                dense_problem = Problem(
                    problem.variables, problem.domains, problem.agents, problem.owner, dense_factors
                )
                plan, seconds, dense_best = eliminate_all(dense_problem)
                row += [dense, int(plan.program.cells.max()), seconds]
                same = "-" if best is None else str(best == dense_best)
            else:
                row += [dense, None, None]
            rows = 2 * tuples * DOMAIN_SIZE ** (arity - 2)
            report(TABLE.line(*row, rows, same))
    report.keep()


if __name__ == "__main__":
    main()
