"""Local search on global constraints: exact incremental totals, moves that can be undone, optima of small problems."""

from contextlib import nullcontext
from itertools import combinations, pairwise

import numpy as np
import pytest
from support.constraints.random_constraints import KINDS, best_objective, random_problem

from dmcmc import Problem
from dmcmc.inference.runtime.compile import compilation_seconds
from dmcmc.inference.runtime.deadline import CancellationToken, Deadline
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.inference.storage.numba_cache import unsaved_kernels
from dmcmc.samplers.constraint_search import move_kernels as moves
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch, Walker
from dmcmc.samplers.constraint_search.search_model import search_model
from dmcmc.samplers.constraint_search.state_kernels import DEGREE, SOFT, WEIGHTED, change_value, cost_change
from dmcmc.samplers.constraint_search.uncompiled_search import UncompiledSearch, UncompiledState
from dmcmc.samplers.local_search.local_search import ConstraintAscent, LocalSearch


def problems(count):
    """Yield random problems with a constraint of each kind that has cells, and tables and automata besides."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        yield random_problem(rng, [str(kind) for kind in rng.permutation(KINDS)[:6]], 6, 4)


def cost_of(problem, values):
    """Return the degree and the soft cost of an assignment, by the factors that the search reads."""
    factors = []
    for factor in problem.factors:
        has_cells = not factor.is_tabular and factor.cell_loads() is not None
        factors += [factor] if has_cells else factor.decomposed()
    entries = [(f, values[list(f.scope)].tolist()) for f in factors]
    return sum(f.violation(x) for f, x in entries), -sum(f.entry(x) or 0 for f, x in entries)


def totals_of(walker):
    return walker.state.totals[DEGREE], walker.state.totals[SOFT]


def test_the_state_follows_every_change():
    for seed, problem in enumerate(problems(8)):
        walker, rng = Walker(search_model(problem), seed), np.random.default_rng(seed)
        values = rng.integers(problem.domains)
        walker.start_from(values)
        for _ in range(60):
            v = int(rng.integers(problem.n_variables))
            new = int(rng.integers(problem.domains[v]))
            expected = cost_change(walker.model, walker.state, v, new, 0.5)
            before = walker.state.totals[WEIGHTED] + 0.5 * walker.state.totals[SOFT]
            if rng.random() < 0.2:
                change_value(walker.model, walker.state, v, -1)
            change_value(walker.model, walker.state, v, new)
            values[v] = new
            assert totals_of(walker) == pytest.approx(cost_of(problem, values))
            after = walker.state.totals[WEIGHTED] + 0.5 * walker.state.totals[SOFT]
            assert after - before == pytest.approx(expected)
            violated = walker.state.violated[: int(walker.state.totals[3])]
            assert len(set(violated.tolist())) == violated.size


def make_move(kind, walker, changed, moved, number, v):
    """Make a move of a kind; return the number of changes."""
    model, state = walker.model, walker.state
    if kind == "pair":
        return moves.pair_move(model, state, changed, v)
    if kind == "swap":
        return moves.swap_move(model, state, changed, v)
    if kind == "chain":
        return moves.ejection_chain(model, state, changed, moved, number, v)
    return moves.rebuild_move(model, state, changed, moved, number, v, 1.0)


@pytest.mark.parametrize("kind", ["pair", "swap", "chain", "rebuild"])
def test_a_move_can_be_undone(kind):
    for seed, problem in enumerate(problems(8)):
        walker, rng = Walker(search_model(problem), seed), np.random.default_rng(seed)
        model, state = walker.model, walker.state
        changed, moved = np.zeros((2, 64), dtype=np.int64), np.full(problem.n_variables, -1)
        values = rng.integers(problem.domains)
        walker.start_from(values)
        for number in range(20):
            v = moves.pick_variable(model, state, number % 2 == 0)
            count = make_move(kind, walker, changed, moved, number, v)
            assert (state.z >= 0).all() and (state.z < problem.domains).all()
            assert totals_of(walker) == pytest.approx(cost_of(problem, state.z))
            moves.undo(model, state, changed, count)
            assert np.array_equal(state.z, values)
            assert totals_of(walker) == pytest.approx(cost_of(problem, values))


def test_swaps_and_ejection_chains_permute_the_values_of_an_all_different():
    build = Problem.build()
    names = [build.variable(f"x{i}", 6) for i in range(6)]
    problem = build.all_different(names).problem()
    walker = Walker(search_model(problem), 0)
    walker.start_from(np.arange(6))
    changed, moved = np.zeros((2, 64), dtype=np.int64), np.full(6, -1)
    for number in range(30):
        v = number % 6
        if number % 2:
            moves.swap_move(walker.model, walker.state, changed, v)
        else:
            moves.ejection_chain(walker.model, walker.state, changed, moved, number, v)
        assert sorted(walker.state.z.tolist()) == list(range(6))


def test_variables_follow_those_that_leave_them_one_value():
    build = Problem.build()
    copies = [build.variable(f"copy {i}", 5) for i in range(4)]
    for a, b in pairwise(copies):
        build.factor((a, b), lambda x, y: 0 if x == y else -np.inf)
    build.factor(("copy 1", build.variable("double", range(0, 10, 2))), lambda x, y: 0 if y == 2 * x else -np.inf)
    walker = Walker(search_model(build.problem()), 0)
    assert moves.has_followers(walker.model)
    walker.start_from(np.zeros(5, dtype=np.int64))
    changed, moved = np.zeros((2, 64), dtype=np.int64), np.full(5, -1)
    for number in range(20):
        count = moves.single_move(walker.model, walker.state, changed, number % 5)
        moves.follow(walker.model, walker.state, changed, moved, number, count)
        assert walker.state.totals[DEGREE] == 0 and len(set(walker.state.z.tolist())) == 1


def test_tables_of_pairs_are_searched_until_nothing_is_violated():
    build = Problem.build()
    edges = [(a, b) for a, b in combinations(range(10), 2)]
    names = [build.variable(f"{a}-{b}", 9) for a, b in edges]
    for i, j in combinations(range(len(edges)), 2):
        if {*edges[i]} & {*edges[j]}:
            build.factor((names[i], names[j]), np.where(np.eye(9, dtype=bool), -np.inf, 0))
    problem = build.problem()
    token = CancellationToken()
    search = LocalSearch(problem, problem, 0, 1, Deadline(cancellation=token))
    search.chains.may_search_constraints = lambda: True

    def end_if_feasible(values):
        if not problem.evaluate(values).violation:
            token.request()

    values = search.improve(np.zeros(45, dtype=np.int64), 600.0, 0, end_if_feasible)
    assert problem.evaluate(values).violation == 0


def test_the_search_finds_the_optima_of_small_problems():
    for problem in problems(6):
        best, search = best_objective(problem), ConstraintSearch(problem, 0)
        values = search.improve_by_moves(np.zeros(problem.n_variables, dtype=np.int64), 20_000, Deadline())
        evaluation = problem.evaluate(values)
        assert (evaluation.violation > 0) == (best is None)
        assert best is None or evaluation.objective == best


def test_equal_work_gives_equal_results():
    for problem in problems(2):
        start = np.zeros(problem.n_variables, dtype=np.int64)
        found = [ConstraintSearch(problem, 5).improve_by_moves(start, 3000, Deadline()) for _ in range(2)]
        assert np.array_equal(*found)


def test_the_ascent_is_1_optimal_and_never_worse():
    for problem in problems(6):
        ascent, rng = ConstraintAscent(problem, 1, Deadline()), np.random.default_rng(0)
        for _ in range(5):
            start = rng.integers(problem.domains)
            climbed = ascent.climb(start)
            assert not ascent.better(start, climbed)
        late = ConstraintAscent(problem, 1, Deadline(until=0.0))
        assert not late.better(start, late.climb(start))


def test_the_first_answer_needs_no_kernels():
    build = Problem.build()
    names = [build.variable(f"x{i}", 4) for i in range(4)]
    problem = build.all_different(names).precedence("x0", "x1", 2).problem()
    ascent = ConstraintAscent(problem, 1, Deadline(), lambda: False)
    compiled = unsaved_kernels(), compilation_seconds()
    values = ascent.greedy()
    assert problem.evaluate(values).violation == 0
    assert np.array_equal(ascent.climb(np.zeros(4, dtype=np.int64)), np.zeros(4))
    assert (unsaved_kernels(), compilation_seconds()) == compiled


def test_uncompiled_costs_are_the_changes_of_the_definition():
    for seed, problem in enumerate(problems(8)):
        state, rng = UncompiledState(search_model(problem)), np.random.default_rng(seed)
        for v, x in enumerate(rng.integers(problem.domains).tolist()):
            state.assign((v,), (x,))
        partners = enumerate(state.model.partner.tolist())
        for unit in {(v,) if other < 0 else (min(v, other), max(v, other)) for v, other in partners}:
            constraints = [state.model.item_constraint[i] for i in {i for v in unit for i in state.items[v]}]
            if len(constraints) > len(set(constraints)):
                continue  # the costs are those of one item at a time
            now = state.assign(unit, (-1,) * len(unit))
            hard, soft = state.costs(unit)
            found = {}
            for chosen in np.ndindex(hard.shape):
                state.assign(unit, chosen)
                degree, cost = cost_of(problem, state.values)
                assert state.degree == degree
                found[chosen] = degree - hard[chosen], cost - soft[chosen]
                state.assign(unit, (-1,) * len(unit))
            assert np.ptp(np.array(list(found.values())), axis=0) == pytest.approx([0, 0])
            state.assign(unit, now)


def test_the_uncompiled_search_satisfies_small_problems_that_can_be_satisfied():
    for seed, problem in enumerate(problems(4)):
        search = UncompiledSearch(search_model(problem), seed)
        values, degree = search.search(Deadline(), lambda: True, lambda values: None)
        assert degree == cost_of(problem, values)[0] == problem.evaluate(values).violation
        assert (degree > 0) == (best_objective(problem) is None)


def test_the_uncompiled_search_ends_at_the_deadline_with_a_complete_assignment():
    problem = next(iter(problems(1)))
    values, _ = UncompiledSearch(search_model(problem), 0).search(Deadline(until=0.0), lambda: False, lambda v: None)
    assert (values >= 0).all() and (values < problem.domains).all()


def test_the_first_answer_is_improved_until_other_work_can_begin():
    build = Problem.build()
    problem = build.all_different([build.variable(f"x{i}", 4) for i in range(4)]).problem()
    found = []
    ascent = ConstraintAscent(problem, 1, Deadline())
    ascent.improve_until(lambda: len(found) > 0, np.zeros(4, dtype=np.int64), found.append)
    assert problem.evaluate(found[-1]).violation == 0
    ascent.improve_until(lambda: True, found[-1], lambda values: pytest.fail("it does not end at once"))


def test_interpreted_moves_are_those_of_the_kernels():
    problem = next(iter(problems(1)))
    walkers = [Walker(search_model(problem), 3) for _ in range(2)]
    for walker, way in zip(walkers, (nullcontext, interpreted_kernels), strict=True):
        with way():
            walker.construct()
            walker.run(300, np.zeros(1, dtype=np.uint8))
    assert np.array_equal(walkers[0].state.z, walkers[1].state.z)
    assert np.array_equal(walkers[0].best, walkers[1].best)


def test_a_timed_search_reports_each_better_assignment_once():
    problem = next(iter(problems(1)))
    found, ascent = [], ConstraintAscent(problem, 1, Deadline())
    start = np.zeros(problem.n_variables, dtype=np.int64)
    ConstraintSearch(problem, 1).improve(start, 0.2, 2, Deadline(), found.append)
    for one, other in zip([start, *found], found, strict=False):
        assert ascent.better(other, one)


def test_the_uncompiled_search_reads_no_penalties_of_loads_that_cannot_occur():
    build = Problem.build()
    names = [build.variable("fixed", [0]), build.variable("other", [1, 2])]
    problem = build.all_different(names).problem()
    state = UncompiledState(search_model(problem))
    state.assign((0,), (0,))
    assert state.costs((1,))[0].tolist() == [0, 0]
