"""The union of all agents: its bound is never below the optimum, and its search finds the optimum and proves it."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem
from support.ranks import on_thread_ranks
from support.runs import start_run

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import TimeSlice
from dmcmc.anytime.rank_run import RankRun
from dmcmc.anytime.run_improvers import improve_agents
from dmcmc.anytime.scheduler.proposal import Allocation, Directive, Proposal, ranks_of_work, union_number
from dmcmc.anytime.scheduler.scheduler import Scheduler, SchedulingState
from dmcmc.anytime.whole_problem import whole_problem_agent
from dmcmc.anytime.whole_problem.whole_problem_agent import (
    WholeProblemAgent,
    exchange_nodes,
    whole_problem_of,
    whole_problem_provider,
)
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.inference.bounds.search_rows import tighten
from dmcmc.inference.model.tables import forbidden
from dmcmc.mpi.world import World
from dmcmc.results.result import BOUND, BRANCH, RECOMBINATION
from dmcmc.solving.planning.plan import prepare

UNION = union_number(0)
QUANTUM = 0.05  # seconds of an improver in one slice


def best_utility(problem):
    """Return the largest total utility over all assignments; −inf if all are forbidden."""
    return max(
        sum(-np.inf if forbidden(f.table)[v] else float(f.table[v]) for f, v in entries(problem, values))
        for values in itertools.product(*map(range, problem.domains.tolist()))
    )


def entries(problem, values):
    """Yield the factors with their index of an assignment."""
    return ((factor, tuple(values[v] for v in factor.scope)) for factor in problem.factors)


def improve(union, setup, kinds, slices, world=None):
    """Let improvers work on the union for some slices; return the bound after each, and the assignments found."""
    bounds, found = [], []
    for _ in range(slices):
        for kind in kinds:
            empty = TimeSlice({}, lambda agent: None, setup.backend)
            directive = Directive(False, allocations=(Allocation(kind, union.number, QUANTUM),))
            improve_agents(registry.create(timed=False), union.added_to(empty), directive)
            found += exchange_nodes(world or World(), union)
            bounds.append(union.bound)
    return bounds, found


def dense_problem(seed, variables=6, domain=4, floats=False, hard=0.0):
    """Return a problem with a binary factor between any two variables, each variable an agent."""
    rng, factors = np.random.default_rng(seed), []
    for pair in itertools.combinations(range(variables), 2):
        table = rng.uniform(0, 9, (domain, domain)) if floats else rng.integers(0, 99, (domain, domain))
        factors.append(Factor.of(pair, np.where(rng.random(table.shape) < hard, -np.inf, table)))
    names = tuple(f"x{v}" for v in range(variables))
    return Problem(names, [domain] * variables, names, tuple(range(variables)), tuple(factors))


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("hard", [0.0, 0.15])
@pytest.mark.parametrize("missing", [0, 1, 30])
def test_the_search_of_the_union_finds_and_proves_the_optimum(floats, hard, missing):
    for seed in range(3):
        problem = dense_problem(seed, floats=floats, hard=hard)
        run = start_run(problem, budget={"time": 60.0})
        optimum = best_utility(problem)
        arithmetic = run.setup.divided.arithmetic
        assert np.isfinite(optimum)
        utility = type(problem.factors[0].table.flat[0].item())(optimum - missing)
        union = WholeProblemAgent(run.setup, "triangles+mini-bucket", lambda utility=utility: utility, QUANTUM)
        bounds, found = improve(union, run.setup, (BOUND, BRANCH), 6)
        tolerance = 1e-6 if floats else 0
        assert all(arithmetic.is_lowest(bound) or bound >= optimum - tolerance for bound in bounds if missing)
        utilities = [sum(f.table[index] for f, index in entries(problem, values.tolist())) for values in found]
        if missing and not union.agent.table.exact:
            assert max(utilities, default=optimum) == pytest.approx(optimum)
        assert arithmetic.is_lowest(bounds[-1]) or bounds[-1] == pytest.approx(optimum, abs=1e-3)
        assert union.gap == pytest.approx(missing if not arithmetic.is_lowest(bounds[-1]) else 0, abs=1e-3)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("missing", [0, 1, 30])
def test_ranks_that_share_the_nodes_find_and_prove_the_optimum_together(ranks, missing):
    problem = dense_problem(ranks, variables=6, domain=6)
    run = start_run(problem, budget={"time": 60.0})
    setup, optimum = run.setup, best_utility(problem)

    def work(world):
        union = WholeProblemAgent(setup, "dual", lambda: int(optimum) - missing, QUANTUM, world.rank, shared=True)
        bounds, found = improve(union, setup, (BOUND, BRANCH, BRANCH, BRANCH), 6, world)
        return bounds, found, union.gap

    results = on_thread_ranks(ranks, work)
    (bounds, found, gap), others = results[0], results[1:]
    is_lowest = setup.divided.arithmetic.is_lowest
    assert all(is_lowest(bound) or bound >= optimum for bound in bounds if missing)
    assert is_lowest(bounds[-1]) or bounds[-1] == optimum
    assert all(later <= earlier for earlier, later in itertools.pairwise(bounds) if not is_lowest(later))
    assert all(other[0][-1] == bounds[-1] and other[1] == [] for other in others), "all ranks know the bound"
    assert gap == (0 if is_lowest(bounds[-1]) else missing)
    utilities = [sum(f.table[index] for f, index in entries(problem, values.tolist())) for values in found]
    assert not missing or max(utilities, default=optimum) == optimum


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), kinds=st.sampled_from([(BOUND,), (BOUND, BRANCH)]))
def test_bounds_of_the_union_never_exclude_a_better_assignment(seed, kinds):
    given_problem = random_problem(seed, variables=6, agents=3, arity=2, hard=0.1)
    assume(given_problem.n_variables > 1 and any(len(f.scope) == 2 for f in given_problem.factors))
    assume(np.isfinite(best_utility(given_problem)))
    run = start_run(given_problem, budget={"time": 60.0})
    problem = run.setup.divided.problem  # after presolve
    optimum = best_utility(problem) - sum(int(f.table) for f in problem.factors if not f.scope)
    union = WholeProblemAgent(run.setup, "dual+mini-bucket", lambda: int(optimum) - 1, QUANTUM)
    bounds, _ = improve(union, run.setup, kinds, 1)
    assert all(bound >= optimum for bound in bounds)


def test_a_run_with_one_variable_per_agent_is_proven_by_the_union(monkeypatch):
    """Mini-buckets of the agents' tables alone leave a large gap here."""
    unions = []
    monkeypatch.setattr(
        whole_problem_agent,
        "WholeProblemAgent",
        lambda *arguments: unions.append(WholeProblemAgent(*arguments)) or unions[-1],
    )
    problem = dense_problem(5, variables=14, domain=7)
    as_given = dmcmc.solve(problem, timeout=300, search="none", device="cpu")
    owners = [0] * problem.n_variables
    alone = Problem(problem.variables, problem.domains, ("a",), owners, problem.factors)
    one_agent = dmcmc.solve(alone, timeout=300, device="cpu")
    assert as_given.status == one_agent.status == "optimal"
    assert as_given.objective == one_agent.objective
    assert len(unions) == 1 and unions[0].gap == 0


