"""Problems: construction, evaluation, and the rejection of invalid input."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problem_strategies import INFINITY, problems, tables

from dmcmc import Factor, Problem
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.sparse_factor import SparseFactor, tabulate
from dmcmc.inference.model.tables import forbidden, magnitude, normalise
from dmcmc.inference.runtime.errors import ProblemError

MIN32, MIN64 = np.iinfo(np.int32).min, np.iinfo(np.int64).min


def problem(**changes):
    """Return a problem with two variables of 2 and 3 values and one factor on both."""
    parts = {
        "variables": ("x", "y"),
        "domains": [2, 3],
        "agents": ("a",),
        "owner": [0, 0],
        "factors": (Factor.of((0, 1), np.zeros((2, 3)), name="f"),),
    }
    return Problem(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"factors": (Factor.of((0, 7), np.zeros((2, 3)), name="f"),)}, ["factor f", "variable 7"]),
        ({"factors": (Factor.of((0, -1), np.zeros((2, 3)), name="f"),)}, ["factor f", "variable -1"]),
        ({"factors": (Factor.of((1, 0), np.zeros((2, 3)), name="f"),)}, ["factor f", "axis 0", "'y'", "3 values"]),
        ({"factors": (Factor.of((1, 1), np.zeros((3, 3)), name="f"),)}, ["factor f", "'y'", "twice"]),
        ({"factors": (Factor.of((0,), np.zeros((2, 3)), name="f"),)}, ["factor f", "1 variables", "2-d"]),
        ({"factors": (Factor.of((0, 1), np.zeros(2), name="f"),)}, ["factor f", "2 variables", "1-d"]),
        ({"factors": (Factor.of((0,), [0, 0]), Factor.of((0,), [0]))}, ["factor 1", "'x'"]),
        ({"domains": [2, -3], "factors": ()}, ["'y'", "-3"]),
        ({"domains": [2, 0], "factors": ()}, ["'y'", "size 0"]),
        ({"domains": [2]}, ["2 variables", "1 domain sizes"]),
        ({"domains": [2.0, 3.0]}, ["domains", "integers"]),
        ({"owner": [0, 1]}, ["'y'", "no owner", "agent 1"]),
        ({"owner": [0, -1]}, ["'y'", "no owner"]),
        ({"owner": [0]}, ["1 owners"]),
        ({"variables": ("x", "x")}, ["'x'", "twice"]),
        ({"agents": ("a", "a")}, ["agents", "same name"]),
        ({"labels": (None, ("p", "q"))}, ["'y'", "3 values", "2 labels"]),
        ({"labels": (None, ("p", "q", "p"))}, ["'y'", "label twice"]),
        ({"sense": "best"}, ["sense", "best"]),
        ({"variables": "xy"}, ["variables", "a tuple or a list", "not str"]),
        ({"variables": (1, "y")}, ["variables", "strings, not 1"]),
        ({"agents": (1,)}, ["agents", "strings, not 1"]),
        ({"labels": 3}, ["labels", "not 3"]),
        ({"labels": ("pq", None)}, ["'x'", "labels", "not 'pq'"]),
        ({"factors": Factor.of((0,), [0, 0])}, ["factors", "a tuple or a list", "not Factor"]),
        ({"factors": (((0,), [0, 0]),)}, ["factor 0", "not tuple", "Factor.of"]),
        ({"factors": (Factor((0,), [0, 0]),)}, ["factor 0", "no array", "Factor.of"]),
        ({"factors": (Factor((0,), np.zeros(2, dtype=np.int8), "f"),)}, ["factor f", "no array", "Factor.of"]),
    ],
)
def test_an_inconsistent_problem_is_rejected_with_the_name_of_its_part(changes, words):
    with pytest.raises(ProblemError) as caught:
        problem(**changes)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@given(problems(), st.data())
def test_utility_is_the_sum_over_factors_of_the_entry_each_scope_selects(p, data):
    values = [data.draw(st.integers(0, int(d) - 1)) for d in p.domains]
    entries = [f.table[tuple(values[v] for v in f.scope)] for f in p.factors]
    hard = [bool(forbidden(np.asarray(e))) for e in entries]
    chosen = [e.item() for e, h in zip(entries, hard, strict=True) if not h]
    utility = sum(map(Fraction, chosen))
    objective, violation = p.evaluate(values)
    assert abs(objective - (utility if p.sense == "max" else -utility)) <= 1e-15 * sum(map(abs, chosen))
    assert violation == sum(hard)
    assert p.evaluate(p.assignment(values)) == (objective, violation)
    assert p.values_of(p.assignment(values)).tolist() == values


def test_constants_unary_factors_and_repeated_scopes_all_count():
    p = problem(
        factors=(
            Factor.of((), 5),
            Factor.of((), -2),
            Factor.of((1,), [1, 10, 100]),
            Factor.of((0, 1), np.arange(6).reshape(2, 3)),
            Factor.of((1, 0), 1000 * np.arange(6).reshape(3, 2)),
        )
    )
    assert p.evaluate([1, 2]) == (3 + 100 + 5 + 5000, 0)


def test_a_variable_with_one_value_only_adds_an_axis_to_a_table():
    one = problem(domains=[1, 3], factors=(Factor.of((0, 1), [[1, 2, 3]]),))
    assert [one.evaluate([0, v]).objective for v in range(3)] == [1, 2, 3]


def test_lists_become_tuples():
    given = problem(variables=["x", "y"], agents=["a"], labels=[None, ["p", "q", "r"]])
    assert given == problem(labels=(None, ("p", "q", "r"))) and hash(given) is not None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0], "1 values for 2 variables"),
        ([0, 3], "variable 'y': value 3 is not in 0..2"),
        ([-1, 0], "variable 'x': value -1 is not in 0..1"),
        ({"x": 0}, "variable 'y' has no value"),
        ({"x": 0, "y": "s"}, "variable 'y': 's' is not one of its values; its values are 'p', 'q', 'r'"),
        ({"x": 2, "y": "p"}, "variable 'x': 2 is not one of its values; its values are 0 to 1"),
        ({"x": np.array([0, 1]), "y": "p"}, "variable 'x': array([0, 1]) is not one of its values"),
        ({"x": 0, "y": "p", "width": 1}, "variable 'width' does not exist; known variables: x, y"),
        ({"xx": 0, "y": "p"}, "variable 'xx' does not exist; did you mean 'x'?"),
        (None, "an assignment is a mapping from the names of variables to their values, or one value index per"),
        ([0.5, 1], "an assignment is a mapping"),
        ([0, "p"], "an assignment is a mapping"),
        ([[0], [0, 1]], "an assignment is a mapping"),
        ("xy", "an assignment is a mapping"),
    ],
)
def test_evaluate_rejects_what_is_no_assignment(assignment, message):
    with pytest.raises(ProblemError) as caught:
        problem(labels=(None, ("p", "q", "r"))).evaluate(assignment)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [[0], [0, 3], [-1, 0], None])
def test_an_assignment_is_not_made_from_values_outside_the_domains(values):
    with pytest.raises(ProblemError):
        problem().assignment(values)


@pytest.mark.parametrize(
    ("scope", "sense", "message"),
    [
        (("x", "y"), "max", "a factor: its scope is a sequence of variable indices, not ('x', 'y'); Problem.build() "),
        (0, "max", "a factor: its scope is a sequence of variable indices, not 0"),
        ((0,), "maximise", "sense must be 'max' or 'min', not 'maximise'"),
    ],
)
def test_a_factor_names_what_is_wrong(scope, sense, message):
    with pytest.raises(ProblemError) as caught:
        Factor.of(scope, [1, 2], sense)
    assert str(caught.value).startswith(message)


def test_the_text_of_a_problem_is_short():
    many = problem(factors=tuple(Factor.of((0, 1), np.zeros((2, 3))) for _ in range(1000)), name="office")
    assert repr(many) == (
        "<Problem 'office': variables 2, values per variable 2 to 3, agents 1, factors 1,000,"
        " variables per factor at most 2, stored numbers 6,000, sense maximise>"
    )
    assert repr(problem(variables=(), domains=(), owner=(), factors=())) == (
        "<Problem: variables 0, agents 1, factors 0, sense maximise>"
    )
    large = tabulate(range(2), (10**6, 10**6), [[1, 2]], [3], 0)  # its table would not fit any memory
    assert "stored numbers 4" in repr(problem(domains=[10**6, 10**6], factors=(large,)))
    assert repr(Factor.of((0,), np.zeros(10**6), name="f")) == "Factor(scope=(0,), shape=(1000000,), name='f')"


def test_a_notebook_shows_the_sizes_of_a_problem_with_its_name_escaped():
    page = problem(name="<script>alert(1)</script>")._repr_html_()
    assert page.startswith("<table><caption>Problem &lt;script&gt;") and "<script>" not in page
    assert ">variables</th>" in page and ">2 to 3</td>" in page


def test_cost_problems_report_costs_and_count_infinite_costs():
    p = problem(sense="min", factors=(Factor.of((0,), [7, INFINITY], "min"), Factor.of((1,), [1, 2, 3], "min")))
    assert p.evaluate([0, 2]) == (10, 0)
    assert p.evaluate([1, 0]) == (1, 1)
    assert p.forbidden_entries() == 1


@given(tables((2, 3)))
def test_a_cost_is_a_negated_utility(table):
    assert np.array_equal(normalise(table), normalise(-table, "min"))


@given(st.sampled_from(["max", "min"]).flatmap(lambda sense: tables((3, 2), sense).map(lambda t: (t, sense))))
def test_normalise_keeps_every_value_and_every_constraint(case):
    table, sense = case
    out = normalise(table, sense)
    given_ = table if sense == "max" else -table
    assert np.array_equal(forbidden(out), np.isneginf(given_))
    assert np.array_equal(out[~forbidden(out)], given_[~forbidden(out)])
    assert not out.flags.writeable and out.flags.c_contiguous
    again = normalise(out)
    assert again.dtype == out.dtype and np.array_equal(again, out)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int32),
        ([1.0, -INFINITY], np.int32),
        ([2**31 - 1, MIN32 + 1], np.int32),
        ([2**31, 0], np.int64),
        (np.array([MIN32, 0], dtype=np.int64), np.int64),  # -2^31 means "forbidden" in int32
        ([2**63 - 1, MIN64 + 1], np.int64),
        ([0.5, 0], np.float64),
        ([2.0**53 + 2, 0.0], np.float64),
        ([True, False], np.int32),
        (np.array([2**63 - 1], dtype=np.uint64), np.int64),
    ],
)
def test_tables_get_the_narrowest_exact_dtype(values, dtype):
    out = normalise(values)
    assert out.dtype == dtype
    assert np.array_equal(out[~forbidden(out)], np.asarray(values)[~forbidden(out)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_smallest_integer_stays_minus_infinity_whatever_the_dtype_becomes(dtype):
    smallest = np.iinfo(dtype).min
    for sense in ("max", "min"):
        out = normalise(np.array([smallest, 3], dtype=dtype), sense)
        assert forbidden(out).tolist() == [True, False]
    wide = normalise(np.array([MIN64, 2**40]))
    assert wide.dtype == np.int64 and forbidden(wide).tolist() == [True, False]


def test_costs_at_the_edge_of_int64_do_not_wrap():
    out = normalise(np.array([2**63 - 1, MIN64 + 1]), "min")
    assert out.tolist() == [-(2**63 - 1), 2**63 - 1]
    assert magnitude(out) == 2**63 - 1


@pytest.mark.parametrize(
    ("values", "sense", "word"),
    [
        ([float("nan")], "max", "NaN"),
        ([INFINITY], "max", "+inf"),
        ([-INFINITY], "min", "-inf"),
        (["a"], "max", "integers or floats"),
        ([1j], "max", "integers or floats"),
        ([2**63], "max", "63 bits"),
        ([None], "max", "integers or floats"),
        ([2**70], "max", "63 bits"),
    ],
)
def test_invalid_utilities_are_rejected_with_the_name_of_the_factor(values, sense, word):
    with pytest.raises(ProblemError, match="factor f") as caught:
        Factor.of((0,), values, sense, "f")
    assert word in str(caught.value)


def test_a_problem_cannot_be_changed_through_the_arrays_it_was_built_from():
    domains, table = np.array([2, 3]), np.zeros((2, 3))
    p = problem(domains=domains, factors=(Factor.of((0, 1), table),))
    domains[0], table[0, 0] = 9, 9
    assert p.domains.tolist() == [2, 3] and p.evaluate([0, 0]) == (0, 0)
    with pytest.raises(ValueError, match="read-only"):
        p.factors[0].table[0, 0] = 1


def test_magnitude_is_the_largest_finite_absolute_entry():
    for values in itertools.product([-3, 2, -INFINITY], repeat=2):
        finite = [abs(v) for v in values if v > -INFINITY]
        assert magnitude(normalise(list(values))) == max(finite, default=0)


def test_large_constants_do_not_absorb_small_utilities():
    p = problem(factors=(Factor.of((), 1e16), Factor.of((0,), [0.25, 1.5]), Factor.of((), -1e16), Factor.of((), 0.5)))
    assert [p.evaluate([v, 0]).objective for v in (0, 1)] == [0.75, 2.0]
    assert [p.utility_inside(np.array([v, 0])) for v in (0, 1)] == [Fraction(1, 4), Fraction(3, 2)]


def factors_of_each_class(entry=3):
    """Return one factor of each class, all with a given entry."""
    layer = Layer(np.zeros((1, 2), dtype=np.int32), np.array([[0, entry]], dtype=np.int32))
    tuples = np.array([[0, 1]], dtype=np.int32)
    return (
        Factor.of((0, 1), [[1, 2], [entry, -INFINITY]], name="f"),
        SparseFactor((0, 1), (2, 2), tuples, np.array([entry, 0], dtype=np.int32), "f"),
        AutomatonFactor((0, 1), (layer, layer), "f"),
    )


def test_factors_are_equal_by_scope_utilities_and_name():
    for one, same_one, other in zip(
        factors_of_each_class(), factors_of_each_class(), factors_of_each_class(4), strict=True
    ):
        assert one == same_one and hash(one) == hash(same_one)
        assert one != other and one != one.renamed((1, 0), "f") and one != one.renamed((0, 1), "g") and one != "f"
    assert len(set(factors_of_each_class() + factors_of_each_class())) == 3  # of different classes
    assert Factor.of((0,), [1, 2]) not in (Factor.of((0,), [1.5, 2]), Factor.of((0,), [1, 2, 3]))


@given(p=problems())
def test_problems_are_equal_if_their_attributes_are(p):
    assert p == replace(p) and hash(p) == hash(replace(p))
    assert p != replace(p, name=p.name + "x") and p != replace(p, agents=(*p.agents, "one more"))
    assert p != replace(p, factors=(*p.factors, Factor.of((), 1)))


@pytest.mark.parametrize(
    "values", [[2**63, 0], [-(2**63) - 1, 0], [2**70, 0], [2**70, 0.5], [10**400, 1], [2**63, 2**63]]
)
def test_integers_beyond_64_bits_are_rejected_not_rounded(values):
    makers = (
        lambda: Factor.of((0,), values),
        lambda: tabulate((0,), (5000,), [[0], [1]], values, 0),
        lambda: tabulate((0,), (5000,), [[0]], [1], values[0]),
        lambda: problem(domains=values),
    )
    for make in makers:
        with pytest.raises(ProblemError, match="integers beyond 63 bits"):
            make()


def test_rows_of_different_lengths_are_rejected():
    for make in (lambda: Factor.of((0, 1), [[1], [1, 2]]), lambda: problem(domains=[[2], [2, 3]])):
        with pytest.raises(ProblemError, match="different lengths"):
            make()
