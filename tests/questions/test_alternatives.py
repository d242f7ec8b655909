"""Alternatives are the best assignments of brute force, and the options of the command line reach them."""

import json
import math
import time
from itertools import combinations, islice, product

import numpy as np
import pytest
from msgspec.structs import replace
from support import naive
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config.settings import Settings
from dmcmc.inference.marginals.junction_tree import JunctionTree, best_assignments
from dmcmc.inference.runtime.errors import ConfigError, OutOfMemory
from dmcmc.questions.alternatives import distance_constraint, solve_in_share


def ranked(problem):
    """Return the utilities and values of all allowed assignments, the best first."""
    every = ((naive.utility(problem, x), x) for x in product(*map(range, problem.domains.tolist())))
    return sorted((pair for pair in every if pair[0] > -math.inf), key=lambda pair: -pair[0])


def drawn(seed, **limits):
    sizes = {"variables": 5, "domain": 3, "agents": 3, "factors": 7, "hard": (0.0, 0.3)[seed % 2]} | limits
    return random_problem(seed, sense=("max", "min")[seed // 2 % 2], **sizes)


def test_the_k_best_assignments_equal_those_of_brute_force():
    for seed in range(300):
        problem = drawn(seed)
        tree = JunctionTree(problem, maximise=True, tables=("dense", "incomplete")[seed % 2])
        found = [tuple(x.tolist()) for x in islice(best_assignments(tree), 8)]
        expected = ranked(problem)[:8]
        assert [naive.utility(problem, x) for x in found] == [utility for utility, _ in expected]
        assert len(set(found)) == len(found)


def test_every_assignment_comes_once_in_the_end():
    problem = drawn(5)
    found = [tuple(x.tolist()) for x in best_assignments(JunctionTree(problem, maximise=True))]
    assert sorted(found) == sorted(values for _, values in ranked(problem))


def test_alternatives_of_a_problem_are_proven_and_start_with_its_answer():
    for seed in range(8):
        problem = drawn(seed)
        result, expected = dmcmc.alternatives(problem, 4), ranked(problem)[:4]
        assert [problem.to_own_sense(x.objective) for x in result.alternatives] == [utility for utility, _ in expected]
        assert all(x.proven and x.bound == x.objective for x in result.alternatives)
        if expected:
            assert (result.status, result.assignment) == ("optimal", result.alternatives[0].assignment)
        assert len(expected) == 4 or "alternatives: no other" in (result.note or "") or not expected


def test_diverse_assignments_are_the_best_that_differ_enough_from_all_earlier_ones():
    for seed in range(12):
        problem = drawn(seed)
        allowed, chosen = ranked(problem), []
        result = dmcmc.alternatives(problem, 4, distance=2)

        def best_remaining(allowed=allowed, chosen=chosen):
            """Return the best utility of the assignments that differ enough from those found so far."""
            return next((u for u, x in allowed if all((np.array(x) != c).sum() >= 2 for c in chosen)), None)

        for alternative in result.alternatives:
            assert alternative.proven
            assert problem.to_own_sense(alternative.objective) == best_remaining()
            chosen.append(problem.values_of(alternative.assignment))
            assert alternative.changed == (chosen[-1] != chosen[0]).sum()
        if len(chosen) < 4:
            assert best_remaining() is None


def test_only_alternatives_within_the_gap_are_returned():
    builder = dmcmc.Problem.build("min")
    builder.variable("a", ["x", "y", "z"])
    builder.factor("a", {"x": 100, "y": 101, "z": 110})
    for distance, over in ((1, None), (1, ["a"])):
        result = dmcmc.alternatives(builder, 3, within=0.02, distance=distance, over=over)
        assert [x.objective for x in result.alternatives] == [100, 101]
        assert "2 alternatives: no other assignment" in result.note


def test_variables_that_do_not_count_may_differ_or_not():
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3, seed=1)
    over = problem.variables[:2]
    found = dmcmc.alternatives(problem, 4, distance=2, over=over).alternatives
    for i, left in enumerate(found):
        for right in found[:i]:
            assert all(left.assignment[name] != right.assignment[name] for name in over)


def test_the_constraint_allows_exactly_the_assignments_that_differ_enough():
    problem = random_problem(3, variables=5, domain=3)
    values = np.zeros(problem.n_variables, dtype=np.int64)
    for distance in (1, 2, problem.n_variables):
        factor = distance_constraint(problem, values, distance, range(problem.n_variables), "d")
        for x in product(*map(range, problem.domains.tolist())):
            allowed = np.count_nonzero(x) >= distance
            assert (factor.entry([x[v] for v in factor.scope]) is not None) == allowed


def test_wrong_requests_are_one_line_errors():
    problem = drawn(1)
    for wrong in ({"k": 0}, {"k": 2.0}, {"distance": 0}, {"within": -1}, {"within": "near"}):
        with pytest.raises(ConfigError, match=f"alternatives: {next(iter(wrong))}: expected"):
            dmcmc.alternatives(problem, **wrong)
    with pytest.raises(ConfigError, match="variable 'nobody' does not exist"):
        dmcmc.alternatives(problem, over=["nobody"])


def test_the_command_line_prints_and_writes_alternatives(tmp_path, capsys):
    path = tmp_path / "p.npz"
    assert (
        main(["generate", "random", "agents=2", "variables_per_agent=3", "domain_size=2", "--output", str(path)]) == 0
    )
    assert main(["solve", str(path), "--alternatives", "3", "--device", "cpu"]) == 0
    assert "what differs from the first" in capsys.readouterr().out
    assert main(["solve", str(path), "--alternatives", "3", "--json", "--device", "cpu"]) == 0
    data = json.loads(capsys.readouterr().out)
    first = data["alternatives"][0]
    assert (len(data["alternatives"]), first["objective"], first["proven"]) == (3, data["objective"], True)
    for wrong in (["--within", "0.1"], ["--alternatives", "0"], ["--alternatives", "2", "--task", "mar"]):
        assert main(["solve", str(path), *wrong]) == 2


CALENDAR = (
    "calendar: Team\nfirst_day: 2027-03-01\ndays: 1\nhours: 09:00-11:00\nslot: 30\npeople: {Ann: , Bob: }\n"
    "meetings: {A: {people: [Ann, Bob]}, B: {people: [Ann, Bob], prefer: {before 10:00: 1}}, C: {people: [Bob]}}\n"
)


def test_a_calendar_shows_which_meetings_move(tmp_path, capsys):
    path, page = tmp_path / "team.yaml", tmp_path / "team.html"
    path.write_text(CALENDAR)
    options = ["--alternatives", "3", "--distance", "2", "--timeout", "20", "--device", "cpu", "--html", str(page)]
    assert main(["solve", str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert "what differs from the first" in printed
    text = page.read_text()
    assert "<h2>Alternatives</h2>" in text and text.count("Mon 1 Mar") >= 3


def test_alternatives_of_a_clique_with_more_entries_than_int64_counts_come_from_repeated_solves():
    b = dmcmc.Problem.build()
    names = [b.variable(f"x{i}", 40) for i in range(12)]
    for x, y in combinations(names, 2):
        b.factor((x, y), lambda a, c: 0 if a != c else -math.inf)
    found = dmcmc.alternatives(b, k=2, timeout=60).alternatives
    assert len(found) == 2 and found[0].assignment != found[1].assignment
    assert all(len({*x.assignment.values()}) == 12 for x in found)


def test_what_was_found_is_kept_when_a_later_run_does_not_fit_the_memory(monkeypatch):
    problem, runs = drawn(1), []

    def fail(*_):
        runs.append(1)
        raise OutOfMemory("a table does not fit")

    monkeypatch.setattr("dmcmc.questions.alternatives.choose_algorithm.solve_alone", fail)
    result = dmcmc.alternatives(problem, k=3, distance=2)
    assert len(result.alternatives) == len(runs) == 1 and result.note == "1 alternatives: a table does not fit"


def test_a_run_that_finds_nothing_in_its_share_gets_all_of_the_time():
    shares, found = [], dmcmc.solve(drawn(0))

    def solve(settings):
        shares.append(settings.budget.time)
        return found if len(shares) == 2 else replace(found, status="unknown", objective=None, assignment=None)

    assert solve_in_share(solve, Settings(), time.perf_counter() + 100, 4) is found
    assert 0 < 2 * shares[0] < shares[1]
