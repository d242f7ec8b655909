"""Problems that are written by hand with a builder."""

from itertools import product
from time import process_time

import numpy as np
import pytest

from dmcmc import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.errors import ProblemError

INF = float("inf")


def office(sense="max"):
    p = Problem.build(sense, "office")
    p.variable("desk", ["window", "door"], agent="ann")
    p.variable("seat", 3, agent="bob")
    p.variable("day", ("mon", "tue"), agent="ann")
    return p


def test_variables_agents_and_labels_are_as_given():
    problem = office().problem()
    assert (problem.variables, problem.agents) == (("desk", "seat", "day"), ("ann", "bob"))
    assert problem.owner.tolist() == [0, 1, 0] and problem.domains.tolist() == [2, 3, 2]
    assert problem.labels == (("window", "door"), None, ("mon", "tue"))
    assert (problem.sense, problem.name) == ("max", "office")


def test_without_an_agent_all_variables_belong_to_one_agent():
    p = Problem.build()
    assert [p.variable("a", 2), p.variable("b", range(2))] == ["a", "b"]
    assert p.problem().agents == ("all",) and p.problem().labels == (None, None)


@pytest.mark.parametrize("sense", ["max", "min"])
def test_a_table_a_function_and_a_mapping_give_the_same_factor(sense):
    forbidden = -INF if sense == "max" else INF
    table = np.array([[0, 1, 2], [5, forbidden, 7]])
    scope, labels = ("desk", "seat"), ["window", "door"]
    given = [
        table,
        table.tolist(),
        lambda desk, seat: table[labels.index(desk), seat],
        {(labels[d], r): table[d, r] for d in range(2) for r in range(3)},
        {("door", 0): 5, ("door", 1): forbidden, ("door", 2): np.int32(7), ("window", 1): 1, ("window", 2): 2.0},
    ]
    problems = [office(sense).factor(scope, utilities).problem() for utilities in given]
    expected = Factor.of((0, 1), table, sense).table
    assert all(p.factors[0].table.tolist() == expected.tolist() for p in problems)
    assert all(p.factors[0].table.dtype == np.int32 for p in problems)
    for d, r in product(range(2), range(3)):
        found = problems[0].evaluate({"desk": labels[d], "seat": r, "day": "mon"})
        assert found == ((0, 1) if table[d, r] == forbidden else (table[d, r], 0))


def test_a_single_variable_needs_no_tuple_and_an_empty_scope_is_a_constant():
    problem = office().factor("desk", [3, 4]).factor("desk", {"door": 1}, default=2).factor((), 10).problem()
    assert problem.evaluate({"desk": "door", "seat": 0, "day": "mon"}).objective == 4 + 1 + 10


def test_scopes_keep_the_order_in_which_variables_are_given():
    problem = office().factor(("seat", "desk"), lambda seat, desk: seat if desk == "door" else -1).problem()
    assert problem.factors[0].scope == (1, 0)
    assert problem.evaluate({"desk": "door", "seat": 2, "day": "tue"}).objective == 2


def test_a_mapping_over_many_values_becomes_a_sparse_factor():
    p = Problem.build()
    names = [p.variable(f"x{i}", 50) for i in range(4)]
    problem = p.factor(names, {(1, 2, 3, 4): 7}, default=-INF, name="lock").problem()
    assert isinstance(problem.factors[0], SparseFactor) and problem.factors[0].name == "lock"
    assert problem.evaluate([1, 2, 3, 4]) == (7, 0)
    assert problem.evaluate([0, 0, 0, 0]) == (0, 1)


