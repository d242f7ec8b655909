"""The native file: reading inverts writing, and every damaged file gives a one-line error."""

import io
import json
import os
import random
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.problem_strategies import INFINITY, equal_problems, problems

from dmcmc import Factor, Problem
from dmcmc.formats import native
from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import DmcmcError, FileError


def example():
    """Return a problem that uses every feature."""
    return Problem(
        variables=("x", "y", "z"),
        domains=[2, 3, 1],
        agents=("a", "idle", "b"),
        owner=[0, 2, 2],
        factors=(
            Factor.of((), 5),
            Factor.of((1,), [1, -INFINITY, 3], name="unary"),
            Factor.of((0, 1), [[2**40, 0, 1], [2, 3, -INFINITY]]),
            Factor.of((1, 0), [[0.5, 1], [2, 3], [-INFINITY, 5]]),
            Factor.of((2, 0, 1), np.arange(6).reshape(1, 2, 3), name="ternär"),
        ),
        labels=((1, 1.5), ("Mon 09:00", 2, "2"), None),
        name="everything",
    )


def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.npz"
    native.save(example(), path)
    return path


@pytest.fixture
def edges_file(tmp_path):
    path = tmp_path / "pairs.npz"
    parts = {
        "agent": np.array([0, 0, 1]),
        "dom": np.array([2, 3, 2]),
        "edges": np.array([[0, 1], [1, 2]]),
        "tables": np.arange(12, dtype=np.int32),
        "meta": np.array(json.dumps({"name": "small"})),
    }
    np.savez_compressed(path, **parts)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(problems())
def test_loading_is_the_inverse_of_saving(tmp_path, p):
    native.save(p, tmp_path / "p.npz")
    assert equal_problems(native.load(tmp_path / "p.npz"), p)


def test_all_features_are_preserved(file):
    p = native.load(file)
    assert equal_problems(p, example())
    assert [f.table.dtype.name for f in p.factors] == ["int32", "int32", "int64", "float64", "int32"]


