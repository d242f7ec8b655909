"""What every instance is answered by several methods at fixed work: to see that a change of the code changes nothing.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.answers --keep FILE.json [--only TEXT] [--limit 60]
    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.answers --keep NEW.json --compare FILE.json

Each answer comes from the command line, in a process of its own, on the CPU: status, objective, bound, messages, a
digest of the assignment and one of every agent's work. FILE.json is written after every answer and never done twice,
so a run that was stopped goes on where it was. ``--compare`` says what differs and exits with 1 if anything does; what
took longer than the limit in FILE.json is left out. ``--program`` names another version's ``dmcmc`` (the default is
this one's).
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, failed, instances, options
from dmcmc.files.write import replace_file

NOT_PROBLEMS = (".csv", ".md", ".evid")
SAMPLED = ["--set", "budget.memory=64MiB", "--method"]
WAYS: dict[str, list[str]] = {
    "auto": ["--set", "budget.memory=256MiB"],
    "annealing, 4 agents": [*SAMPLED, "annealing", "--set", "local.runs=2", "--set", "local.samples=20"],
    "gibbs": [*SAMPLED, "gibbs", "--set", "local.runs=3", "--set", "local.samples=30"],
    "z": ["--z", "8", "--set", "budget.memory=256MiB"],
}
KEPT = ("status", "objective", "bound", "violation", "msg_count", "msg_size", "extra_msg_count", "cycle")
OF_AGENTS = ("method", "rows", "cells", "updates", "z", "gap")
LATE = "limit"


def digest(value: object) -> str:
    """Return a few letters that differ where values do."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def command(program: str, path: Path, way: str) -> list[str]:
    """Return how an instance is solved; formats that have agents keep theirs."""
    start = [sys.executable, "-m", "dmcmc"] if not program else [program]
    has_agents = path.suffix == ".npz" or "dcop" in str(path)
    agents = ["--agents", "4"] if "agents" in way and not has_agents else []
    return [*start, "solve", str(path), "--json", "--device", "cpu", *agents, *WAYS[way]]


def ask(program: str, path: Path, way: str, limit: float) -> dict[str, Any]:
    """Return what is kept of an answer."""
    try:
        done = subprocess.run(command(program, path, way), capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"code": LATE}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"code": done.returncode, "error": failed(done).replace(str(path.parent), "")[:300]}
    agents = [[agent[name] for name in OF_AGENTS] for agent in found["agents"]]
    digests = {"assignment": digest(found.get("assignment")), "agents": digest(agents)}
    return {"code": done.returncode, **{name: found.get(name) for name in KEPT}, **digests}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for each answer that differs, with what does."""
    lines = []
    for key, old in before.items():
        new = now.get(key)
        if new is None or LATE in (old["code"], new["code"]):
            continue
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            lines.append(f"{key}: " + ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names))
    return lines


def main() -> int:
    """Ask, keep, compare."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--keep", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--compare", type=Path, metavar="FILE.json")
    parser.add_argument("--limit", type=float, default=60, help="seconds of an answer")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--program", default="", help="a dmcmc of another version")
    given = parser.parse_args()
    root = instances()
    found = [p for part in ("instances", "generated", "meetings") for p in (root / part).rglob("*") if p.is_file()]
    files = sorted(p for p in found if p.suffix not in NOT_PROBLEMS and given.only in str(p.relative_to(root)))
    kept: dict[str, Any] = json.loads(given.keep.read_text()) if given.keep.exists() else {}
    before: dict[str, Any] = json.loads(given.compare.read_text()) if given.compare else {}
    say = Report(__file__, given)
    for way in given.ways:
        for path in files:
            key = f"{way}: {path.relative_to(root)}"
            if key in kept or (given.compare and before.get(key, {"code": LATE})["code"] == LATE):
                continue
            kept[key] = ask(given.program, path, way, given.limit)
            replace_file(given.keep, [json.dumps(kept, indent=0), "\n"])
            say(f"{key}: {kept[key]['code']} {kept[key].get('status')} {kept[key].get('objective')}")
    different = differences(before, {key: kept[key] for key in kept if given.only in key})
    if given.compare:
        for line in different:
            say(line)
        say(f"{len(different)} of {len(set(before) & set(kept))} answers differ")
    say.keep()
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
