"""Mini-buckets over agents (ADPOP): sound bounds, one message per tree edge, and z chosen by the memory limit."""

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_table

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.runtime.errors import ResourceError

PARTITIONS = [(partition, matching) for partition in ("scope", "content") for matching in (False, True)]


def answer(problem, combine, method="exact", bound="auto", **sections):
    local = {"method": method, "runs": 1, "samples": 4, "bound": bound}
    return dmcmc.solve(problem, local=local, combine=combine, **sections)


def agents_problem(seed, floats=False):
    """Return eight variables of three agents, nearly all of them boundary variables."""
    rng = np.random.default_rng(seed)
    n, hard = 8, (0.0, 0.1, 0.6)[seed % 3]
    domains = rng.integers(2, 4, n)
    scopes = [rng.permutation(n)[: 1 + (i > 2)].tolist() for i in range(20)]
    sense = "min" if seed % 5 == 0 else "max"
    sign = 1 if sense == "max" else -1
    factors = [Factor.of(s, sign * random_table(rng, tuple(domains[s]), 50, hard, floats), sense) for s in scopes]
    names = tuple(f"x{v}" for v in range(n))
    return Problem(names, domains, ("a", "b", "c"), np.arange(n) % 3, tuple(factors), sense=sense)


@pytest.mark.parametrize(("partition", "matching"), PARTITIONS)
@pytest.mark.parametrize("z", [2, 3])
def test_mini_buckets_over_agents_bound_the_optimum(partition, matching, z):
    split = 0
    statuses = set()
    combine = {"method": "mini-bucket", "z": z, "partition": partition, "moment_matching": matching}
    for seed in range(60):
        problem = agents_problem(seed, seed % 4 == 3)
        best = naive.optimum(problem)
        try:
            result = answer(problem, combine)
        except ResourceError as error:
            assert "the least z is" in str(error)
            continue
        sign = 1 if problem.sense == "max" else -1
        split += any(a.z is not None for a in result.agents)
        statuses.add(result.status)
        if result.status == "infeasible":
            assert best == -naive.INFINITY
            continue
        slack = 1e-12 * max(1.0, abs(best)) if isinstance(best, float) else 0  # the sums are in another order
        assert result.bound is not None and sign * result.bound >= best - slack
        evaluation = problem.evaluate(result.assignment)
        assert result.violation == evaluation.violation
        if result.objective is not None:
            assert result.objective == evaluation.objective and sign * result.objective <= best + slack
        assert (result.status == "optimal") == (result.gap is not None and result.gap <= 1e-9)
        tree = result.provenance["plan"]["pseudo_tree"]
        assert result.msg_count == 2 * sum(parent is not None for parent in tree.values())  # one UTIL message per edge
        combinations = result.provenance["plan"]["combine"]
        assert combinations == {a.name: "exact" if a.z is None else f"mini-bucket, z = {z}" for a in result.agents}
    assert split >= 5 and {"optimal", "feasible", "infeasible"} <= statuses | {"feasible"}


def test_sampled_agents_prove_no_bound_with_mini_buckets():
    for seed in range(20):
        problem = agents_problem(seed)
        result = answer(problem, {"method": "mini-bucket", "z": 4}, "gibbs", bound="none")
        assert result.bound is None
        assert result.status in ("feasible", "unsatisfied")


def clique_of_two_agents(seed=0):
    """Return a problem whose variables form a clique, so that exact tables are large."""
    rng = np.random.default_rng(seed)
    n = 10
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=np.full(n, 4),
        agents=("a", "b"),
        owner=np.arange(n) % 2,
        factors=tuple(Factor.of((u, v), rng.integers(0, 100, (4, 4))) for u in range(n) for v in range(u)),
    )


def test_auto_is_exact_within_the_memory_and_reports_otherwise(monkeypatch):
    # Otherwise slices would make it exact.
    monkeypatch.setattr("dmcmc.solving.planning.combination_plan.choose_slicing", lambda *_: None)
    problem = clique_of_two_agents()
    exact = answer(problem, {"method": "auto"})
    assert exact.status == "optimal" and exact.bound == exact.objective
    assert set(exact.provenance["plan"]["combine"].values()) == {"exact"}
    small = {"memory": 20_000}
    relaxed = answer(problem, {"method": "auto"}, budget=small)
    assert (
        any("mini-bucket" in combination for combination in relaxed.provenance["plan"]["combine"].values())
        or relaxed.cycle > 1
    )
    assert relaxed.status in ("feasible", "optimal")  # optimal if enough rows are pruned
    assert relaxed.objective <= exact.objective <= relaxed.bound
    with pytest.raises(ResourceError, match=r"its UTIL step needs .*budget\.memory leaves it"):
        answer(problem, {"method": "exact"}, budget=small)
    with pytest.raises(ResourceError, match=r"the problem's own tables take .*budget\.memory allows 700"):
        answer(problem, {"method": "auto"}, budget={"memory": 700})
    bounds = [answer(problem, {"method": "mini-bucket", "z": z}).bound for z in range(1, 9)]
    assert min(bounds) >= exact.objective and bounds[0] > bounds[-1]


def test_z_auto_grows_with_the_memory():
    problem = clique_of_two_agents(1)
    taken = []
    for memory in (20_000, 100_000, 1_000_000, 50_000_000):
        result = answer(problem, {"method": "mini-bucket"}, budget={"memory": memory})
        taken.append(min(10 if a.z is None else a.z for a in result.agents))
    assert taken == sorted(taken) and taken[0] < taken[-1]


def test_message_sizes_grow_with_z():
    problem = clique_of_two_agents(2)
    sizes = [answer(problem, {"method": "mini-bucket", "z": z}).msg_size for z in (1, 3, 5)]
    assert sizes[0] < sizes[1] < sizes[2]
