"""Reading UAI networks: a potential p becomes the utility ln p; an observed variable keeps one value."""

import lzma
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.formats import registry as formats
from dmcmc.formats.common.tokens import scan_floats, scan_integers
from dmcmc.inference.runtime.errors import FileError

EXAMPLE = b"MARKOV\n3\n2 2 3\n3\n2 0 1\n2 1 2\n0\n4\n .5 2\n 1 0\n6\n1e-3 1 1\n 0.25 4 1\n1 7.5\n"
LOG = math.log


def error_of(text, evidence=None, tmp_path=None):
    with pytest.raises(FileError) as caught:
        if evidence is None:
            formats.parse(text.encode() if isinstance(text, str) else text, "uai")
        else:
            (tmp_path / "n.uai").write_bytes(EXAMPLE)
            (tmp_path / "n.uai.evid").write_text(evidence)
            formats.load(tmp_path / "n.uai")
    return str(caught.value).rpartition("/")[2].removeprefix("text: ")


def test_potentials_are_utilities_first_variable_slowest():
    problem = formats.parse(EXAMPLE)
    assert (problem.sense, problem.variables, problem.agents) == ("max", ("x0", "x1", "x2"), ("all",))
    assert [f.scope for f in problem.factors] == [(0, 1), (1, 2), ()]
    assert problem.evaluate([0, 1, 0]).objective == pytest.approx(LOG(2 * 0.25 * 7.5))
    assert problem.evaluate([0, 0, 0]).objective == pytest.approx(LOG(0.5 * 1e-3 * 7.5))
    assert problem.evaluate([1, 1, 0]).violation == 1


def test_tables_of_ones_and_zeros_are_integers():
    problem = formats.parse(b"BAYES 1 3 2 1 0 1 0 3 1 0 1 3 .5 1 1")
    assert [f.table.dtype for f in problem.factors] == [np.int32, np.float64]
    assert problem.factors[0].forbidden_entries() == 1


@pytest.mark.parametrize("evidence", ["2 1 1 2 2", "1\n2 1 1 2 2\n", "1 1\n1\n", "1 1 1", "2 1 1 1 1"])
def test_observed_variables_keep_the_observed_value(tmp_path, evidence):
    (tmp_path / "n.uai").write_bytes(EXAMPLE)
    plain = formats.load(tmp_path / "n.uai")
    (tmp_path / "n.uai.evid").write_text(evidence)
    problem = formats.load(tmp_path / "n.uai")
    assert problem.domains[1] == 1 and problem.labels[1] == (1,)
    x2 = 2 if problem.domains[2] == 1 else 0
    assert problem.assignment([0, 0, 0]) == {"x0": 0, "x1": 1, "x2": x2}
    assert problem.evaluate([0, 0, 0]) == plain.evaluate([0, 1, x2])
    assert problem.evaluate([1, 0, 0]).violation == 1


@pytest.mark.parametrize("evidence", ["", "0", "0\n", "1 0", "0 0"])
def test_no_observations(tmp_path, evidence):
    (tmp_path / "n.uai").write_bytes(EXAMPLE)
    (tmp_path / "n.evid").write_text(evidence)
    assert formats.load(tmp_path / "n.uai").domains.tolist() == [2, 2, 3]


@pytest.mark.parametrize("name", ["n.uai.xz.evid", "n.uai.evid", "n.evid"])
def test_evidence_is_found_next_to_a_compressed_file_or_given(tmp_path, name):
    (tmp_path / "n.uai.xz").write_bytes(lzma.compress(EXAMPLE))
    (tmp_path / name).write_text("1 0 1")
    assert formats.load(tmp_path / "n.uai.xz").labels[0] == (1,)
    (tmp_path / "other").write_text("1 0 0")
    assert formats.load(tmp_path / "n.uai.xz", evidence=tmp_path / "other").labels[0] == (0,)
    with pytest.raises(FileError, match="none: no such file"):
        formats.load(tmp_path / "n.uai.xz", evidence=tmp_path / "none")
    (tmp_path / "p.wcsp").write_text("p 0 0 0 1")
    with pytest.raises(FileError, match="takes no evidence"):
        formats.load(tmp_path / "p.wcsp", evidence=tmp_path / "other")


