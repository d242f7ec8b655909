"""Every answer of every command is 1-optimal: no single variable could do better, violations before utility.

Nor is any worse than giving every variable its first value, or its best one by itself, whatever was asked.
"""

import json

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.local_optima import better, better_by_one, tolerance, worth
from support.problem_strategies import random_problem
from support.ranks import documents, in_turn, needs_mpirun

import dmcmc
from dmcmc.cli.main import main
from dmcmc.formats import native

MOST = {"hard": 0.2, "variables": 8, "agents": 4, "factors": 14}
QUICK = {"runs": 1, "samples": 1}
WAYS = {
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


def plain(problem, values):
    """What is worth less than any answer: first values, and each variable's best by its own factors alone."""
    firsts = np.zeros(problem.n_variables, dtype=np.int64)
    alone = firsts.copy()
    for v in range(problem.n_variables):
        own = [f for f in problem.factors if f.scope == (v,)]
        worths = [[f.entry((d,)) for f in own] for d in range(problem.domains[v])]
        keys = [(-sum(e is None for e in entries), sum(e or 0 for e in entries)) for entries in worths]
        alone[v] = keys.index(max(keys))
    return [firsts, alone]


def complaints(problem, assignment):
    """What is wrong with an answer."""
    values = problem.values_of(assignment)
    found = [f"better: {other}" for other in better_by_one(problem, values)]
    ours = worth(problem, values)
    return found + [
        f"{other.tolist()} is better"
        for other in plain(problem, values)
        if better(problem, ours, worth(problem, other)) and not tolerance(problem)
    ]


@st.composite
def drawn(draw):
    """Random problems of some agents, or of one; integers and floats, both senses, some entries forbidden."""
    shape = MOST | draw(st.sampled_from([{}, {"agents": 1}, {"hard": 0.0}, {"hard": 0.5}]))
    return random_problem(
        draw(st.integers(0, 10**6)),
        floats=draw(st.booleans()),
        magnitude=draw(st.sampled_from([3, 1000])),
        sense=draw(st.sampled_from(["max", "min"])),
        **shape,
    )


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=8)
@given(problem=drawn())
def test_answers_have_no_better_neighbour(way, problem):
    result = dmcmc.solve(problem, **WAYS[way], device="cpu")
    assert result.assignment is not None or result.status == "infeasible"
    if result.assignment is not None:
        assert complaints(problem, result.assignment) == []


def commands(folder):
    """The command lines that solve the problem of a folder."""
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


def saved(folder, seed):
    """A problem with a file and a configuration in a folder."""
    problem = random_problem(seed, variables=9, agents=4, factors=20, hard=0.05, arity=2)
    native.save(problem, folder / "problem.npz")
    (folder / "run.yaml").write_text(yaml.safe_dump({"problem": {"file": "problem.npz"}, "local": {"runs": 1}}))
    return problem


@pytest.mark.parametrize("number", range(7))
def test_what_commands_print_has_no_better_neighbour(number, tmp_path, capfd):
    for seed in (4, 12):
        problem = saved(tmp_path, seed)
        main([*commands(tmp_path)[number], "--json", "--device", "cpu"])
        assert complaints(problem, json.loads(capfd.readouterr().out)["assignment"]) == []


@needs_mpirun
def test_what_ranks_find_together_has_no_better_neighbour(tmp_path):
    problem = saved(tmp_path, 4)
    command = ["solve", str(tmp_path / "problem.npz"), "--json", "--device", "cpu"]
    ended = in_turn(2, command, [*command, "--timeout", "0.2", "--method", "gibbs"])
    assert [complaints(problem, found["assignment"]) for found in documents(ended.stdout)] == [[], []]
