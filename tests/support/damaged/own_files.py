"""Files that dmcmc itself writes, and damaged copies: reading one gives an answer, a warning or one error line."""

import contextlib
import hashlib
import io
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import dmcmc
from dmcmc.experiments import run_experiment as running
from dmcmc.experiments.job import carry_out
from dmcmc.experiments.plan import read_experiment
from dmcmc.formats import agent_files
from dmcmc.inference.runtime.errors import CheckpointWarning, DmcmcError
from dmcmc.report.experiment.report import contents_of
from dmcmc.report.experiment.single_run import page_of
from dmcmc.report.experiment.statistics import findings_of
from dmcmc.results.stored_result import read_result
from dmcmc.solving.agent import checkpoint
from dmcmc.solving.agent.checkpoint import Checkpoint
from dmcmc.solving.incumbent import SavedIncumbent
from support.damaged.formats import mutate
from support.problem_strategies import random_problem

KINDS = ("checkpoint", "incumbent", "index", "journal", "plan", "result")
ODD_NUMBERS = (-7, -1, 0, 1, 3, 99, 2**31, 2**40, -(2**40), 2**62, -(2**63))
ODD_VALUES = (
    *ODD_NUMBERS,
    *(10**30, -(10**400), 1e301, -1e-320, 0.5, True, None, "", "x", "=1+1", "<b>|\n", "\ud800"),
    *([], [None], [[1]], {}, {"x": 1}, {"": None}, {"case": 3}),
)
EXPERIMENT = """
title: Small & quick
base: {problem: {generator: random-network, nodes: 6, tightness: 0.0, domain_size: 3}}
grid: {problem.nodes: [6, 8]}
seeds: 2
methods: {mgm: {algorithm: mgm}, dpop: {algorithm: dpop}}
report: {compare: bound, note: Of a test.}
paper: [{case: {problem.nodes: 6}, method: mgm, time: 12, objective: 100}]
"""


class OwnFile(NamedTuple):
    """A file that dmcmc has written.

    Attributes
    ----------
    kind : str
        One of ``KINDS``.
    path : Path
        The file.
    whole : bytes
        Its undamaged content.
    load : callable
        Reads the file and uses everything that it holds, as a command would.
    """

    kind: str
    path: Path
    whole: bytes
    load: Callable[[], Any]


def own_file(kind: str, folder: Path) -> OwnFile:
    """Write a file of one kind into an empty folder."""
    path, load = _WRITERS[kind](folder)
    return OwnFile(kind, path, path.read_bytes(), load)