SAMPLES = "3\n1 1 0\n0\n2 0 1 2 2\n"  # the form of the evaluations until 2010


@pytest.mark.parametrize(
    ("text", "sample", "labels"),
    [
        (SAMPLES, 1, (None, (0,), None)),
        (SAMPLES, 2, (None, None, None)),
        (SAMPLES, 3, ((1,), None, (2,))),
        (SAMPLES.replace("\n", " "), 3, ((1,), None, (2,))),
        ("2\n0\n1 2 1\n", 2, (None, None, (1,))),  # by its lines; the numbers alone could be one sample of two
        ("2\n0 0\n1 1\n", 1, ((0,), (1,), None)),
        ("1 1 0", 1, (None, (0,), None)),
    ],
)
def test_one_of_several_samples_is_chosen(tmp_path, text, sample, labels):
    (tmp_path / "n.uai").write_bytes(EXAMPLE)
    (tmp_path / "seen").write_text(text)
    assert formats.load(tmp_path / "n.uai", evidence=f"{tmp_path}/seen:{sample}").labels == labels


def test_several_samples_need_a_choice(tmp_path):
    (tmp_path / "n.uai").write_bytes(EXAMPLE)
    (tmp_path / "n.uai.evid").write_text(SAMPLES)
    with pytest.raises(FileError, match=r"n.uai.evid: has 3 samples; choose one, from .*evid:1 to .*evid:3"):
        formats.load(tmp_path / "n.uai")
    with pytest.raises(FileError, match=r"n.uai.evid: there is no sample 4; the file has 3"):
        formats.load(tmp_path / "n.uai", evidence=tmp_path / "n.uai.evid:4")


def test_a_file_whose_name_ends_like_a_sample_is_read_whole(tmp_path):
    (tmp_path / "n.uai").write_bytes(EXAMPLE)
    (tmp_path / "seen:2").write_text("1 0 1")
    assert formats.load(tmp_path / "n.uai", evidence=tmp_path / "seen:2").labels[0] == (1,)


def test_comments_are_skipped():
    text = EXAMPLE.replace(b"2 1 2", b"2 1 2   # c").replace(b"4\n .5", b"c 17 of 18\nc\n4\n .5")
    assert formats.parse(b"c example\n" + text, "uai") == formats.parse(EXAMPLE)


TRAILER = b"0 \n3 2 0 1\n0 \n3 1 1 1\n"


def test_empty_lists_after_the_tables_are_skipped():
    assert formats.parse(EXAMPLE + TRAILER) == formats.parse(EXAMPLE)


