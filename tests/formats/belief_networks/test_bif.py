"""Reading BIF networks: rows by the parents' values, in any order; a probability p becomes the utility ln p."""

import math
from functools import partial

import numpy as np
import pytest
from support.dcop_examples import refusal

from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import FileError

HEAD = """network "rain model" {
  property author: someone; // the author
}
variable rain {
  type discrete [ 2 ] { yes, no };
}
variable wet { /* the
grass */ type discrete [ 3 ] { "a b", 1.5, <=2 };
  property "position = (1, 2)";
}
"""
RAIN = "probability ( rain ) { table 0.25, 0.75; }\n"
EXAMPLE = (
    HEAD
    + RAIN
    + """probability ( wet | rain ) {
  (no) 0.5, 0.5, 0;
  (yes) 1e-1, .9, 0.0;
}
"""
)


error_of = partial(refusal, format="bif")


def test_names_labels_and_probabilities():
    problem = formats.parse(EXAMPLE.encode())
    assert (problem.name, problem.sense, problem.agents) == ("rain model", "max", ("all",))
    assert problem.variables == ("rain", "wet")
    assert problem.labels == (("yes", "no"), ("a b", "1.5", "<=2"))
    assert [(f.name, f.scope) for f in problem.factors] == [("rain", (0,)), ("wet", (0, 1))]
    assert problem.evaluate({"rain": "yes", "wet": "1.5"}).objective == pytest.approx(math.log(0.25 * 0.9))
    assert problem.evaluate({"rain": "no", "wet": "a b"}).objective == pytest.approx(math.log(0.75 * 0.5))
    assert problem.evaluate({"rain": "no", "wet": "<=2"}).violation == 1


def test_a_complete_table_lists_the_child_first():
    text = HEAD + RAIN + "probability ( wet | rain ) { table .1, .2, .3, .4, .6, .4; }"
    _, factor = formats.parse(text.encode()).factors
    assert np.allclose(np.exp(factor.table), [[0.1, 0.3, 0.6], [0.2, 0.4, 0.4]])


@pytest.mark.parametrize("between", [" ", ", ", " | "])
def test_names_after_the_first_are_parents(between):
    """JavaBayes writes no bar."""
    expected = formats.parse((HEAD + RAIN + "probability ( wet | rain ) { table .1, .2, .3, .4, .6, .4; }").encode())
    text = f'probability ( "wet"{between}"rain" ) {{ //2 variables\n table .1 .2 .3 .4 .6 .4 ;\n}}'
    child = formats.parse((HEAD + RAIN + text).encode()).factors[1]
    assert child.scope == (0, 1) and (child.table == expected.factors[1].table).all()


@pytest.mark.parametrize("encoding", ["gbk", "latin-1"])
def test_a_name_that_is_not_utf_8_is_refused(encoding):
    """Otherwise different names could become equal, since one character stands for all bytes that cannot be decoded."""
    name = "Gr\u00fc\u00df" if encoding == "latin-1" else "\u5929\u6c14"
    text = EXAMPLE.replace("rain", "x").encode().replace(b"yes", name.encode(encoding))
    with pytest.raises(FileError, match=r"line 5: is not UTF-8 text"):
        formats.parse(text)