def test_the_union_is_proven_while_the_kernels_of_tables_are_compiled(monkeypatch):
    problem = dense_problem(5, variables=14, domain=7)
    expected = dmcmc.solve(problem, timeout=300, search="none", device="cpu")
    monkeypatch.setattr(KernelSupply, "all_ready", lambda _, *sets: not any(k.name.startswith("tables") for k in sets))
    monkeypatch.setattr(RankRun, "first_tables", None)
    found = dmcmc.solve(problem, timeout=300, search="none", device="cpu")
    assert found.status == expected.status == "optimal" and found.objective == expected.objective


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ({"budget": {"time": 5.0}}, True),
        ({}, False),
        ({"budget": {"time": 5.0}, "local": {"method": "gibbs"}}, False),
        ({"budget": {"time": 5.0}, "local": {"bound": "none"}}, False),
        ({"budget": {"time": 5.0}, "combine": {"method": "mini-bucket"}}, False),
        ({"budget": {"time": 5.0, "memory": "1MiB"}}, False),
    ],
)
def test_the_union_is_bounded_where_the_combination_splits_buckets(sections, wanted, monkeypatch):
    monkeypatch.setattr(whole_problem_agent, "may_split_buckets", lambda setup: True)
    problem = dense_problem(1, variables=8, domain=40 if "memory" in sections.get("budget", {}) else 4)
    setup = prepare(problem, settings_of(Document("", sections)), World())
    assert (whole_problem_provider(setup) is not None) == wanted
    assert whole_problem_of(setup).interface == () and whole_problem_of(setup).hidden == tuple(range(8))


