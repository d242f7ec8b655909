"""Local search over the whole assignment: polished exactly, never worse, deterministic."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import KINDS, in_other_ways, random_problem

from dmcmc import Factor, generate
from dmcmc.inference.model.densify import _Chains, densify
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.samplers.local_search import chains
from dmcmc.samplers.local_search import local_search as local_search
from dmcmc.samplers.local_search.chains import ColumnField, Range, Start
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.local_search.successive_halving import RANGES, Race, part_of_race
from dmcmc.samplers.local_search.sweep_order import colour_agents, neighbours_of


def search(problem, seed=0):
    dense = densify(problem, 1 << 30).problem
    return LocalSearch(problem, dense, seed, 1, Stop())


def worth(problem, values):
    return -problem.evaluate(values).violation, problem.utility_inside(np.asarray(values))


def better_neighbours(problem, values):
    """Every change of one variable that makes an assignment better, by brute force."""
    found, now = [], worth(problem, values)
    for v, size in enumerate(problem.domains.tolist()):
        for value in range(size):
            moved = values.copy()
            moved[v] = value
            if worth(problem, moved) > now:
                found.append((v, value))
    return found


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_polished_assignments_are_no_worse_and_have_no_better_neighbour(kind, seed):
    rng = np.random.default_rng(seed)
    problem = in_other_ways(random_problem(seed, **KINDS[kind]), rng)
    start = rng.integers(0, problem.domains) if problem.n_variables else np.zeros(0, dtype=np.int64)
    polished = search(problem).polish(start)[: problem.n_variables]
    assert worth(problem, polished) >= worth(problem, start)
    assert better_neighbours(problem, polished) == []


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_first_assignment_and_improved_ones_have_no_better_neighbour_and_are_never_worse(kind, seed):
    problem = in_other_ways(random_problem(seed, **KINDS[kind]), np.random.default_rng(seed))
    n, improved = problem.n_variables, []
    first = search(problem).first()
    best = search(problem).improve(first, None, 30, improved.append)
    for values in [first, best, *improved]:
        assert better_neighbours(problem, values[:n]) == []
    ladder = [worth(problem, values[:n]) for values in [first, *improved]]
    assert ladder == sorted(set(ladder)) and ladder[-1] == worth(problem, best[:n])


def test_floats_are_compared_beyond_their_own_precision():
    """1e16 + 1 − 1e16 is 1, in whatever order factors are added."""
    problem = replace(
        random_problem(0),
        variables=("a",), domains=np.array([2]), owner=np.array([0]), labels=(None,),
        factors=tuple(Factor.of((0,), [0.0, x]) for x in (1e16, 1.5, -1e16)),
    )  # fmt: skip
    assert search(problem).polish(np.array([0])).tolist() == [1]


def test_the_greedy_assignment_of_a_large_problem_is_told_before_it_is_polished(monkeypatch):
    problem, told = random_problem(5, variables=12, factors=30, domain=5, hard=0.1), []
    polished = search(problem).first(told.append)
    assert told == []
    monkeypatch.setattr(local_search, "_LARGE", 0)
    assert search(problem).first(told.append).tolist() == polished.tolist()
    (greedy,) = told
    assert worth(problem, greedy[:12]) <= worth(problem, polished[:12])


def test_work_is_the_same_every_time():
    problem = random_problem(5, variables=12, factors=30, domain=5, hard=0.1)
    start = search(problem).first()
    once, again = (search(problem, seed=3).improve(start, None, 50).tolist() for _ in range(2))
    assert once == again


def test_nothing_is_left_when_there_is_nothing_to_search():
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
    problem = in_other_ways(random_problem(seed, hard=0.4), np.random.default_rng(seed))
    dense = chained(problem)
    values = LocalSearch(problem, dense, 0, 1, Stop()).first()
    own = values[: problem.n_variables]
    if problem.evaluate(own).violation == 0:
        assert dense.evaluate(values) == problem.evaluate(own)


def chained(problem):
    """The problem with every factor that is not dense as a chain of tables."""
    chains = _Chains(problem)
    for factor in problem.factors:
        chains.factors.append(factor) if type(factor) is Factor else chains.add(factor, 1 << 20)
    return chains.finished()


def test_work_looks_at_the_clock():
    """A search that may take no time returns what it was given, and reports nothing later."""
    problem = random_problem(5, variables=12, factors=30, domain=5, hard=0.1)
    late = LocalSearch(problem, problem, 0, 1, Stop(until=0.0))
    start = np.zeros(problem.n_variables, dtype=np.int64)
    assert worth(problem, late.improve(start, 10.0, 0)) >= worth(problem, start)


class Room:
    """Ranks as threads of one process: what each gives, all receive."""

    def __init__(self, size):
        self.size, self.given, self.barrier = size, [None] * size, threading.Barrier(size, timeout=600)
        self.rounds = 0

    def exchange(self, rank):
        def everything(mine):
            self.given[rank] = mine
            self.barrier.wait()
            told, self.rounds = list(self.given), self.rounds + (rank == 0)
            self.barrier.wait()
            return told

        return SimpleNamespace(rank=rank, size=self.size, all=everything)


def on_ranks(problem, size, sweeps):
    room = Room(size)

    def rank_of(rank):
        dense = densify(problem, 1 << 30).problem
        alone = LocalSearch(problem, dense, 3, 1, Stop(), room.exchange(rank))
        best = alone.improve(alone.first(), None, sweeps // 2)
        return alone.improve(best, None, sweeps).tolist()

    with ThreadPoolExecutor(size) as ranks:
        found = list(ranks.map(rank_of, range(size)))
    return found, room.rounds


@pytest.mark.parametrize(("seed", "visit"), [(5, 1), (6, 1), (11, 1), (6, 8)])
def test_ranks_find_together_what_one_process_finds_at_fixed_work(seed, visit, monkeypatch):
    """One to twelve ranks, more than chains; sparse problems and dense ones, hard constraints, several sweeps.

    They speak a few times a heat, however many sweeps and agents there are: once of chains, and of what rank 0 decides.
    """
    if visit > 1:
        monkeypatch.setattr(chains, "_NEAR", 0)
        monkeypatch.setattr(chains, "_MANY", 0)
    problem = random_problem(seed, variables=30, agents=8, factors=60, domain=5, hard=0.05 * (seed % 2))
    runs = {size: on_ranks(problem, size, 700) for size in (1, 2, 3, 12)}
    found = [values for run, _ in runs.values() for values in run]
    assert found == [found[0]] * 18
    assert all(0 < rounds <= 30 for size, (_, rounds) in runs.items())


def test_agents_with_large_tables_make_several_sweeps_in_turn(monkeypatch):
    """All variables are drawn as often, at the same temperatures; utilities stay what they are."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)
    monkeypatch.setattr(chains, "_NEAR", 0)
    monkeypatch.setattr(chains, "_MANY", 1)
    field = ColumnField(problem)
    blocks = field.turns[1]
    assert field.visit == 8 and len(blocks) > len(field.order.colours) and blocks[-1] == problem.n_variables
    start = Start(np.zeros(30, dtype=np.int64), 1, 0)
    chain = field.chain(start, Range(1.0, 0.1), 40)
    chain.run(np.zeros(1, dtype=np.uint8))
    anew = field.chain(Start(chain.last(), 1, 0), Range(1.0, 0.1), 1)
    assert anew.begin() == chain.end and chain.worth > field.chain(start, Range(1.0, 0.1), 1).begin()
    monkeypatch.setattr(chains, "_NEAR", 1 << 40)
    assert ColumnField(problem).visit == 1


