"""Reading .wcsp files: their meaning, and one-line errors."""

import bz2
import csv
import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmcmc
from dmcmc.config.configuration import problem_of, read_config
from dmcmc.formats import registry as formats
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import DmcmcError, FileError, Unavailable

# Two variables of 2 and 3 values. x0 = 0 costs 4; (1, 2) is forbidden, (0, 1) costs 1, other pairs cost 7. Constant 5.
EXAMPLE = """\
example 2 3 3 100
2 3
1 0 0 1
0 4
2 0 1 7 2
0 1 1
1 2 100
0 5 0
"""


def write(folder: Path, text: str | bytes, name: str = "p.wcsp") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(folder: Path, text: str | bytes, kind: type[DmcmcError] = FileError, name: str = "p.wcsp") -> str:
    path = write(folder, text, name)
    with pytest.raises(kind) as caught:
        formats.load(path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def costs(problem, factor):
    """Return a factor's costs, with infinity for forbidden ones."""
    table = problem.factors[factor].table
    return np.where(forbidden(table), np.inf, -table.astype(float)).tolist()


def test_a_file_is_a_cost_problem_of_one_agent(tmp_path):
    problem = formats.load(write(tmp_path, EXAMPLE))
    assert (problem.name, problem.sense, problem.agents) == ("example", "min", ("all",))
    assert problem.variables == ("x0", "x1")
    assert problem.domains.tolist() == [2, 3]
    assert problem.owner.tolist() == [0, 0]
    assert [f.scope for f in problem.factors] == [(0,), (0, 1), ()]
    assert problem.evaluate([0, 1]) == (4 + 1 + 5, 0)
    assert problem.evaluate([1, 0]) == (0 + 7 + 5, 0)
    assert problem.evaluate([1, 2]).violation == 1


def test_omitted_tuples_have_the_default_cost(tmp_path):
    problem = formats.load(write(tmp_path, EXAMPLE))
    assert costs(problem, 0) == [4, 0]
    assert costs(problem, 1) == [[7, 1, 7], [7, 7, np.inf]]
    assert costs(problem, 2) == 5


@pytest.mark.parametrize(
    ("top", "table"),
    [(8, [7, 3, 1]), (7, [np.inf, 3, 1]), (3, [np.inf, np.inf, 1]), (0, [np.inf] * 3), (10**30, [7, 3, 1])],
)
def test_a_cost_of_top_or_more_is_forbidden(tmp_path, top, table):
    assert costs(formats.load(write(tmp_path, f"p 1 3 1 {top} 3  1 0 7 2  1 3  2 1")), 0) == table


def test_the_axes_follow_the_order_of_the_scope(tmp_path):
    problem = formats.load(write(tmp_path, "p 2 3 1 9  2 3  2 1 0  0 2  2 0 5  0 1 6"))
    assert problem.factors[0].scope == (1, 0)
    assert costs(problem, 0) == [[0, 6], [0, 0], [5, 0]]


@pytest.mark.parametrize(
    ("text", "table"),
    [("0 5 0", 5), ("0 9 0", np.inf), ("0 5 1 3", 3), ("0 5 2 3 9", np.inf), ("1 0 -3 0", [-3, -3])],
)
def test_constants_and_negative_costs(tmp_path, text, table):
    assert costs(formats.load(write(tmp_path, f"p 1 2 1 9 2 {text}")), 0) == table


def test_layout_does_not_matter(tmp_path):
    plain = formats.load(write(tmp_path, EXAMPLE))
    other = formats.load(write(tmp_path, "\n " + EXAMPLE.replace("\n", "\r\n\t").replace(" ", "\n")))
    assert [f.table.tolist() for f in other.factors] == [f.table.tolist() for f in plain.factors]


def test_an_empty_problem(tmp_path):
    problem = formats.load(write(tmp_path, "nothing 0 0 0 1"))
    assert (problem.n_variables, problem.factors) == (0, ())


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_compressed_files(tmp_path, suffix, pack):
    packed = pack(EXAMPLE.encode())
    name = f"p.wcsp.{suffix}"
    assert formats.load(write(tmp_path, packed, name)).evaluate([0, 1]) == (10, 0)
    assert error_of(tmp_path, packed[:-12], name=name).startswith("cannot be read: ")
    assert formats.load(write(tmp_path, EXAMPLE, name)).evaluate([0, 1]) == (10, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected 'name variables largest-domain constraints top', but the file is empty"),
        (" \n\n", "line 1: expected 'name variables largest-domain constraints top', but the file is empty"),
        ("p 1 2", "line 1: expected 'name variables"),
        ("p 1 2 -1 9\n2", "line 1: expected 'name variables"),
        ("p 1 2 1 9.5\n2", "line 1: expected 'name variables"),
        (b"\x7fELF\x00\x01\xff\xfe" * 50, "line 1: expected 'name variables"),
        (EXAMPLE.encode()[:30] + b"\x00\xff\n", "line 4: '\\x00\\xff' is not a whole number"),
        ("p 3 2 0 9\n2 2\n", "line 2: domain sizes: 3 numbers are expected, 2 are left"),
        ("p 999999999999999999 2 0 9\n2 2", "line 2: domain sizes: 999999999999999999 numbers are expected"),
        ("p 1 2 999999999999999999 9\n2\n0 5 0\n", "line 3: 999999999999999999 constraints are declared, but the"),
        ("p 1 2 2 9\n2\n0 5 0\n", "line 3: constraint 1: 1 numbers are expected, 0 are left"),
        ("p 2 2 0 9\n2\n-3", "line 3: variable 1: has -3 values; at least 1 is needed"),
        ("p 1 2 0 9\n0", "line 2: variable 0: has 0 values; at least 1 is needed"),
        ("p 1 2 1 9\n2\n999999999999 0", "line 3: constraint 0: scope: 999999999999 numbers are expected, 1 are left"),
        ("p 1 2 1 9\n2\n1 0", "line 3: constraint 0: default cost: 1 numbers are expected, 0 are left"),
        ("p 1 2 1 9\n2\n1 0 0", "line 3: constraint 0: number of tuples: 1 numbers are expected, 0 are left"),
        ("p 1 2 1 9\n2\n1 0 0 99999999999999\n0 1", "line 4: constraint 0: tuples: 199999999999998 numbers"),
        ("p 1 2 1 9\n2\n1 1 0 0", "line 3: constraint 0: variable 1 does not exist; there are 0 to 0"),
        ("p 1 2 1 9\n2\n1 -1 0 0", "line 3: constraint 0: variable -1 does not exist; there are 0 to 0"),
        ("p 2 2 1 9\n2 2\n2 1 1 0 0", "line 3: constraint 0: variable 1 occurs twice in its scope"),
        ("p 1 2 1 9\n2\n1 0 0 2\n0 1\n2 1", "line 5: constraint 0: a value outside its domain"),
        ("p 1 2 1 9\n2\n1 0 0 1\n-1 1", "line 4: constraint 0: a value outside its domain"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 x1", "line 4: 'x1' is not a whole number"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 1.5", "line 4: '1.5' is not a whole number"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 1-5", "line 4: '1-5' is not a whole number"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 1_5", "line 4: '1_5' is not a whole number"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 " + "9" * 5000, f"line 4: '{'9' * 40}': more than 63 bits; scale the costs down"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 9223372036854775808", "line 4: '9223372036854775808': more than 63 bits"),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 -9223372036854775807", "line 4: constraint 0: a cost below -2^62"),
        ("p 1 2 1 9\n2\n1 0 -9223372036854775807 0", "line 3: constraint 0: a cost below -2^62"),
        ("p 1 5000 1 9\n5000\n1 0 -9223372036854775807 0", "line 3: constraint 0: a cost below -2^62"),
        ("p 1 5000 1 9\n5000\n1 0 0 1\n5000 0", "line 3: constraint 0: tuple 0 has a value outside its domain"),
        ("p 1 2 1 9\n2\n0 5 0\n7 7", "line 4: 2 numbers follow the last of 1 constraints; check the header"),
        ("p 1 2 1 9\n2\n-1 0 1", "line 3: constraint 0: number of tuples: 1 numbers are expected, 0 are left"),
        ("p 1 2 1 9\n2\n1 0 0 -2", "line 3: constraint 0: refers to shared function 2; 0 are defined before"),
        ("p 2 3 2 9\n2 3\n-1 0 0 0\n1 1 0 -1", "line 4: constraint 1: domains (3,), but shared function 1 has (2,)"),
        ("p 1 2 1 9\n2\n1 0 -1 salldiff far 1", "line 3: constraint 0: salldiff: metric: expected var or dec or decbi"),
        ("p 1 2 1 9\n2\n1 0 -1 salldiff", "line 3: constraint 0: salldiff: metric: expected var or dec or decbi"),
        ("p 1 2 1 9\n2\n1 0 -1 salldiff var x", "line 3: 'x' is not a whole number"),
        ("p 1 2 1 9\n2\n1 0 -1 clique 1 -1", "line 3: constraint 0: clique: values: -1 entries"),
        ("p 1 2 1 9\n2\n1 0 -1 < 1 1", "line 3: constraint 0: <: compares 2 variables, not 1"),
        ("p 1 2 1 9\n2\n0 -1 salldiff var 1", "line 3: constraint 0: salldiff: its scope is empty"),
        ("p 1 2 1 9\n2\n1 0 -1 sgcc dec 1 2 0 0 1 0 0 1", "line 3: constraint 0: sgcc: value 0 has bounds twice"),
        ("p 1 2 1 9\n2\n1 0 -1 sgcc var 1 2 0 0 1 0 0 1", "line 3: constraint 0: sgcc: a value has bounds twice"),
        ("p 1 2 1 9\n2\n1 0 -1 wregular 1 1 1 0 0 0", "line 3: constraint 0: wregular: state 1 does not exist"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_the_line_number(tmp_path, text, message):
    assert message in error_of(tmp_path, text)


def test_the_memory_of_all_tables_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr("dmcmc.formats.wcsp.memory_limit", lambda: 32 * 2500)
    one = "1 0 0 0\n"
    assert len(formats.load(write(tmp_path, "p 1 1 2 9\n1000\n" + 2 * one)).factors) == 2
    message = error_of(tmp_path, "p 1 1 9 9\n1000\n" + 9 * one)
    assert message == "line 5: constraint 2: a table of 1000 entries; tables may take 78.1 KiB in all"


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_files_that_decompress_beyond_the_memory_are_refused(tmp_path, monkeypatch, suffix, pack):
    monkeypatch.setattr("dmcmc.files.text.memory_limit", lambda: 1 << 20)
    bomb = pack(b"p 1 1 1 9 " + bytes(1 << 24))
    assert len(bomb) < 1 << 15
    assert "has more than 128 KiB of text" in error_of(tmp_path, bomb, name=f"p.wcsp.{suffix}")


def test_declared_sizes_take_no_memory(tmp_path):
    problem = formats.load(write(tmp_path, "p 2 1 2 9\n9000000000000000000 2\n1 0 5 0\n2 0 1 0 1\n7 1 3"))
    assert problem.evaluate([7, 1]) == (8, 0)
    assert problem.evaluate([8999999999999999999, 1]) == (5, 0)
    problem = formats.load(
        write(
            tmp_path, "p 99 2 1 9\n" + "2 " * 99 + "\n99 " + " ".join(map(str, range(99))) + " 9 1 " + "1 " * 99 + "4"
        )
    )
    assert (problem.evaluate([1] * 99), problem.evaluate([0] * 99)) == ((4, 0), (0, 1))


def test_shared_functions(tmp_path):
    text = "p 4 2 4 9\n2 2 2 3\n-2 0 1 3 1\n0 1 9\n2 2 1 0 -1\n-1 3 0 1\n2 5\n1 3 0 -2"
    problem = formats.load(write(tmp_path, text))
    assert [f.scope for f in problem.factors] == [(0, 1), (2, 1), (3,), (3,)]
    assert costs(problem, 0) == costs(problem, 1) == [[3, np.inf], [3, 3]]
    assert costs(problem, 2) == costs(problem, 3) == [0, 0, 5]


def test_unknown_global_functions_are_refused_by_name(tmp_path):
    message = error_of(tmp_path, "p 1 2 1 9\n2\n1 0 -1 smst", Unavailable)
    assert message == "line 3: constraint 0: global cost function 'smst' is not available in this version"


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileError, match=r"no\.wcsp: no such file"):
        formats.load(tmp_path / "no.wcsp")
    (tmp_path / "d.wcsp").mkdir()
    with pytest.raises(FileError, match=r"d\.wcsp: is a folder"):
        formats.load(tmp_path / "d.wcsp")


@given(st.data())
@settings(max_examples=400)
def test_a_damaged_file_gives_a_problem_or_a_dmcmc_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damage")
    suffix, pack = data.draw(
        st.sampled_from([("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
    )
    raw = bytearray(pack(EXAMPLE.encode()))
    for _ in range(data.draw(st.integers(1, 4))):
        i = data.draw(st.integers(0, len(raw) - 1))
        byte = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(list(b"0123456789 -\n"))))
        match data.draw(st.sampled_from(["change", "insert", "cut"])):
            case "change":
                raw[i] = byte
            case "insert":
                raw.insert(i, byte)
            case "cut" if len(raw) > 1:
                del raw[i : i + data.draw(st.integers(1, 8))]
                raw = raw or bytearray(b"0")
    path = write(folder, bytes(raw), f"p.wcsp{suffix}")
    try:
        problem = formats.load(path)
    except DmcmcError as error:
        assert "\n" not in str(error) and str(error).startswith(str(path))
    else:
        problem.evaluate([0] * problem.n_variables)


def test_a_configuration_names_a_file(tmp_path):
    write(tmp_path, gzip.compress(EXAMPLE.encode()), "p.wcsp.gz")
    (tmp_path / "run.yaml").write_text("seed: 3\nproblem: {file: p.wcsp.gz}\n")
    config, document = read_config(tmp_path / "run.yaml")
    result = dmcmc.solve(problem_of(config.problem, document), config)
    assert (result.status, result.objective, result.assignment) == ("optimal", 10, {"x0": 0, "x1": 1})
    write(tmp_path, b"p 1", "p.wcsp.gz")
    with pytest.raises(FileError, match=r"run\.yaml:2: problem\.file: .*p\.wcsp\.gz: line 1: expected"):
        problem_of(config.problem, document)


SMALL = [("generated", "r10.wcsp"), ("generated", "g5.wcsp"), ("spot5", "54.wcsp")]


@pytest.mark.skipif("DMCMC_INSTANCES" not in os.environ, reason="DMCMC_INSTANCES names no folder of instances")
@pytest.mark.parametrize(("family", "name"), SMALL)
def test_known_optima_of_real_instances(family, name):
    root = Path(os.environ["DMCMC_INSTANCES"])
    folder = root / "generated" if family == "generated" else root / "instances"
    with open(folder / "MANIFEST.csv", newline="") as stream:
        row = next(r for r in csv.DictReader(stream) if r["file"] == name and r.get("family", family) == family)
    path = folder / name if family == "generated" else folder / family / name
    result = dmcmc.solve(dmcmc.load(path), method="exact")
    assert (result.status, result.objective) == ("optimal", int(row["optimum"]))