def test_equal_problems_give_equal_bytes(file, tmp_path):
    native.save(native.load(file), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()


def test_numpy_alone_can_read_it(file):
    assert arrays(file)["domains"].tolist() == [2, 3, 1]


def test_a_binary_benchmark_file_is_read(edges_file):
    p = native.load(edges_file)
    assert (p.name, p.agents, p.owner.tolist()) == ("small", ("a0", "a1"), [0, 0, 1])
    assert [f.scope for f in p.factors] == [(0, 1), (1, 2)]
    assert p.factors[1].table.tolist() == [[6, 7], [8, 9], [10, 11]]


def test_one_wide_table_leaves_the_others_narrow(edges_file):
    np.savez(edges_file, **(arrays(edges_file) | {"tables": np.array([0.5] * 6 + [1.0] * 6)}))
    assert [f.table.dtype.name for f in native.load(edges_file).factors] == ["float64", "int32"]


def assert_refused(path, *words):
    with pytest.raises(DmcmcError) as caught:
        native.load(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("domains", [2, -3, 1], ["'domains'", "-3"]),
        ("domains", [2, 3], ["'domains'", "2 entries for 3 variables"]),
        ("domains", [2.0, 3.0, 1.0], ["'domains'", "float64", "int64"]),
        ("domains", [[2, 3, 1]], ["'domains'", "shape (1, 3)"]),
        ("domains", [2, 2, 1], ["'tables_int32'", "entries", "need"]),
        ("domains", [2**62, 2**62, 2**62], ["'tables_int32'", "need"]),
        ("owner", [0, 9, 0], ["'y'", "agent 9"]),
        ("owner", [0], ["owners"]),
        ("scopes", [1, 0, 1, 1, 0, 2, 0, 8], ["'scopes'", "0..2"]),
        ("scopes", [1, 0, 0, 1, 0, 2, 0, 1], ["tables_int64"]),
        ("scope_start", [0, 0, 1, 3, 5, 9], ["'scope_start'"]),
        ("scope_start", [0, 3, 1, 3, 5, 8], ["'scope_start'"]),
        ("kind", np.array([0, 0, 1, 2, 7], dtype=np.uint8), ["'kind'", "7"]),
        ("kind", np.array([0, 0, 1, 2], dtype=np.uint8), ["'scope_start'"]),
        ("tables_int32", np.zeros(3, dtype=np.int32), ["'tables_int32'", "3 entries"]),
        ("tables_int64", np.zeros(6, dtype=object), ["'tables_int64'", "objects"]),
        ("tables_int64", np.zeros(6, dtype=[("a", "i8")]), ["'tables_int64'", "plain"]),
        ("tables_float64", np.full(6, np.nan), ["'tables_float64'", "NaN"]),
        ("tables_float64", np.full(6, np.inf), ["'tables_float64'", "inf"]),
        ("text", np.frombuffer(b"{", dtype=np.uint8), ["'text'"]),
        ("text", np.frombuffer(b"[" * 100_000, dtype=np.uint8), ["'text'"]),
        ("text", np.frombuffer(b"\xff", dtype=np.uint8), ["'text'"]),
    ],
)
def test_errors_name_the_array_that_does_not_fit(file, name, value, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(file, **(arrays(file) | {name: np.asarray(value)}))
    assert_refused(file, *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variables": ["x", "y", 3]}, ["'text'", "variables"]),
        ({"variables": ["x", "y", "x"]}, ["'x'", "twice"]),
        ({"labels": [[1, 2], [True, 1, 2], None]}, ["'text'", "labels"]),
        ({"labels": [[1, 2], [1, 2], None]}, ["'y'", "labels"]),
        ({"sense": "best"}, ["'text'", "sense"]),
        ({"version": 99}, ["'text'", "version"]),
        ({"more\n": 1}, ["'text'", "more"]),
        ({"factors": ["f"]}, ["'text'", "1 of 5 factors"]),
    ],
)
def test_errors_in_the_header_name_the_field(file, change, words):
    parts = arrays(file)
    text = json.loads(parts["text"].tobytes()) | change
    np.savez(file, **(parts | {"text": np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)}))
    assert_refused(file, *words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("agent", [0, 0, -1], ["'agent'", "-1"]),
        ("agent", [0, 0, 10**15], ["'agent'", "0..2"]),
        ("agent", [0, 0], ["'agent'", "2 entries"]),
        ("dom", [2, -3, 2], ["'dom'", "-3"]),
        ("edges", [[0, 1], [1, 3]], ["'edges'", "0..2"]),
        ("edges", [[0, 1, 2]], ["'edges'", "(m, 2)"]),
        ("edges", [[0, 1], [1, 1]], ["'tables'", "need 15"]),
        ("tables", np.arange(11), ["'tables'", "11 entries", "need 12"]),
        ("tables", np.full(12, np.nan), ["'tables'", "NaN"]),
        ("tables", np.array(["x"] * 12), ["'tables'", "<U1"]),
    ],
)
def test_a_benchmark_file_that_does_not_fit_names_the_array(edges_file, name, value, words):
    np.savez(edges_file, **(arrays(edges_file) | {name: np.asarray(value)}))
    assert_refused(edges_file, *words)


@pytest.mark.parametrize("name", ["agent", "dom", "edges", "tables"])
def test_a_missing_array_is_named(edges_file, name):
    parts = arrays(edges_file)
    del parts[name]
    np.savez(edges_file, **parts)
    assert_refused(edges_file, f"'{name}'", "missing")


def replace_member(path, name, member, compression=zipfile.ZIP_DEFLATED):
    """Replace one member of an archive by raw bytes."""
    with zipfile.ZipFile(path) as old:
        parts = {n: old.read(n) for n in old.namelist()}
    with zipfile.ZipFile(path, "w", compression) as new:
        for other, content in (parts | {name: member}).items():
            new.writestr(other, content)


