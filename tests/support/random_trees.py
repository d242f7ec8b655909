"""Random trees of agents with small tables, and their optima by enumeration."""

import numpy as np

import dmcmc
from dmcmc.inference.model.tables import forbidden


def tree_of_agents(seed, agents=6, kind="int"):
    """Return a random tree of agents with a shared and a hidden variable each, and some forbidden entries."""
    rng, builder = np.random.default_rng(seed), dmcmc.Problem.build()
    for a in range(agents):
        builder.variable(f"s{a}", 2, agent=f"a{a}")
        builder.variable(f"h{a}", 2, agent=f"a{a}")
        builder.factor((f"s{a}", f"h{a}"), random_table(rng, kind), name=f"own{a}")
        if a:
            builder.factor((f"s{a}", f"s{rng.integers(a)}"), random_table(rng, kind), name=f"link{a}")
    return builder.factor((), 7).problem()


def random_table(rng, kind, part=0.15):
    """Return a random table of 2 x 2 entries of which a part is forbidden."""
    table = rng.integers(0, 30, (2, 2)) if kind == "int" else rng.random((2, 2))
    return np.where(rng.random((2, 2)) < part, -np.inf, table)


def optimum(problem):
    """Return the best objective by enumeration; None if every assignment breaks a hard constraint."""
    total = np.zeros(tuple(problem.domains))
    for factor in problem.factors:
        table = np.where(forbidden(factor.table), -np.inf, factor.table).transpose(np.argsort(factor.scope))
        total += table.reshape([size if v in factor.scope else 1 for v, size in enumerate(problem.domains)])
    return None if np.isneginf(total.max()) else total.max()
