"""Signals at random moments: how soon a command and all its ranks are gone, and whether they leave the best so far.

    python -m benchmarks.solving.interruptions [--moments 20] [--signals INT TERM] [--caches warm cold] [--ranks 1 2]
        [--budgets none 10] [--span 20] [--seed 0] [--output FILE.txt]

Each run is a process of its own: six agents of thirty variables that nobody solves soon, started, told to end at a
random moment of the first ``--span`` seconds, and watched until it and all its ranks are gone. A cold run has an empty
folder for compiled kernels; before the warm ones of a group, a run compiles. Of several ranks ``mpirun`` is told; with
``--alone`` the last rank instead. What a run leaves is an `answer` (valid JSON with an assignment, printed and written
alike), one `line` on stderr that there is none, or neither, which is `bad`; so are tracebacks and files in part. A run
that was through before the signal counts as `before`; one that was told in the interpreter's own start, before any line
of ours has run, as `start`. FILE.txt gets the table, FILE.jsonl beside it one line a run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Columns, Report, options
from benchmarks.solving.runs import UNBOUND, launcher
from dmcmc.files.write import replace_file

PROBLEM = "{generator: random, agents: 6, variables_per_agent: 30, domain_size: 10, local_density: 0.5, seed: 0}"
LIMIT = 60.0  # seconds after a signal; then it is killed
NAP = 0.01
MARK = "DMCMC_INTERRUPTIONS"  # in the environment of all processes of a run
TABLE = Columns(
    ("cache", "<5"), ("ranks", ">5"), ("budget", ">6"), ("signal", "<6"), ("runs", ">4"), ("answer", ">6"),
    ("line", ">4"), ("before", ">6"), ("start", ">5"), ("bad", ">3"), ("median s", ">8.2f"), ("most s", ">6.2f"),
)  # fmt: skip


class Group(NamedTuple):
    """Runs that differ in the moment only; ``budget`` is in seconds, or ``none``."""

    cache: str
    ranks: int
    budget: str
    signal: str


class Process:
    """A run: its process, its folder, and how to find its ranks."""

    def __init__(self, group: Group, folder: Path, cache: Path | None) -> None:
        self.output, self.mark = folder / "result.json", f"{MARK}={folder}"
        (folder / "run.yaml").write_text(f"problem: {PROBLEM}\nlocal: {{samples: 1000000}}\n")
        launch = [launcher(), *UNBOUND, "-n", str(group.ranks)] if group.ranks > 1 else []
        command = [*launch, sys.executable, "-m", "dmcmc", "run", str(folder / "run.yaml"), "--json"]
        command += ["--output", str(self.output), *(["--timeout", group.budget] if group.budget != "none" else [])]
        environment = os.environ | {MARK: str(folder)}
        if cache is not None:
            environment |= {"XDG_CACHE_HOME": str(cache)}
        self.texts = [open(folder / name, "w+", encoding="utf-8") for name in ("out", "err")]  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=self.texts[0], stderr=self.texts[1], env=environment)

    def alive(self) -> list[int]:
        """Return what is left of it."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
            except OSError:  # it has ended, or is another user's
                pass
        return found

    def rank(self, rank: int) -> int:
        """Return the process of a rank; the launcher where there is none yet."""
        for number in self.alive():
            environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            if f"PMI_RANK={rank}".encode() in environment:
                return number
        return self.process.pid

    def end(self) -> float:
        """Wait until all are gone, or kill them; return the seconds."""
        start = time.perf_counter()
        while self.process.poll() is None or self.alive():
            if time.perf_counter() - start > LIMIT:
                for number in self.alive():
                    os.kill(number, signal.SIGKILL)
            time.sleep(NAP)
        return time.perf_counter() - start

    def said(self) -> tuple[str, str]:
        """Return what it has printed: results, and lines on stderr."""
        for text in self.texts:
            text.seek(0)
        out, err = (text.read() for text in self.texts)
        for text in self.texts:
            text.close()
        return "\n".join(line for line in out.splitlines() if not line.startswith("[mpiexec")), err


