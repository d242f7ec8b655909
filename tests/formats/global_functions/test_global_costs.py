"""Global cost functions: the sum of their factors equals their definition for every assignment."""

from collections import Counter
from itertools import combinations, product
from operator import eq, ge, gt, le, lt, ne

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constraints.global_costs import TOP, costs_of

from dmcmc.formats import registry as formats
from dmcmc.formats.global_functions.builder import SIGNATURES, CostScale, comparison_gap
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.runtime.errors import FileError, ProblemError, ResourceError

COMPARISONS = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne}
METRICS = {"hard": lambda gap: gap > 0, "lin": lambda gap: gap, "quad": lambda gap: gap * gap}


shapes = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)
costs = st.integers(0, 9)
bounds = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2)).map(lambda t: [t[0], t[1], t[1] + t[2]])
bound_lists = st.lists(bounds, max_size=3, unique_by=lambda b: b[0])


def violation(count, low, high):
    return max(low - count, count - high, 0)


@given(shapes, st.sampled_from(["var", "dec", "decbi"]), costs)
def test_soft_all_different(shape, metric, cost):
    for values, found in costs_of("salldiff", shape, metric=metric, cost=cost).items():
        changes = len(values) - len(set(values))
        equal = sum(x == y for x, y in combinations(values, 2))
        assert found == cost * (changes if metric == "var" else equal)


@given(shapes)
def test_hard_all_different(shape):
    for values, found in costs_of("salldiffkp", shape, metric="hard", cost=TOP).items():
        assert found == (0 if len(set(values)) == len(values) else None)


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=4), st.integers(-3, 6), st.data())
def test_a_knapsack_with_conflicts(weights, capacity, data):
    literals = st.tuples(st.integers(0, len(weights) - 1), st.integers(0, 1))
    groups = data.draw(st.lists(st.lists(literals, unique=True, max_size=4), max_size=2))
    shape = (2,) * len(weights)
    conflicts = [list(map(list, group)) for group in groups]
    listed = [[[1, weight]] for weight in weights]
    found = costs_of("knapsackc", shape, capacity=capacity, weightedvalues=listed, conflicts=conflicts)
    for values, cost in found.items():
        reaches_capacity = sum(w * x for w, x in zip(weights, values, strict=True)) >= capacity
        no_conflict = all(sum(values[i] == x for i, x in group) <= 1 for group in groups)
        assert cost == (0 if reaches_capacity and no_conflict else None)


@given(shapes, st.sampled_from(["hard", "lin", "quad"]), costs)
def test_all_different_by_value(shape, metric, cost):
    for values, found in costs_of("walldiff", shape, metric=metric, cost=cost).items():
        assert found == sum(cost * METRICS[metric](n - 1) for n in Counter(values).values())


@given(
    shapes, st.sampled_from([("wgcc", "hard"), ("wgcc", "lin"), ("wgcc", "quad"), ("sgcc", "dec")]), costs, bound_lists
)
def test_cardinality_by_value(shape, kind, cost, bounds):
    metric = METRICS["lin" if kind[1] == "dec" else kind[1]]
    for values, found in costs_of(kind[0], shape, metric=kind[1], cost=cost, bounds=bounds).items():
        assert found == sum(cost * metric(violation(values.count(v), low, high)) for v, low, high in bounds)


@given(shapes, costs, bound_lists)
def test_cardinality_by_changes(shape, cost, bounds):
    def satisfies_bounds(values):
        return all(low <= values.count(v) <= high for v, low, high in bounds)

    # The definition lets every variable take every value of the largest domain.
    bounds = [bound for bound in bounds if bound[0] < max(shape)]
    valid = [x for x in product(range(max(shape)), repeat=len(shape)) if satisfies_bounds(x)]
    for values, found in costs_of("sgcc", shape, metric="var", cost=cost, bounds=bounds).items():
        changes = min((sum(x != y for x, y in zip(values, target, strict=True)) for target in valid), default=None)
        assert found == (None if changes is None else cost * changes)


@given(
    shapes,
    st.sampled_from(["hard", "lin", "quad"]),
    costs,
    st.sampled_from(["==", "<", "<=", ">", ">=", "!="]),
    st.integers(-2, 9),
)
def test_sums(shape, metric, cost, comparator, to):
    gap = comparison_gap(comparator)
    for values, found in costs_of("wsum", shape, metric=metric, cost=cost, comparator=comparator, to=to).items():
        assert found == cost * METRICS[metric](gap(sum(values), to))
        assert (gap(sum(values), to) == 0) == COMPARISONS[comparator](sum(values), to)


@given(shapes, costs, st.sets(st.integers(0, 2)), st.integers(0, 2), st.integers(0, 2))
def test_among(shape, cost, chosen, low, width):
    listed = [[v] for v in chosen]
    for values, found in costs_of(
        "samong", shape, metric="var", cost=cost, min=low, max=low + width, values=listed
    ).items():
        assert found == cost * violation(sum(x in chosen for x in values), low, low + width)
    for values, found in costs_of("wvaramong", shape, metric="hard", cost=cost, values=listed).items():
        assert found == cost * (sum(x in chosen for x in values[:-1]) != values[-1])
    for values, found in costs_of("wvarsum", shape, metric="hard", cost=cost, comparator="<=").items():
        assert found == cost * (sum(values[:-1]) > values[-1])


