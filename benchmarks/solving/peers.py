"""Compare answers with those of local searches at equal time on random DCOPs with one variable per agent.

    python -m benchmarks.solving.peers [--seconds 1 5] [--only TEXT] [--before FOLDER] [--jobs 7] [--cores 2]
        [--lines FILE.jsonl] [--output FILE]

Multistart coordinate ascent, DSA-B, DSA-C (each with four probabilities in turn) and MGM2 run for the longest time,
compiled, on as many cores as ``dmcmc solve --timeout``, whose clock also starts when kernels are compiled. All
assignments are evaluated on the problem; an assignment is better if it violates fewer hard constraints, or else if it
has the better objective. The table has the best peer, what it found in each time, and our answer (``infeasible``:
proven to be so). ``--before`` adds another version's answer.
"""

import json
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.baselines.search import SEARCHES
from benchmarks.harness import Columns, Report, error_line, options
from benchmarks.jobs import (
    JsonLine,
    PinnedJob,
    add_options,
    compile_kernels,
    lines_of,
    programs,
    run_jobs,
    run_pinned,
    solve_to_json,
)
from dmcmc import Factor, Problem, generate, load
from dmcmc.formats.registry import save

EXTRA_SECONDS = 90.0  # seconds for reading, compiling and writing, in addition to the time limit
Quality = tuple[int, float]  # violations, then the objective as a cost; less is better


def one_agent_per_variable(problem: Problem) -> Problem:
    """Return the problem with one agent per variable."""
    n = problem.n_variables
    return replace(problem, agents=tuple(f"a{v}" for v in range(n)), owner=np.arange(n))


def colouring(graph: Problem, colours: int, hard: bool) -> Problem:
    """Return the colouring of a graph: neighbours of one colour cost 100 (or ∞), the colours themselves 0 to 50."""
    n = graph.n_variables
    rng = np.random.default_rng(n)
    same = np.where(np.eye(colours, dtype=bool), np.inf if hard else 100.0, 0.0)
    factors = [Factor.of(f.scope, same, "min") for f in graph.factors]
    factors += [Factor.of((v,), rng.integers(0, 51, colours), "min") for v in range(n)]
    return replace(graph, domains=np.full(n, colours), factors=tuple(factors), name=f"colouring {n}")


def problems() -> dict[str, Callable[[], Problem]]:
    """Return functions that draw the 50 problems, by name."""
    found: dict[str, Callable[[], Problem]] = {}
    parameters: dict[str, Any]
    for n, density in ((20, 0.5), (20, 1.0), (50, 0.1), (50, 0.3), (100, 0.05), (100, 0.1), (150, 0.05), (200, 0.03)):
        for seed, size in ((1, 5), (2, 10))[: 1 if n == 150 else 2]:
            parameters = {"variables_per_agent": 1, "domain_size": size, "global_density": density, "seed": seed}
            found[f"random n{n} d{size} p{density}"] = partial(generate, "random", agents=n, **parameters)
    for n, density, tight in ((20, 0.5, 0.0), (40, 0.2, 0.2), (70, 0.1, 0.0), (100, 0.05, 0.3), (200, 0.03, 0.0)):
        for seed in (1, 2)[: 1 if n == 200 else 2]:
            parameters = {"nodes": n, "density": density, "tightness": tight, "seed": seed}
            found[f"network n{n} t{tight} s{seed}"] = partial(generate, "random-network", **parameters)
    for n, tight in ((20, 0.0), (50, 0.0), (50, 0.3), (100, 0.2), (200, 0.0), (200, 0.2)):
        found[f"scale-free n{n} t{tight}"] = partial(generate, "scale-free", nodes=n, tightness=tight, seed=1)
    for rows, tight in ((5, 0.0), (7, 0.2), (10, 0.0), (10, 0.3), (14, 0.0), (14, 0.2)):
        found[f"grid {rows}x{rows} t{tight}"] = partial(generate, "grid", rows=rows, tightness=tight, seed=1)
    for n, density, colours, hard in (
        (20, 0.4, 3, False),
        (50, 0.2, 3, False),
        (100, 0.05, 3, True),
        (100, 0.1, 5, False),
        (200, 0.02, 3, True),
        (200, 0.03, 3, False),
        (200, 0.05, 8, True),
    ):
        graph = partial(generate, "random-network", nodes=n, density=density, domain_size=2, seed=3)
        name = f"colouring n{n} c{colours}{' hard' if hard else ''}"
        found[name] = partial(lambda graph, c, h: colouring(graph(), c, h), graph, colours, hard)
    for agents, variables, tables in (
        (20, 1, "preferences"),
        (4, 10, "preferences"),
        (5, 20, "preferences"),
        (10, 20, "preferences"),
        (10, 10, "hard"),
        (20, 10, "uniform"),
        (25, 8, "hard"),
    ):
        parameters = {"agents": agents, "variables_per_agent": variables, "tables": tables, "seed": 1}
        drawn = partial(generate, "meeting-scheduling", **parameters)
        found[f"meetings {agents}x{variables} {tables}"] = partial(lambda drawn: one_agent_per_variable(drawn()), drawn)
    return found


