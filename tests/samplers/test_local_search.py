"""Local search over complete assignments: results are 1-opt, never worse, and deterministic."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import PROBLEM_SETTINGS, random_problem, with_other_representations
from support.runs import sizes

from dmcmc import Factor, generate
from dmcmc.inference.model.densify import DenseProblemBuilder, densify
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search import local_search as local_search
from dmcmc.samplers.local_search.chains import (
    ChainStart,
    ColumnChainFactory,
    TemperatureRange,
    colour_agents,
    neighbours_of,
)
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.local_search.tournament_search import TEMPERATURE_RANGES, SuccessiveHalving, tournament_of_rank


def search(problem, seed=0):
    dense = densify(problem, 1 << 30).problem
    return LocalSearch(problem, dense, seed, 1, Deadline())


def score(problem, values):
    return -problem.evaluate(values).violation, problem.utility_inside(np.asarray(values))


def better_neighbours(problem, values):
    """Every change of one variable that makes an assignment better, by brute force."""
    found, now = [], score(problem, values)
    for v, size in enumerate(problem.domains.tolist()):
        for value in range(size):
            moved = values.copy()
            moved[v] = value
            if score(problem, moved) > now:
                found.append((v, value))
    return found


@pytest.mark.parametrize("kind", PROBLEM_SETTINGS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_opt_assignments_are_no_worse_and_have_no_better_neighbour(kind, seed):
    rng = np.random.default_rng(seed)
    problem = with_other_representations(random_problem(seed, **PROBLEM_SETTINGS[kind]), rng)
    start = rng.integers(0, problem.domains) if problem.n_variables else np.zeros(0, dtype=np.int64)
    climbed = search(problem).one_opt(start)[: problem.n_variables]
    assert score(problem, climbed) >= score(problem, start)
    assert better_neighbours(problem, climbed) == []


@pytest.mark.parametrize("kind", PROBLEM_SETTINGS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_first_assignment_and_improved_ones_have_no_better_neighbour_and_are_never_worse(kind, seed):
    problem = with_other_representations(random_problem(seed, **PROBLEM_SETTINGS[kind]), np.random.default_rng(seed))
    n, improved = problem.n_variables, []
    first = search(problem).first()
    best = search(problem).improve(first, None, 30, improved.append)
    for values in [first, best, *improved]:
        assert better_neighbours(problem, values[:n]) == []
    ladder = [score(problem, values[:n]) for values in [first, *improved]]
    assert ladder == sorted(set(ladder)) and ladder[-1] == score(problem, best[:n])


def test_floats_are_compared_beyond_their_own_precision():
    """1e16 + 1.5 − 1e16 is positive, in whatever order factors are added."""
    problem = replace(
        random_problem(0),
        variables=("a",), domains=np.array([2]), owner=np.array([0]), labels=(None,),
        factors=tuple(Factor.of((0,), [0.0, x]) for x in (1e16, 1.5, -1e16)),
    )  # fmt: skip
    assert search(problem).one_opt(np.array([0])).tolist() == [1]


def test_the_greedy_assignment_of_a_large_problem_is_reported_before_hill_climbing(monkeypatch):
    problem, reported = random_problem(5, variables=12, factors=30, domain=5, hard=0.1), []
    climbed = search(problem).first(reported.append)
    assert reported == []
    monkeypatch.setattr(local_search, "tuning", sizes(LARGE_ENTRIES=1))
    assert search(problem).first(reported.append).tolist() == climbed.tolist()
    (greedy,) = reported
    assert score(problem, greedy[:12]) <= score(problem, climbed[:12])


def test_fixed_work_gives_equal_results():
    problem = random_problem(5, variables=12, factors=30, domain=5, hard=0.1)
    start = search(problem).first()
    once, again = (search(problem, seed=3).improve(start, None, 50).tolist() for _ in range(2))
    assert once == again


def test_a_problem_without_variables_has_an_empty_assignment():
    problem = random_problem(0, variables=0)
    assert search(problem).improve(search(problem).first(), None, 5).size == 0


def test_neighbours_have_different_colours():
    problem = random_problem(8, variables=30, agents=12, factors=40)
    neighbours = neighbours_of(problem)
    colours = colour_agents(neighbours)
    assert all(colours[a] != colours[b] for a, others in enumerate(neighbours) for b in others)
    assert any(neighbours)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_hidden_states_follow_from_the_values(seed):
    """The dense problem has the same utility as the original one; memory is so short that factors become chains."""
    problem = with_other_representations(random_problem(seed, hard=0.4), np.random.default_rng(seed))
    dense = chained(problem)
    values = LocalSearch(problem, dense, 0, 1, Deadline()).first()
    original = values[: problem.n_variables]
    if problem.evaluate(original).violation == 0:
        assert dense.evaluate(values) == problem.evaluate(original)


def chained(problem):
    """The problem with every factor that is not dense as a chain of tables."""
    chains = DenseProblemBuilder(problem)
    for factor in problem.factors:
        chains.factors.append(factor) if type(factor) is Factor else chains.add(factor, 1 << 20)
    return chains.finished()


def test_a_search_stops_at_the_deadline():
    """A search without time returns what it was given, and reports nothing later."""
    problem = random_problem(5, variables=12, factors=30, domain=5, hard=0.1)
    late = LocalSearch(problem, problem, 0, 1, Deadline(until=0.0))
    start = np.zeros(problem.n_variables, dtype=np.int64)
    assert score(problem, late.improve(start, 10.0, 0)) >= score(problem, start)


class ThreadRanks:
    """Ranks as threads of one process: each receives the values of all."""

    def __init__(self, size):
        self.size, self.given, self.barrier = size, [None] * size, threading.Barrier(size, timeout=600)
        self.rounds = 0

    def exchange(self, rank):
        def everything(value):
            self.given[rank] = value
            self.barrier.wait()
            values, self.rounds = list(self.given), self.rounds + (rank == 0)
            self.barrier.wait()
            return values

        return SimpleNamespace(rank=rank, size=self.size, all=everything)


def on_ranks(problem, size, sweeps):
    ranks_of_threads = ThreadRanks(size)

    def rank_of(rank):
        dense = densify(problem, 1 << 30).problem
        alone = LocalSearch(problem, dense, 3, 1, Deadline(), ranks_of_threads.exchange(rank))
        best = alone.improve(alone.first(), None, sweeps // 2)
        return alone.improve(best, None, sweeps).tolist()

    with ThreadPoolExecutor(size) as ranks:
        found = list(ranks.map(rank_of, range(size)))
    return found, ranks_of_threads.rounds


@pytest.mark.parametrize(("seed", "sweeps_per_visit"), [(5, 1), (6, 1), (11, 1), (6, 8)])
def test_fixed_work_is_invariant_under_the_number_of_ranks(seed, sweeps_per_visit, monkeypatch):
    """One to twelve ranks, more than chains; sparse and dense problems, hard constraints, several sweeps per visit.

    The number of exchanges per round does not depend on the number of sweeps and agents: one for the chains, and those
    for the decisions of rank 0.
    """
    if sweeps_per_visit > 1:
        monkeypatch.setattr(tuning, "CACHE_BYTES", 0)
        monkeypatch.setattr(tuning, "MIN_AGENT_VARIABLES", 0)
    problem = random_problem(seed, variables=30, agents=8, factors=60, domain=5, hard=0.05 * (seed % 2))
    runs = {size: on_ranks(problem, size, 700) for size in (1, 2, 3, 12)}
    found = [values for run, _ in runs.values() for values in run]
    assert found == [found[0]] * 18
    assert all(0 < rounds <= 30 for size, (_, rounds) in runs.items())


def test_agents_with_large_tables_make_several_sweeps_in_turn(monkeypatch):
    """All variables are drawn equally often, at the same temperatures; utilities do not change."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)
    monkeypatch.setattr(tuning, "CACHE_BYTES", 0)
    monkeypatch.setattr(tuning, "MIN_AGENT_VARIABLES", 1)
    factory = ColumnChainFactory(problem)
    blocks = factory.visit_order[1]
    assert (
        factory.sweeps_per_visit == 8 and len(blocks) > len(factory.order.colours) and blocks[-1] == problem.n_variables
    )
    start = ChainStart(np.zeros(30, dtype=np.int64), 1, 0)
    chain = factory.chain(start, TemperatureRange(1.0, 0.1), 40)
    chain.run(np.zeros(1, dtype=np.uint8))
    anew = factory.chain(ChainStart(chain.end_values(), 1, 0), TemperatureRange(1.0, 0.1), 1)
    assert (
        anew.begin() == chain.end_score
        and chain.best_score > factory.chain(start, TemperatureRange(1.0, 0.1), 1).begin()
    )
    monkeypatch.setattr(tuning, "CACHE_BYTES", 1 << 40)
    assert ColumnChainFactory(problem).sweeps_per_visit == 1