@given(shapes, st.data())
def test_linear_constraints(shape, data):
    weights = [data.draw(st.lists(st.integers(-2, 4), min_size=d, max_size=d)) for d in shape]
    pairs = [[[x, w] for x, w in enumerate(row)] for row in weights]
    limit = data.draw(st.integers(-3, 8))
    for values, found in costs_of("knapsackp", shape, capacity=limit, weightedvalues=pairs).items():
        assert (found == 0) == (sum(w[x] for w, x in zip(weights, values, strict=True)) >= limit)
    chosen = [data.draw(st.sets(st.integers(0, d - 1))) for d in shape]
    for values, found in costs_of("clique", shape, rhs=1, values=[[[x] for x in c] for c in chosen]).items():
        assert (found == 0) == (sum(x in c for c, x in zip(chosen, values, strict=True)) <= 1)


edges = st.lists(st.tuples(*(st.integers(0, 2) for _ in range(3)), st.integers(-3, 5)).map(list), max_size=12)
ends = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4)).map(list), min_size=1, max_size=3, unique_by=lambda e: e[0]
)


def cheapest(values, starts, finals, transitions, edit_cost=None):
    """Return the cost of the cheapest run of an automaton by enumeration."""
    reached = dict(starts)
    for value in values:
        next_reached = {}
        for q, v, r, cost in transitions:
            if q in reached and (v == value or edit_cost is not None):
                total = reached[q] + cost + (0 if v == value else edit_cost)
                next_reached[r] = min(next_reached.get(r, total), total)
        reached = next_reached
    return min((cost + finals[q] for q, cost in reached.items() if q in finals), default=None)


@given(shapes, ends, ends, edges)
@settings(max_examples=60)
def test_weighted_automata(shape, starts, finals, transitions):
    found = costs_of("wregular", shape, nb_states=3, starts=starts, ends=finals, transitions=transitions)
    for values, cost in found.items():
        assert cost == cheapest(values, starts, dict(map(tuple, finals)), transitions)


@given(shapes, ends, ends, edges, costs)
@settings(max_examples=60)
def test_soft_automata(shape, starts, finals, transitions, cost):
    starts, finals = [[q] for q, _ in starts], [[q] for q, _ in finals]
    moves = [edge[:3] for edge in transitions]
    given_ = {"metric": "var", "cost": cost, "nb_states": 3, "starts": starts, "ends": finals, "transitions": moves}
    for values, found in costs_of("sregular", shape, **given_).items():
        free = [[*edge, 0] for edge in moves]
        assert found == cheapest(values, [(q, 0) for (q,) in starts], {q: 0 for (q,) in finals}, free, cost)


@given(st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(-3, 3), st.integers(0, 3))
def test_arithmetic(shape, constant, delta):
    gaps = {
        ">=": lambda x, y: y + constant - x,
        ">": lambda x, y: y + constant + 1 - x,
        "<=": lambda x, y: x - constant - y,
        "<": lambda x, y: x - constant + 1 - y,
        "=": lambda x, y: abs(y + constant - x),
    }
    for keyword, gap in gaps.items():
        for values, found in costs_of(keyword, shape, constant=constant, delta=delta).items():
            assert found == (None if gap(*values) > delta else max(gap(*values), 0))
    for (x, y), found in costs_of("disj", shape, x=1, y=2, penalty=TOP).items():
        assert found == (0 if x >= y + 2 or y >= x + 1 else None)


def test_costs_of_at_least_top_are_forbidden_and_scaled_by_the_unit():
    assert [CostScale(5).utility(cost) for cost in (4, 5, None)] == [-4, None, None]
    assert CostScale(None, 100).utility(25) == -0.25
    with pytest.raises(ProblemError, match=r"a cost above 2\^62"):
        CostScale(10**30).utility(2**63)


def test_functions_that_need_too_much_work_are_refused():
    with pytest.raises(ResourceError, match="takes too many steps"):
        build("salldiff", range(50), [5000] * 50, {"metric": "var", "cost": 1}, CostScale(TOP))
    with pytest.raises(ResourceError, match="needs an automaton of more than"):
        weights = [[[1, 3**i]] for i in range(40)]
        build("knapsackp", range(40), [2] * 40, {"capacity": 1, "weightedvalues": weights}, CostScale(TOP))


def test_parameters_have_a_known_kind():
    assert all(
        field.kind in ("word", "cost", "whole", "list", "lists", "groups", "each", "variables", "rules")
        for s in SIGNATURES.values()
        for field in s
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sgcc var 1 1 0 2 1", "a number of occurrences from 2 to 1; no number satisfies that"),
        ("sgcc dec 1 2 0 0 1 1 3 2", "a number of occurrences from 3 to 2"),
        ("sgcc wdec 1 1 0 2 1 3 4", "a number of occurrences from 2 to 1"),
        ("samong var 1 2 1 1 0", "a number of occurrences from 2 to 1"),
        ("wgcc hard 1 1 0 -1 1", "a number of occurrences from -1 to 1; it is never negative"),
        ("wamong hard 1 1 0 -3 2", "a number of occurrences from -3 to 2; it is never negative"),
        ("salldiff var -3", "cost: is negative"),
    ],
)
def test_bounds_and_costs_that_toulbar2_rejects_are_refused(text, reason):
    with pytest.raises(FileError, match=reason):
        formats.parse(f"p 3 3 1 100\n3 3 3\n3 0 1 2 -1 {text}\n".encode(), "wcsp")


def test_crossed_bounds_of_weighted_counts_charge_the_distance_from_both():
    problem = formats.parse(b"p 3 3 1 100\n3 3 3\n3 0 1 2 -1 wgcc lin 1 1 0 2 1\n", "wcsp")
    assert [problem.evaluate(v).objective for v in ([0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1])] == [2, 1, 1, 2]
