"""Compare runs with all methods for the bound and runs without some: proofs, bounds and objectives of instances.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.method_ablation [--limit 60] [--only TEXT] [--jobs N --cores C]
        [--disable "branch and bound" semidefinite smoothing] [--agents N] [--within SECONDS --lines FILE.jsonl]

FOLDER holds instances/ with its MANIFEST.csv. Each instance is solved by ``dmcmc solve --timeout LIMIT``, first with
all methods, then without some (``benchmarks.bounds.disabled_methods``), on the same cores. The last line counts the
instances that only one of the two has proven, whose bound is tighter where neither has a proof, and whose objective is
better. After ``--within``, the same command with the same ``--lines`` continues with the remaining instances.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bounds.disabled_methods import METHODS
from benchmarks.harness import Report, instances, options
from benchmarks.jobs import JsonLine, PinnedJob, add_options, compile_kernels, lines_of, run_jobs
from benchmarks.solving.solve_instances import COMMAND, manifest_files, proven, run, shown, verdict_of

_TOLERANCE = 1e-6  # relative difference of objectives or bounds from which they count as different
_FIELDS = ("sense", "objective", "bound", "gap", "status", "time", "error")


def better(one: Any, other: Any, sign: int) -> bool:
    """Return whether ``one`` is higher (``sign`` 1) or lower (-1) than ``other``; None is worse than any number."""
    if one is None or other is None:
        return one is not None and other is None
    return bool(sign * (one - other) > _TOLERANCE * max(1.0, abs(one), abs(other)))


def verdict(ours: JsonLine, theirs: JsonLine) -> str:
    """Return which of two runs has the proof or the tighter bound; capitals: the one without some methods."""
    if proven(ours) or proven(theirs):
        return "" if proven(ours) and proven(theirs) else "proven" if proven(ours) else "PROVEN WITHOUT"
    sign = -1 if ours.get("sense") == "max" else 1  # a bound is tighter when it is nearer to the objective
    bounds = ours.get("bound"), theirs.get("bound")
    return "tighter" if better(*bounds, sign) else "LOOSER" if better(*bounds[::-1], sign) else ""


def text_of(line: JsonLine) -> str:
    """Return the line of the table for an instance."""
    parts = [f"{line['key']:44s} {line['known'][:14]:>14s}"]
    for variant in ("with", "without"):
        found = line[variant]
        if "error" in found:
            parts.append(f"{found['error'][:60]:>60s}")
            continue
        gap = "-" if found["gap"] is None else f"{100 * found['gap']:.3g} %"
        parts.append(
            f"{shown(found['objective']):>13s} {shown(found['bound']):>13s} {gap:>9s} {found['status']:10s}"
            f" {found['time']:7.2f} {found['judged']}"
        )
    return "  ".join([*parts, verdict(line["with"], line["without"])]).rstrip()


def count(lines: list[JsonLine]) -> str:
    """Return the line that counts how often each variant was better."""
    found = [verdict(line["with"], line["without"]) for line in lines]
    both = sum(proven(line["with"]) and proven(line["without"]) for line in lines)
    objectives = [(line["with"].get("objective"), line["without"].get("objective")) for line in lines]
    senses = [1 if line["with"].get("sense") == "max" else -1 for line in lines]
    more = sum(better(a, b, sign) for (a, b), sign in zip(objectives, senses, strict=True))
    less = sum(better(b, a, sign) for (a, b), sign in zip(objectives, senses, strict=True))
    return (
        f"{len(lines)} instances: proven by both {both}, only with {found.count('proven')}, only without"
        f" {found.count('PROVEN WITHOUT')}; bound tighter with {found.count('tighter')},"
        f" looser {found.count('LOOSER')}; objective better with {more}, worse {less}"
    )


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", device="cpu", only=True)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--disable", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--agents", type=int, default=0, help="divide every instance among this many agents")
    add_options(parser)
    given = parser.parse_args()
    if given.compile_first:
        compile_kernels(given)
    report = Report(__file__, given, limit=f"{given.limit:g} s", without=", ".join(given.disable))
    options_of_run = ["--set", f"budget.memory={given.memory}", "--timeout", str(given.limit), "--device", given.device]
    options_of_run += ["--agents", str(given.agents)] if given.agents else []
    disabled_command = [
        sys.executable,
        "-m",
        "benchmarks.bounds.disabled_methods",
        *given.disable,
        "--",
        "solve",
        "--json",
    ]

    def job(path: Path, entry: dict[str, str]) -> PinnedJob:
        def work(cores: set[int]) -> JsonLine:
            solve = partial(run, path, *options_of_run, limit=2 * given.limit + 60, cores=cores)
            line: JsonLine = {"known": entry["optimum"]}
            for variant, found in (("with", solve(command=COMMAND)), ("without", solve(command=disabled_command))):
                line[variant] = {name: found[name] for name in _FIELDS if name in found}
                if "error" not in found:
                    line[variant]["judged"] = verdict_of(entry, found)
            return line

        return PinnedJob("/".join(path.parts[-2:]), work)

    run_jobs([job(*one) for one in manifest_files(instances("instances")) if given.only in str(one[0])], given)
    for line in lines_of(given):
        report(text_of(line))
    report(count(lines_of(given)))
    report.keep()


if __name__ == "__main__":
    main()
