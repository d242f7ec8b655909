"""With ``stay``, moving a variable away from the start costs its weight, in every method and every kind of run."""

import itertools
import json

import numpy as np
import pytest
from support.ranks import documents, in_turn, needs_mpirun

import dmcmc
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.cli.main import main
from dmcmc.config.make_settings import settings_from
from dmcmc.config.settings import Settings, Stay
from dmcmc.formats import agent_files
from dmcmc.formats.registry import write
from dmcmc.results.result import Moves


def small(seed, sense="max"):
    """Return a random problem of two agents with two variables each, with some forbidden entries."""
    rng, builder = np.random.default_rng(seed), dmcmc.Problem.build(sense)
    names = [builder.variable(f"x{v}", ["red", "green", "blue"], agent=f"a{v // 2}") for v in range(4)]
    forbidden = -np.inf if sense == "max" else np.inf
    for pair in itertools.combinations(names, 2):
        table = rng.integers(0, 20, (3, 3)).astype(float)
        builder.factor(pair, np.where(rng.random((3, 3)) < 0.1, forbidden, table))
    return builder.problem()


def cost_of(start, assignment, weights):
    return sum(weights[name] for name, value in start.items() if assignment[name] != value)


def optimum(problem, start, weights):
    """Return the best objective with the cost of moving, by enumeration; in the problem's own sense."""
    sign, totals = (1 if problem.sense == "max" else -1), []
    for values in itertools.product(range(3), repeat=4):
        evaluation = problem.evaluate(list(values))
        if not evaluation.violation:
            cost = cost_of(start, problem.assignment(list(values)), weights)
            totals.append(sign * evaluation.objective - cost)
    return sign * max(totals)


@pytest.mark.parametrize("settings", [{}, {"timeout": 20}, {"method": "gibbs", "timeout": 20}], ids=str)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_the_objective_is_the_optimum_with_the_cost_of_moving_and_its_parts_add_up(sense, settings):
    for seed in range(4):
        problem, start = small(seed, sense), {"x0": "red", "x1": "green", "x3": "blue"}
        weights = {"x0": 3, "x1": 0.5, "x2": 9, "x3": 0}
        result = dmcmc.solve(problem, start=start, stay={"weight": weights}, **settings)
        assert (result.status, result.objective) == ("optimal", optimum(problem, start, weights))
        moves, own = result.moves, problem.evaluate(dict(result.assignment)).objective
        assert moves.moved == {name: value for name, value in start.items() if result.assignment[name] != value}
        assert moves.count == len(moves.moved)
        assert (moves.objective, moves.cost) == (own, cost_of(start, result.assignment, weights))
        assert result.objective == (own - moves.cost if sense == "max" else own + moves.cost)


def test_a_large_weight_keeps_every_variable_and_no_weight_keeps_none():
    problem, start = small(1), {f"x{v}": "red" for v in range(4)}
    start = dict(dmcmc.solve(small(2), start=start).assignment)  # breaks no hard constraint of another problem
    best = dmcmc.solve(problem)
    assert dmcmc.solve(problem, start=start, stay={"weight": 0}).objective == best.objective
    feasible = dict(dmcmc.solve(problem, start=start, local_search="auto").assignment)
    kept = dmcmc.solve(problem, start=feasible, stay=Stay(10**6))
    assert (kept.moves.count, kept.moves.cost, dict(kept.assignment)) == (0, 0, feasible)


def test_a_session_stays_close_to_its_last_answer():
    problem = small(3)
    session = dmcmc.Session(problem, stay={"weight": {"x0": 2, "x1": 2, "x2": 2}})
    first = session.solve()
    assert first.moves is None and first.objective == dmcmc.solve(problem).objective
    session.set_table(0, np.random.default_rng(9).integers(0, 20, (3, 3)))
    second = session.solve()
    weights = {"x0": 2, "x1": 2, "x2": 2, "x3": 0}
    assert second.objective == optimum(session.problem, first.assignment, weights)
    session.remove_variable("x1")  # its weight is no longer needed
    assert session.solve().moves.cost <= 4


def test_alternatives_count_the_cost_of_moving():
    problem, start = small(4), {"x0": "red", "x1": "red", "x2": "red", "x3": "red"}
    result = dmcmc.alternatives(problem, 4, start=start, stay={"weight": 5})
    totals = sorted(
        (
            problem.evaluate(list(values)).objective
            - cost_of(start, problem.assignment(list(values)), dict.fromkeys(start, 5))
            for values in itertools.product(range(3), repeat=4)
            if not problem.evaluate(list(values)).violation
        ),
        reverse=True,
    )
    assert [x.objective for x in result.alternatives] == totals[:4]
    assert result.moves.objective - result.moves.cost == result.objective


