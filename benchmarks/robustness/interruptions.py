"""Send signals at random moments: how soon the command and all of its ranks end, and whether they leave the incumbent.

    python -m benchmarks.robustness.interruptions [--moments 20] [--signals INT TERM] [--caches full empty]
        [--ranks 1 2] [--budgets none 10] [--span 20] [--seed 0] [--output FILE.txt]

Each run is a separate process: six agents of thirty variables, which take long to solve. It gets a signal at a random
moment of the first ``--span`` seconds, and is observed until it and all of its ranks have ended. With an empty cache,
no kernel is compiled; before the runs with a full cache, one run compiles. With several ranks, ``mpirun`` gets the
signal, or with ``--last-rank`` only the last rank. A run leaves an ``answer`` (valid JSON with an assignment, the same
on stdout and in the file), or one ``line`` on stderr that there is none; anything else is ``bad``, and so are
tracebacks and partial files. A run that ended before the signal counts as ``before``; one that got it while the
interpreter started, before the first line of dmcmc, as ``start``. FILE.txt contains the table, FILE.jsonl one line per
run.
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
from benchmarks.solving.budget_runs import UNBOUND, launcher
from dmcmc.files.write import replace_file

PROBLEM = "{generator: random, agents: 6, variables_per_agent: 30, domain_size: 10, local_density: 0.5, seed: 0}"
KILL_SECONDS = 60.0  # seconds after a signal; then the processes are killed
POLL_SECONDS = 0.01
ENVIRONMENT_MARK = "DMCMC_INTERRUPTIONS"  # environment variable of all processes of a run
TABLE = Columns(
    ("cache", "<5"), ("ranks", ">5"), ("budget", ">6"), ("signal", "<6"), ("runs", ">4"), ("answer", ">6"),
    ("line", ">4"), ("before", ">6"), ("start", ">5"), ("bad", ">3"), ("median s", ">8.2f"), ("max s", ">6.2f"),
)  # fmt: skip


class SignalGroup(NamedTuple):
    """Settings of runs that differ in the moment of the signal only; ``budget`` is in seconds, or ``none``."""

    cache: str
    ranks: int
    budget: str
    signal: str


class InterruptedRun:
    """A run, its process, its folder, and its ranks.

    Attributes
    ----------
    output : Path
        The result file.
    mark : str
        Environment variable and value that identify the processes of the run.
    texts : list of file
        Its stdout and stderr.
    process : Popen
        The command, or the MPI launcher.
    """

    def __init__(self, group: SignalGroup, folder: Path, cache: Path | None) -> None:
        self.output, self.mark = folder / "result.json", f"{ENVIRONMENT_MARK}={folder}"
        (folder / "run.yaml").write_text(f"problem: {PROBLEM}\nlocal: {{samples: 1000000}}\n")
        launch = [launcher(), *UNBOUND, "-n", str(group.ranks)] if group.ranks > 1 else []
        command = [*launch, sys.executable, "-m", "dmcmc", "run", str(folder / "run.yaml"), "--json"]
        command += ["--output", str(self.output), *(["--timeout", group.budget] if group.budget != "none" else [])]
        environment = os.environ | {ENVIRONMENT_MARK: str(folder)}
        if cache is not None:
            environment |= {"XDG_CACHE_HOME": str(cache)}
        self.texts = [open(folder / name, "w+", encoding="utf-8") for name in ("out", "err")]  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=self.texts[0], stderr=self.texts[1], env=environment)

    def alive(self) -> list[int]:
        """Return the processes of the run that are alive."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
            except OSError:  # it has ended, or belongs to another user
                pass
        return found

    def rank(self, rank: int) -> int:
        """Return the process of a rank, or the launcher if there is none yet."""
        for number in self.alive():
            environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            if f"PMI_RANK={rank}".encode() in environment:
                return number
        return self.process.pid

    def end(self) -> float:
        """Wait until all processes have ended, or kill them; return the seconds."""
        start = time.perf_counter()
        while self.process.poll() is None or self.alive():
            if time.perf_counter() - start > KILL_SECONDS:
                for number in self.alive():
                    os.kill(number, signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - start

    def read_output(self) -> tuple[str, str]:
        """Return what it has printed on stdout and stderr."""
        for text in self.texts:
            text.seek(0)
        out, err = (text.read() for text in self.texts)
        for text in self.texts:
            text.close()
        return "\n".join(line for line in out.splitlines() if not line.startswith("[mpiexec")), err


def outcome(process: InterruptedRun, ended: bool) -> dict[str, Any]:
    """Return what a run has left."""
    out, err = process.read_output()
    code = process.process.returncode
    lines = [line for line in err.splitlines() if line.startswith("dmcmc: ")]
    found: dict[str, Any] = {"code": code, "lines": lines, "kind": "bad"}
    parts = [file.name for file in process.output.parent.iterdir() if file.name.endswith(".part")]
    if ("dmcmc/" in err and "Traceback" in err) or parts:
        return found | {"stderr": err[-2000:], "parts": parts}
    try:
        printed = json.loads(out) if out.strip() else None
        saved = json.loads(process.output.read_text()) if process.output.exists() else None
    except ValueError as error:
        return found | {"stderr": f"{error}"}
    if printed is not None and printed == saved and printed["assignment"]:
        trace = printed["trace"]
        kind = "before" if ended else "answer"
        return found | {"kind": kind, "objective": printed["objective"], "first": trace[0]["time"] if trace else None}
    messages = [line for line in lines if ": compiling kernels" not in line]  # a progress message
    if printed is None and saved is None and len(messages) == 1:
        return found | {"kind": "line"}
    started = not lines and out == "" and saved is None
    return found | ({"kind": "start"} if started else {"stderr": err[-2000:]})


def interrupt(group: SignalGroup, moment: float, last_rank: bool) -> dict[str, Any]:
    """Send a signal to a run after some seconds; return the outcome."""
    folder = Path(tempfile.mkdtemp(prefix="dmcmc-interruptions-"))
    try:
        process = InterruptedRun(group, folder, folder / "cache" if group.cache == "empty" else None)
        time.sleep(moment)
        ended = process.process.poll() is not None
        if not ended:
            target = process.rank(group.ranks - 1) if last_rank and group.ranks > 1 else process.process.pid
            os.kill(target, getattr(signal, f"SIG{group.signal}"))
        seconds = process.end()
        return {**group._asdict(), "moment": moment, "seconds": seconds, **outcome(process, ended)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def groups(given: argparse.Namespace) -> Iterator[SignalGroup]:
    """Yield the selected groups."""
    for cache in given.caches:
        for ranks in given.ranks:
            for budget in given.budgets:
                for number in given.signals:
                    yield SignalGroup(cache, ranks, budget, number)


def compile_all(group: SignalGroup) -> None:
    """Let a run end by itself, so that its kernels are compiled."""
    folder = Path(tempfile.mkdtemp(prefix="dmcmc-interruptions-"))
    try:
        InterruptedRun(group._replace(budget="2"), folder, None).process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run all groups."""
    parser = options(__file__, __doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--signals", nargs="+", default=["INT", "TERM"], choices=("INT", "TERM"))
    parser.add_argument("--caches", nargs="+", default=["full", "empty"], choices=("full", "empty"))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--budgets", nargs="+", default=["none", "10"], help="seconds, or none")
    parser.add_argument("--span", type=float, default=20.0, help="seconds from the start that moments are drawn from")
    parser.add_argument("--last-rank", action="store_true", help="send the signal to the last rank only")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report, rows = Report(__file__, given), list[dict[str, Any]]()
    report(TABLE.head)
    compiled = False
    for group in groups(given):
        if group.cache == "full" and not compiled:
            compile_all(group)
            compiled = True
        draw = random.Random(f"{given.seed} {group}")
        found = [interrupt(group, draw.uniform(0, given.span), given.last_rank) for _ in range(given.moments)]
        rows += found
        counts_by_kind, seconds = Counter(row["kind"] for row in found), sorted(r["seconds"] for r in found)
        counts = [counts_by_kind[kind] for kind in ("answer", "line", "before", "start", "bad")]
        median = seconds[len(seconds) // 2]
        report(TABLE.line(*group, len(found), *counts, median, seconds[-1]))
    report.keep()
    if report.output is not None:
        replace_file(report.output.with_suffix(".jsonl"), [json.dumps(row) + "\n" for row in rows])


if __name__ == "__main__":
    main()