@pytest.mark.parametrize(
    "trailer", ["1 0 1\n3 2 0 1\n0\n3 1 1 1", "0\n3 2 0 0\n0\n3 1 1 1", "0\n3 2 0 1\n0\n3 1 2 1", "4 1 2 3 4", "0"]
)
def test_lists_after_the_tables_that_say_something_are_refused(trailer):
    assert "follow the last of 3 factors" in error_of(EXAMPLE.decode() + trailer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected MARKOV or BAYES, but the file is empty"),
        ("NETWORK 1", "line 1: expected MARKOV or BAYES"),
        ("MARKOV", "line 1: expected the number of variables, but the file ends"),
        ("MARKOV 1.5 2 0", "line 1: expected the number of variables, got 1.5"),
        ("MARKOV -1 2 0", "line 1: expected the number of variables, got -1"),
        ("MARKOV\n1e12 2 0", "line 2: 1000000000000 variables are declared, but the file has fewer numbers"),
        ("MARKOV\n1\n0 0 0", "line 3: variable 0: has 0 values"),
        ("MARKOV\n1\n2\nx", "line 4: 'x' is not a number"),
        ("MARKOV\n1\n2\nnan", "line 4: 'nan' is not a number"),
        ("MARKOV\n1\n2\n1_0", "line 4: '1_0' is not a number"),
        ("MARKOV\n1\n2\n9e15 1", "line 4: 9000000000000000 factors are declared, but the file has fewer numbers"),
        ("MARKOV\n1\n2\n1\n1 1\n2 1 1", "line 5: factor 0: variable 1 does not exist; there are 0 to 0"),
        ("MARKOV\n1\n2\n1\n2 0 0\n2 1 1", "line 5: factor 0: variable 0 occurs twice in its scope"),
        ("MARKOV\n1\n2\n1\n0.5 0\n2 1 1", "line 5: factor 0: expected the number of its variables, got 0.5"),
        ("MARKOV\n1\n2\n1\n1 0\n3 1 1", "line 6: factor 0: 3 entries do not fit its variables' domains"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1", "line 6: factor 0: numbers are missing at the end of the file"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 -1", "line 6: -1 is not a potential; numbers from 0 on are needed"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 1e999", "line 6: inf is not a potential; numbers from 0 on are needed"),
        (
            "MARKOV\n1\n2\n1\n1 0\n2 1 1\n5",
            "line 7: 1 numbers follow the last of 1 factors; check the number of factors",
        ),
    ],
)
def test_errors_are_one_line_with_the_line_number(text, message):
    assert error_of(text).startswith(message)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("2 0 1", "line 1: expected 2 observations, a variable and a value each, after their number"),
        ("1 3 0", "line 1: variable 3 does not exist; there are 0 to 2"),
        ("1 0 2", "line 1: variable 0: value 2 is not in 0..1"),
        ("2 0 1 0 0", "line 1: variable 0 is observed twice, as 1 and 0"),
        ("1\nx 0", "line 2: expected whole numbers"),
    ],
)
def test_errors_in_observations_name_file_and_line(tmp_path, evidence, message):
    assert error_of(EXAMPLE, evidence, tmp_path).startswith(f"n.uai.evid: {message}")


decimals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(0, 1).map(lambda x: f"{x:.17g}"),
    st.floats(0, 1e6).map(lambda x: f"{x:.18g}"),
    st.tuples(st.integers(0, 10**19), st.integers(-340, 320)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.tuples(st.integers(0, 2**53), st.integers(0, 9999)).map(lambda p: f"{p[0]}.{p[1]:04}"),
)


@given(st.lists(decimals, min_size=1, max_size=20))
def test_decimal_numbers_are_rounded_correctly(words):
    numbers, unconverted = scan_floats(" ".join(words).encode())
    assert not len(unconverted)
    assert numbers.tolist() == [float(word) for word in words]


@given(st.lists(st.integers(-(2**66), 2**66), min_size=1, max_size=20))
def test_integers_are_exact_or_stay_unconverted(values):
    numbers, unconverted = scan_integers("\t".join(map(str, values)).encode())
    large = [i for i, x in enumerate(values) if abs(x) >= 2**63]
    assert unconverted[:, 0].tolist() == large
    assert [x for i, x in enumerate(numbers.tolist()) if i not in large] == [x for x in values if abs(x) < 2**63]


@given(st.lists(st.sampled_from(["+", "-", ".", "e5", "1e", "1e+", "1.2.3", "1-2", "0x1", "nan", "é", "--1", "7"])))
def test_words_that_are_not_numbers_are_returned_with_their_place(words):
    text = " " + "\n".join(words)
    for scan in (scan_floats, scan_integers):
        found = [text.encode()[a:b].decode() for _, a, b in scan(text.encode()).unconverted.tolist()]
        assert found == [word for word in words if word != "7"]
