"""Replay recorded gains: how much of the gap the scheduler closes, compared with fixed divisions of the time.

    python -m benchmarks.scheduler_simulation [--record FILE ... --seconds 20] [--output FILE]

A recording (``benchmarks/results/recorded_gains.txt``) has, for some problems, the seconds and the closed part of the
gap of each improver in each slice, in a run that gave all improvers equal time. Replayed, an improver that works for
some seconds closes the parts that it closed in as many recorded seconds; after the end of its recording it gains
nothing. ``--record`` solves problem files on the CPU to make a new recording, which is printed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import dmcmc
from benchmarks.harness import ROOT, Columns, Report, options
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.scheduler.proposal import MeasuredGain, Needs, Proposal
from dmcmc.anytime.scheduler.scheduler import Scheduler, SchedulingState

RECORDING = ROOT / "benchmarks" / "results" / "recorded_gains.txt"
_LEAST_GAP = 1e-3  # a slice that closes more than all but this part of the gap counts as one that leaves it


class RecordedSlice(NamedTuple):
    """The work of an improver in a slice.

    Attributes
    ----------
    seconds : float
        Seconds taken.
    part : float
        Part of the gap before the slice that it closed.
    """

    seconds: float
    part: float


Recording = Mapping[str, Sequence[RecordedSlice]]  # slices by improver
Recordings = Mapping[str, Recording]  # by problem


def load_recordings(path: Path = RECORDING) -> Recordings:
    """Return the recordings by problem; a line has the problem, the improver, the seconds and the closed part."""
    result: dict[str, dict[str, list[RecordedSlice]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            problem, improver, seconds, part = line.split("\t")
            slices = result.setdefault(problem, {}).setdefault(improver, [])
            slices.append(RecordedSlice(float(seconds), float(part)))
    return result


def closed(slices: Sequence[RecordedSlice], seconds: float) -> float:
    """Return by how much the logarithm of the gap falls if an improver works for some seconds in total."""
    total = 0.0
    for taken, part in slices:
        total -= math.log(max(_LEAST_GAP, 1 - part)) * min(1.0, max(0.0, seconds) / taken)
        seconds -= taken
    return total


class Replay(NamedTuple):
    """The outcome of a replay.

    Attributes
    ----------
    left : float
        Part of the gap that is left.
    spent : dict of float
        Seconds by improver.
    """

    left: float
    spent: dict[str, float]


def replay(recording: Recording, total: float) -> Replay:
    """Let the scheduler divide some seconds over the improvers of a recording."""
    properties = registry.declared(registry.create(timed=False))
    scheduler, spent, now = Scheduler([0], properties), dict.fromkeys(recording, 0.0), 0.0
    gap, gains = 1.0, list[MeasuredGain]()
    while True:
        scheduler.record(SchedulingState(now, total - now, 0.0, gap), gains)
        proposals = [
            Proposal(improver, gap, 0 if properties[improver].needs is Needs.CORE else None, resumable=not quantum)
            for improver in recording
            for quantum in [properties[improver].minimum_quantum]
        ]
        allocations = scheduler.decide(proposals)
        if not allocations:
            return Replay(gap, spent)
        before, gains = gap, []
        for improver, _, seconds in allocations:
            fall = closed(recording[improver], spent[improver] + seconds) - closed(recording[improver], spent[improver])
            spent[improver] += seconds
            gap *= math.exp(-fall)
            part = before * (1 - math.exp(-fall))
            finds = properties[improver].needs is Needs.ALL_RANKS
            gains.append(MeasuredGain(improver, seconds, 0.0, 0.0 if finds else part, part if finds else 0.0))
        now += sum(allocation.seconds for allocation in allocations)


def left_by_fixed_division(recording: Recording, total: float, parts: Sequence[float]) -> float:
    """Return the part of the gap that is left if each improver gets a fixed part of the time."""
    falls = [closed(slices, part * total) for slices, part in zip(recording.values(), parts, strict=True)]
    return math.exp(-sum(falls))


def best_fixed_division(recording: Recording, total: float, steps: int = 10) -> float:
    """Return the part of the gap that the best fixed division leaves, in steps of a tenth of the time."""
    divisions = (d for d in product(range(steps + 1), repeat=len(recording)) if sum(d) == steps)
    return min(left_by_fixed_division(recording, total, [one / steps for one in d]) for d in divisions)


def record(path: Path, seconds: float) -> list[str]:
    """Solve a problem with equal time for all improvers; return the lines of its recording."""
    lines, record_slice, gap = list[str](), Scheduler.record, math.inf

    def record_and_keep(self: Scheduler, state: SchedulingState, gains: Sequence[MeasuredGain]) -> None:
        nonlocal gap
        before = {name: (r.seconds, r.objective + r.bound) for name, r in self.credit.records.items()}
        record_slice(self, state, gains)
        for name, totals in self.credit.records.items():
            spent, gained = before.get(name, (0.0, 0.0))
            if totals.seconds > spent and 0 < gap < math.inf:
                part = min(1.0, (totals.objective + totals.bound - gained) / gap)
                lines.append(f"{path.stem}\t{name}\t{totals.seconds - spent:.3f}\t{part:.4f}")
        gap = state.gap

    with (
        patch.object(Scheduler, "record", record_and_keep),
        patch.object(Scheduler, "expected_parts", lambda self, names: dict.fromkeys(names, 0.5)),
    ):
        dmcmc.solve(dmcmc.load(path), timeout=seconds, search="none", device="cpu")
    return lines


def main() -> None:
    """Replay the recordings, or make new ones."""
    parser = options(__file__, __doc__)
    parser.add_argument("--record", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each run that is recorded")
    given = parser.parse_args()
    report = Report(__file__, given)
    for path in given.record:
        report("\n".join(record(path, given.seconds)))
    if not given.record:
        columns = Columns(("problem", "<24"), ("s", ">4g"), *((n, ">10.3f") for n in ("scheduler", "equal", "best")))
        report(columns.head)
        for problem, recording in load_recordings().items():
            for total in (2.0, 5.0, 10.0):
                equal = left_by_fixed_division(recording, total, [1 / len(recording)] * len(recording))
                best = best_fixed_division(recording, total)
                report(columns.line(problem, total, replay(recording, total).left, equal, best))
    report.keep()


if __name__ == "__main__":
    main()
