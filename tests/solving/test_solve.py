"""Runs in one process: exact methods equal brute force, and sampling proves no more than it may."""

import numpy as np
import pytest
from support import naive, toulbar2
from support.problem_strategies import random_problem
from support.runs import finish_run, start_run

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ResourceError

HARD = -naive.INFINITY


def answer(problem, method="exact", **sections):
    local = {"method": method} | sections.pop("local", {})
    return dmcmc.solve(problem, local=local, **sections)


def small_problem(seed):
    """Return a small random problem; half of them have many hard constraints, every fifth minimises costs."""
    return random_problem(
        seed, 6, 5, 4, 10, 3 + seed % 2, 50, 0.35 if seed % 2 else 0.05, sense="min" if seed % 5 == 0 else "max"
    )


def check(problem, result, best):
    """Check a result against the best utility (in the sense of a maximisation)."""
    sign = 1 if problem.sense == "max" else -1
    assert result.sense == problem.sense
    assert result.msg_count == sum(agent.msg_count for agent in result.agents)
    assert result.msg_size == sum(agent.msg_size for agent in result.agents)
    tree = result.provenance["plan"]["pseudo_tree"]
    assert result.msg_count == 2 * sum(parent is not None for parent in tree.values())
    if result.status == "infeasible":
        assert best == HARD
        assert (result.objective, result.bound, result.gap, result.violation, result.assignment) == (None,) * 5
        return
    evaluation = problem.evaluate(result.assignment)
    assert result.violation == evaluation.violation
    if result.status == "unsatisfied":
        assert evaluation.violation > 0
        assert result.objective is None and result.gap is None
    else:
        assert evaluation.violation == 0
        assert result.objective == evaluation.objective
        assert sign * result.objective <= best
        if result.bound is not None:
            assert sign * result.bound >= best
            assert result.gap == abs(result.bound - result.objective) / max(1, abs(result.objective))
    assert (result.status == "optimal") == (result.gap is not None and result.gap <= 1e-9)


@pytest.mark.parametrize("block", range(25))
def test_exact_equals_brute_force_and_toulbar2(block):
    for seed in range(20 * block, 20 * block + 20):
        problem = small_problem(seed)
        best = naive.optimum(problem)
        assert toulbar2.optimum(problem) == best
        result = answer(problem)
        check(problem, result, best)
        if best == HARD:
            assert result.status == "infeasible"
        else:
            assert result.status == "optimal" and result.gap == 0
            assert result.objective == result.bound == problem.to_own_sense(best)


def test_the_problems_have_every_shape():
    """Guard the tests above against a lack of variety."""
    problems = [small_problem(seed) for seed in range(200)]
    best = [naive.optimum(p) for p in problems]
    assert 30 < sum(b == HARD for b in best) < 170
    assert {len(f.scope) for p in problems for f in p.factors} == {0, 1, 2, 3, 4}
    assert {int(d) for p in problems for d in p.domains} == {1, 2, 3, 4}
    assert any(p.n_variables == 0 for p in problems)
    assert any(set(range(p.n_agents)) - set(p.owner.tolist()) for p in problems)  # agents without variables
    results = [answer(p) for p in problems]
    assert any(a.variables and not a.interface for r in results if len(r.agents) > 1 for a in r.agents)
    roots = [sum(p is None for p in r.provenance["plan"]["pseudo_tree"].values()) for r in results]
    assert min(roots) == 1 and max(roots) > 2  # connected and disconnected problems
    assert max(r.msg_count for r in results) == 8


@pytest.mark.parametrize("method", ["gibbs", "metropolis-hastings", "metropolis-hastings-single"])
def test_sampled_answers_are_valid_and_prove_no_bound(method):
    for seed in range(60):
        problem = small_problem(seed)
        bounded = answer(problem, method, local={"runs": 1, "samples": 2}, seed=seed)
        result = answer(problem, method, local={"runs": 1, "samples": 2, "bound": "none"}, seed=seed)
        best = naive.optimum(problem)
        check(problem, bounded, best)
        check(problem, result, best)
        constant = any(not f.scope and forbidden(f.table) for f in problem.factors)
        assert (result.status == "infeasible") == constant  # sampling proves nothing else
        assert result.bound is None
        assert result.status in ("infeasible", "feasible", "unsatisfied")
        assert all(agent.method == method and not agent.exact for agent in result.agents)


@pytest.mark.parametrize("sense", ["max", "min"])
def test_floats_are_solved_with_a_sound_bound(sense):
    for seed in range(40):
        problem = random_problem(seed, 6, 4, 3, 9, 3, 1e3, 0.1, True, sense)
        best = naive.optimum(problem)
        result = answer(problem)
        if best == HARD:
            assert result.status == "infeasible"
            continue
        sign = 1 if sense == "max" else -1
        assert result.status == "optimal" and result.gap <= 1e-9
        assert abs(sign * result.objective - best) <= 1e-9 * max(1, abs(best))
        assert sign * result.bound >= max(naive.optimum(problem, exact=True), sign * result.objective)


@pytest.mark.parametrize("magnitude", [2**29, 2**33, 2**55, 2**61])
def test_large_integers_are_exact_or_have_a_sound_bound(magnitude):
    for seed in range(15):
        problem = random_problem(seed, 6, 4, 3, 7, 3, magnitude, 0.1)
        best = naive.optimum(problem)
        result = answer(problem)
        if best == HARD:
            assert result.status == "infeasible"
            continue
        assert result.bound >= best >= result.objective
        assert result.objective == problem.evaluate(result.assignment).objective
        assert result.gap <= 1e-9
        if result.provenance["plan"]["arithmetic"] != "float64":
            assert result.objective == result.bound == best


