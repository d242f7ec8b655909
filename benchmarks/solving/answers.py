"""Solve every instance by several methods with fixed work, and compare with the answers of another version.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.answers --keep FILE.json [--only TEXT] [--limit 60]
    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.answers --keep NEW.json --compare FILE.json

Each answer is that of the command line, in a separate process, on the CPU: status, objective, bound, messages, a digest
of the assignment and one of the work of every agent. FILE.json is written after every answer, and answers that it has
are not computed again, so a run that was stopped can be continued. ``--compare`` prints the differences, and exits with
1 if there are any. Answers that exceeded the time limit in FILE.json are skipped. Texts of errors are saved, but not
compared: they may be reworded. ``--program`` names the ``dmcmc`` of another version (the default is this one).
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, error_line, instances, options
from dmcmc.files.write import replace_file

NOT_PROBLEMS = (".csv", ".md", ".evid")
SAMPLING_OPTIONS = ["--set", "budget.memory=64MiB", "--method"]
VARIANTS: dict[str, list[str]] = {
    "auto": ["--set", "budget.memory=256MiB"],
    "annealing, 4 agents": [*SAMPLING_OPTIONS, "annealing", "--set", "local.runs=2", "--set", "local.samples=20"],
    "gibbs": [*SAMPLING_OPTIONS, "gibbs", "--set", "local.runs=3", "--set", "local.samples=30"],
    "z": ["--z", "8", "--set", "budget.memory=256MiB"],
}
RESULT_FIELDS = ("status", "objective", "bound", "violation", "msg_count", "msg_size", "extra_msg_count", "cycle")
AGENT_FIELDS = ("method", "rows", "cells", "updates", "z", "gap")
TIME_LIMIT_REACHED = "limit"


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of a hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def command(program: str, path: Path, variant: str) -> list[str]:
    """Return the command that solves an instance; ``--agents`` is only used for formats without agents."""
    start = [sys.executable, "-m", "dmcmc"] if not program else [program]
    has_agents = path.suffix == ".npz" or "dcop" in str(path)
    agents = ["--agents", "4"] if "agents" in variant and not has_agents else []
    return [*start, "solve", str(path), "--json", "--device", "cpu", *agents, *VARIANTS[variant]]


def answer(program: str, path: Path, variant: str, limit: float) -> dict[str, Any]:
    """Return the answer to one instance: the fields that are compared, or the error."""
    try:
        done = subprocess.run(
            command(program, path, variant), capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"code": TIME_LIMIT_REACHED}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"code": done.returncode, "error": error_line(done).replace(str(path.parent), "")[:300]}
    agents = [[agent[name] for name in AGENT_FIELDS] for agent in found["agents"]]
    digests = {"assignment": digest(found.get("assignment")), "agents": digest(agents)}
    return {"code": done.returncode, **{name: found.get(name) for name in RESULT_FIELDS}, **digests}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for each answer that differs, with the fields that do."""
    lines = []
    for key, old in before.items():
        new = now.get(key)
        if new is None or TIME_LIMIT_REACHED in (old["code"], new["code"]):
            continue
        names = [name for name in {**old, **new} if name != "error" and old.get(name) != new.get(name)]
        if names:
            lines.append(f"{key}: " + ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names))
    return lines


def main() -> int:
    """Solve, save and compare."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--keep", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--compare", type=Path, metavar="FILE.json")
    parser.add_argument("--limit", type=float, default=60, help="time limit of an answer in seconds")
    parser.add_argument("--ways", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--program", default="", help="the dmcmc command of another version")
    given = parser.parse_args()
    root = instances()
    paths = [p for part in ("instances", "generated", "meetings") for p in (root / part).rglob("*") if p.is_file()]
    files = sorted(p for p in paths if p.suffix not in NOT_PROBLEMS and given.only in str(p.relative_to(root)))
    answers: dict[str, Any] = json.loads(given.keep.read_text()) if given.keep.exists() else {}
    before: dict[str, Any] = json.loads(given.compare.read_text()) if given.compare else {}
    report = Report(__file__, given)
    for variant in given.ways:
        for path in files:
            key = f"{variant}: {path.relative_to(root)}"
            if key in answers or (
                given.compare and before.get(key, {"code": TIME_LIMIT_REACHED})["code"] == TIME_LIMIT_REACHED
            ):
                continue
            answers[key] = answer(given.program, path, variant, given.limit)
            replace_file(given.keep, [json.dumps(answers, indent=0), "\n"])
            report(f"{key}: {answers[key]['code']} {answers[key].get('status')} {answers[key].get('objective')}")
    different = differences(before, {key: answers[key] for key in answers if given.only in key})
    if given.compare:
        for line in different:
            report(line)
        report(f"{len(different)} of {len(set(before) & set(answers))} answers differ")
    report.keep()
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