def test_a_default_fills_the_missing_rows():
    text = HEAD + RAIN + "probability ( wet | rain ) { (no) 1, 0, 0; default .2, .3, .5; }"
    _, factor = formats.parse(text.encode()).factors
    assert np.allclose(np.exp(factor.table), [[0.2, 0.3, 0.5], [1, 0, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected a variable, but the file ends"),
        ("node a {}", "line 1: expected network, variable or probability, got 'node'"),
        ("network n {", "line 1: expected 'property', but the file ends"),
        ("network n { property", "line 1: expected ';', but the file ends"),
        ('network "n', "line 1: unexpected '\"'"),
        ("variable a {\n}", "line 2: variable 'a': expected its type"),
        ("variable a { type continuous", "line 1: expected 'discrete', got 'continuous'"),
        ("variable a { type discrete [2] { x } }", "line 1: variable 'a': 2 values are declared, 1 are named"),
        ("variable a { type discrete [0] { } }", "line 1: variable 'a': 0 values are declared, 0 are named"),
        ("variable a { type discrete [two] { x } }", "line 1: variable 'a': 'two' is not a number of values"),
        ("variable a { type discrete [2] { x y, z, w } }", "line 1: variable 'a': 2 values are declared, 3 are named"),
        ("variable a { type discrete [2] { x, x }; }", "line 1: variable 'a': value 'x' occurs twice"),
        (HEAD + "variable wet", "line 11: variable 'wet' is declared twice"),
        (HEAD + "probability ( sun )", "line 11: variable 'sun' is not declared"),
        (HEAD + "probability ( wet | wet ) {", "line 11: a variable occurs twice in this table"),
        (HEAD + "probability ( rain ) {\ntable 1; }", "line 12: 1 numbers; 2 are needed"),
        (HEAD + "probability ( rain ) { table 1, 2, 3; }", "line 11: more than 2 numbers"),
        (HEAD + "probability ( rain ) { table 1, -2; }", "line 11: expected a probability or ';', got '-2'"),
        (HEAD + "probability ( rain ) { table 1, nan; }", "line 11: expected a probability or ';', got 'nan'"),
        (HEAD + "probability ( rain ) { table 1, 1e999; }", "line 11: '1e999' is too large"),
        (HEAD + "probability ( rain ) { rows 1; }", "line 11: expected table, default or a row"),
        (HEAD + "probability ( wet | rain ) { (no) 1, 0, 0; }", "line 11: 1 of 2 rows; the one of values [0] is"),
        (HEAD + "probability ( wet | rain ) { (maybe) 1, 0, 0; }", "line 11: 'maybe' is not a value of variable"),
        (HEAD + "probability ( wet | rain ) { (no, no) 1, 0, 0; }", "line 11: 2 values for 1 parents"),
        (HEAD + "probability ( wet | rain ) { (no) 1, 0, 0; (no) 1,0,0; }", "line 11: the row of (no) occurs twice"),
        (HEAD + "probability ( rain ) { table 1, 0; default 1, 0; }", "line 11: a table and rows; give one of the two"),
        (HEAD + RAIN, "line 7: variable 'wet' has no table of probabilities"),
        (HEAD + RAIN + RAIN, "line 12: variable 'rain' has two tables of probabilities"),
        (
            HEAD + "probability ( rain | wet ) { default 1, 0; } probability ( wet | rain ) { default 1, 0, 0; }",
            "line 4: variables depend on each other in a cycle: rain -> wet -> rain",
        ),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_the_line_number(text, message):
    assert error_of(text).startswith(message)


BLANKS = """network my weather { }
variable wind { type discrete [ 3 ] { north east, "north  west", calm }; }
variable sail { type discrete [ 2 ] { yes no }; }
probability ( wind ) { table +0.2 | 0.3 | 0.5; }
probability ( sail | wind ) { (north   east) 0.9, 0.1; (calm) 0.1, 0.9; ("north  west") 0.6 0.4; }
"""


def test_names_with_blanks_are_separated_by_commas():
    problem = formats.parse(BLANKS.encode())
    assert problem.name == "my weather"
    assert problem.labels == (("north east", "north  west", "calm"), ("yes", "no"))
    assert problem.evaluate({"wind": "north east", "sail": "no"}).objective == pytest.approx(math.log(0.2 * 0.1))
    assert problem.evaluate({"wind": "calm", "sail": "yes"}).objective == pytest.approx(math.log(0.5 * 0.1))


def test_quoted_punctuation_is_a_label():
    text = 'variable a { type discrete [3] { "}", ",", ";" }; property "; } {"; } probability ( a ) { table .2 .3 .5; }'
    assert formats.parse(text.encode(), "bif").labels == (("}", ",", ";"),)


def test_a_byte_order_mark_is_skipped():
    assert formats.parse(b"\xef\xbb\xbf" + EXAMPLE.encode()).variables == ("rain", "wet")


CAUSES = "".join(f"variable {name} {{ type discrete [3] {{ none, some, much }}; }}\n" for name in ("a", "b", "x"))
CAUSES += "probability ( a ) { table .5 .3 .2; }\nprobability ( b ) { table .6 .1 .3; }\n"
EFFECTS = {
    (0, 0): (0.7, 0.2, 0.1),
    (1, 0): (0.4, 0.4, 0.2),
    (2, 0): (0.1, 0.2, 0.7),
    (0, 1): (0.5, 0.5, 0),
    (0, 2): (0, 0, 1),
}


def block_of(rows, head="property function max ;"):
    labels = ("none", "some", "much")
    text = "".join(f"({labels[i]}, {labels[j]}) {', '.join(map(str, row))};\n" for (i, j), row in rows.items())
    return f"{CAUSES}probability ( x | a, b ) {{ {head}\n{text}}}"


@pytest.mark.parametrize("head", ["property function max ;", "property noisy-max;", "property function = noisy-max ;"])
def test_a_noisy_max_is_the_largest_effect_of_all_causes(head):
    table = np.exp(formats.parse(block_of(EFFECTS, head).encode(), "bif").factors[2].table)
    for i in range(3):
        for j in range(3):
            effects = [EFFECTS[0, 0]] + [EFFECTS[i, 0]] * (i > 0) + [EFFECTS[0, j]] * (j > 0)
            expected = np.zeros(3)
            for outcome in np.ndindex(*[3] * len(effects)):
                expected[max(outcome)] += math.prod(e[x] for e, x in zip(effects, outcome, strict=True))
            assert table[i, j] == pytest.approx(expected, abs=1e-15)


def test_a_complete_table_is_read_as_it_is_whatever_its_function():
    rows = {(i, j): (0.25, 0.25, 0.5) for i in range(3) for j in range(3)} | EFFECTS
    with_function, without = (
        formats.parse(block_of(rows, head).encode(), "bif") for head in ("property function max ;", "")
    )
    assert with_function == without


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({(1, 1): (1, 0, 0)}, "the row of values [1, 1], which has several causes"),
        ({(0, 2): None}, "a noisy-max needs the row of values [0, 2]"),
        ({(0, 0): None}, "a noisy-max needs the row of values [0, 0]"),
    ],
)
def test_a_noisy_max_needs_the_rows_with_at_most_one_cause(change, reason):
    rows = {key: row for key, row in (EFFECTS | change).items() if row is not None}
    assert reason in error_of(block_of(rows))


def test_a_default_does_not_make_a_huge_table():
    variables = "".join(f"variable v{i} {{ type discrete [2] {{ a, b }}; }}\n" for i in range(40))
    parents = ", ".join(f"v{i}" for i in range(1, 40))
    message = error_of(f"{variables}probability ( v0 | {parents} ) {{ default 1, 0; }}")
    assert message == "line 41: a table of 549755813888 rows, of which 0 are given"


def load_with_evidence(folder, text, name="n.bif.evid", **given):
    (folder / "n.bif").write_text(EXAMPLE)
    (folder / name).write_text(text)
    return formats.load(folder / "n.bif", **given)


@pytest.mark.parametrize(
    "evidence", ["# seen\n\n wet = <=2\n", '"wet"="<=2"', "// seen\nwet= <=2", "1 1 2", "1\n1 1 2\n"]
)
def test_observed_variables_keep_the_observed_value(tmp_path, evidence):
    problem = load_with_evidence(tmp_path, evidence)
    assert problem.domains.tolist() == [2, 1] and problem.labels == (("yes", "no"), ("<=2",))
    unconditioned = formats.parse(EXAMPLE.encode())
    for rain in ("yes", "no"):
        assignment = {"rain": rain, "wet": "<=2"}
        assert problem.evaluate(assignment) == unconditioned.evaluate(assignment)


def test_observations_are_found_next_to_the_file_or_given(tmp_path):
    assert load_with_evidence(tmp_path, "rain = no", "n.evid").labels[0] == ("no",)
    assert load_with_evidence(tmp_path, "rain = yes", "other", evidence=tmp_path / "other").labels[0] == ("yes",)
    assert load_with_evidence(tmp_path, "", "other", evidence=tmp_path / "other").labels[0] == ("yes", "no")


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("\nrain", "line 2: expected 'variable = label', got 'rain'"),
        ("rain = no\nsnow = yes", "line 2: variable 'snow' does not exist"),
        ("# a\nrain = maybe", "line 2: variable 'rain': 'maybe' is none of its values yes, no"),
        ("rain = no\nrain = no\nrain = yes", "line 3: variable 'rain' is observed twice, as 'no' and 'yes'"),
        ("1 0 2", "line 1: variable 0: value 2 is not in 0..1"),
        ("2\n0 0\n7 1", "line 3: variable 7 does not exist; there are 0 to 1"),
    ],
)
def test_errors_in_observations_name_file_and_line(tmp_path, evidence, message):
    with pytest.raises(FileError) as caught:
        load_with_evidence(tmp_path, evidence)
    assert str(caught.value) == f"{tmp_path}/n.bif.evid: {message}"
