"""Reading cfn files: relaxed JSON, both senses, decimals."""

from functools import partial

import pytest
from support.dcop_examples import refusal

from dmcmc.formats import registry as formats
from dmcmc.inference.model.sparse_factor import SparseFactor

EXAMPLE = """{
  problem: { name: "two parts", mustbe: "<10.00" },
  variables: { "v1": ["a", "b"], v2: 3 }
# a comment
  functions: {
    c: {scope: [], costs: [1.5]},
    "f": {scope: ["v1"] "costs": [0.259 -2]}
    g: {scope: [v2 0], defaultcost: 0.5, costs: [2 a "3.00", 0 1 9]},
    h: {scope: [v1] costs: f}
  }
}
"""


def cfn(functions, bound="<100.00", variables="a:2 b:3 c:[x y]"):
    return f"{{problem:{{n {bound}}} variables:{{{variables}}} functions:{{\n{functions}}}}}"


error_of = partial(refusal, format="cfn")


def test_names_costs_and_decimals():
    problem = formats.parse(EXAMPLE.encode())
    assert (problem.name, problem.sense, problem.variables) == ("two parts", "min", ("v1", "v2"))
    assert problem.labels == (("a", "b"), None)
    assert [(f.name, f.scope) for f in problem.factors] == [("c", ()), ("f", (0,)), ("g", (1, 0)), ("h", (0,))]
    assert problem.evaluate({"v1": "a", "v2": 2}).objective == pytest.approx(1.5 + 2 * 0.25 + 3)
    assert problem.evaluate({"v1": "b", "v2": 1}).objective == pytest.approx(1.5 - 2 * 2 + 0.5)
    assert problem.evaluate({"v1": "b", "v2": 0}).objective == pytest.approx(1.5 - 2 * 2 + 9)


def test_concise_layout():
    problem = formats.parse(b"{{t <9} {[a b] 2} {{{0 1} {1 2 3 4}} {{0} 2 {a 1}}}}", "cfn")
    assert problem.variables == ("x0", "x1")
    assert [problem.evaluate([i, j]).objective for i in (0, 1) for j in (0, 1)] == [2, 3, 5, 6]


def test_maximisation():
    problem = formats.parse(cfn("f: {scope:[a] costs:[-4 6.5]}", ">-5.0").encode())
    assert problem.sense == "max"
    assert [problem.evaluate([x, 0, 0]).objective for x in (0, 1)] == [-4, 6.5]


@pytest.mark.parametrize(("bound", "sign"), [("<10", 1), (">-10", -1)])
def test_an_entry_that_must_violate_the_bound_is_forbidden(bound, sign):
    costs = " ".join(str(sign * c) for c in (0, 12, 13))
    text = cfn(f"f: {{scope:[b] costs:[{costs}]}} g: {{scope:[a] costs:[{sign * -3} {sign * 5}]}}", bound)
    problem = formats.parse(text.encode())
    assert [problem.evaluate([0, x, 0]).violation for x in (0, 1, 2)] == [0, 0, 1]


def test_whole_costs_are_exact():
    large = 2**60 + 1
    problem = formats.parse(cfn(f"f: {{scope:[a] costs:[{large} -3]}}", f"<{10**30}").encode())
    assert problem.evaluate([0, 0, 0]).objective == large
    problem = formats.parse(cfn("f: {scope:[a] costs:[2.00 -3.0]}").encode())
    assert problem.factors[0].table.dtype.kind == "i"


def test_sparse_functions_of_many_variables():
    names = " ".join(f"v{i}" for i in range(60))
    variables = " ".join(f"v{i}:2" for i in range(60))
    text = cfn(f"f: {{scope:[{names}] defaultcost: 1.25 costs:[{'1 ' * 60} 100]}}", variables=variables)
    problem = formats.parse(text.encode())
    assert isinstance(problem.factors[0], SparseFactor)
    assert (problem.evaluate([0] * 60), problem.evaluate([1] * 60)) == ((1.25, 0), (0, 1))


