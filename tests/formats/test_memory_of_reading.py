"""Decompressing and parsing stay within the memory budget, and a file that does not fit ends with one line."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

import dmcmc
from dmcmc import Problem
from dmcmc.cli.main import main
from dmcmc.formats.registry import load, parse
from dmcmc.inference.runtime.errors import FileError, ProblemError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, memory_limit, resident_memory

BUDGET = 64 << 20
COMPRESSIONS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
OBJECTS = 600_000
FILES = {
    "variables.wcsp": b"w %d 2 0 9 " % OBJECTS + b"2 " * OBJECTS,
    "constraints.wcsp": b"w 1 2 %d 9 2 " % OBJECTS + b"1 0 0 0 " * OBJECTS,
    "words.wcsp": b"w 1 1 9 1 1 " + b"a " * 4_000_000,
    "variables.uai": b"MARKOV\n%d\n" % OBJECTS + b"2 " * OBJECTS + b"\n0\n",
    "factors.uai": b"MARKOV\n1\n2\n%d\n" % OBJECTS + b"0\n" * OBJECTS + b"1 1\n" * OBJECTS,
    "elements.xml": b"<instance>" + b"<b/>" * (3 * OBJECTS) + b"</instance>",  # the smallest objects
    "values.yaml": b"name: x\nobjective: min\ndomains:\n  d: {values: [" + b"1, " * OBJECTS + b"2]}\nvariables: {}\n",
}


@pytest.fixture
def budget():
    """Open a small budget, beyond what the tests have used so far."""
    with MEMORY_ACCOUNT.open(BUDGET, resident_memory()):
        yield


@pytest.mark.parametrize("name", FILES)
def test_a_file_whose_content_exceeds_the_memory_is_refused_in_one_line(name, tmp_path, budget):
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(FILES[name], 1))
    with pytest.raises(FileError, match=r"do not fit budget.memory|exceeds the memory limit") as error:
        load(path)
    assert "\n" not in str(error.value) and str(error.value).startswith(str(path))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_text_is_decompressed_up_to_a_share_of_the_memory(suffix, tmp_path, capsys):
    path = tmp_path / f"zeros.wcsp{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b"w 1 2 0 9 2 " + b" " * BUDGET))
    assert main(["solve", str(path), "--memory", "64MiB"]) == 2
    assert capsys.readouterr().err == (
        f"dmcmc: error: {path}: has more than 8.0 MiB of text, which exceeds the memory limit\n"
    )
    assert load(path).n_variables == 1


def test_an_archive_is_read_within_the_memory(tmp_path, budget):
    def save(name, **arrays):
        np.savez_compressed(tmp_path / name, **arrays)
        return tmp_path / name

    none, pair = np.zeros((0, 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
    many = np.zeros(OBJECTS, dtype=np.int64)
    variables = save("v.npz", agent=many, dom=many + 2, edges=none, tables=many[:0])
    edges = save("e.npz", agent=pair, dom=pair + 2, edges=np.tile([[0, 1]], (OBJECTS, 1)), tables=np.repeat(many, 4))
    table = save("t.npz", agent=pair, dom=pair + 3000, edges=none + 0, tables=np.zeros(3000**2))
    for path in (variables, edges, table):
        with pytest.raises(FileError, match=r"budget.memory|at most 64 MiB") as error:
            load(path)
        assert str(error.value).startswith(str(path))


def test_a_domain_with_more_values_than_fit_the_memory_is_refused_by_name(tmp_path, budget):
    path = tmp_path / "w.wcsp"
    path.write_text("w 1 100000000000 0 1\n100000000000\n")
    with pytest.raises(FileError, match=r"w.wcsp: variable 'x0' has 100000000000 values; all variables together may"):
        load(path)
    with pytest.raises(ProblemError, match="variable 'a' has 1000000000 values"):
        dmcmc.solve(Problem(("a",), [10**9], ("p",), [0], ()))


@pytest.mark.parametrize("text", [b'{"problem":{"name":"x","mustbe":"<9"}', b"net{}\n", b"network x {}\n"])
def test_words_are_read_while_memory_is_left(text, budget, monkeypatch):
    monkeypatch.setattr("dmcmc.inference.runtime.memory.resident_memory", lambda: 1 << 50)
    with pytest.raises(FileError, match=r"the words of the text: .* do not fit budget.memory"):
        parse(text)


def test_the_budget_is_a_limit_on_the_tables_of_a_problem(budget):
    assert memory_limit() == BUDGET