def test_timed_ranks_search_independently():
    """Each rank has its share of the temperatures and its random numbers; together they have all temperatures."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)

    def on(rank, size):
        exchange = SimpleNamespace(rank=rank, size=size, all=None)
        search = LocalSearch(problem, problem, 3, 1, Deadline(), exchange)
        first = search.first()
        assert score(problem, search.improve(first, 0.05, 0)) >= score(problem, first)

    for rank in range(2):
        on(rank, 2)
    parts = [tournament_of_rank(TEMPERATURE_RANGES, rank, 3, 2) for rank in range(3)]
    assert sorted(entry.span for tournament in parts for entry in tournament.entries) == sorted(TEMPERATURE_RANGES)
    assert len(tournament_of_rank(TEMPERATURE_RANGES, 0, 1, 12).entries) == 12


def test_an_interrupted_chain_continues_where_it_stopped():
    """Interrupted chains make the same moves as uninterrupted ones."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)
    factory = ColumnChainFactory(problem)
    start = ChainStart(np.zeros(30, dtype=np.int64), 1, 0)
    uninterrupted, interrupted = (factory.chain(start, TemperatureRange(1.0, 0.1), 40) for _ in range(2))
    uninterrupted.run(np.zeros(1, dtype=np.uint8))
    temperatures = interrupted.temperatures
    while not interrupted.finished:
        interrupted.temperatures, interrupted.sweeps = temperatures[: interrupted.sweeps_done + 7], temperatures.size
        interrupted.run(np.zeros(1, dtype=np.uint8))
        interrupted.finished = interrupted.sweeps_done >= uninterrupted.sweeps_done
    assert (interrupted.sweeps_done, interrupted.best_score, interrupted.end_score) == (
        uninterrupted.sweeps_done,
        uninterrupted.best_score,
        uninterrupted.end_score,
    )
    assert interrupted.best_values().tolist() == uninterrupted.best_values().tolist()


