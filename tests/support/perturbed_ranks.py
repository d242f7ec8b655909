"""Solve random problems on ranks whose clocks, memory and caches differ, and check that the ranks stay in step.

    mpirun -n N python -m support.perturbed_ranks FIRST_SEED RUNS

Per run and rank a clock is made up that goes faster or slower than the machine's and sometimes jumps forward; on some
ranks allocations are refused at random, and some have planned the problem before. The problem comes from all ranks,
from rank 0 alone, or from one file per agent. All ranks have to end with an answer or with the same kind of error. The
answers have to be right (:mod:`support.soundness`). A rank that waits for longer than ``HANG_SECONDS`` prints where it
is, and ends the launch.

Rank 0 prints one line per run that failed, and at the end the number of runs and the number of each outcome.
"""

import faulthandler
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import numpy as np

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.config.settings import AlgorithmSettings, Settings
from dmcmc.formats import agent_files
from dmcmc.inference.runtime.errors import DmcmcError, OutOfMemory
from dmcmc.inference.runtime.memory import MemoryAccount
from dmcmc.mpi.collective_calls import OtherRankError
from dmcmc.mpi.world import World, connect
from dmcmc.results.result import Result
from support import soundness

HANG_SECONDS = 300  # seconds of one run, compilation included, after which its ranks count as waiting for each other
CLOCK_RATES = (1.0, 1.0, 0.2, 3.0, 20.0)  # of a made-up clock, relative to the machine's
TIMES = (None, 0.02, 0.2, 0.5)  # time budgets in seconds
CYCLE_ALGORITHMS = ("mgm", "mgm2", "dsa", "dgls", "max-sum", "distributed-gibbs", "duct")
ALGORITHMS = (*CYCLE_ALGORITHMS, "dpop", "adpop")
SOURCES = ("all ranks", "all ranks", "rank 0", "agent files")
_real_clock, _real_claim = time.perf_counter, MemoryAccount.claim


class PerturbedClock:
    """A clock that goes at another rate than the machine's, and jumps forward at random readings."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._begin = rng, _real_clock()
        self._rate, self._offset = float(rng.choice(CLOCK_RATES)), float(rng.uniform(0, 1000))
        self._jump_probability = float(rng.choice([0.0, 1e-3, 1e-2]))

    def __call__(self) -> float:
        if self._rng.random() < self._jump_probability:
            self._offset += float(self._rng.exponential(0.05))
        return self._offset + self._rate * (_real_clock() - self._begin)


@contextmanager
def perturbed(seed: int, rank: int) -> Iterator[None]:
    """Replace this rank's clock, and refuse some of its allocations."""
    rng = np.random.default_rng([seed, rank, 5])
    refused = float(rng.choice([0.0, 0.0, 0.01, 0.1]))

    def claim(account: MemoryAccount, size: int, what: str) -> None:
        if rng.random() < refused:
            raise OutOfMemory(f"{what}: refused by the test")
        _real_claim(account, size, what)

    time.perf_counter, MemoryAccount.claim = PerturbedClock(rng), claim
    try:
        yield
    finally:
        time.perf_counter, MemoryAccount.claim = _real_clock, _real_claim


def case_of(seed: int) -> soundness.SoundnessCase:
    """Return the problem and the settings of a run; few agents, so that ranks form teams."""
    case, rng = soundness.draw(seed), np.random.default_rng([seed, 11])
    config, seconds = case.config, TIMES[int(rng.integers(len(TIMES)))]
    method = str(rng.choice([config.local.method, "auto", "gibbs", "blocks"]))
    algorithm = str(rng.choice(ALGORITHMS)) if rng.random() < 0.1 else "dmcmc"
    cycles = 10 if seconds is None and algorithm in CYCLE_ALGORITHMS else "auto"
    changed = msgspec.structs.replace(
        config,
        local=msgspec.structs.replace(config.local, method=method, cells=[0, "auto"][int(rng.integers(2))]),
        combine=msgspec.structs.replace(
            config.combine, tree=str(rng.choice(["auto", "depth-first"])), mode=str(rng.choice(["auto", "shared"]))
        ),
        budget=msgspec.structs.replace(config.budget, time=seconds, memory=1 << 28),
        algorithm=AlgorithmSettings(algorithm, cycles),
    )
    return soundness.SoundnessCase(case.problem, changed, case.exact)


def solved(case: soundness.SoundnessCase, seed: int, world: World) -> Result | None:
    """Solve a problem that comes from all ranks, from rank 0 alone or from the agents' files."""
    source = str(np.random.default_rng([seed, 12]).choice(SOURCES))
    if source == "all ranks" or case.config.algorithm_settings.name != "dmcmc":
        return choose_algorithm.solve_as_configured(case.problem, case.config, world)
    if source == "rank 0":
        return choose_algorithm.solve_as_configured(case.problem if world.rank == 0 else None, case.config, world)
    with tempfile.TemporaryDirectory() as folder:
        shared = world.bcast(folder)
        if world.rank == 0:
            agent_files.write(case.problem, shared, 1 << 30)
        world.wait()
        try:
            return solve_directory(shared, case.config, world, share_assignment=True)
        finally:
            world.wait()


def run(seed: int, world: World) -> str:
    """Solve the problem of a seed; return the outcome: the status, the kind of error, or what was wrong."""
    case = case_of(seed)
    if np.random.default_rng([seed, world.rank, 6]).random() < 0.2:  # this rank has planned the problem before
        with suppress(DmcmcError):
            choose_algorithm.solve_as_configured(
                case.problem, msgspec.structs.replace(case.config, budget=Settings().budget)
            )
    world.wait()
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    with perturbed(seed, world.rank):
        try:
            result = solved(case, seed, world)
            outcome = "answer"
        except Exception as error:  # an unforeseen one has to be reported, too
            result, outcome = None, type(error).__name__
            if isinstance(error, OtherRankError) or not isinstance(error, DmcmcError):
                outcome = f"CRASHED: {traceback.format_exc()}"
    outcomes = world.allgather(outcome)
    faulthandler.cancel_dump_traceback_later()
    crashes = [outcome for outcome in outcomes if outcome.startswith("CRASHED") and "OtherRankError: " not in outcome]
    if crashes:
        return crashes[0]
    if len(set(outcomes)) > 1:
        return f"DIFFERENT OUTCOMES: {outcomes}"
    if result is None:
        return outcome
    best = soundness.optimum(case.problem)
    wrong = [] if best is None else soundness.errors_of(case, result, best)
    return f"WRONG: {'; '.join(wrong)}" if wrong else result.status


def main() -> None:
    """Solve the problems of several seeds, and print what happened."""
    first, runs = int(sys.argv[1]), int(sys.argv[2])
    world, outcomes = connect(), Counter[str]()
    for seed in range(first, first + runs):
        try:
            outcome = run(seed, world)
        except BaseException as error:  # the other ranks would wait for this one
            world.abort_on_exit(error)
            raise
        outcomes[outcome.split(":")[0]] += 1
        if world.rank == 0 and outcome.split(":")[0].isupper():
            print(f"seed {seed}: {outcome}", flush=True)
    if world.rank == 0:
        print(f"{sum(outcomes.values())} runs on {world.size} ranks: {dict(sorted(outcomes.items()))}")
        sys.exit(any(outcome.isupper() for outcome in outcomes))


if __name__ == "__main__":
    main()
