"""Reading XCSP 2.1: meaning of the files, and one-line errors."""

import gzip
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support import instances
from support.dcop_examples import FRODO_MEETINGS, FRODO_MIXED

import dmcmc
from dmcmc.formats import registry as formats
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.errors import DmcmcError, FileError, Unavailable

MINIMAL = """<instance><presentation maximize="{maximize}"/>
<domains><domain name="d" {nb}>{values}</domain></domains>
<variables><variable name="x" domain="d"/><variable name="y" domain="d"/></variables>
<relations><relation name="r" arity="2" {about}>{tuples}</relation></relations>
<constraints {limits}><constraint name="c" arity="2" scope="x y" reference="r"/></constraints></instance>"""


def minimal(tuples, about='semantics="soft" defaultCost="0"', values="0..1", nb="", maximize="false", limits=""):
    return MINIMAL.format(tuples=tuples, about=about, values=values, nb=nb, maximize=maximize, limits=limits)


def read(text):
    return formats.parse(text if isinstance(text, bytes) else text.encode(), "xcsp", "p.xml")


def costs(problem, factor=0):
    """Return a factor's costs or utilities, with None for forbidden ones."""
    table = problem.factors[factor]
    utilities = [table.entry(values) for values in product(*map(range, table.shape))]
    return [None if e is None else problem.to_own_sense(e) for e in utilities]


def error_of(text, kind=FileError):
    with pytest.raises(kind) as caught:
        read(text)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("p.xml: ")
    return message.removeprefix("p.xml: ")


def best_of(problem):
    result = dmcmc.solve(problem, method="exact")
    assert result.status == "optimal"
    return result


XDISCSP = """<instance><presentation name="d" format="XDisCSP 1.0" type="DisCSP"/>
<agents nbAgents="2"><agent name="a0"/><agent name="a1"/></agents>
<domains nbDomains="1"><domain name="d" nbValues="3">0..2</domain></domains>
<variables nbVariables="2"><variable name="x" agent="a0" domain="d"/>
<variable name="y" agent="a1" domain="d"/></variables>
<relations nbRelations="2"><relation name="r" {arity} nbTuples="3" semantics="conflicts">0 0|1 1|2 2</relation>
<relation name="s" nbTuples="0" semantics="conflicts"></relation></relations>
<constraints nbConstraints="2"><constraint name="c" arity="2" scope="x y" reference="r"/>
<constraint name="e" arity="1" scope="x" reference="s"/></constraints></instance>"""


def test_a_repeated_variable_selects_the_diagonal_of_a_relation():
    text = minimal("5:0 0|7:0 1|11:1 1", about='semantics="soft" defaultCost="3"', values="0..2")
    problem = read(text.replace('scope="x y"', 'scope="y y"'))
    assert problem.factors[0].scope == (1,)
    assert costs(problem) == [5, 11, 3]
    one = text.replace('arity="2"', 'arity="3"').replace("5:0 0|7:0 1|11:1 1", "5:0 1 0|7:0 1 1|11:2 2 2")
    problem = read(one.replace('scope="x y"', 'scope="x y x"'))
    assert problem.factors[0].scope == (0, 1)
    assert costs(problem) == [3, 5, 3, 3, 3, 3, 3, 3, 11]


def test_a_repeated_variable_has_one_value_in_a_function():
    text = """<instance><domains><domain name="d">1..3</domain></domains><variables><variable name="x" domain="d"/>
    </variables><functions><function name="f"><parameters>int A int B</parameters><expression>
    <functional>add(mul(A,10),B)</functional></expression></function></functions>
    <constraints><constraint name="c" arity="2" scope="x x" reference="f"/></constraints></instance>"""
    assert costs(read(text)) == [11, 22, 33]


def test_a_missing_arity_is_that_of_the_tuples_or_of_the_constraint():
    problem = read(XDISCSP.format(arity=""))
    assert problem.agents == ("a0", "a1")
    assert costs(problem) == [None, 0, 0, 0, None, 0, 0, 0, None]
    assert costs(problem, 1) == [0, 0, 0]
    assert "the arity is 3" in error_of(XDISCSP.format(arity='arity="3"'))