def header(shape, descr="<i8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (header((10**17,)) + b"12345678", ["'domains'", "claims"]),
        (header((10**18, 10**18)), ["'domains'"]),
        (header((3,)) + b"\0" * 23, ["'domains'", "claims"]),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 200, ["'domains'"]),
        (b"not an array", ["'domains'"]),
        (b"", ["'domains'"]),
        (header((3,)).replace(b"(3,)", b"exit") + b"\0" * 24, ["'domains'"]),
        (header((-3, -1)) + b"\0" * 24, ["'domains'"]),
        (header((-3,)) + b"\0" * 24, ["'domains'", "claims"]),
        (header((3,), "|O") + b"\0" * 24, ["'domains'", "objects"]),
        (header((3,), [("a", "<i8")]) + b"\0" * 24, ["'domains'", "plain"]),
        (header((3,)).replace(b"'<i8'", b"{" * 5) + b"\0" * 24, ["'domains'", "plain"]),
    ],
)
def test_array_headers_are_checked_before_the_data_are_read(file, member, words):
    replace_member(file, "domains.npy", member)
    assert_refused(file, *words)


def test_a_file_that_exceeds_the_memory_is_not_decompressed(file, monkeypatch):
    monkeypatch.setattr("dmcmc.files.text.memory_limit", lambda: 1000)
    assert_refused(file, "unpacks to")


def test_other_compressions_are_not_read(file):
    replace_member(file, "more.npy", b"", zipfile.ZIP_LZMA)
    assert_refused(file, "deflated")


def test_files_that_are_not_archives_give_a_one_line_error(tmp_path, file):
    assert_refused(tmp_path / "missing.npz", "no such file")
    assert_refused(tmp_path, "folder")
    (tmp_path / "text.npz").write_text("hello")
    assert_refused(tmp_path / "text.npz", "archive")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    assert_refused(tmp_path / "empty.npz", "missing")
    for size in (0, 10, 100, file.stat().st_size // 2, file.stat().st_size - 1):
        (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:size])
        assert_refused(tmp_path / "cut.npz")


@pytest.mark.parametrize("layout", ["file", "edges_file"])
def test_damaged_bytes_raise_only_dmcmc_errors(layout, request, tmp_path):
    content = request.getfixturevalue(layout).read_bytes()
    rng, damaged = random.Random(1), tmp_path / "damaged.npz"
    errors = 0
    for _ in range(300):
        damaged_content = bytearray(content)
        for _ in range(rng.choice((1, 1, 3, 20))):
            damaged_content[rng.randrange(len(damaged_content))] = rng.choice((0, 255, rng.randrange(256)))
        damaged.write_bytes(damaged_content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zipfile warns about duplicate names
                native.load(damaged)
        except DmcmcError as error:
            assert "damaged.npz" in str(error)
            errors += 1
    assert errors > 100


def test_a_failed_write_leaves_no_partial_file(tmp_path):
    (tmp_path / "file").touch()
    for bad in (tmp_path / "file" / "p.npz", tmp_path):
        with pytest.raises(FileError, match="cannot be written"):
            native.save(example(), bad)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_save_keeps_the_existing_file(file, monkeypatch):
    before = file.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        native.save(example(), file)
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


@pytest.mark.skipif("DMCMC_INSTANCES" not in os.environ, reason="DMCMC_INSTANCES names the folder of benchmark files")
def test_benchmark_files_have_the_sizes_in_their_names():
    for path in sorted((Path(os.environ["DMCMC_INSTANCES"]) / "meetings").glob("m*_A10_*D24*.npz")):
        p, raw = native.load(path), arrays(path)
        assert p.n_agents == 10 and set(p.domains.tolist()) == {24} and p.name == path.stem
        assert np.array_equal(np.concatenate([f.table.ravel() for f in p.factors]), raw["tables"])


@pytest.mark.parametrize("name", ["p.npz", "p.wcsp.xz"])
def test_the_target_of_a_link_is_replaced(tmp_path, name):
    problem = Problem(("x0",), [2], ("all",), [0], (Factor.of((0,), [1, 2], "min"),), sense="min")
    (tmp_path / name).symlink_to("real")
    formats.save(problem, tmp_path / name)
    assert (tmp_path / name).is_symlink() and equal_problems(
        formats.load(tmp_path / name), formats.load(tmp_path / "real")
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, "real"]


def test_a_device_is_not_replaced():
    with pytest.raises(FileError, match="a device"):
        formats.save(example(), "/dev/stdout", "native")
