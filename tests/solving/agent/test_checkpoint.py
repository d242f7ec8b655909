"""Test that a run continues with stored tables and assignments, and ignores files that do not fit."""

import json
import random
import resource
import warnings

import numpy as np
import pytest
from support.damaged.own_files import damaged, outcome, own_file, stored_table
from support.problem_strategies import random_problem
from support.ranks import start
from support.runs import start_run

import dmcmc
from dmcmc.formats import native
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError
from dmcmc.solving.agent import checkpoint
from dmcmc.solving.agent.checkpoint import Checkpoint
from dmcmc.solving.incumbent import SavedIncumbent

FIXED = {
    "exact": {"method": "exact"},
    "sampled": {"method": "gibbs", "runs": 2, "samples": 9},
    "listed": {"method": "gibbs", "runs": 2, "samples": 9, "rows": 2},
}


def problem():
    return random_problem(4, 14, 4, 3, 20, 2, 99, 0.0)


def answer(result):
    """Return the part of a result that does not depend on the clock."""
    return (
        result.status,
        result.objective,
        result.bound,
        result.assignment,
        [(a.method, a.exact) for a in result.agents],
    )


@pytest.fixture
def found(monkeypatch):
    """Return the list of tables that checkpoints have loaded."""
    tables, find = [], Checkpoint.load

    def recorded_find(self, *arguments):
        tables.append(find(self, *arguments))
        return tables[-1]

    monkeypatch.setattr(Checkpoint, "load", recorded_find)
    return tables


@pytest.mark.parametrize("local", FIXED.values(), ids=FIXED.keys())
def test_a_continued_run_has_the_answer_of_an_uninterrupted_one(tmp_path, found, local):
    alone = dmcmc.solve(problem(), local=local, seed=5)
    first = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == [f"agent-{a}.npz" for a in range(4)] and not any(found)
    (tmp_path / "agent-2.npz").unlink()  # as if the run had been ended before it
    found.clear()
    again = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    assert answer(alone) == answer(first) == answer(again)
    assert sum(table is not None for table in found) == 3 and (tmp_path / "agent-2.npz").exists()