def test_agents_own_their_variables():
    problem = read(FRODO_MEETINGS)
    assert (problem.name, problem.sense, problem.agents) == ("meetings", "min", ("ann", "bob"))
    assert problem.variables == ("m0ann", "m1ann", "m0bob", "m2bob")
    assert problem.owner.tolist() == [0, 0, 1, 1]
    assert problem.labels == ((1, 2, 3),) * 4
    assert [f.name for f in problem.factors] == ["m0", "ann", "bob", "t0", "t1", "t2"]


def test_a_meeting_problem_is_solved_by_its_agents():
    result = best_of(read(FRODO_MEETINGS))
    assert result.objective == 4
    assert len(result.agents) == 2
    assert result.assignment["m0ann"] == result.assignment["m0bob"]


def test_every_semantics_predicates_and_functions():
    problem = read(FRODO_MIXED)
    assert (problem.sense, problem.agents) == ("max", ("all",))
    assert problem.labels[2] == (-1, 3, 7)
    assert costs(problem, 0) == [None, 0, 0, None, None, 0, None, None, None]
    assert costs(problem, 1) == [None, 0, 0]
    assert costs(problem, 2) == [-4, -10, None, -10, -4, -10, -10, -10, 3.5]
    assert costs(problem, 3) == [0, 0, 0, 0, 0, 0, 0, None, 0]
    assert costs(problem, 4) == [z * (y % 2) if z >= y else -z for y in (1, 2, 3) for z in (-1, 3, 7)]


def test_a_cost_holds_for_the_tuples_after_it():
    problem = read(minimal("3: 0 0|0 1|infinity: 1 0 | 2.5:1 1|"))
    assert costs(problem) == [3, 3, None, 2.5]


def test_the_last_cost_of_a_repeated_tuple_counts():
    assert costs(read(minimal("3: 0 0|5: 0 0"))) == [5, 0, 0, 0]


@pytest.mark.parametrize(
    ("about", "tuples", "expected"),
    [
        ('semantics="supports"', "0 1|1 0", [None, 0, 0, None]),
        ('semantics="conflicts"', "0 1|1 0", [0, None, None, 0]),
        ('defaultCost="7"', "1: 0 1", [7, 1, 7, 7]),
        ("", "1: 0 0|0 1|1 0|1 1", [1, 1, 1, 1]),
        ('semantics="soft" defaultCost="infinity" nbTuples="0"', "", [None] * 4),
        (f'semantics="soft" defaultCost="{2**61}"', f"{2**60 + 1}: 0 0", [2**60 + 1, 2**61, 2**61, 2**61]),
    ],
)
def test_semantics_may_be_omitted_if_the_costs_determine_it(about, tuples, expected):
    assert costs(read(minimal(tuples, about))) == expected


@pytest.mark.parametrize(
    ("nb", "values", "labels"),
    [
        ('nbValues="2"', "", (1, 2)),
        ("", "0..1", None),
        ("", "0 1", None),
        ('nbValues="4"', "-1..1 7", (-1, 0, 1, 7)),
        ("", "0.5 1", (0.5, 1)),
    ],
)
def test_domains_have_values_and_ranges(nb, values, labels):
    assert read(minimal("", 'defaultCost="0"', values, nb)).labels[0] == labels


def test_minus_infinity_is_forbidden_if_utilities_are_maximised():
    problem = read(minimal("-infinity: 0 0|4: 1 1", maximize="true"))
    assert costs(problem) == [None, 0, 0, 4]
    assert "+inf" in error_of(minimal("infinity: 0 0", maximize="true"))


def test_costs_of_at_least_the_maximal_cost_are_forbidden():
    assert costs(read(minimal("9: 0 0|10: 1 1", limits='maximalCost="10"'))) == [9, 0, 0, None]