def outcome(file: OwnFile) -> str:
    """Return how reading a file ends: ``read``, ``recovered`` (with one warning) or ``refused`` (with one line)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            file.load()
        except DmcmcError as error:
            assert "\n" not in str(error) and str(error), repr(error)
            return "refused"
    assert {one.category for one in caught} <= {CheckpointWarning} and len(caught) <= 1, caught
    return "recovered" if caught else "read"


def damaged(file: OwnFile, rng: random.Random) -> bytes:
    """Return a damaged copy of a file: changed bytes, or odd values in a file that is otherwise well-formed."""
    if rng.random() < 0.5:
        return mutate(rng, [file.whole])
    if file.kind in ("checkpoint", "incumbent"):
        return _odd_arrays(file.whole, rng)
    text = b"\n" if file.kind == "journal" else b""
    lines = file.whole.splitlines() if text else [file.whole]
    number = rng.randrange(len(lines))
    lines[number] = json.dumps(_odd_json(json.loads(lines[number]), rng)).encode()
    return text.join(lines) + text


def _odd_json(data: Any, rng: random.Random) -> Any:
    """Return JSON data in which up to three values are replaced, removed or renamed, at places of any depth."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = [place for place in _places(data) if place[1:]]
        if not places:
            return data
        container, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0 and isinstance(container, dict):
            container[f"{key}x"] = container.pop(key)
        elif kind == 1:
            del container[key]
        elif kind == 2 and places:
            other, other_key = rng.choice(places)
            container[key] = json.loads(json.dumps(other[other_key]))
        else:
            container[key] = rng.choice(ODD_VALUES)
    return data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all containers of JSON data with their keys."""
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in list(keys):
        yield data, key
        yield from _places(data[key])


def _odd_arrays(whole: bytes, rng: random.Random) -> bytes:
    """Return an archive with changed arrays and, mostly, digests that are right again."""
    with np.load(io.BytesIO(whole)) as file:
        arrays = dict(file)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(arrays))
        array, kind = arrays[name].copy(), rng.randrange(5)
        if kind == 0 and array.size:
            array.reshape(-1)[rng.randrange(array.size)] = _fitting(array.dtype, rng)
        elif kind == 1:
            array = array.reshape(-1)[rng.randrange(-2, 2) :]
        elif kind == 2:
            array = array.astype(rng.choice(("i1", "i4", "i8", "f8", "U5", ">i8", "?")))
        elif kind == 3:
            array = np.full_like(array, _fitting(array.dtype, rng))
        else:
            array = arrays[rng.choice(sorted(arrays))]
        arrays[name] = array
    if rng.random() < 0.9:
        values = arrays.get("values")
        digest = checkpoint._digest(arrays) if values is None else hashlib.sha256(values.tobytes()).digest()
        arrays["digest"] = np.frombuffer(digest, dtype=np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _fitting(dtype: np.dtype, rng: random.Random) -> Any:
    """Return an odd number that an array of the dtype can hold."""
    if dtype.kind == "f":
        return rng.choice((*map(float, ODD_NUMBERS), float("nan"), float("inf"), 1e300))
    if dtype.kind not in "iu":
        return dtype.type()
    limits = np.iinfo(dtype)
    return rng.choice([n for n in ODD_NUMBERS if limits.min <= n <= limits.max])


def stored_table(folder: Path) -> tuple[Path, Callable[[], Any]]:
    """Write the checkpoint of an agent with a sampled table; return the file, and the function that loads it."""
    saved = []
    save = Checkpoint.save

    def recorded(self, bound, local, table):
        saved.append((self, local, table.method, bound))
        save(self, bound, local, table)

    local = {"method": "gibbs", "runs": 2, "samples": 9}
    with mock.patch.object(Checkpoint, "save", recorded):
        dmcmc.solve(random_problem(4, 14, 4, 3, 20, 2, 99, 0.0), local=local, seed=5, checkpoint=folder)
    file, agent, method, bound = max(saved, key=lambda found: len(found[1].interface))
    return folder / f"agent-{agent.agent}.npz", lambda: file.load(agent, method, bound)


def _checkpoint(folder: Path) -> tuple[Path, Callable[[], Any]]:
    path, load = stored_table(folder)

    def load_and_use() -> None:
        table = load()
        if table is not None:
            for scope, values in (*table.lower, *(table.upper or ())):
                assert values.ndim == len(scope) and not np.isnan(values).any()

    return path, load_and_use


def _incumbent(folder: Path) -> tuple[Path, Callable[[], Any]]:
    problem = random_problem(4, 14, 4, 3, 20, 2, 99, 0.0)
    saved = SavedIncumbent(str(folder), problem)
    saved.save(np.zeros(problem.n_variables, dtype=np.int64))

    def load_and_use() -> None:
        values = saved.load()
        if values is not None:
            problem.appraise(values)

    return saved.path, load_and_use


def _index(folder: Path) -> tuple[Path, Callable[[], Any]]:
    agent_files.write(random_problem(4, 14, 4, 3, 20, 2, 99, 0.0), folder, 1 << 30)

    def load_and_use() -> None:
        index = agent_files.read_index(folder)
        index.constant_factors()
        for agent in range(len(index.agents)):
            agent_files.read_agent(folder, index, agent)

    return folder / agent_files.INDEX, load_and_use


def experiment_folder(folder: Path, text: str = EXPERIMENT) -> Path:
    """Carry out an experiment in this process and return its folder."""

    def in_this_process(jobs, workers, limits, done):
        for place, job in enumerate(jobs):
            done(place, carry_out(job))

    (folder / "e.yaml").write_text(text)
    with mock.patch.object(running, "carry_out_all", in_this_process):
        running.run_experiment(*read_experiment(folder / "e.yaml"), folder / "out", report=lambda line: None)
    return folder / "out"


def _experiment(name: str) -> Callable[[Path], tuple[Path, Callable[[], Any]]]:
    def write(folder: Path) -> tuple[Path, Callable[[], Any]]:
        out = experiment_folder(folder)
        experiment, runs = read_experiment(folder / "e.yaml")

        def load_and_use() -> None:
            running._opened(experiment, runs, out, True) if name.endswith("l") else None
            contents_of(findings_of(out))

        return out / name, load_and_use

    return write


def _result(folder: Path) -> tuple[Path, Callable[[], Any]]:
    problem = {"agents": 4, "variables_per_agent": 4, "domain_size": 5}
    text = f"problem: {json.dumps({'generator': 'meeting-scheduling', **problem})}\nbudget: {{time: 1}}\n"
    (folder / "run.yaml").write_text(text)
    from dmcmc.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["run", str(folder / "run.yaml"), "--output", str(folder / "r.json"), "--quiet"]) == 0
    return folder / "r.json", lambda: page_of(read_result(folder / "r.json"), "r")


_WRITERS: dict[str, Callable[[Path], tuple[Path, Callable[[], Any]]]] = {
    "checkpoint": _checkpoint,
    "incumbent": _incumbent,
    "index": _index,
    "journal": _experiment("runs.jsonl"),
    "plan": _experiment("experiment.json"),
    "result": _result,
}