def test_global_cost_functions():
    params = "metric: wdec cost: 0.5 bounds: [[0 1 1 0.25 2.5]]"
    problem = formats.parse(cfn(f"f: {{scope:[a b] type: sgcc params: {{{params}}}}}").encode())
    assert [problem.evaluate(x).objective for x in ([0, 1, 0], [1, 1, 0], [0, 0, 0])] == [0, 0.25, 2.5]
    problem = formats.parse(cfn("f: {[a b] type wsum {metric lin cost 0.5 comparator <= to 1}}").encode())
    assert [problem.evaluate([1, x, 0]).objective for x in range(3)] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected '{' or '[', but the file ends"),
        ("{problem: {n", "line 1: expected mustbe: a bound such as <10.00"),
        ("{problem: {n 5.0}", "line 1: expected mustbe: a bound such as"),
        ("{problem: {n <5} {a: 0} }", "line 1: expected variable 'a': its values or their number, got '0'"),
        ("{problem: {n <5} {a: -3} }", "line 1: variable 'a': interval variables are not available in this version"),
        ("{problem: {n <5} {a: []} }", "line 1: variable 'a': has no values"),
        ("{problem: {n <5} {a: [x x]} }", "line 1: variable 'a': value 'x' occurs twice"),
        ("{problem: {n <5} {a: 2 a: 3} }", "line 1: variable 'a' is declared twice"),
        ("{problem: {n <5} {a: 2} functions: {} } }", "line 1: expected the end of the file, got '}'"),
        ("{problem: {n <5} {a: 2} functions: {}", "line 1: expected a bracket that closes the file, but the file ends"),
        (cfn("f: {scope: [d] costs: [1]}"), "line 2: function 'f': variable 'd' is not declared"),
        (cfn("f: {scope: [7] costs: [1]}"), "line 2: function 'f': variable '7' is not declared"),
        (cfn("f: {scope: [a 0] costs: [1]}"), "line 2: function 'f': variable 'a' occurs twice in its scope"),
        (cfn("f: {scope: [a] costs: [1 2 3]}"), "line 2: function 'f': 3 costs for 2 tuples"),
        (cfn("f: {scope: [a] costs: [1 1e5]}"), "line 2: expected function 'f': a cost: a decimal number, got '1e5'"),
        (cfn("f: {scope: [a] costs: [1 9999999999999999999]}"), "line 2: function 'f': a cost: '99999999"),
        (cfn("f: {scope: [c] defaultcost: 1 costs: [z 1]}"), "line 2: function 'f': 'z' is not a value of"),
        (cfn("f: {scope: [c] defaultcost: 1 costs: [x]}"), "line 2: function 'f': the last tuple has no cost"),
        (cfn("f: {scope: [a] costs: g}"), "line 2: function 'f': there is no function 'g'"),
        (cfn("f: {scope: [a] costs: f}"), "line 2: function 'f': function 'f' has no costs itself"),
        (cfn("f: {scope: [a] costs: g} g: {scope: [b] costs: [1 2 3]}"), "line 2: function 'f': domains [2], but 'g'"),
        (cfn("f: {scope: [a] type: smst params: []}"), "line 2: function 'f': global cost function 'smst' is"),
        (cfn("f: {[a] type: salldiff {var 1.0}}", ">0"), "line 2: function 'f': 'salldiff' where the"),
        (cfn("f: {[a] type: salldiff {far 1.0}}"), "line 2: function 'f': salldiff: metric: expected var"),
        (cfn("f: {[a] type: salldiff {var 1.0 3}}"), "line 2: function 'f': salldiff: 1 parameters too many"),
        (cfn("f: {[a] type: salldiff {var}}"), "line 2: function 'f': salldiff: cost: is missing"),
        (cfn("f: {[a] type: clique {1 [[0][0]]}}"), "line 2: function 'f': values: 2 for 1 variables"),
        (cfn("f: {[a] type: sgcc {var 1 [[0 1]]}}"), "line 2: function 'f': sgcc: bounds: expected 3 numbers per"),
        (cfn("f: {[a] type: clique " + "[" * 99), "line 2: brackets more than 8 deep"),
        (cfn("f: {[a] type: salldiff {cost: var metric: 1}}"), "line 2: function 'f': salldiff: metric: expected var"),
        (cfn("f: {[a] type: salldiff {foo: var 1}}"), "line 2: a colon after 'foo', which is no parameter; there are"),
        (cfn("f: {[a] type: salldiff {metric: var: 1}}"), "line 2: a colon after 'var', which is no parameter"),
        (cfn("f: {[a] type: salldiff {var cost cost: 1}}"), "line 2: expected function 'f': a cost: a decimal"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_the_line_number(text, message):
    assert error_of(text).startswith(message)