def test_the_initial_cost_applies_to_every_assignment():
    problem = read(minimal("9: 0 0", limits='initialCost="7"'))
    assert [problem.evaluate(values).objective for values in ([0, 0], [1, 1])] == [16, 7]
    assert "initialCost" in error_of(minimal("9: 0 0", limits='initialCost="infinity"'))


def test_a_large_relation_becomes_a_sparse_factor():
    scope = " ".join(f"v{i}" for i in range(40))
    variables = "".join(f'<variable name="v{i}" domain="d"/>' for i in range(40))
    text = f"""<instance><domains><domain name="d">0..9</domain></domains><variables>{variables}</variables>
    <relations><relation name="r" arity="40" defaultCost="1">0:{" ".join("5" * 40)}</relation></relations>
    <constraints><constraint name="c" scope="{scope}" reference="r"/>
    <constraint name="e" scope="{scope}" reference="r"/></constraints></instance>"""
    problem = read(text)
    assert all(isinstance(factor, SparseFactor) for factor in problem.factors)
    assert [f.name for f in problem.factors] == ["c", "e"]
    assert problem.evaluate([5] * 40).objective == 0
    assert problem.evaluate([5] * 39 + [4]).objective == 2


def test_compressed_files_are_recognised_by_content(tmp_path):
    (tmp_path / "p.dat").write_bytes(gzip.compress(FRODO_MEETINGS.encode()))
    assert formats.load(tmp_path / "p.dat").agents == ("ann", "bob")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<instance", "<problem", "line 30: not well-formed XML: mismatched tag"),
        ('scope="m0ann m0bob"', 'scope="m0ann m9"', "line 23: constraint 'm0': variable 'm9' is not defined"),
        ('arity="2" scope="m0ann m0bob"', 'arity="3" scope="m0ann m0bob"', "arity is 3, but the scope has 2"),
        ('reference="EQ"', 'reference="LT"', "its reference 'LT' is not a relation, predicate or function"),
        ('reference="EQ"', 'reference="early"', "2 variables, but relation 'early' has 1"),
        ('agent="bob"', 'agent="eve"', "line 14: variable 'm0bob': agent 'eve' is not listed in <agents>"),
        ('domain="slots" agent="bob"', 'domain="slot" agent="bob"', "domain 'slot' is not defined"),
        ('domain="slots" agent="bob"', 'domain="slots"', "variable 'm0bob': has no agent"),
        ('nbValues="3">1..3', 'nbValues="4">1..3', "nbValues is 4, but 3 values are listed"),
        ("1..3", "3..1", "3..1: the range must ascend"),
        ("1..3", "1..999999999999", "domains have at most 4,194,304 values"),
        ("1..3", "1 1 2", "a value occurs twice"),
        ("1..3", "a b c", "'a' is neither a value nor a range such as 1..5"),
        (
            "0: 1 1|2 2|3 3",
            "0: 1 1|2 2|3 4",
            "line 19: relation 'EQ': the tuple '3 4' has a value outside its variable's domain",
        ),
        ("0: 1 1|2 2|3 3", "0: 1 1|2 2", "nbTuples is 3, but 2 tuples are listed"),
        ("0: 1 1|2 2|3 3", "0: 1 1|2 2|3", "the tuple '3' has 1 values; the arity is 2"),
        ("0: 1 1|2 2|3 3", "0: 1 1|2 2| |3 3", "relation 'EQ': the tuple '' has no values"),
        ("0: 1 1|2 2|3 3", "0: |1 1|2 2|3 3", "relation 'EQ': the tuple '0:' has no values"),
        ("0: 1 1|2 2|3 3", "x: 1 1|2 2|3 3", "'x' is not a cost"),
        ("0: 1 1|2 2|3 3", "nan: 1 1|2 2|3 3", "'nan' is not a cost"),
        ("0: 1 1|2 2|3 3", "1 1|2 2|3 3", "the tuple '1 1' has no cost"),
        ("0: 1 1|2 2|3 3", f"{2**70}: 1 1|2 2|3 3", "whole numbers of more than 63 bits"),
        ('semantics="soft"', 'semantics="hard"', "semantics is soft, supports or conflicts, not 'hard'"),
        ('name="m1ann"', 'name="m0ann"', "variable 'm0ann' occurs twice"),
        ('name="bob"', 'name="ann"', "agent 'ann' occurs twice"),
    ],
)
def test_errors_name_the_line(old, new, message):
    assert message in error_of(FRODO_MEETINGS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('reference="less"', 'reference="global:diff2"', "the global constraint 'diff2' is not available"),
        ("<functional>and(", "<infix>and(", "not well-formed"),
        ('<variable name="x"', '<variable type="random" name="x"', "variable 'x': the type 'random' is not available"),
        ("<predicates", "<probabilities/><predicates", "stochastic problems"),
        ("ge(abs", "foo(abs", "predicate 'far': the expression calls foo()"),
        ("D),not", "E),not", "uses E, which is none of its parameters (A, B, D)"),
        ("int A int B int D", "int A B int D", "parameters are pairs such as 'int X0 int X1'"),
        ("<parameters>x z 1<", "<parameters>x z<", "constraint 'c3': 2 parameters; 'far' has 3"),
        ("<parameters>x z 1<", "<parameters>x w 1<", "parameter 'w' is neither a variable of its scope nor a number"),
        ("mod(B,2)", "mod(B,0)", "cannot be evaluated: integer division or modulo by zero"),
        ("mod(B,2)", "pow(9,pow(9,9))", "has a power of more than 4096 bits"),
    ],
)
def test_formulas_that_are_refused(old, new, message):
    with pytest.raises(DmcmcError) as caught:
        read(FRODO_MIXED.replace(old, new, 1))
    assert message in str(caught.value)