def test_baseline_algorithms_pay_the_cost_of_moving():
    problem, start = small(5), {"x0": "red"}
    weights = {"x0": 7, "x1": 7, "x2": 7, "x3": 7}
    result = dmcmc.solve(problem, algorithm="dpop", start=start, stay={"weight": 7})
    assert result.objective == optimum(problem, start, weights)


@pytest.mark.parametrize("timeout", [None, 20])
def test_with_one_file_per_agent_each_agent_pays_for_its_own_variables(tmp_path, timeout):
    problem, other = small(6), small(7)
    for name, one in (("before", other), ("after", problem)):
        agent_files.write(one, tmp_path / name, 2**30)
    first = solve_directory(tmp_path / "before", Settings(output=str(tmp_path / "first.json")))
    assert first.assignment is None and first.moves is None
    start = dict(dmcmc.solve(other).assignment)
    settings = {"start": str(tmp_path / "first.agents"), "stay": {"weight": 4}, "timeout": timeout}
    result = solve_directory(tmp_path / "after", settings_from(None, settings), share_assignment=True)
    assert result.objective == optimum(problem, start, dict.fromkeys(start, 4))
    assert result.moves.objective - result.moves.cost == result.objective
    assert result.moves.cost == 4 * result.moves.count == 4 * len(result.moves.moved)
    hidden = solve_directory(tmp_path / "after", settings_from(None, settings))
    assert hidden.moves == Moves(objective=result.moves.objective, cost=result.moves.cost, count=result.moves.count)


def test_the_command_line_has_an_option_for_it(tmp_path, capsys):
    path, start = tmp_path / "small.npz", tmp_path / "start.json"
    write(small(0), str(path), None, [])
    start.write_text('{"x0": "red", "x1": "blue"}')
    command = ["solve", str(path), "--start", str(start), "--stay", "{x0: 4, x1: 2.5}"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["moves"]["count"] == len(result["moves"]["moved"])
    assert main(command) == 0
    assert "cost of moving" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"stay": {"weight": 1}}, "stay: needs an assignment to stay close to; give start"),
        ({"start": {}, "stay": {"weight": -1}}, "stay.weight: expected a number >= 0, or numbers >= 0 by the names"),
        ({"start": {}, "stay": {"weight": {"x9": 1}}}, "stay.weight: variable 'x9' does not exist"),
        ({"start": {}, "stay": {}}, "stay.weight: is missing"),
        ({"start": {}, "stay": 3}, "stay: expected {weight: a number, or numbers by the names of variables}, got 3"),
    ],
)
def test_what_is_not_allowed_is_named_in_one_line(keywords, message):
    with pytest.raises(dmcmc.DmcmcError) as error:
        dmcmc.solve(small(0), **keywords)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@needs_mpirun
def test_on_ranks_the_costs_are_those_of_one_process(tmp_path):
    problem, other = small(6), small(7)
    write(problem, str(tmp_path / "after.npz"), None, [])
    agent_files.write(other, tmp_path / "before", 2**30)
    agent_files.write(problem, tmp_path / "after", 2**30)
    solve_directory(tmp_path / "before", Settings(output=str(tmp_path / "first.json")))
    dmcmc.solve(other, output=tmp_path / "start.json")
    (tmp_path / "one.yaml").write_text("problem: {file: after.npz}\n")
    (tmp_path / "private.yaml").write_text("problem: {directory: after}\n")
    commands = [
        ["run", str(tmp_path / "one.yaml"), "--start", str(tmp_path / "start.json"), "--stay", "4", "--json"],
        ["run", str(tmp_path / "private.yaml"), "--start", str(tmp_path / "first.agents"), "--stay", "4", "--json"],
    ]
    one, private = documents(in_turn(2, *commands).stdout)
    alone = dmcmc.solve(problem, start=str(tmp_path / "start.json"), stay={"weight": 4})
    assert one["objective"] == private["objective"] == alone.objective
    assert one["moves"]["cost"] == 4 * one["moves"]["count"] == 4 * len(one["moves"]["moved"])
    assert private["moves"]["cost"] == 4 * private["moves"]["count"] and private["moves"]["moved"] == {}
