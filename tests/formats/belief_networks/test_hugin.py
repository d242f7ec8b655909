"""Hugin's NET language: nested data with the first parent slowest, normalised; everything but chance nodes refused."""

from functools import partial

import numpy as np
import pytest
from support.dcop_examples import refusal

from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import Unavailable

NODES = r"""% a comment } node {
net
{
    node_size = (80 40);
    name = "rain model";
    HR_Desc = "a \"quoted\" text; 100 % { of it";
}
node rain
{
    label = "";  % no label
    position = (10 20);
    states = ("yes" "no");
}
discrete node sun { states = ("State 1" 2 three); subtype = number; state_values = (0 1 2); }
node wet { states = ("a \"b\"" "100 %"); HR_LinkMode = "[rain:0]"; }
"""
RAIN = "potential (rain) { data = ( 1 3 ); }\n"
SUN = "potential ( sun | ) { data = ( 0.2 0.3 .5 ); /* a comment */ }\n"
WET = """potential (wet | rain sun)
{
    data = ((( 9 1 )    % rain=yes sun=State 1
             ( 2e0 2 )
             ( 0 1 ))
            (( 0.5 0.5 ) ( 0 0 ) ( 1 0 )));
    experience = ((( 7 0 )));
}
"""
EXAMPLE = NODES + RAIN + SUN + WET
error_of = partial(refusal, format="hugin")


def test_data_have_the_first_parent_slowest_and_are_normalised():
    problem = formats.parse(EXAMPLE.encode())
    assert (problem.name, problem.sense, problem.agents) == ("rain model", "max", ("all",))
    assert problem.variables == ("rain", "sun", "wet")
    assert problem.labels == (("yes", "no"), ("State 1", "2", "three"), ('a "b"', "100 %"))
    assert [(f.name, f.scope) for f in problem.factors] == [("rain", (0,)), ("sun", (1,)), ("wet", (0, 1, 2))]
    assert np.exp(problem.factors[0].table) == pytest.approx([0.25, 0.75])
    assert np.exp(problem.factors[2].table) == pytest.approx(
        np.array([[[0.9, 0.1], [0.5, 0.5], [0, 1]], [[0.5, 0.5], [0, 0], [1, 0]]])
    )


def test_data_may_be_one_list():
    flat = NODES + RAIN + SUN + "potential (wet | rain sun) { data = (9 1 2e0 2 0 1 .5 .5 0 0 1 0); }"
    assert formats.parse(flat.encode()) == formats.parse(EXAMPLE.encode())


@pytest.mark.parametrize(
    ("head", "tail"),
    [("class Weather {\n inputs = (); outputs = (wet);\n", "}\n"), ("\ufeff", ""), ("%\n// a\n/* b */", "")],
)
def test_classes_and_comments(head, tail):
    text = head + EXAMPLE + tail if "class" not in head else head + EXAMPLE[EXAMPLE.index("node rain") :] + tail
    problem = formats.parse(text.encode())
    assert problem.factors == formats.parse(EXAMPLE.encode()).factors
    assert problem.name == ("Weather" if tail else "rain model")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("net\n", "nets\n", "line 2: expected net, class, node or potential, got 'nets'"),
        ("node rain", "node { ", "line 8: expected a node's name, got '{'"),
        ('states = ("yes" "no");', "", "line 8: node 'rain': expected its states"),
        ('states = ("yes" "no");', "states = ();", "line 8: variable 'rain' has no values"),
        ('("yes" "no")', '("yes" "yes")', "line 8: variable 'rain': value 'yes' occurs twice"),
        ('("yes" "no");', '("yes" "no")', "line 13: expected ';', got '}'"),
        ('("yes" "no");', '("yes" "no"); states = ("a");', "line 12: node 'rain' has two lists of states"),
        ("node wet", "node sun", "line 15: variable 'sun' is declared twice"),
        ("potential (rain)", "potential (snow)", "line 16: variable 'snow' is not declared"),
        ("potential (rain)", "potential (rain wet)", "line 16: expected '|' or ')', got 'wet'"),
        ("potential (rain)", "potential (rain | rain)", "line 16: a variable occurs twice in this table"),
        (RAIN, RAIN + RAIN, "line 17: variable 'rain' has two tables of probabilities"),
        (RAIN, "", "line 8: variable 'rain' has no table of probabilities"),
        ("( 1 3 )", "( 1 3 4 )", "line 16: 3 numbers; 2 are needed"),
        ("( 1 3 )", "( 1 -3 )", "line 16: expected a number or ')', got '-3'"),
        ("( 1 3 )", "( 1 nan )", "line 16: expected a number or ')', got 'nan'"),
        ("( 1 3 )", '( 1 "3" )', "line 16: expected a number or ')', got '3'"),
        ("( 1 3 )", "( 1 1e999 )", "line 16: '1e999' is too large"),
        ("( 1 3 )", "( 1e308 1e308 )", "line 16: the sum of a distribution is too large"),
        ("( 1 3 )", "( 1 3", "line 16: expected a number or ')', got ';'"),
        ("( 1 3 );", "( 1 3).5);", "line 16: expected ';', got '.5'"),
        ('("yes" "no");', '("yes" "no") ("a");', "line 12: expected ';', got '('"),
        ("( 1 3 );", "( 1 3 ); data = ( 1 3 );", "line 16: the potential of 'rain' has data twice"),
        ("( 2e0 2 )", "( 2e0 2 3 )", "line 21: lists of numbers that do not fit the sizes [2, 3, 2]"),
        ("( 2e0 2 )", "( 2e0 ( 2 ) )", "line 21: lists of numbers that do not fit the sizes [2, 3, 2]"),
        ("7 0 )));\n}", "7 0 )));", "line 24: expected an attribute or '}', but the file ends"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_the_line_number(old, new, message):
    assert old in EXAMPLE
    assert error_of(EXAMPLE.replace(old, new, 1)).startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("node rain", "decision rain", "line 8: the decision node 'rain' is"),
        ("node rain", "utility rain", "line 8: the utility node 'rain' is"),
        ("node rain", "discrete utility rain", "line 8: the utility node 'rain' is"),
        ("node rain", "function rain", "line 8: the function node 'rain' is"),
        ("node rain", "continuous node rain", "line 8: the continuous node 'rain' is"),
        ("node rain", "instance i : Other (a = b) node rain", "line 8: an instance of a class is"),
        ("data = ( 1 3 );", "", "line 16: the potential of 'rain' without data"),
        (
            "data = ( 1 3 )",
            "model_nodes = (); model_data = ( Poisson(3), 1 )",
            "line 16: the potential of 'rain' without",
        ),
    ],
)
def test_what_is_not_a_discrete_network_is_refused_by_name(old, new, what):
    with pytest.raises(Unavailable) as caught:
        formats.parse(EXAMPLE.replace(old, new, 1).encode(), "hugin")
    assert what in str(caught.value) and str(caught.value).endswith("not available in this version")


@pytest.mark.parametrize("text", ["", "net { }", "class A { }", "class A {", "class A { } node"])
def test_files_without_nodes_are_refused(text):
    assert error_of(text).startswith("line 1: ")