def test_entities_and_document_types_are_refused():
    bomb = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><instance name="&b;"/>'
    assert "document type or entities" in error_of(bomb)
    external = '<!DOCTYPE x SYSTEM "file:///etc/passwd"><instance/>'
    assert "document type or entities" in error_of(external)
    assert "undefined entity" in error_of("<instance>&a;</instance>")


def test_depth_and_encodings_are_bounded():
    assert "more than 40 levels" in error_of("<instance>" + "<a>" * 10_000)
    assert "not readable XML" in error_of('<?xml version="1.0" encoding="foo"?><instance/>')
    assert "expected <instance>, not <a>" in error_of("<a/>")
    assert "not well-formed" in error_of(b"\xff\xfe\x00")


def test_a_function_whose_table_exceeds_the_memory_is_refused():
    variables = "".join(f'<variable name="v{i}" domain="d"/>' for i in range(30))
    text = f"""<instance><domains><domain name="d">0..9</domain></domains><variables>{variables}</variables>
    <functions><function name="f"><parameters>int A</parameters><expression><functional>A</functional></expression>
    </function></functions><constraints><constraint name="c" scope="{" ".join(f"v{i}" for i in range(30))}"
    reference="f"><parameters>v0</parameters></constraint></constraints></instance>"""
    assert "a table of 1e+30 entries" in error_of(text)


@pytest.mark.parametrize("row", instances.rows({"xml"}) or [None])
def test_real_instances(row):
    if row is None:
        pytest.skip(instances.REASON)
    path = instances.path_of(row)
    problem = formats.load(path)
    assert problem.n_variables == int(row["n_vars"])
    assert problem.domains.max() == int(row["max_domain"])
    assert len(problem.factors) == int(row["n_constraints"])
    assert problem.n_agents > 1 and np.unique(problem.owner).size == problem.n_agents
    if row["optimum"] == "INFEASIBLE":
        assert dmcmc.solve(problem).status == "infeasible"
    elif row["optimum_status"] == "proved here":
        assert best_of(problem).objective == float(row["optimum"])


def test_unavailable_parts_are_named_as_such():
    text = FRODO_MIXED.replace('reference="less"', 'reference="global:cumulative"')
    assert "cumulative" in error_of(text, Unavailable)