def test_a_builder_can_be_extended_after_its_problem_is_built():
    p = office()
    before = p.problem()
    p.variable("lamp", 2)
    assert (before.n_variables, p.problem().n_variables) == (3, 4)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda p: p.variable("desk", 2), "variable 'desk' exists already"),
        (lambda p: p.variable("x", 0), "variable 'x': a domain needs at least 1 value, not 0"),
        (lambda p: p.variable("x", []), "variable 'x': a domain needs at least 1 value"),
        (lambda p: p.variable("x", "abc"), "variable 'x': a domain is a number of values or a list of labels, not"),
        (lambda p: p.variable("x", True), "variable 'x': a domain is a number of values"),
        (lambda p: p.variable("x", ["a", "b", "a"]), "variable 'x': label 'a' appears twice"),
        (lambda p: p.variable("x", [None]), "variable 'x': labels must be strings or numbers, not None"),
        (lambda p: p.variable(3, 2), "variable 3: names of variables and agents must be strings"),
        (lambda p: p.factor(("desk", "sat"), 0), "factor over (desk, sat): variable 'sat' does not exist; did"),
        (lambda p: p.factor("q", 0, name="f"), "factor 'f': variable 'q' does not exist; known variables: desk"),
        (lambda p: p.factor(("desk", "desk"), 0), "factor over (desk, desk): variable 'desk' appears twice"),
        (
            lambda p: p.factor(("desk", "seat"), np.zeros((3, 2))),
            "factor over (desk, seat): expected a table of shape (2, 3) (values: desk has 2, seat has 3), got (3, 2)",
        ),
        (lambda p: p.factor("desk", [[1, 2], [3]]), "factor over (desk): expected a table of shape (2,), got rows of"),
        (lambda p: p.factor("desk", [1, INF]), "factor over (desk): contains +inf; only -inf"),
        (lambda p: p.factor("desk", ["a", "b"]), "factor over (desk): entries must be integers or floats"),
        (
            lambda p: p.factor(("desk", "seat"), lambda d, r: None if r == 2 else 1),
            "factor over (desk, seat): the function at desk='window', seat=2 is None: a number is needed",
        ),
        (
            lambda p: p.factor(("desk", "day"), lambda d, t: d != t),
            "factor over (desk, day): the function at desk='window', day='mon' is True: a number is needed (0 to",
        ),
        (lambda p: p.factor("seat", lambda r: float("nan")), "factor over (seat): the function at seat=0 is NaN"),
        (
            lambda p: p.factor("desk", {"windw": 1}),
            "factor over (desk): 'windw' is not a value of 'desk'; its values are 'window', 'door'",
        ),
        (
            lambda p: p.factor(("desk", "seat"), {("door", 3): 1}),
            "factor over (desk, seat): 3 in ('door', 3) is not a value of 'seat'; its values are 0 to 2",
        ),
        (lambda p: p.factor("desk", {"door": INF}), "factor over (desk): contains +inf; only -inf"),
        (lambda p: p.factor("desk", {"door": 1}, default=INF), "factor over (desk): contains +inf; only -inf"),
        (lambda p: p.factor("seat", lambda r: 2**63 if r else -1), "factor over (seat): integers beyond 63 bits"),
        (
            lambda p: p.factor(("desk", "seat"), lambda d: 1),
            "factor over (desk, seat): its function has to take 2 labels as arguments: ",
        ),
        (lambda p: p.factor(0, [1, 2]), "factor: the scope is the name of a variable, or several names, not 0"),
        (lambda p: p.factor([["desk"]], [1, 2]), "factor over (['desk']): variable ['desk'] does not exist"),
        (lambda p: p.factor(("desk", "seat"), {"door": 1}), "factor over (desk, seat): 'door' has 1 values for 2 var"),
        (lambda p: p.factor("desk", {"door": "much"}), "factor over (desk): the value at 'door' is 'much': a"),
        (lambda p: Problem.build(sense="most"), "sense must be 'max' or 'min', not 'most'"),
    ],
)  # fmt: skip
def test_invalid_input_is_reported_in_one_line(action, message):
    with pytest.raises(ProblemError) as caught:
        action(office())
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_errors_of_a_function_itself_are_not_hidden():
    with pytest.raises(TypeError, match="unsupported operand"):
        office().factor("desk", lambda desk: desk - 1)


def seconds_per_factor(n_variables, utilities, n_factors=2000):
    """Return the processor time of one factor of a problem with some variables and agents."""
    p = Problem.build()
    names = [p.variable(f"x{i}", ["abc"], agent=f"a{i}") for i in range(n_variables)]
    start = process_time()
    for i in range(n_factors):
        p.factor((names[i % 2], names[-1 - i % 2]), utilities)
    return (process_time() - start) / n_factors


@pytest.mark.parametrize(
    "utilities", [[[1]], {("abc", "abc"): 1}, lambda a, b: 1], ids=["table", "mapping", "function"]
)
def test_the_time_of_a_factor_does_not_depend_on_the_number_of_variables(utilities):
    few = min(seconds_per_factor(4, utilities) for _ in range(3))
    many = min(seconds_per_factor(20_000, utilities) for _ in range(3))
    assert many < 5 * few


def test_the_time_of_a_variable_does_not_depend_on_the_number_of_agents():
    def seconds(n):
        p, start = Problem.build(), process_time()
        for i in range(n):
            p.variable(f"x{i}", 2, agent=f"a{i}")
        return (process_time() - start) / n

    assert min(seconds(20_000) for _ in range(3)) < 5 * min(seconds(500) for _ in range(3))


def test_a_function_with_too_many_combinations_is_not_called():
    p = Problem.build()
    names = [p.variable(f"x{i}", 100) for i in range(5)]
    with pytest.raises(ProblemError, match="would be called 10,000,000,000 times; give an array, or a mapping"):
        p.factor(names, lambda *values: pytest.fail("called"))