def test_one_agent_has_no_union(monkeypatch):
    monkeypatch.setattr(whole_problem_agent, "may_split_buckets", lambda setup: True)
    problem = dense_problem(1)
    alone = Problem(problem.variables, problem.domains, ("a",), [0] * 6, problem.factors)
    setup = prepare(alone, settings_of(Document("", {"budget": {"time": 5.0}})), World())
    assert whole_problem_provider(setup) is None


def test_work_on_the_union_changes_no_tables():
    of_union, of_agent = Allocation(BRANCH, UNION, 1.0), Allocation(BRANCH, 0, 1.0)
    assert not Directive(False, allocations=(of_union,)).changes_tables
    assert Directive(False, allocations=(of_union,)).works_on_union
    assert Directive(False, allocations=(of_union, of_agent)).changes_tables
    assert not Directive(False, allocations=(of_agent,)).works_on_union


def test_the_gap_of_the_union_is_no_part_of_the_agents_gaps():
    """A larger combination may gain the part of the gap that no agent's table explains."""
    recombination = Proposal(RECOMBINATION, float("inf"), None, 0.1)
    properties = registry.declared(registry.create(timed=False))
    for gap_of_agent, accepted in ((4.0, True), (10.0, False)):
        scheduler = Scheduler(ranks_of_work((0,), 1), properties)
        scheduler.record(SchedulingState(1.0, 9.0, 90.0, 100.0), [])
        allocations = scheduler.decide([Proposal(BOUND, 1.0, UNION), Proposal(BOUND, gap_of_agent, 0), recombination])
        assert (allocations == (Allocation(RECOMBINATION, None, 0.1),)) == accepted


def wrong_numbers(kind):
    """Return a ``tighten`` after which the bound of the whole problem, or a table that it rests on, is too low."""

    def wrong(requests, backend, budget):
        spent = tighten(requests, backend, budget)
        for request in requests:
            dual = request.state.dual if hasattr(request.state, "dual") else request.state
            if kind == "bound":
                dual.bounds -= 1 << 19
            else:
                dual.potentials.unary[0] -= 1 << 19
        return spent

    return wrong


@pytest.mark.parametrize("kind", ["bound", "potentials"])
def test_a_wrong_bound_of_the_union_is_an_error_of_the_program_and_proves_nothing(kind, monkeypatch, caplog):
    monkeypatch.setattr(whole_problem_agent, "tighten", wrong_numbers(kind))
    problem = dense_problem(5, variables=14, domain=7)
    found = dmcmc.solve(problem, timeout=3, search="none", device="cpu")
    assert len([record for record in caplog.records if "error of the program" in record.getMessage()]) == 1
    largest = sum(factor.table.max() for factor in problem.factors)
    assert found.status != "optimal" and found.objective < found.bound <= largest


def test_an_assignment_above_the_bound_is_an_error_of_the_program(caplog):
    problem = dense_problem(5)
    run = start_run(problem, budget={"time": 60.0})
    incumbent = run.incumbent
    incumbent.bound = 0
    best = max(itertools.product(range(4), repeat=6), key=lambda v: problem.evaluate(v).objective)
    assert incumbent.update(np.array(best))
    assert any("error of the program" in record.getMessage() for record in caplog.records)
    assert incumbent.bound >= incumbent.utility