def test_by_the_clock_ranks_wait_for_nobody():
    """Each has its part of the temperatures, and random numbers of its own; together they have all of them."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)

    def on(rank, size):
        exchange = SimpleNamespace(rank=rank, size=size, all=None)
        search = LocalSearch(problem, problem, 3, 1, Stop(), exchange)
        first = search.first()
        assert worth(problem, search.improve(first, 0.05, 0)) >= worth(problem, first)

    for rank in range(2):
        on(rank, 2)
    parts = [part_of_race(RANGES, rank, 3, 2) for rank in range(3)]
    assert sorted(entry.span for race in parts for entry in race.entries) == sorted(RANGES)
    assert len(part_of_race(RANGES, 0, 1, 12).entries) == 12


def test_a_search_that_is_cut_short_goes_on_where_it_was():
    """In many slices chains make the moves that they make in one go."""
    problem = random_problem(6, variables=30, agents=8, factors=60, domain=5, hard=0.0)
    field = ColumnField(problem)
    start = Start(np.zeros(30, dtype=np.int64), 1, 0)
    whole, slices = (field.chain(start, Range(1.0, 0.1), 40) for _ in range(2))
    whole.run(np.zeros(1, dtype=np.uint8))
    temperatures = slices.temperatures
    while not slices.through:
        slices.temperatures, slices.sweeps = temperatures[: slices.made + 7], temperatures.size
        slices.run(np.zeros(1, dtype=np.uint8))
        slices.through = slices.made >= whole.made
    assert (slices.made, slices.worth, slices.end) == (whole.made, whole.worth, whole.end)
    assert slices.values().tolist() == whole.values().tolist()


def test_where_sweeps_take_long_the_first_heat_is_longer_and_fewer_go_on():
    chains = [SimpleNamespace(end=-i, last=lambda: None) for i in range(len(RANGES))]
    quick, slow = Race(RANGES), Race(RANGES, slow=True)
    assert slow.sweeps > quick.sweeps
    for race, kept in ((quick, 4), (slow, 2)):
        race.next(chains, np.ones(1, dtype=np.int64))
        assert [entry.span for entry in race.entries[:kept]] == list(RANGES[:kept]) and len(race.entries) == 2 * kept


@given(st.integers(1, 50), st.floats(0.0, 1.0), st.data())
def test_hastened_chains_keep_their_range_and_their_descent(sweeps, share, data):
    problem = random_problem(6, variables=4, agents=2, factors=3, domain=2, hard=0.0)
    chain = ColumnField(problem).chain(Start(np.zeros(4, dtype=np.int64), 1, 0), Range(1.0, 0.1), sweeps)
    whole = chain.temperatures.copy()
    chain.made = made = data.draw(st.integers(0, whole.size))
    chain.hasten(share)
    left = chain.temperatures[made:]
    assert chain.sweeps == chain.temperatures.size and chain.temperatures[:made].tolist() == whole[:made].tolist()
    assert set(left.tolist()) <= set(whole[made:].tolist()) and (np.diff(left) <= 0).all()
    assert (left == 0).sum() == (whole[made:] == 0).sum()
    assert (left > 0).sum() == int(share * (whole[made:] > 0).sum())


def test_a_schedule_that_can_be_met_is_met():
    """Hot for utilities, cold for violations: one is lost among near misses where both cool together."""
    params = {"agents": 25, "variables_per_agent": 8, "tables": "hard", "seed": 1}
    problem = generate("meeting-scheduling", **params)
    one = search(problem)
    assert problem.evaluate(one.improve(one.first(), None, 4000)).violation == 0
