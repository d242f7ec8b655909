"""Finished tables on disk: a run that was ended goes on from them, and what does not fit is made again."""

import json
import warnings

import pytest
from support.problem_strategies import random_problem
from support.ranks import start

import dmcmc
from dmcmc.formats import native
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError
from dmcmc.run.agent.checkpoint import Checkpoint

FIXED = {
    "exact": {"method": "exact"},
    "sampled": {"method": "gibbs", "runs": 2, "samples": 9},
    "listed": {"method": "gibbs", "runs": 2, "samples": 9, "rows": 2},
}


def problem():
    return random_problem(4, 14, 4, 3, 20, 2, 99, 0.0)


def answer(found):
    return found.status, found.objective, found.bound, found.assignment, [(a.method, a.exact) for a in found.agents]


@pytest.fixture
def found(monkeypatch):
    """What each look at a checkpoint has come to."""
    seen, find = [], Checkpoint.find

    def noted(self, *arguments):
        seen.append(find(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(Checkpoint, "find", noted)
    return seen


@pytest.mark.parametrize("local", FIXED.values(), ids=FIXED.keys())
def test_a_run_that_goes_on_has_the_answer_of_an_undisturbed_one(tmp_path, found, local):
    alone = dmcmc.solve(problem(), local=local, seed=5)
    first = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == [f"agent-{a}.npz" for a in range(4)] and not any(found)
    (tmp_path / "agent-2.npz").unlink()  # as if the run had been ended before it
    found.clear()
    again = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    assert answer(alone) == answer(first) == answer(again)
    assert sum(table is not None for table in found) == 3 and (tmp_path / "agent-2.npz").exists()


def test_what_is_damaged_or_of_something_else_is_named_and_made_again(tmp_path):
    local = FIXED["sampled"]
    first = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    whole = (tmp_path / "agent-1.npz").read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    (tmp_path / "agent-0.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "agent-1.npz").write_bytes(changed)
    (tmp_path / "agent-2.npz").write_bytes(whole)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        again = dmcmc.solve(problem(), local=local, seed=5, checkpoint=tmp_path)
    lines = [str(one.message) for one in told if one.category is CheckpointWarning]
    assert [("is damaged;" in line, f"agent-{a}.npz" in line) for a, line in enumerate(lines)] == [
        (True, True), (True, True), (False, True),
    ]  # fmt: skip
    assert answer(first) == answer(again)
    with pytest.warns(CheckpointWarning, match=r"agent-3\.npz: is of another problem or configuration"):
        dmcmc.solve(problem(), local=local, seed=6, checkpoint=tmp_path)


def test_a_checkpoint_that_cannot_be_written_is_one_line():
    with pytest.raises(FileError, match="cannot be written"):
        dmcmc.solve(problem(), local=FIXED["exact"], checkpoint="/proc/kept")


def test_the_command_line_keeps_tables(tmp_path):
    native.save(problem(), tmp_path / "p.npz")
    command = ("-m", "dmcmc", "solve", str(tmp_path / "p.npz"), "--json", "--checkpoint", str(tmp_path / "kept"))
    first = start(0, *command)
    (tmp_path / "kept" / "agent-0.npz").write_bytes(b"")
    again = start(0, *command)
    assert json.loads(first.stdout)["objective"] == json.loads(again.stdout)["objective"]
    assert [line for line in again.stderr.splitlines() if line.startswith("dmcmc: warning: ")] != []
