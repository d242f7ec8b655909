"""A run starts from a given assignment and is never worse; an assignment with unknown names is refused in one line."""

import itertools
import json

import numpy as np
import pytest

import dmcmc
from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.solving.warm_start.start_assignment import carried_over, completed, read_assignment, value_indices


def small(seed, sense="max", agents=2):
    rng = np.random.default_rng(seed)
    builder = dmcmc.Problem.build(sense=sense)
    names = [builder.variable(f"x{v}", ["red", "green", "blue"], agent=f"a{v % agents}") for v in range(5)]
    bad = -np.inf if sense == "max" else np.inf
    for pair in itertools.combinations(names, 2):
        if rng.random() < 0.7:
            table = rng.integers(0, 20, (3, 3)).astype(float)
            table[rng.random((3, 3)) < 0.15] = bad
            builder.factor(pair, table)
    return builder.problem()


def optimum(problem):
    ranges = [range(size) for size in problem.domains.tolist()]
    found = [problem.evaluate(list(values)) for values in itertools.product(*ranges)]
    feasible = [one.objective for one in found if one.violation == 0]
    return None if not feasible else (max if problem.sense == "max" else min)(feasible)


SAMPLED = {"method": "gibbs", "runs": 1, "samples": 2}


@pytest.mark.parametrize("seed", range(12))
def test_every_start_gives_an_answer_at_least_as_good_from_the_first_point_on(seed):
    sense = ("max", "min")[seed % 2]
    problem, rng = small(seed, sense), np.random.default_rng(seed)
    start = problem.assignment([int(rng.integers(3)) for _ in range(5)])
    quality, sign = problem.evaluate(start), 1 if sense == "max" else -1
    exact, sampled = dmcmc.solve(problem, start=start), dmcmc.solve(problem, start=start, **SAMPLED)
    assert exact.objective == optimum(problem)
    if quality.violation == 0:
        for result in (exact, sampled):
            assert all(sign * point.objective >= sign * quality.objective for point in result.trace)
            assert result.trace[0].objective == quality.objective


@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_as_start_stays_the_answer_of_a_sampled_run(seed):
    problem = small(seed)
    best = dmcmc.solve(problem)
    if best.status == "optimal":
        assert dmcmc.solve(problem, start=best, **SAMPLED).objective == best.objective


def test_a_partial_start_keeps_the_given_values_until_the_search_improves_them():
    problem = small(3)
    for values in itertools.product((-1, 2), repeat=5):
        given = np.array(values)
        whole = completed(problem, given, True, NO_DEADLINE)
        assert (whole[given >= 0] == given[given >= 0]).all()
        assert ((whole >= 0) & (whole < 3)).all()


def test_an_infeasible_start_is_repaired():
    builder = dmcmc.Problem.build()
    a, b = builder.variable("a", 3), builder.variable("b", 3)
    problem = builder.factor((a, b), np.where(np.eye(3) > 0, -np.inf, np.arange(9).reshape(3, 3))).problem()
    result = dmcmc.solve(problem, start={"a": 1, "b": 1}, **SAMPLED)
    assert result.status in ("optimal", "feasible") and result.trace[0].objective is None


def test_values_that_presolve_removed_are_missing_in_the_presolved_start():
    problem = small(1)
    smaller = dmcmc.Problem(
        ("x3", "x1"), [2, 3], ("a",), [0, 0], (), labels=(("red", "blue"), ("red", "green", "blue"))
    )
    assert carried_over(np.array([0, 2, 0, 1, 0]), problem, smaller).tolist() == [-1, 2]
    assert carried_over(np.array([0, 2, 0, 2, 0]), problem, smaller).tolist() == [1, 2]


def test_files_of_all_kinds_give_the_same_start(tmp_path):
    problem = small(4)
    result = dmcmc.solve(problem, output=str(tmp_path / "result.json"))
    (tmp_path / "plain.json").write_text(json.dumps(result.assignment))
    lines = [f"{name}, {value}" for name, value in result.assignment.items()]
    (tmp_path / "start.csv").write_text("\n".join(["variable,value", *lines, ""]))
    read = [dict(read_assignment(str(tmp_path / name))) for name in ("result.json", "plain.json", "start.csv")]
    assert read == [result.assignment] * 3
    assert dmcmc.solve(problem, start=tmp_path / "start.csv").trace[0].objective == result.objective


def test_numbers_in_csv_are_values_of_variables_without_labels(tmp_path):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=2, domain_size=3)
    (tmp_path / "start.csv").write_text(f"{problem.variables[1]},2\n")
    start = read_assignment(str(tmp_path / "start.csv"))
    assert value_indices(problem, start, "start").tolist() == [-1, 2, -1, -1]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"x9": "red"}, "start: variable 'x9' does not exist"),
        (
            {"x1": "pink"},
            "start: variable 'x1': 'pink' is not one of its values; its values are 'red', 'green', 'blue'",
        ),
        ("nowhere.json", "nowhere.json: no such file"),
    ],
)
def test_what_is_unknown_is_named_in_one_line(start, message):
    with pytest.raises(dmcmc.DmcmcError) as error:
        dmcmc.solve(small(0), start=start)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x1,red,blue\n", "start.txt:1: expected a variable and its value, got 3 columns"),
        ("x1,red\nx1,red\n", "start.txt:2: variable 'x1' has two values"),
        ("{", "start.txt: is not JSON"),
        ('{"status": "unsatisfied", "objective": null, "assignment": null}', "start.txt: the result has no assignment"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "start.txt"
    path.write_text(text)
    with pytest.raises(dmcmc.DmcmcError) as error:
        read_assignment(str(path))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("settings", [{"local_search": "none"}, {"algorithm": "mgm"}])
def test_settings_without_a_search_refuse_a_start(settings):
    with pytest.raises(dmcmc.DmcmcError, match="start"):
        dmcmc.solve(small(0), start={}, **settings)


def test_initial_values_of_pydcop_are_the_first_point_of_the_trace(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(
        "objective: min\ndomains: {d: {values: [1, 2, 3]}}\n"
        "variables: {a: {domain: d, initial_value: 3}, b: {domain: d, initial_value: 2}}\n"
        "constraints: {c: {type: intention, function: 10 * a + b}}\nagents: [one]\n"
    )
    problem = formats.load(str(path))
    assert problem.initial_values == {"a": 3, "b": 2}
    result = dmcmc.solve(problem)
    assert (result.trace[0].objective, result.objective) == (32, 11)
    assert dmcmc.solve(problem, start={"a": 1, "b": 3}).trace[0].objective == 13