def outcome(process: Process, ended: bool) -> dict[str, Any]:
    """Return what a run has left."""
    out, err = process.said()
    code = process.process.returncode
    lines = [line for line in err.splitlines() if line.startswith("dmcmc: ")]
    found: dict[str, Any] = {"code": code, "lines": lines, "kind": "bad"}
    parts = [file.name for file in process.output.parent.iterdir() if file.name.endswith(".part")]
    if ("dmcmc/" in err and "Traceback" in err) or parts:
        return found | {"stderr": err[-2000:], "parts": parts}
    try:
        printed = json.loads(out) if out.strip() else None
        kept = json.loads(process.output.read_text()) if process.output.exists() else None
    except ValueError as error:
        return found | {"stderr": f"{error}"}
    if printed is not None and printed == kept and printed["assignment"]:
        trace = printed["trace"]
        kind = "before" if ended else "answer"
        return found | {"kind": kind, "objective": printed["objective"], "first": trace[0]["time"] if trace else None}
    said = [line for line in lines if ": compiling kernels" not in line]  # which is progress
    if printed is None and kept is None and len(said) == 1:
        return found | {"kind": "line"}
    started = not lines and out == "" and kept is None
    return found | ({"kind": "start"} if started else {"stderr": err[-2000:]})


def interrupted(group: Group, moment: float, alone: bool) -> dict[str, Any]:
    """Tell a run to end after some seconds; return what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="dmcmc-interruptions-"))
    try:
        process = Process(group, folder, folder / "cache" if group.cache == "cold" else None)
        time.sleep(moment)
        ended = process.process.poll() is not None
        if not ended:
            told = process.rank(group.ranks - 1) if alone and group.ranks > 1 else process.process.pid
            os.kill(told, getattr(signal, f"SIG{group.signal}"))
        seconds = process.end()
        return {**group._asdict(), "moment": moment, "seconds": seconds, **outcome(process, ended)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def groups(given: argparse.Namespace) -> Iterator[Group]:
    """Yield the groups that are asked for."""
    for cache in given.caches:
        for ranks in given.ranks:
            for budget in given.budgets:
                for number in given.signals:
                    yield Group(cache, ranks, budget, number)


def compile_all(group: Group) -> None:
    """Let a run come to its end, so that its kernels are compiled."""
    folder = Path(tempfile.mkdtemp(prefix="dmcmc-interruptions-"))
    try:
        Process(group._replace(budget="2"), folder, None).process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run all groups."""
    parser = options(__file__, __doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--signals", nargs="+", default=["INT", "TERM"], choices=("INT", "TERM"))
    parser.add_argument("--caches", nargs="+", default=["warm", "cold"], choices=("warm", "cold"))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--budgets", nargs="+", default=["none", "10"], help="seconds, or none")
    parser.add_argument("--span", type=float, default=20.0, help="seconds from the start that moments are drawn from")
    parser.add_argument("--alone", action="store_true", help="tell the last rank alone")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report, rows = Report(__file__, given), list[dict[str, Any]]()
    report(TABLE.head)
    warm = False
    for group in groups(given):
        if group.cache == "warm" and not warm:
            compile_all(group)
            warm = True
        draw = random.Random(f"{given.seed} {group}")
        found = [interrupted(group, draw.uniform(0, given.span), given.alone) for _ in range(given.moments)]
        rows += found
        kinds, seconds = Counter(row["kind"] for row in found), sorted(r["seconds"] for r in found)
        counts = [kinds[kind] for kind in ("answer", "line", "before", "start", "bad")]
        middle = seconds[len(seconds) // 2]
        report(TABLE.line(*group, len(found), *counts, middle, seconds[-1]))
    report.keep()
    if report.output is not None:
        replace_file(report.output.with_suffix(".jsonl"), [json.dumps(row) + "\n" for row in rows])


if __name__ == "__main__":
    main()
