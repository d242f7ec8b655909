"""XMLBIF networks: tables with the first parent slowest, document types without entities, and one-line errors."""

from functools import partial

import numpy as np
import pytest
from support.dcop_examples import refusal

from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import Unavailable

DOCTYPE = """<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
  <!ATTLIST VARIABLE TYPE (nature|decision|utility) "decision">
]>
"""
HEAD = """<?xml version="1.0" encoding="US-ASCII"?>
<!-- written
by hand -->
"""
RAIN = "<VARIABLE TYPE='nature'><NAME>rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>\n"
SUN = (
    "<VARIABLE><NAME> sun </NAME><PROPERTY>big</PROPERTY><OUTCOME>a &amp; b</OUTCOME><OUTCOME>c</OUTCOME></VARIABLE>\n"
)
WET = "<VARIABLE><NAME>wet</NAME><OUTCOME>1</OUTCOME><OUTCOME>2</OUTCOME><OUTCOME>3</OUTCOME></VARIABLE>\n"
TABLES = """<DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><GIVEN>sun</GIVEN><TABLE>
  .1 .2 .7 <!-- yes, a & b --> 0 0 1
  .2 .3 .5  1e-1 4e-1 .5</TABLE></DEFINITION>
<DEFINITION><FOR>rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<PROBABILITY><FOR>sun</FOR><TABLE>0.5 0.5</TABLE></PROBABILITY>
"""
error_of = partial(refusal, format="xmlbif")


def network(body, head=HEAD):
    return f"{head}<BIF VERSION='0.3'><NETWORK><NAME>rain model</NAME>\n{body}</NETWORK></BIF>"


EXAMPLE = network(RAIN + SUN + WET + TABLES)


@pytest.mark.parametrize("head", [HEAD, HEAD + DOCTYPE, "\ufeff" + HEAD, ""])
def test_tables_have_the_first_parent_slowest(head):
    problem = formats.parse(network(RAIN + SUN + WET + TABLES, head).encode())
    assert (problem.name, problem.sense, problem.agents) == ("rain model", "max", ("all",))
    assert problem.variables == ("rain", "sun", "wet")
    assert problem.labels == (("yes", "no"), ("a & b", "c"), ("1", "2", "3"))
    assert [(f.name, f.scope) for f in problem.factors] == [("wet", (0, 1, 2)), ("rain", (0,)), ("sun", (1,))]
    assert np.exp(problem.factors[0].table) == pytest.approx(
        np.array([[[0.1, 0.2, 0.7], [0, 0, 1]], [[0.2, 0.3, 0.5], [0.1, 0.4, 0.5]]])
    )
    assert problem.evaluate({"rain": "yes", "sun": "c", "wet": "1"}).violation == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<BIF", "<FIB><BIF", "line 13: not well-formed XML: no element found"),
        ("<NETWORK>", "<NETWORK/><NETWORK>", "line 4: <BIF> has 2 elements <NETWORK>; 1 is needed"),
        (RAIN, "<NODE/>" + RAIN, "line 5: <NODE> in <NETWORK>; expected <VARIABLE> or <DEFINITION>"),
        (RAIN, RAIN + RAIN, "line 6: variable 'rain' is declared twice"),
        ("<NAME>wet</NAME>", "", "line 7: <VARIABLE> has 0 elements <NAME>; 1 is needed"),
        ("<OUTCOME>yes</OUTCOME>", "<OUTCOME> </OUTCOME>", "line 5: <OUTCOME> is empty"),
        ("<OUTCOME>yes</OUTCOME>", "<OUTCOME>no</OUTCOME>", "line 5: variable 'rain': value 'no' occurs twice"),
        ("<OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME>", "", "line 5: variable 'rain' has no values"),
        ("<FOR>rain</FOR>", "<FOR>snow</FOR>", "line 11: variable 'snow' is not declared"),
        ("<FOR>rain</FOR>", "<FOR>rain</FOR><FOR>sun</FOR>", "line 11: <DEFINITION> has 2 elements <FOR>; 1 is needed"),
        ("<FOR>rain</FOR>", "<FOR>sun</FOR>", "line 12: variable 'sun' has two tables of probabilities"),
        ("<GIVEN>sun</GIVEN>", "<GIVEN>rain</GIVEN>", "line 8: a variable occurs twice in this table"),
        ("<GIVEN>sun</GIVEN>", "", "line 8: the table of 'wet' has 12 numbers; 6 are needed"),
        ("0.2 0.8", "0.2", "line 11: the table of 'rain' has 1 numbers; 2 are needed"),
        ("0.2 0.8", "0.2 -0.8", "line 11: -0.8 is not a probability"),
        ("0.2 0.8", "0.2 1e999", "line 11: inf is not a probability"),
        ("0.2 0.8", "0.2 nan", "line 11: 'nan' is not a number"),
        ("0.2 0.8", "0.2,0.8", "line 11: '0.2,0.8' is not a number"),
        ("<TABLE>0.5 0.5</TABLE>", "", "line 12: <PROBABILITY> has 0 elements <TABLE>; 1 is needed"),
        ("<DEFINITION><FOR>rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>", "", "line 5: variable 'rain' has no table"),
        ("</NETWORK>", "", "line 13: not well-formed XML: mismatched tag"),
    ],
)
def test_errors_are_one_line_with_the_line_number(old, new, message):
    assert old in EXAMPLE
    assert error_of(EXAMPLE.replace(old, new, 1)).startswith(message)


@pytest.mark.parametrize(
    "declaration",
    ['<!ENTITY a "b">', '<!ENTITY a SYSTEM "/etc/passwd">', '<!ENTITY % a "b">', '<!ENTITY % a SYSTEM "x">'],
)
def test_entities_are_refused(declaration):
    text = network(RAIN + TABLES, DOCTYPE.replace("]>", declaration + "]>"))
    assert "entities" in error_of(text)


def test_other_xml_is_refused():
    assert error_of("<FIB></FIB>") == "line 1: expected <BIF>, not <FIB>"


@pytest.mark.parametrize("kind", ["decision", "utility"])
def test_influence_diagrams_are_refused_by_name(kind):
    with pytest.raises(Unavailable, match=f"line 5: variable 'rain': the type '{kind}' is not available"):
        formats.parse(EXAMPLE.replace("nature", kind).encode())