def problem_of(domains, owner, *factors, agents=2, sense="max"):
    n = len(domains)
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=np.array(domains, dtype=np.int64),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.array(owner, dtype=np.int64),
        factors=tuple(Factor.of(scope, table, sense) for scope, table in factors),
        sense=sense,
    )


@pytest.mark.parametrize("method", ["exact", "auto", "gibbs"])
@pytest.mark.parametrize("agents", [0, 1, 3])
def test_no_variables_at_all(method, agents):
    result = answer(problem_of([], [], ((), 3), ((), 4), agents=agents), method)
    assert (result.objective, result.violation, result.assignment, result.msg_count) == (7, 0, {}, 0)
    assert result.status == "optimal" or (method, result.status) == ("gibbs", "feasible")


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_a_forbidden_constant_makes_the_problem_infeasible(method):
    assert answer(problem_of([2], [0], ((0,), [1, 2]), ((), HARD), agents=1), method).status == "infeasible"


def test_one_infeasible_component_makes_the_problem_infeasible():
    free = ((0, 1), [[1, 2], [3, 4]])
    never = ((2, 3), [[HARD, HARD], [HARD, HARD]])
    assert answer(problem_of([2] * 4, [0, 1, 2, 3], free, never, agents=4)).status == "infeasible"
    assert answer(problem_of([2] * 4, [0, 1, 2, 2], free, never, agents=3)).status == "infeasible"
    # It is proven by its bound.
    assert answer(problem_of([2] * 4, [0, 1, 2, 2], free, never, agents=3), "gibbs").status == "infeasible"
    sampled = answer(problem_of([2] * 4, [0, 1, 2, 2], free, never, agents=3), "gibbs", local={"bound": "none"})
    assert (sampled.status, sampled.violation, sampled.bound) == ("unsatisfied", 1, None)
    assert sampled.assignment["x0"] == sampled.assignment["x1"] == 1  # the other component is still solved


def test_ties_go_to_the_lowest_index():
    result = answer(problem_of([3, 3], [0, 1], ((0, 1), np.zeros((3, 3)))))
    assert result.assignment == {"x0": 0, "x1": 0}


def test_costs_are_minimised_and_have_a_lower_bound():
    result = answer(problem_of([2, 2], [0, 1], ((0, 1), [[5, 2], [-HARD, 7]]), ((), 10), sense="min"))
    assert (result.objective, result.bound, result.sense) == (12, 12, "min")
    assert result.assignment == {"x0": 0, "x1": 1}


def test_the_guarantee_counts_the_agents_that_sampled():
    problem = small_problem(8)
    options = {"guarantee": {"alpha": 0.1, "epsilon": 0.2}, "temperature": 1}
    result = answer(problem, "gibbs", local=options)
    assert (result.guarantee.alpha, result.guarantee.epsilon, result.guarantee.samples) == (0.1, 0.2, 50)
    assert result.guarantee.probability == pytest.approx(0.8**problem.n_agents)
    assert answer(problem, "exact", local=options).guarantee.probability == 1
    assert answer(problem, "gibbs").guarantee is None and answer(problem, "gibbs").note is None


@pytest.mark.parametrize(
    ("method", "local", "reason"),
    [
        ("gibbs", {}, "the temperature is not constant"),
        ("gibbs", {"temperature": {"start": 2, "end": 1}}, "the temperature is not constant"),
        ("annealing", {"temperature": 1}, "annealing is none of gibbs, metropolis-hastings, "),
        ("tempering", {"temperature": 1}, "tempering is none of gibbs, "),
        ("gibbs", {"temperature": 1, "rows": 1}, "some interface assignments have had 0 of 50 samples"),
    ],
)
def test_there_is_no_guarantee_outside_the_theorems_assumptions(method, local, reason):
    result = answer(small_problem(8), method, local=local | {"guarantee": {"alpha": 0.1, "epsilon": 0.2}})
    assert result.guarantee is None and result.note.startswith(f"no guarantee: {reason}")


@pytest.mark.parametrize("runs", [1, 3, 10])
def test_a_guarantee_counts_the_samples_that_were_drawn_for_every_row(runs):
    local = {"guarantee": {"alpha": 0.1, "epsilon": 0.2}, "temperature": 1, "runs": runs}
    result = answer(small_problem(8), "metropolis-hastings", local=local)
    drawn = [agent.samples for agent in result.agents]
    assert set(drawn) == {runs * -(-50 // runs)} and result.guarantee.samples == min(drawn) >= 50


def test_there_is_no_guarantee_if_the_deadline_cuts_sampling_short():
    local = {"method": "gibbs", "guarantee": {"alpha": 1e-4, "epsilon": 1e-4}, "temperature": 1}
    result = finish_run(start_run(small_problem(8), local=local, budget={"time": 0.2}))  # planning is not part of it
    assert result.guarantee is None and "of 100,000,000 samples" in result.note


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_tables_larger_than_the_memory_budget_are_rejected(method):
    problem = random_problem(45, 16, 3, 5, 24, 3, 1000, 0.05)
    with pytest.raises(ResourceError, match=r"budget\.memory allows 100"):
        answer(problem, method, budget={"memory": 100})


def test_metrics_report_the_work_of_each_agent():
    problem = random_problem(45, 16, 3, 5, 24, 3, 1000, 0.05)
    exact, sampled = answer(problem), answer(problem, "gibbs", local={"runs": 2, "samples": 3})
    for a, (one, other) in enumerate(zip(exact.agents, sampled.agents, strict=True)):
        assert one.variables == other.variables == int((problem.owner == a).sum())
        hidden = one.variables - one.interface
        assert one.rows == other.rows
        assert other.updates == one.rows * 2 * 3 * hidden
        assert (one.cells > 0) == (hidden > 0)
        assert one.exact and not other.exact