def run_peers(file: Path, seconds: float, cores: set[int]) -> JsonLine:
    """Let all searches run on a problem; return their traces by name."""
    command = [sys.executable, "-m", "benchmarks.baselines.search", str(file), "--seconds", f"{seconds:g}"]
    done = run_pinned(command, cores, (seconds + EXTRA_SECONDS) * len(SEARCHES))
    if done is None or done.returncode:
        return {"error": "stopped after its time limit" if done is None else error_line(done)}
    return {"peers": {line["search"]: line for line in map(json.loads, done.stdout.splitlines())}}


def run_program(program: list[str], file: Path, seconds: float, cores: set[int]) -> JsonLine:
    """Let a version solve a problem, and evaluate its assignment."""
    line = solve_to_json([*program, "solve", str(file), "--timeout", f"{seconds:g}"], cores, seconds + EXTRA_SECONDS)
    if line.get("assignment") is not None:
        line["evaluated"] = load(file).evaluate(line.pop("assignment"))
    return line


def quality_of(line: JsonLine | None, sense: str) -> Quality | None:
    """Return the quality of a version's assignment, or None."""
    if line is None or "evaluated" not in line:
        return None
    objective, violation = line["evaluated"]
    return violation, objective if sense == "min" else -objective


def best_peer(line: JsonLine, seconds: float, sense: str) -> tuple[str, Quality | None]:
    """Return the search with the best assignment within some seconds, and its quality; the first one at a tie."""
    best: tuple[str, Quality | None] = ("", None)
    for name, found in line.get("peers", {}).items():
        for at, objective, violation in found["trace"]:
            quality = (violation, objective if sense == "min" else -objective)
            if at <= seconds and (best[1] is None or quality < best[1]):
                best = name, quality
    return best


def shown(quality: Quality | None, sense: str) -> str:
    """Return the text of a quality, with the objective in the problem's own sense."""
    if quality is None:
        return "-"
    violation, objective = quality
    return f"{objective if sense == 'min' else -objective:g}" + (f" ({violation} violated)" if violation else "")


def verdict(ours: Quality | None, theirs: Quality | None) -> str:
    """Return which quality is better, and by how much of the objective."""
    if ours is None or theirs is None:
        return "none"
    if ours == theirs:
        return "equal"
    word = "better" if ours < theirs else "WORSE"
    return word if ours[0] != theirs[0] else f"{word} {abs(ours[1] - theirs[1]) / max(1.0, abs(theirs[1])):.2%}"


def table(report: Report, given: Namespace, senses: dict[str, str], versions: list[str]) -> int:
    """Print the table; return how often this version was worse than a peer."""
    lines: dict[str, JsonLine] = {line["key"]: line for line in lines_of(given)}
    of_versions = [column for v in versions for column in ((v, ">20"), ("", "<14"))]
    columns = Columns(("problem", "<28"), ("s", ">4g"), ("peer", "<7"), ("found", ">20"), *of_versions)
    counts: dict[tuple[str, float, str], int] = {}
    report(columns.head)
    for name, sense in senses.items():
        for seconds in given.seconds:
            peer, theirs = best_peer(lines.get(f"{name}|peers", {}), seconds, sense)
            cells: list[object] = [name, seconds, peer, shown(theirs, sense)]
            for version in versions:
                line = lines.get(f"{name}|{version}|{seconds:g}")
                ours = quality_of(line, sense)
                word = "infeasible" if line and line.get("status") == "infeasible" else verdict(ours, theirs)
                cells += [shown(ours, sense), word]
                key = (version, seconds, word.split()[0])
                counts[key] = counts.get(key, 0) + 1
            report(columns.line(*cells))
    for (version, seconds, word), count in sorted(counts.items()):
        report(f"{version} at {seconds:g} s: {word} {count}")
    return sum(count for (version, _, word), count in counts.items() if version == "now" and word in ("WORSE", "none"))


def main() -> int:
    """Draw the problems, solve them, and compare."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 5.0])
    add_options(parser)
    given = parser.parse_args()
    report = Report(__file__, given)
    versions, senses = programs(given), dict[str, str]()
    jobs = list[PinnedJob]()
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, draw) in enumerate(problems().items()):
            if given.only in name:
                file, problem = Path(folder, f"{number}.npz"), draw()
                save(problem, file)
                senses[name] = problem.sense
                jobs.append(PinnedJob(f"{name}|peers", partial(run_peers, file, max(given.seconds))))
                for seconds in given.seconds:
                    for version, program in versions.items():
                        work: Any = partial(run_program, program, file, seconds)
                        jobs.append(PinnedJob(f"{name}|{version}|{seconds:g}", work))
        if given.compile_first:
            files = sorted(Path(folder).glob("*.npz"))
            compile_kernels(given, lambda program: [[*program, "solve", str(file), "--timeout", "1"] for file in files])
        run_jobs(jobs, given, lambda line: print(line["key"], line.get("error", "done"), file=sys.stderr, flush=True))
    worse = table(report, given, senses, list(versions))
    report.keep()
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
