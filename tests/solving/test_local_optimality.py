"""Every answer of every command is 1-optimal: no change of a single variable improves it, violations before utility.

No answer is worse than giving every variable its first value, or its best value by unary factors alone.
"""

import json

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.local_optima import better_by_one, is_better, tolerance, value_of
from support.problem_strategies import random_problem
from support.ranks import documents, in_turn, needs_mpirun

import dmcmc
from dmcmc.cli.main import main
from dmcmc.formats import native

SIZES = {"hard": 0.2, "variables": 8, "agents": 4, "factors": 14}
QUICK = {"runs": 1, "samples": 1}
SETTINGS = {
    "auto": {},
    "exact": {"local": {"method": "exact"}},
    "annealing": {"local": {"method": "annealing", **QUICK}},
    "gibbs": {"local": {"method": "gibbs", "temperature": 1, **QUICK}},
    "metropolis": {"local": {"method": "metropolis-hastings", **QUICK}},
    "tempering, rows": {"local": {"method": "tempering", "rows": 1, **QUICK}},
    "no bound": {"local": {"method": "gibbs", "bound": "none", **QUICK}},
    "mini-buckets": {"local": {"method": "exact"}, "combine": {"method": "mini-bucket", "z": 3}},
    "little memory": {"budget": {"memory": 20_000}},
    "no time": {"budget": {"time": 1e-6}},
    "some time": {"local": {"method": "gibbs", **QUICK}, "budget": {"time": 0.1}},
}


def baseline_assignments(problem, values):
    """Return assignments that every answer must beat: first values, and the best values by unary factors."""
    firsts = np.zeros(problem.n_variables, dtype=np.int64)
    alone = firsts.copy()
    for v in range(problem.n_variables):
        unary = [f for f in problem.factors if f.scope == (v,)]
        entries_of_values = [[f.entry((d,)) for f in unary] for d in range(problem.domains[v])]
        keys = [(-sum(e is None for e in entries), sum(e or 0 for e in entries)) for entries in entries_of_values]
        alone[v] = keys.index(max(keys))
    return [firsts, alone]


def violations_of_optimality(problem, assignment):
    """Return a list of what violates 1-optimality."""
    values = problem.values_of(assignment)
    messages = [f"better: {other}" for other in better_by_one(problem, values)]
    value = value_of(problem, values)
    return messages + [
        f"{other.tolist()} is better"
        for other in baseline_assignments(problem, values)
        if is_better(problem, value, value_of(problem, other)) and not tolerance(problem)
    ]


@st.composite
def problems(draw):
    """Draw random problems: one agent or several, integers or floats, both senses, some entries forbidden."""
    shape = SIZES | draw(st.sampled_from([{}, {"agents": 1}, {"hard": 0.0}, {"hard": 0.5}]))
    return random_problem(
        draw(st.integers(0, 10**6)),
        floats=draw(st.booleans()),
        magnitude=draw(st.sampled_from([3, 1000])),
        sense=draw(st.sampled_from(["max", "min"])),
        **shape,
    )


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=8)
@given(problem=problems())
def test_answers_have_no_better_neighbour(name, problem):
    result = dmcmc.solve(problem, **SETTINGS[name], device="cpu")
    assert result.assignment is not None or result.status == "infeasible"
    if result.assignment is not None:
        assert violations_of_optimality(problem, result.assignment) == []


def commands(folder):
    """Return the command lines that solve the problem of a folder."""
    solve, run = ["solve", f"{folder}/problem.npz"], ["run", f"{folder}/run.yaml"]
    return [
        run,
        [*run, "--timeout", "0.2"],
        [*run, "--set", "local.method=gibbs", "--set", "local.samples=1", "--gap", "0.5"],
        solve,
        [*solve, "--z", "3"],
        [*solve, "--method", "mini-bucket", "--agents", "1"],
        [*solve, "--agents", "2", "--method", "annealing", "--timeout", "0.1"],
    ]


def save_problem(folder, seed):
    """Save a problem and its configuration in a folder; return the problem."""
    problem = random_problem(seed, variables=9, agents=4, factors=20, hard=0.05, arity=2)
    native.save(problem, folder / "problem.npz")
    (folder / "run.yaml").write_text(yaml.safe_dump({"problem": {"file": "problem.npz"}, "local": {"runs": 1}}))
    return problem


@pytest.mark.parametrize("number", range(7))
def test_answers_of_commands_have_no_better_neighbour(number, tmp_path, capfd):
    for seed in (4, 12):
        problem = save_problem(tmp_path, seed)
        main([*commands(tmp_path)[number], "--json", "--device", "cpu"])
        assert violations_of_optimality(problem, json.loads(capfd.readouterr().out)["assignment"]) == []


@needs_mpirun
def test_answers_of_several_ranks_have_no_better_neighbour(tmp_path):
    problem = save_problem(tmp_path, 4)
    command = ["solve", str(tmp_path / "problem.npz"), "--json", "--device", "cpu"]
    ended = in_turn(2, command, [*command, "--timeout", "0.2", "--method", "gibbs"])
    assert [violations_of_optimality(problem, found["assignment"]) for found in documents(ended.stdout)] == [[], []]