def test_slow_sweeps_make_the_first_round_longer_and_leave_fewer_chains():
    chains = [SimpleNamespace(end_score=-i, end_values=lambda: None) for i in range(len(TEMPERATURE_RANGES))]
    quick, slow = SuccessiveHalving(TEMPERATURE_RANGES), SuccessiveHalving(TEMPERATURE_RANGES, slow=True)
    assert slow.sweeps > quick.sweeps
    for tournament, surviving in ((quick, 4), (slow, 2)):
        tournament.next_round(chains, np.ones(1, dtype=np.int64))
        assert [entry.span for entry in tournament.entries[:surviving]] == list(TEMPERATURE_RANGES[:surviving]) and len(
            tournament.entries
        ) == 2 * surviving


@given(st.integers(1, 50), st.floats(0.0, 1.0), st.data())
def test_shortened_chains_keep_their_range_and_their_descent(sweeps, share, data):
    problem = random_problem(6, variables=4, agents=2, factors=3, domain=2, hard=0.0)
    chain = ColumnChainFactory(problem).chain(
        ChainStart(np.zeros(4, dtype=np.int64), 1, 0), TemperatureRange(1.0, 0.1), sweeps
    )
    before = chain.temperatures.copy()
    chain.sweeps_done = done = data.draw(st.integers(0, before.size))
    chain.skip_sweeps(share)
    remaining = chain.temperatures[done:]
    assert chain.sweeps == chain.temperatures.size and chain.temperatures[:done].tolist() == before[:done].tolist()
    assert set(remaining.tolist()) <= set(before[done:].tolist()) and (np.diff(remaining) <= 0).all()
    assert (remaining == 0).sum() == (before[done:] == 0).sum()
    assert (remaining > 0).sum() == int(share * (before[done:] > 0).sum())


def test_a_feasible_schedule_is_found():
    """Hot for utilities, cold for violations: one violation is overlooked if both are annealed together."""
    params = {"agents": 25, "variables_per_agent": 8, "tables": "hard", "seed": 1}
    problem = generate("meeting-scheduling", **params)
    one = search(problem)
    assert problem.evaluate(one.improve(one.first(), None, 4000)).violation == 0
