"""Rounds: where chains start, which rows take part, what is passed to the next round, and descent."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc.generators import registry as generators
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods import annealing, gibbs
from dmcmc.samplers.model.chain_model import build_model, chain_key
from dmcmc.samplers.model.schedule import Round, Temperature
from dmcmc.samplers.model.state_kernels import (
    START_BLOCK,
    evaluate,
    feasible,
    fill_scores,
    greedy_sweep,
    new_arrays,
    start_row,
)

word = st.integers(0, 2**32 - 1)


@given(st.lists(st.integers(1, 4), max_size=4), word, st.integers(0, 5), st.tuples(word, word), st.integers(1, 10**6))
@settings(max_examples=200)
def test_a_warm_chain_starts_from_its_row_or_a_neighbour(shape, at, run, key, first):
    """Run 0 starts from its own row, others from one that differs in one interface variable, all equally likely."""
    row = at % prod(shape)
    arguments = np.array(shape, dtype=np.int64), row, run, np.array(key, dtype=np.uint64), first
    source = start_row(*arguments)
    own_values, source_values = (
        np.unravel_index(row, shape) if shape else (),
        np.unravel_index(source, shape) if shape else (),
    )
    changed = [b for b, (i, j) in enumerate(zip(own_values, source_values, strict=True)) if i != j]
    movable = [b for b, size in enumerate(shape) if size > 1]
    if run == 0 or not movable:
        assert source == row
        return
    words = naive.philox(key, (row, run, first, START_BLOCK))
    assert changed == [movable[words[0] * len(movable) >> 32]]
    b = changed[0]
    others = [value for value in range(shape[b]) if value != own_values[b]]
    assert source_values[b] == others[words[1] * len(others) >> 32]


init, step = njit()(gibbs.SAMPLER.init), njit()(gibbs.SAMPLER.step)


def naive_rounds(local, plan, seed, runs):
    """Return the best utility and state of each row after the rounds of a Gibbs sampler, by a plain loop."""
    model = build_model(local)
    key = np.array(chain_key(seed, local.agent), dtype=np.uint64)
    shape = np.array(local.interface_shape, dtype=np.int64)
    best = [(-(10**18), None)] * local.rows
    first = 1
    for round_ in plan:
        before = list(best)
        for row in range(local.rows):
            if round_.repair and feasible(model, before[row][0]):
                continue
            for run in range(runs):
                z, scores, scratch = new_arrays(model)
                z[model.hidden :] = np.unravel_index(row, local.interface_shape) if shape.size else ()
                rng = (key[0], key[1], np.uint64(row), np.uint64(run))
                if round_.warm:
                    z[: model.hidden] = before[start_row(shape, row, run, key, first)][1]
                    fill_scores(model, z, scores)
                    utility = evaluate(model, z)
                else:
                    utility = init(model, z, scores, rng)
                visited = [(utility, z.copy())]
                for t, temperature in enumerate(round_.temperatures):
                    utility = step(model, z, scores, utility, scratch, rng, first + t, temperature)
                    visited.append((utility, z.copy()))
                utility, z = max(visited, key=lambda pair: pair[0])
                fill_scores(model, z, scores)
                for _ in range(round_.descent):
                    utility = greedy_sweep(model, z, scores, utility)
                if utility > best[row][0]:
                    best[row] = utility, z[: model.hidden].copy()
        first += round_.temperatures.size
    return best


def temperatures(*values):
    return np.array(values, dtype=np.float32)


PLAN = [
    Round(temperatures(9.0, 3.0)),
    Round(temperatures(5.0, 2.0, 1.0), warm=True, repair=True, descent=1),
    Round(temperatures(4.0), warm=True, descent=9),
    Round(temperatures(), warm=True),
    Round(temperatures(3.0, 0.0), warm=True),
]


@pytest.mark.parametrize("rounds", range(1, len(PLAN) + 1))
@pytest.mark.parametrize("hard", [0.0, 0.15])
def test_rounds_find_the_states_of_a_plain_loop(rounds, hard):
    """A round starts from the states before it; trials are numbered across rounds; at ties the earlier state stays."""
    plan = PLAN[:rounds]
    solver = ChainSolver(gibbs.SAMPLER._replace(rounds=lambda model, samples, temperature: plan))
    problem = random_problem(2, 14, 2, 4, 30, 3, 9, hard)
    for local in divide(problem).locals:
        (table,) = solver.solve([local], Sampling(choose_arithmetic(problem.factors), seed=5, runs=3))
        for row, (_, state) in enumerate(naive_rounds(local, plan, 5, 3)):
            b = np.unravel_index(row, local.interface_shape) if local.interface else ()
            witness = table.witness(dict(zip(local.interface, b, strict=True)))
            assert [witness[v] for v in local.hidden] == state.tolist()


def meetings(tables, **sizes):
    """Return a meeting-scheduling problem's agents and arithmetic."""
    problem = generators.generate("meeting-scheduling", {"agents": 2, "tables": tables, **sizes})
    return divide(problem).locals, choose_arithmetic(problem.factors)


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 30, 100, 1000])
def test_annealing_divides_its_trials_into_a_first_round_and_warm_rounds(samples):
    local = meetings("preferences", variables_per_agent=5)[0][0]
    plan = annealing.rounds(build_model(local), samples, Temperature())
    assert sum(round_.temperatures.size for round_ in plan) == samples
    assert [round_.warm for round_ in plan] == [False] + [True] * (len(plan) - 1)
    assert len(plan) > 1 or samples < 8
    assert not any(round_.repair for round_ in plan)
    assert all((np.diff(round_.temperatures) <= 0).all() for round_ in plan)
    constant = annealing.rounds(build_model(local), samples, Temperature.constant(2.5))
    assert all((round_.temperatures == 2.5).all() for round_ in constant)


def test_there_are_repair_rounds_only_if_entries_are_forbidden():
    local = meetings("hard", variables_per_agent=5)[0][0]
    plan = annealing.rounds(build_model(local), 100, Temperature())
    assert sum(round_.temperatures.size for round_ in plan if not round_.repair) == 100
    assert [round_.warm for round_ in plan] == [False] + [True] * (len(plan) - 1)
    assert any(round_.repair for round_ in plan)


def test_annealing_ends_in_a_local_optimum():
    locals_, arithmetic = meetings("uniform", variables_per_agent=8, domain_size=9, seed=1)
    tables = registry.get("annealing").solve(locals_, Sampling(arithmetic, runs=2, samples=30))
    for local, table in zip(locals_, tables, strict=True):
        for b in np.ndindex(*local.interface_shape):
            values = dict(zip(local.interface, b, strict=True))
            values |= table.witness(values)
            found = naive.attained(local, values)
            for v in local.hidden:
                assert all(naive.attained(local, values | {v: d}) <= found for d in range(local.domains[v]))


def test_the_ladder_climbs_geometrically_from_the_coldest_run():
    rungs = Round(temperatures(1.0), ladder=8.0).ladder_factors(4)
    assert np.allclose(rungs, [1, 2, 4, 8])
    assert Round(temperatures(1.0), ladder=8.0).ladder_factors(1).tolist() == [1.0]
