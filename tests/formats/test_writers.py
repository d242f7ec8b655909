"""Writers: a written file describes the same problem, or nothing is written."""

import multiprocessing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import problems, random_problem

from dmcmc import Factor, Problem
from dmcmc.formats import native
from dmcmc.formats import registry as formats
from dmcmc.formats.common.factor_entries import DROPPABLE, drop_features
from dmcmc.inference.model.sparse_factor import SparseFactor, tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError

SENSE = {"wcsp": "min", "uai": "max"}
TEXT = ["wcsp", "cfn", "uai", "xcsp", "pydcop"]


def text_of(problem, format):
    return "".join(formats.format_named(format).functions.write(problem))


def read_back(problem, format):
    return formats.parse(text_of(problem, format).encode(), format)


def assert_same(left, right, exact=True):
    """Assert equal names, labels and owners, and equal objectives of every assignment."""
    assert (left.variables, left.sense) == (right.variables, right.sense)
    assert left.domains.tolist() == right.domains.tolist()
    assert left.owner.tolist() == right.owner.tolist()
    assert left.n_agents == 1 or left.agents == right.agents
    for values in product(*map(range, left.domains.tolist())):
        first, second = left.evaluate(np.array(values, dtype=int)), right.evaluate(np.array(values, dtype=int))
        assert left.assignment(values) == right.assignment(values)
        assert bool(first.violation) == bool(second.violation)
        if not first.violation:
            assert first.objective == (
                second.objective if exact else pytest.approx(second.objective, rel=1e-12, abs=1e-9)
            )


@pytest.mark.parametrize("format", TEXT)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(problem=problems(), drop=st.sets(st.sampled_from(sorted(DROPPABLE))))
def test_any_problem_is_written_completely_or_refused(format, problem, drop):
    problem = drop_features(problem, drop - {"digits"}, SENSE.get(format))
    try:
        text = text_of(problem, format)
    except DmcmcError as error:
        assert "\n" not in str(error)
        return
    assert_same(problem, formats.parse(text.encode(), format), exact=format not in ("uai", "cfn"))


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format", TEXT)
def test_integer_problems_survive_a_round_trip(format, seed, sense):
    problem = random_problem(seed, variables=5, domain=3, sense=sense)
    problem = drop_features(problem, {"agents", "sense"} if format in ("wcsp", "uai", "cfn") else (), SENSE.get(format))
    if not problem.n_variables:
        pytest.skip("no variables")
    if format == "wcsp":  # costs must not be negative
        problem = Problem(**vars_of(problem) | {"factors": tuple(shifted(f) for f in problem.factors)})
    assert_same(problem, read_back(problem, format), exact=format != "uai")


def vars_of(problem):
    return {name: getattr(problem, name) for name in ("variables", "domains", "agents", "owner", "sense", "name")}


def shifted(factor):
    """Return a factor without positive utilities."""
    finite = naive.utilities(factor.table)
    return Factor.of(factor.scope, np.array(finite - 20, dtype=float))


@pytest.mark.parametrize("format", ["xcsp", "pydcop"])
def test_agents_without_variables_are_kept(format):
    problem = Problem(("x",), [2], ("a", "b", "c"), [1], (Factor.of((0,), [1, 2]),))
    assert read_back(problem, format).agents == ("a", "b", "c")


@pytest.mark.parametrize("labels", [(2**63,), (2**63, 2**63 + 1), (-1, 0, 1), (3, 1), (1, 2.0), (0.1, 1e300)])
def test_numeric_labels_survive_a_round_trip(labels):
    problem = Problem(("x",), [len(labels)], ("a",), [0], (), labels=(labels,))
    for format in ("xcsp", "pydcop"):
        assert [repr(x) for x in read_back(problem, format).labels[0]] == [repr(x) for x in labels]


