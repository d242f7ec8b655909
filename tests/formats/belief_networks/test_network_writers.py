"""Belief networks of all formats: writers, conversion between formats, and files of other programs."""

import math
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.cli.main import main
from dmcmc.formats import registry as formats
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.runtime.errors import DmcmcError, FileError, Unavailable

FOLDER = Path(os.environ.get("DMCMC_INSTANCES", "/nonexistent"), "realworld", "formats")
WRITTEN = ["xmlbif", "hugin"]
SUFFIX = {"xmlbif": ".xmlbif", "hugin": ".net"}


def marginals(problem):
    return JunctionTree(problem, False, 1 << 26).marginals()


def text_of(problem, format):
    return "".join(formats.format_named(format).functions.write(problem)).encode()


def network(seed, labels=None, variables=5):
    """Return a random Bayesian network with impossible values; its parents precede and follow their children."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 4, variables)
    order, factors = rng.permutation(variables), []
    for position, child in enumerate(order):
        parents = rng.permutation(order[:position])[: rng.integers(0, 4)]
        table = rng.random([*domains[parents], domains[child]]) + 0.01
        table[rng.random(table.shape) < 0.2] = 0
        table[..., 0] += table.sum(axis=-1) == 0
        table /= table.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            factors.append(Factor.of([*parents, child], np.log(table), name=f"x{child}"))
    names = tuple(f"x{v}" for v in range(variables))
    return Problem(names, domains, ("all",), [0] * variables, tuple(factors), labels or (), "max", "a network")


def assert_same_network(left, right):
    assert (left.variables, left.sense, left.domains.tolist()) == (right.variables, right.sense, right.domains.tolist())
    for values in product(*map(range, left.domains.tolist())):
        first, second = left.evaluate(list(values)), right.evaluate(list(values))
        assert bool(first.violation) == bool(second.violation)
        if not first.violation:
            assert first.objective == pytest.approx(second.objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("format", WRITTEN)
@given(seed=st.integers(0, 10**6))
def test_a_network_survives_a_round_trip(format, seed):
    problem = network(seed)
    again = formats.parse(text_of(problem, format))
    assert_same_network(problem, again)
    assert again.name == "a network"
    assert again.labels == tuple(tuple(map(str, range(size))) for size in problem.domains)


@pytest.mark.parametrize("format", WRITTEN)
@pytest.mark.parametrize("labels", [("north east", "c < d & é"), ("1", "01"), ("%", "(;)")])
def test_labels_survive_a_round_trip(format, labels):
    problem = Problem(("x",), [2], ("a",), [0], (Factor.of((0,), np.log([0.25, 0.75])),), labels=(labels,))
    assert formats.parse(text_of(problem, format), format).labels == (labels,)


@pytest.mark.parametrize(
    ("format", "change", "reason"),
    [
        ("hugin", {"labels": (('"', "b"),)}, "--drop labels"),
        ("hugin", {"labels": (("a\nb", "b"),)}, "--drop labels"),
        ("hugin", {"variables": ("a b",)}, "--drop names"),
        ("xmlbif", {"labels": ((" a", "b"),)}, "--drop labels"),
        ("xmlbif", {"labels": (("a\x00", "b"),)}, "--drop labels"),
        ("xmlbif", {"labels": (("", "b"),)}, "--drop labels"),
        ("xmlbif", {"labels": ((1, "1"),)}, "--drop labels"),
        ("xmlbif", {"variables": ("a\tb",)}, "--drop names"),
        ("xmlbif", {"agents": ("a", "b")}, "--drop agents"),
        ("xmlbif", {"sense": "min"}, "--drop sense"),
        ("xmlbif", {"factors": ()}, "variable 'x' has no conditional distribution; the format holds Bayesian networks"),
        ("xmlbif", {"factors": (Factor.of((0,), [0, 1]),)}, "factor '0' is not a conditional distribution"),
        ("xmlbif", {"factors": (Factor.of((0,), [-math.inf, -math.inf]),)}, "factor '0' is not a conditional"),
        ("xmlbif", {"factors": (Factor.of((0,), [0, -math.inf]),) * 2}, "variable 'x' has two conditional"),
        ("xmlbif", {"factors": (Factor.of((0,), [0, -math.inf]), Factor.of((), 2))}, "factor '1' is not a conditional"),
    ],
)
def test_what_is_not_a_network_of_the_format_is_refused(format, change, reason):
    plain = {"variables": ("x",), "domains": [2], "agents": ("a",), "owner": [0]}
    plain |= {"factors": (Factor.of((0,), np.log([0.25, 0.75])), Factor.of((), 0))}
    assert text_of(Problem(**plain), format)
    with pytest.raises(DmcmcError) as caught:
        text_of(Problem(**plain | change), format)
    assert reason in str(caught.value)


def test_a_cycle_is_refused():
    equal = np.log([[0.5, 0.5], [0.5, 0.5]])
    factors = (Factor.of((0, 1), equal, name="b"), Factor.of((0, 1), equal, name="a"))
    problem = Problem(("a", "b"), [2, 2], ("all",), [0, 0], factors)
    with pytest.raises(DmcmcError, match="depend on each other in a cycle"):
        text_of(problem, "xmlbif")


def test_convert_writes_networks_in_both_formats(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("n.xmlbif").write_bytes(text_of(network(1), "xmlbif"))
    for source, target in (
        ("n.xmlbif", "a.net"),
        ("a.net", "b.bifxml.gz"),
        ("b.bifxml.gz", "c.uai"),
        ("c.uai", "d.net"),
    ):
        drops = ["--drop", "labels"] if target == "c.uai" else []
        assert main(["convert", source, target, *drops]) == 0
    assert_same_network(formats.load("n.xmlbif"), formats.load("d.net"))


@pytest.mark.parametrize("format", WRITTEN)
def test_observations_are_found_next_to_the_file(format, tmp_path):
    path = tmp_path / f"n{SUFFIX[format]}"
    path.write_bytes(text_of(network(4), format))
    (tmp_path / "n.evid").write_text("x3 = 0")
    assert formats.load(path).domains[3] == 1


def test_solve_prints_marginals_of_a_network(tmp_path, capfd):
    path = tmp_path / "n"  # recognised by its content
    path.write_text('net { } node a { states = ("y" "n"); } potential (a) { data = (1 3); }')
    assert main(["solve", str(path), "--task", "mar", "--json"]) == 0
    assert '"y":0.25' in capfd.readouterr().out.replace(" ", "")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs DMCMC_INSTANCES")
@pytest.mark.parametrize(
    ("name", "variable", "label", "probability"),
    [
        ("labels-with-blanks.bif", "Sail", "yes", 0.41),
        ("small.xmlbif", "wet", "yes", 0.34),
        ("small.net", "wet", "yes", 0.34),
    ],
)
def test_small_files_that_users_have(name, variable, label, probability):
    assert marginals(formats.load(FOLDER / name))[variable][label] == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "n.xdsl",
            '<?xml version="1.0"?>\n<!-- a -->\n<smile version="1.0">',
            "GeNIe's format, which is not read; export",
        ),
        ("n.xml", '<smile version="1.0">', "GeNIe's format"),
        ("n.dsl", "net n {", "GeNIe's format"),
        (
            "n.xml",
            '<instance format="XCSP3" type="COP">',
            "XCSP3, which is not read; XCSP 2.1, .wcsp and .cfn are read",
        ),
        ("n", "// ~->[DNET-1]->~\nbnet a {", "Netica's format"),
        ("n.dsc", 'belief network "a"\n', "Microsoft's format for belief networks"),
        ("n.xbn", "<!DOCTYPE ANALYSISNOTEBOOK [", "Microsoft's XML for belief networks"),
        ("n.pgmx", "\ufeff<ProbModelXML>", "OpenMarkov's format"),
    ],
)
@pytest.mark.parametrize("format", [None, "xcsp"])
def test_formats_of_other_programs_are_named(name, text, message, format, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    if format is None or text != "net n {":
        with pytest.raises(Unavailable) as caught:
            formats.load(path, format=format)
        assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["/**/" * 1000, "<!---->" * 500, "<??>" * 1000, "%\n" * 2000, "//\n/*" * 900])
def test_recognition_is_fast_for_files_of_many_comments(text):
    with pytest.raises(FileError, match=r"none of the known formats|XML"):
        formats.parse(text.encode())
