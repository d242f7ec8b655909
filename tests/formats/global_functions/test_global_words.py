"""Global cost functions of two lists, of words and of trees: compared with their definitions and with toulbar2."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constraints.global_costs import TOP, costs_of
from support.toulbar2 import optima

from dmcmc.formats import registry as formats
from dmcmc.formats.global_functions.builder import CostScale
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.runtime.errors import FileError, ProblemError, ResourceError

METRICS = {"hard": lambda gap: gap > 0, "lin": lambda gap: gap, "quad": lambda gap: gap * gap}
halves = st.integers(1, 2).flatmap(lambda n: st.lists(st.integers(1, 3), min_size=2 * n, max_size=2 * n).map(tuple))
costs = st.integers(0, 9)


@given(halves, st.sampled_from(["hard", "lin", "quad"]), costs)
def test_permutations(shape, metric, cost):
    half, low = len(shape) // 2, [[0, 0, 1]]
    soft = costs_of("ssame", shape, cost=cost, vars1=range(half), vars2=range(half, 2 * half))
    bounded = costs_of("wsamegcc", shape, metric=metric, cost=cost, bounds=low)
    for values, found in costs_of("wsame", shape, metric=metric, cost=cost).items():
        lists = values[:half], values[half:]
        surplus = [lists[0].count(v) - lists[1].count(v) for v in range(3)]
        assert found == sum(cost * METRICS[metric](abs(n)) for n in surplus)
        assert soft[values] == cost * sum(max(0, n) for n in surplus)
        assert bounded[values] == found + sum(cost * METRICS[metric](max(0, x.count(0) - 1)) for x in lists)


@given(halves, costs, st.integers(0, 2))
def test_overlaps(shape, cost, to):
    half = len(shape) // 2
    for values, found in costs_of("woverlap", shape, metric="lin", cost=cost, comparator=">=", to=to).items():
        count = sum(x == y != 0 for x, y in zip(values[:half], values[half:], strict=True))
        assert found == cost * max(0, to - count)


@given(halves, st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 2)), costs, max_size=4), costs)
def test_largest_costs(shape, listed, default):
    tuples = [[v, x, cost] for (v, x), cost in listed.items() if v < len(shape)]
    for values, found in costs_of("max", shape, defaultcost=default, tuples=tuples).items():
        assert found == max(listed.get(pair, default) for pair in enumerate(values))


@given(halves, st.integers(0, 4), st.data())
def test_diversity_and_weights_by_variable(shape, distance, data):
    away = [data.draw(st.integers(0, d - 1)) for d in shape]
    for values, found in costs_of("wdiverse", shape, distance=distance, values=away).items():
        assert (found == 0) == (sum(x != y for x, y in zip(values, away, strict=True)) >= distance)
    weights = [[v, x, data.draw(st.integers(-2, 4))] for v, d in enumerate(shape) for x in range(d)]
    for values, found in costs_of("knapsackv", shape, capacity=distance, weightedvalues=weights).items():
        assert (found == 0) == (sum(w for v, x, w in weights if values[v] == x) >= distance)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_spanning_trees(n):
    for parents, found in costs_of("MST", (n,) * n).items():
        ends = set()
        for node in range(n):
            for _ in range(n):
                node = parents[node]
            ends.add(node)
        is_tree = len(ends) == 1 and all(parents[end] == end for end in ends)
        assert (found == 0) == is_tree


def edit_distance(word, other):
    """Return the edit distance of two words."""
    row = list(range(len(other) + 1))
    for i, x in enumerate(word, 1):
        before, row = row, [i]
        for j, y in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


edges = st.lists(st.tuples(*(st.integers(0, 2) for _ in range(3))).map(list), max_size=8)
states = st.lists(st.integers(0, 2).map(lambda q: [q]), min_size=1, max_size=2, unique_by=lambda q: q[0])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple), states, states, edges, costs)
@settings(max_examples=60)
def test_distances_from_a_language(shape, starts, finals, moves, cost):
    words, reached = [], {(q, ()) for (q,) in starts}
    for _ in range(len(shape) + 3):  # the nearest word has at most 2 more values: 3 states are left by at most 2 moves
        words += [word for q, word in reached if [q] in finals]
        reached = {(r, (*word, v)) for q, word in reached for p, v, r in moves if p == q}
    given_ = {"metric": "edit", "cost": cost, "nb_states": 3, "starts": starts, "ends": finals, "transitions": moves}
    for values, found in costs_of("sregular", shape, **given_).items():
        assert found == (min(cost * edit_distance(values, word) for word in words) if words else None)


GRAMMAR = {"terminals": [[1, 0], [3, 1]], "non_terminals": [[0, 0, 0], [0, 1, 2], [0, 1, 3], [2, 0, 3]]}
WEIGHTED = {
    "terminals": [[1, 0, 1], [3, 1, 2]],
    "non_terminals": [[0, 0, 0, 3], [0, 1, 2, 4], [0, 1, 3, 5], [2, 0, 3, 6]],
}  # balanced brackets: 0 opens, 1 closes


def balanced(word):
    depths = [sum(1 - 2 * x for x in word[: i + 1]) for i in range(len(word))]
    return min(depths) >= 0 and depths[-1] == 0


def test_grammars():
    common = {"cost": 7, "nb_symbols": 4, "nb_values": 2, "start": 0}
    for n in (2, 4):
        words = [word for word in product(range(2), repeat=n) if balanced(word)]
        for values, found in costs_of("sgrammar", (2,) * n, metric="var", **common, **GRAMMAR).items():
            assert found == min(7 * sum(x != y for x, y in zip(values, word, strict=True)) for word in words)
        weighted = costs_of("sgrammardp", (2,) * n, metric="weight", **common, **WEIGHTED)
        assert {values for values, cost in weighted.items() if cost is not None} == set(words)
    assert (weighted[0, 0, 1, 1], weighted[0, 1, 0, 1]) == (4 + 6 + 5 + 2 * 1 + 2 * 2, 3 + 2 * 5 + 2 * 1 + 2 * 2)


@pytest.mark.parametrize(
    ("keyword", "arguments", "message"),
    [
        ("ssame", {"cost": 1, "vars1": [0], "vars2": [1]}, "two lists of equal length that are its scope"),
        ("ssame", {"cost": 1, "vars1": [0, 1], "vars2": [2, 7]}, "vars2: variable 7 is not in its scope"),
        ("woverlap", {"metric": "lin", "cost": 1, "comparator": ">", "to": 1}, "two lists of equal length"),
        ("sgrammar", {"metric": "var", "cost": 1, "nb_symbols": 1, "nb_values": 2, "start": 3, **GRAMMAR}, "symbol 3"),
    ],
)
def test_parameters_that_do_not_fit_are_named(keyword, arguments, message):
    n = 3 if keyword == "woverlap" else 4
    with pytest.raises(ProblemError, match=message):
        build(keyword, range(n), [2] * n, arguments, CostScale(TOP))


def test_too_many_words_are_refused():
    many = {"metric": "var", "cost": 1, "nb_symbols": 4, "nb_values": 2, "start": 0, **GRAMMAR}
    with pytest.raises(ResourceError, match="too many to be parsed"):
        build("sgrammar", range(40), [2] * 40, many, CostScale(TOP))


EXAMPLES = [
    ("ssame 5 2 2 0 2 1 3", "ssame {cost: 5.0 vars1: [v0 v2] vars2: [v1 v3]}", (2, 2, 2, 2)),
    ("wsame lin 5", "wsame {metric: lin cost: 5.0}", (2, 3, 2, 2)),
    ("wsamegcc lin 3 2 0 0 1 1 2 3", "wsamegcc {metric: lin cost: 3.0 bounds: [[0 0 1][1 2 3]]}", (2, 3, 2, 2)),
    ("woverlap lin 2 > 1", "woverlap {metric: lin cost: 2.0 comparator: > to: 1}", (2, 3, 2, 2)),
    ("wdiverse 2 1 0 1", "wdiverse {distance: 2 values: [1 0 1]}", (2, 3, 2)),
    ("max 3 2 0 0 4 1 1 7", "max {defaultcost: 3.0 tuples: [[v0 0 4.0][v1 1 7.0]]}", (2, 3, 2)),
    ("MST", "MST {}", (3, 3, 3)),
    ("knapsackv 3 4 0 1 2 1 1 2 1 2 3 2 0 1", "knapsackv {3 [[v0 1 2][v1 1 2][v1 2 3][v2 0 1]]}", (2, 3, 2)),
    ("sdisj 1 0 3 2 3 4", None, (5, 4)),
    (
        "sregular edit 1 2 1 0 1 1 3 0 0 0 0 1 1 1 1 1",
        "sregular {metric: edit cost: 1.0 nb_states: 2 starts: [0] ends: [1] transitions: [[0 0 0][0 1 1][1 1 1]]}",
        (2, 2, 2),
    ),
    (
        "sgrammardp var 1 4 2 0 6 0 1 0 0 3 1 1 0 0 0 1 0 1 2 1 0 1 3 1 2 0 3",
        "sgrammardp {metric: var cost: 1.0 nb_symbols: 4 nb_values: 2 start: 0 terminals: [[1 0][3 1]]"
        " non_terminals: [[0 0 0][0 1 2][0 1 3][2 0 3]]}",
        (2, 2, 2, 2),
    ),
    (
        "sgrammardp weight 1 4 2 0 6 2 1 0 1 2 3 1 2 3 0 0 0 3 3 0 1 2 4 3 0 1 3 5 3 2 0 3 6",
        "sgrammardp {metric: weight cost: 1.0 nb_symbols: 4 nb_values: 2 start: 0 terminals: [[1 0 1.0][3 1 2.0]]"
        " non_terminals: [[0 0 0 3.0][0 1 2 4.0][0 1 3 5.0][2 0 3 6.0]]}",
        (2, 2, 2, 2),
    ),
]


def wcsp(line, shape, fixed=()):
    n = len(shape)
    unary = "".join(f"1 {v} {TOP} 1\n{x} 0\n" for v, x in enumerate(fixed))
    scope = " ".join(map(str, range(n)))
    return f"p {n} {max(shape)} {1 + len(fixed)} {TOP}\n{' '.join(map(str, shape))}\n{unary}{n} {scope} -1 {line}\n"


def cfn(function, shape):
    variables = " ".join(f"v{i}: {d}" for i, d in enumerate(shape))
    keyword, _, params = function.partition(" ")
    scope = " ".join(f"v{i}" for i in range(len(shape)))
    f = f"f: {{scope: [{scope}] type: {keyword} params: {params}}}"
    return f"{{problem: {{name: p mustbe: <{TOP}.0}} variables: {{{variables}}} functions: {{{f}}}}}"


@pytest.mark.parametrize(("line", "function", "shape"), EXAMPLES, ids=[e[0].partition(" ")[0] for e in EXAMPLES])
def test_costs_agree_with_toulbar2(line, function, shape):
    pytest.importorskip("pytoulbar2")
    problem = formats.parse(wcsp(line, shape).encode(), "wcsp")
    named = problem if function is None else formats.parse(cfn(function, shape).encode(), "cfn")
    assignments = list(product(*map(range, shape)))
    for values, expected in zip(
        assignments, optima([wcsp(line, shape, values) for values in assignments]), strict=True
    ):
        found = problem.evaluate(values)
        assert found == named.evaluate(values)
        assert found.violation == (expected is None)
        if expected is not None:
            assert found.objective == expected


def test_damaged_grammars_are_refused_by_line():
    with pytest.raises(FileError, match="a rule of kind 4; there are 0 to 3"):
        formats.parse(wcsp("sgrammar var 1 4 2 0 1 4 1 0", (2, 2)).encode(), "wcsp")
