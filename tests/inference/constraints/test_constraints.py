"""Global constraints: degrees, decompositions, relaxations and propagation against their definitions."""

from itertools import product

import numpy as np
import pytest
from support.constraints.naive_degrees import naive_degree
from support.constraints.random_constraints import KINDS, random_problem

from dmcmc import Problem
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.constraints.registry import get, names
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, ProblemError

CASES = 12  # random constraints of each kind; benchmarks/constraints tries 1,000
EXACT_PROPAGATION = {"count", "all_different", "precedence", "element"}  # these remove every unsupported value


def constraints(kind, soft=None):
    """Yield random constraints of a kind with up to five variables."""
    for seed in range(CASES):
        problem = random_problem(np.random.default_rng([seed, KINDS.index(kind)]), [kind], 5, 4, soft=soft)
        yield from (factor for factor in problem.factors if isinstance(factor, GlobalConstraint))


def combinations_of(factor):
    return product(*map(range, factor.shape))


def sum_of(parts, factor, values):
    """Return the sum of factors over parts of a scope; None if one is forbidden."""
    value_of = dict(zip(factor.scope, values, strict=True))
    entries = [part.entry([value_of[v] for v in part.scope]) for part in parts]
    return None if None in entries else sum(entries)


@pytest.mark.parametrize("kind", KINDS)
def test_the_degree_is_that_of_the_definition(kind):
    for constraint in constraints(kind):
        for values in combinations_of(constraint):
            degree = naive_degree(constraint, values)
            assert constraint.degree(values) == degree
            expected = 0 if not degree else None if constraint.cost is None else -constraint.cost * degree
            assert constraint.entry(values) == expected
            assert constraint.violation(values) == (degree if constraint.cost is None else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_decomposition_is_the_constraint(kind):
    for constraint in constraints(kind):
        parts = constraint.parts()
        for values in combinations_of(constraint) if parts is not None else ():
            assert sum_of(parts, constraint, values) == constraint.entry(values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_relaxation_is_an_upper_bound(kind):
    for constraint in constraints(kind):
        relaxed = constraint.relaxed_parts()
        for values in combinations_of(constraint):
            entry, bound = constraint.entry(values), sum_of(relaxed, constraint, values)
            assert entry is None or (bound is not None and bound >= entry)


@pytest.mark.parametrize("kind", KINDS)
def test_propagation_keeps_all_solutions_and_the_exact_ones_nothing_else(kind):
    rng = np.random.default_rng(7)
    for constraint in constraints(kind, soft=False):
        domains = [rng.random(size) < 0.7 for size in constraint.shape]
        solutions = [
            values
            for values in product(*(np.flatnonzero(d).tolist() for d in domains))
            if constraint.degree(values) == 0
        ]
        used = [{values[i] for values in solutions} for i in range(len(domains))]
        kept = constraint.propagate(domains)
        if kept is None:
            assert not solutions
            continue
        remaining = [set(np.flatnonzero(mask).tolist()) for mask in kept]
        assert all(u <= r <= set(np.flatnonzero(d).tolist()) for u, r, d in zip(used, remaining, domains, strict=True))
        if constraint.kind in EXACT_PROPAGATION:
            assert remaining == used


@pytest.mark.parametrize("kind", KINDS)
def test_a_restricted_constraint_is_the_constraint_on_the_remaining_values(kind):
    rng = np.random.default_rng(8)
    for constraint in constraints(kind):
        remaining = [np.sort(rng.permutation(size)[: rng.integers(1, size + 1)]) for size in constraint.shape]
        smaller = constraint.restricted(remaining)
        assert smaller.shape == tuple(len(r) for r in remaining)
        for values in combinations_of(smaller):
            assert smaller.degree(values) == constraint.degree([r[x] for r, x in zip(remaining, values, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_make_an_equal_constraint(kind):
    for c in constraints(kind):
        again = get(c.kind).from_parameters(c.scope, c.shape, c.cost, c.name, c.parameters())
        assert again == c and hash(again) == hash(c)
        assert c.renamed(c.scope, "other") != c


def test_a_violated_constraint_counts_with_its_degree():
    build = Problem.build()
    for name in "abc":
        build.variable(name, 3)
    problem = build.all_different(["a", "b", "c"]).problem()
    assert problem.evaluate([0, 0, 0]) == (0, 2)
    assert problem.evaluate([0, 1, 2]) == (0, 0)


def test_times_that_are_labels_count_as_numbers():
    build = Problem.build()
    build.variable("a", [60, 90])
    build.variable("b", [90, 75])
    problem = build.no_overlap(["a", "b"], 30).problem()
    assert [problem.evaluate([0, x]).violation for x in (0, 1)] == [0, 15]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.all_different(["a", "x"]), "constraint 'all_different': variable 'x' does not exist"),
        (lambda b: b.no_overlap(["a", "a"], 1), "variable 'a' appears twice"),
        (lambda b: b.no_overlap(["a", "b"], [1]), "one duration"),
        (lambda b: b.cumulative(["a"], 1, -1, 2), "at least 0"),
        (lambda b: b.count(["a", "b"], [0], (2, 1)), "smallest number"),
        (lambda b: b.at_most(1, ["a"], [0], cost=-1), "cost must be"),
        (lambda b: b.element("b", ["a"], "a"), "more values than"),
        (lambda b: b.constraint("count", ["a"], {"low": 0}), "parameter is missing"),
        (lambda b: b.precedence("a", "b", 0.5), "distance is 0.5: a whole number is needed"),
        (lambda b: b.cumulative(["a"], 1, [1.5], 2), "is 1.5: a whole number is needed"),
        (lambda b: b.cumulative(["a"], 1, 1, np.float64(0.5)), "capacity is 0.5"),
        (lambda b: b.no_overlap(["a", "b"], [1, 1.5]), "is 1.5: a whole number is needed"),
        (lambda b: b.breaks(["a"], 1.5), "is 1.5: a whole number is needed"),
        (lambda b: b.breaks(["a"], 1, at_most=True), "is True"),
        (lambda b: b.count(["a", "b"], [0], 1.5), "is 1.5: a whole number is needed"),
        (lambda b: b.at_least(False, ["a"], [0]), "is False"),
        (lambda b: b.constraint("adjacency", ["a"], {"times": [[0, 1]], "durations": [1.5]}), "is 1.5"),
        (lambda b: b.constraint("all_different", ["a"], {"codes": [[0, 0.5]]}), "is 0.5"),
        (lambda b: b.no_overlap(["a", "b"], 2**61), "at most 2\\^60"),
        (lambda b: b.cumulative(["a", "b"], 2**40, 2**40, 1), "more than 62 bits"),
        (lambda b: b.count(["a"], [0], "b", cost=-1), "cost must be"),
        (lambda b: b.precedence("a", "b", cost=True), "cost is True"),
        (lambda b: b.no_overlap([b.variable("c", [0.5, 2])], 1), "is 0.5: a whole number is needed"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    build = Problem.build()
    build.variable("a", 2)
    build.variable("b", 3)
    with pytest.raises(ProblemError, match=message) as error:
        call(build)
    assert "\n" not in str(error.value)


def test_whole_numbers_of_numpy_and_floats_without_a_fraction_are_integers():
    build = Problem.build()
    build.variable("a", np.int64(3))
    build.variable("b", [0.0, 1.0, 4.0])
    build.precedence("a", "b", np.float32(2)).count(["a"], [0], np.int16(0)).no_overlap(["a", "b"], np.array([2, 1.0]))
    distance, number, durations = (factor.parameters() for factor in build.problem().factors)
    assert distance["distance"] == 2 and [n.tolist() for n in distance["numbers"]] == [[0, 1, 2], [0, 1, 4]]
    assert (number["low"], number["high"]) == (0, 0) and durations["durations"] == [2, 1]


@pytest.mark.parametrize("kind", ["no_overlap", "no_overlap_places", "cumulative", "breaks"])
def test_the_cost_of_a_constraint_on_intervals_does_not_depend_on_the_unit_of_time(kind):
    unit = 10**9
    for constraint in constraints(kind):
        given = constraint.parameters()
        scaled = {name: [number * unit for number in given[name]] for name in ("times", "durations")}
        c = constraint
        fine = c.from_parameters(c.scope, c.shape, c.cost, "fine", given | scaled)
        assert fine.loads.cells == constraint.loads.cells
        parts = [c.parts() for c in (constraint, fine)]
        assert (parts[0] is None) == (parts[1] is None) and (parts[0] is None or len(parts[0]) == len(parts[1]))
        factor = 1 if kind == "breaks" else unit
        domains = [np.ones(size, dtype=bool) for size in constraint.shape]
        kept = [c.propagate(domains) for c in (constraint, fine)]
        assert (kept[0] is None) == (kept[1] is None)
        assert kept[0] is None or all(np.array_equal(a, b) for a, b in zip(*kept, strict=True))
        for values in combinations_of(constraint):
            assert fine.degree(values) == factor * constraint.degree(values)


def test_an_unknown_class_is_answered_with_the_known_ones():
    assert set(names()) >= {"all_different", "count", "no_overlap"}
    with pytest.raises(ConfigError, match="did you mean 'cumulative'"):
        get("cumulativ")
    assert issubclass(ConfigError, DmcmcError)