@pytest.mark.parametrize("format", ["wcsp", "uai", "cfn"])
def test_unsupported_features_are_refused_with_the_remedy(format, tmp_path):
    problem = Problem(("x", "y"), [2, 2], ("a", "b"), [0, 1], (Factor.of((0, 1), [[1, 2], [3, 4]]),))
    with pytest.raises(FileError, match=f"p.{format}: {format}: the format has no agents.*--drop agents"):
        formats.save(problem, tmp_path / f"p.{format}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["wcsp", "uai"])
@pytest.mark.parametrize(
    ("change", "word"), [({"labels": (("on", "off"),)}, "labels"), ({"variables": ("y",)}, "names"), ({}, "sense")]
)
def test_labels_names_and_sense_can_be_dropped(format, change, word):
    plain = {"variables": ("x0",), "domains": [2], "agents": ("a",), "owner": [0], "factors": ()}
    problem = Problem(**plain | change, sense="min" if format == "uai" else "max")
    with pytest.raises(DmcmcError, match=f"--drop {word}"):
        text_of(drop_features(problem, {"sense"} - {word}, SENSE[format]), format)
    text_of(drop_features(problem, {"sense", word}, SENSE[format]), format)


@pytest.mark.parametrize(
    ("format", "utilities", "reason"),
    [
        ("wcsp", [1, 0], "cost -1; whole numbers from 0"),
        ("wcsp", [-0.5, 0], "cost 0.5; whole numbers from 0"),
        ("wcsp", [-(2**62), 0], "the sum must be below 2\\^62"),
        ("cfn", [0.1 + 2**-50, 2.0**62], "more than 62 bits"),
        ("uai", [0, 800], "only utilities from -700 to 700 can be written"),
        ("uai", [0, -800], "only utilities from -700 to 700 can be written"),
    ],
)
def test_numbers_that_a_format_cannot_express_are_refused(format, utilities, reason):
    sense = SENSE.get(format, "max")
    problem = Problem(("x0",), [2], ("a",), [0], (Factor.of((0,), utilities),), sense=sense)
    with pytest.raises(DmcmcError, match=reason):
        text_of(problem, format)


def test_digits_can_be_dropped():
    factors = (Factor.of((0,), [1 / 3, -float("inf")]), tabulate((0, 1), (2, 10**6), [[1, 2]], [2 / 3], 1.0))
    problem = Problem(("x", "y"), [2, 10**6], ("a",), [0, 0], factors)
    rounded = drop_features(problem, {"digits"})
    assert rounded.evaluate([0, 0]).objective == 1.333333
    assert rounded.evaluate([1, 2]) == (0.666667, 1)


@pytest.mark.parametrize(
    ("format", "labels"),
    [("xcsp", ("a", "b")), ("cfn", (1.5, 2)), ("cfn", ('"', "b")), ("pydcop", ("a b", "c")), ("pydcop", (1, "1"))],
)
def test_labels_that_a_format_cannot_express_are_refused(format, labels):
    problem = Problem(("x",), [2], ("a",), [0], (), labels=(labels,))
    with pytest.raises(DmcmcError, match="--drop labels"):
        text_of(problem, format)


@pytest.mark.parametrize("format", ["wcsp", "cfn", "xcsp", "pydcop", "native"])
def test_a_sparse_factor_stays_sparse(format, tmp_path):
    n = 30
    sparse = tabulate(tuple(range(n)), (3,) * n, [[0] * n, [1, 2] * (n // 2)], [-5, -1], -7)
    problem = Problem(tuple(f"x{i}" for i in range(n)), [3] * n, ("all",), [0] * n, (sparse,), sense="min")
    path = tmp_path / f"p.{formats.format_named(format).suffixes[0]}"
    formats.save(problem, path, format)
    again = formats.load(path)
    assert isinstance(again.factors[0], SparseFactor)
    assert path.stat().st_size < 10_000
    for values, cost in (([0] * n, 5), ([1, 2] * (n // 2), 1), ([2] * n, 7)):
        assert again.evaluate(values).objective == cost


def test_a_damaged_sparse_factor_is_refused(tmp_path):
    sparse = tabulate((0, 1), (10**5, 10**5), [[1, 2], [3, 4]], [5, 6], 0)
    problem = Problem(("x", "y"), [10**5, 10**5], ("a",), [0, 0], (sparse,))
    native.save(problem, tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as file:
        arrays = dict(file)
    for name, value, reason in (
        ("tuples", [1, 2, 3, 10**5], "outside its domain"),
        ("tuples", [3, 4, 1, 2], "lexicographic"),
        ("tuples", [1, 2, 1, 2], "lexicographic"),
        ("tuples", [1, 2, 3], "has 3 entries; the scopes need 4"),
        ("kind", [6], "must hold 0..5"),
    ):
        np.savez(tmp_path / "q.npz", **arrays | {name: np.array(value, dtype=arrays[name].dtype)})
        with pytest.raises(FileError, match=reason):
            native.load(tmp_path / "q.npz")


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".bz2"])
def test_files_are_compressed_according_to_their_suffix(packing, tmp_path):
    problem = drop_features(random_problem(3, variables=4), {"agents"})
    formats.save(problem, tmp_path / f"p.yaml{packing}")
    assert_same(problem, formats.load(tmp_path / f"p.yaml{packing}"))


def optimum(path, send):
    """Solve a file with toulbar2 in a separate process, because toulbar2 keeps settings between problems."""
    import pytoulbar2

    network = pytoulbar2.CFN()
    network.Option.cfn, network.Option.uai = path.endswith(".cfn"), int(path.endswith(".uai"))
    try:
        network.Read(path)
        found = network.Solve()
    except Exception:  # toulbar2's exception Contradiction is not exported
        found = None
    if found is None:
        send.put(None)
    elif path.endswith(".uai"):
        send.put(network.Option.markov_log - found[1] / network.Option.NormFactor)
    else:
        send.put(found[1])


def best(problem):
    """Return the best objective over all assignments; None if all are forbidden."""
    found = [problem.evaluate(list(v)) for v in product(*map(range, problem.domains.tolist()))]
    allowed = [e.objective for e in found if not e.violation]
    return (max if problem.sense == "max" else min)(allowed, default=None)


@pytest.mark.parametrize("format", ["wcsp", "cfn", "uai"])
@pytest.mark.parametrize("seed", range(8))
def test_toulbar2_finds_the_same_optimum(format, seed, tmp_path):
    pytest.importorskip("pytoulbar2")
    sense = SENSE.get(format, ("min", "max")[seed % 2])
    problem = drop_features(
        random_problem(seed + 50, variables=5, domain=3, factors=6, hard=0.2, sense=sense), {"agents"}
    )
    if not problem.n_variables:
        pytest.skip("no variables")
    if format == "wcsp":
        problem = Problem(**vars_of(problem) | {"factors": tuple(shifted(f) for f in problem.factors)})
    if format == "cfn":  # costs with decimals
        quarters = [np.array(naive.utilities(f.table) / 4, dtype=float) for f in problem.factors]
        factors = [Factor.of(f.scope, t) for f, t in zip(problem.factors, quarters, strict=True)]
        problem = Problem(**vars_of(problem) | {"factors": tuple(factors)})
    path = Path(tmp_path / f"p.{format}")
    formats.save(problem, path)
    processes = multiprocessing.get_context("fork")
    receive = processes.SimpleQueue()
    worker = processes.Process(target=optimum, args=(str(path), receive))
    worker.start()
    found = receive.get()
    worker.join()
    expected = best(problem)
    assert (found is None) == (expected is None)
    assert found is None or found == pytest.approx(expected, abs=1e-3)


def test_names_that_look_like_numbers_survive_a_round_trip_through_pydcop():
    names = ("0E0", "1e5", "12", "1.5", "no", "~")
    problem = Problem(names, np.full(6, 2), ("3e4",), np.zeros(6, dtype=int), (Factor.of((0, 1), [[0, 1], [2, 3]]),))
    read = formats.parse(text_of(problem, "pydcop").encode(), "pydcop")
    assert (read.variables, read.agents) == (names, ("3e4",))