def all_different(parameters="", scope="x y z", reference="global:allDifferent"):
    arity = len(scope.split())
    return f"""<instance><domains><domain name="d">1..3</domain><domain name="e">2 5 3</domain></domains>
    <variables><variable name="x" domain="d"/><variable name="y" domain="d"/><variable name="z" domain="e"/></variables>
    <constraints><constraint name="c" arity="{arity}" scope="{scope}" reference="{reference}">{parameters}</constraint>
    </constraints></instance>"""


@pytest.mark.parametrize(
    ("parameters", "different"),
    [
        ("", lambda x, y, z: len({x, y, z}) == 3),
        ("<parameters>[ x y z ]</parameters>", lambda x, y, z: len({x, y, z}) == 3),
        ("<parameters>[x z]</parameters>", lambda x, y, z: x != z),
        ("<parameters>[ y 2 z ]</parameters>", lambda x, y, z: len({y, 2, z}) == 3),
        ("<parameters>[ x y x ]</parameters>", lambda x, y, z: False),
        ("<parameters>[ x 7 7 ]</parameters>", lambda x, y, z: False),
        ("<parameters>[ x ]</parameters>", lambda x, y, z: True),
    ],
)
def test_all_different_forbids_equal_values(parameters, different):
    problem = read(all_different(parameters))
    for i, j, k in product(range(3), repeat=3):
        allowed = not problem.evaluate([i, j, k]).violation
        assert allowed == different(1 + i, 1 + j, (2, 5, 3)[k])


def test_all_different_of_frodo_is_read_and_solved():
    path = Path(instances.FOLDER) / "realworld" / "formats" / "all-different.xml"
    if not path.exists():
        pytest.skip(instances.REASON)
    problem = formats.load(path)
    assert problem.agents == ("a1", "a2", "a3")
    assert sorted(best_of(problem).assignment.values()) == [1, 2, 3]


def test_a_repeated_variable_cannot_differ_from_itself():
    assert dmcmc.solve(read(all_different(scope="x y x")), method="exact").status == "infeasible"
    assert dmcmc.solve(read(all_different(scope="x y")), method="exact").status == "optimal"


def test_unreadable_all_different_is_refused():
    assert "parameter 'w' is neither a variable of its scope nor a number" in error_of(
        all_different("<parameters>[ x w ]</parameters>")
    )
    many = all_different(f"<parameters>[ {' '.join(map(str, range(2000)))} ]</parameters>")
    assert "allDifferent of 2000 operands; at most 1000 are read" in error_of(many)


def xdiscsp(tuples, domain="1..3", format="XDisCSP 1.0"):
    return f"""<instance><presentation format="{format}"/><domains><domain name="d">{domain}</domain></domains>
    <variables><variable name="x" domain="d"/><variable name="y" domain="d"/></variables>
    <relations><relation name="r" arity="2" semantics="soft" defaultCost="9">{tuples}</relation>
    <relation name="s" arity="1" semantics="soft" defaultCost="0">4: 1</relation></relations>
    <constraints><constraint name="c" scope="x y" reference="r"/><constraint name="e" scope="x" reference="s"/>
    </constraints></instance>"""


def test_tuples_of_xdiscsp_may_count_from_zero():
    problem = read(xdiscsp("1: 0 0|2: 1 2|3: 2 0"))
    assert costs(problem) == [1, 9, 9, 9, 9, 2, 3, 9, 9]
    assert costs(problem, 1) == [0, 4, 0]  # all relations of the file count from 0
    assert problem.labels[0] == (1, 2, 3)
    problem = read(xdiscsp("1: 1 1|2: 2 3|3: 3 1"))
    assert costs(problem) == [1, 9, 9, 9, 9, 2, 3, 9, 9]
    assert costs(problem, 1) == [4, 0, 0]


@pytest.mark.parametrize("text", [xdiscsp("1: 0 3"), xdiscsp("1: 0 0", format="XCSP 2.1"), xdiscsp("1: 0 0", "2..4")])
def test_other_tuples_outside_the_domain_are_refused(text):
    assert "has a value outside its variable's domain" in error_of(text)