def test_damaged_and_foreign_files_are_reported_and_ignored(tmp_path):
    local = FIXED["sampled"]
    first = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    whole = (tmp_path / "agent-1.npz").read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    (tmp_path / "agent-0.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "agent-1.npz").write_bytes(changed)
    (tmp_path / "agent-2.npz").write_bytes(whole)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    lines = [str(one.message) for one in caught if one.category is CheckpointWarning]
    assert [("is damaged;" in line, f"agent-{a}.npz" in line) for a, line in enumerate(lines)] == [
        (True, True), (True, True), (False, True),
    ]  # fmt: skip
    assert answer(first) == answer(again)
    with pytest.warns(CheckpointWarning, match=r"agent-3\.npz: the file belongs to another problem or configuration"):
        dmcmc.solve(problem(), local=local, seed=6, checkpoint=tmp_path)


def test_a_checkpoint_that_cannot_be_written_is_a_file_error():
    with pytest.raises(FileError, match="cannot be written"):
        dmcmc.solve(problem(), local=FIXED["exact"], checkpoint="/proc/kept")


def test_the_command_line_stores_tables(tmp_path):
    native.save(problem(), tmp_path / "p.npz")
    command = ("-m", "dmcmc", "solve", str(tmp_path / "p.npz"), "--json", "--checkpoint", str(tmp_path / "kept"))
    first = start(0, *command)
    (tmp_path / "kept" / "agent-0.npz").write_bytes(b"")
    again = start(0, *command)
    assert json.loads(first.stdout)["objective"] == json.loads(again.stdout)["objective"]
    assert [line for line in again.stderr.splitlines() if line.startswith("dmcmc: warning: ")] != []


@pytest.fixture
def full_disk():
    """Limit the size of files to 100 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_a_file_error_and_leaves_no_files(tmp_path, full_disk):
    with pytest.raises(FileError, match=r"agent-\d\.npz: cannot be written: "):
        dmcmc.solve(problem(), local=FIXED["exact"], checkpoint=tmp_path / "kept")
    result = dmcmc.solve(problem(), local=FIXED["exact"])
    with pytest.raises(FileError, match=r"result\.json: cannot be written: "):
        result.write(tmp_path / "result.json")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.warns(
        CheckpointWarning, match=r"incumbent\.npz: cannot be written: .*; the best assignment is not saved"
    ):
        SavedIncumbent(str(tmp_path), problem()).save(np.zeros(problem().n_variables, dtype=np.int64))


def test_a_run_with_a_time_budget_starts_with_the_stored_assignment(tmp_path):
    run = start_run(problem(), budget={"time": 5.0}, checkpoint=str(tmp_path))
    best = dmcmc.solve(problem(), local=FIXED["exact"])
    values = np.array([best.assignment[name] for name in problem().variables], dtype=np.int64)
    saved = SavedIncumbent(str(tmp_path), run.setup.divided.problem)
    assert saved.load() is None
    saved.save(values)
    saved.save(0 * values)  # ignored: within a second of the last one
    assert np.array_equal(saved.load(), values)
    saved.flush()
    assert not saved.load().any()
    saved.save(values)
    saved.flush()
    again = start_run(problem(), budget={"time": 5.0}, checkpoint=str(tmp_path))
    assert again.incumbent.outcome.objective == best.objective and np.array_equal(again.coordinator.best, values)


def test_a_damaged_or_foreign_assignment_is_reported(tmp_path):
    saved = SavedIncumbent(str(tmp_path), problem())
    saved.save(np.ones(problem().n_variables, dtype=np.int64))
    with pytest.warns(CheckpointWarning, match="belongs to another problem"):
        assert SavedIncumbent(str(tmp_path), random_problem(5, 14, 4, 3, 20, 2, 99, 0.0)).load() is None
    whole = saved.path.read_bytes()
    saved.path.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(CheckpointWarning, match="is damaged"):
        assert saved.load() is None


def stored(path):
    """Return the arrays of an archive."""
    with np.load(path) as file:
        return dict(file)


def rewritten(path, arrays):
    """Write arrays as a checkpoint file whose digest is that of its contents."""
    arrays["digest"] = np.frombuffer(checkpoint._digest(arrays), dtype=np.uint8)
    np.savez(path, **arrays)


def test_values_outside_their_range_are_damage_also_with_a_right_digest(tmp_path):
    path, load = stored_table(tmp_path)
    whole = stored(path)
    assert load() is not None
    changes = [
        ("states", lambda a: a + 99),
        ("states", lambda a: a - 7),
        ("states", lambda a: a[1:]),
        ("states", lambda a: a.astype(np.int64)),
        ("counts", lambda a: -a),
        ("counts", lambda a: a[:3]),
        ("lower", lambda a: a + 1),
        ("lower", lambda a: a * 0 + 2**40),
        ("lower", lambda a: -a),
        ("lower_0_scope", lambda a: a * 0 + 2**40),
        ("lower_0_scope", lambda a: a * 0 - 7),
        ("lower_0", lambda a: a[:-1]),
        ("lower_0", lambda a: a.astype(np.float32)),
        ("lower_0", lambda a: a * 0 + np.iinfo(a.dtype).max),
    ]
    for name, change in changes:
        rewritten(path, whole | {name: change(whole[name])})
        with pytest.warns(CheckpointWarning, match=r"agent-\d\.npz: the file is damaged; .*computed again \("):
            assert load() is None, name
    rewritten(path, whole)
    assert load() is not None


@pytest.mark.parametrize("value", [99, 2**40, -7])
def test_a_stored_assignment_outside_the_domains_is_damaged(tmp_path, value):
    saved = SavedIncumbent(str(tmp_path), problem())
    values = np.zeros(problem().n_variables, dtype=np.int64)
    values[3] = value
    saved.save(values)
    with pytest.warns(CheckpointWarning, match="is damaged; .* must hold a value of each variable's domain"):
        assert saved.load() is None


@pytest.mark.parametrize("kind", ["checkpoint", "incumbent"])
def test_damaged_checkpoints_are_recovered_from(tmp_path, kind):
    file, rng = own_file(kind, tmp_path), random.Random(3)
    assert outcome(file) == "read"
    for _ in range(200):
        file.path.write_bytes(damaged(file, rng))
        assert outcome(file) in ("read", "recovered")


def test_after_a_change_of_one_agent_the_exact_tables_of_all_others_are_loaded(tmp_path, found):
    def team(largest):
        builder = dmcmc.Problem.build()
        for a in range(3):
            builder.variable(f"s{a}", 2, agent=f"a{a}")
            builder.variable(f"h{a}", 2, agent=f"a{a}")
            builder.factor((f"s{a}", f"h{a}"), [[1, 2], [3, largest if a == 1 else 4]])
        return builder.factor(("s0", "s1"), [[1, 0], [0, 1]]).factor(("s1", "s2"), [[1, 0], [0, 1]]).problem()

    folder = str(tmp_path)
    dmcmc.solve(team(4), checkpoint=folder, presolve="none")
    found.clear()
    with pytest.warns(CheckpointWarning, match="agent-1"):
        result = dmcmc.solve(team(900), checkpoint=folder, presolve="none")
    assert [table is not None for table in found] == [True, False, True]
    assert result.objective == dmcmc.solve(team(900)).objective
