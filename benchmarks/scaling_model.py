"""Predict the time of a run on many GPUs of one host from constants that are fitted to runs on one and two.

    python -m benchmarks.scaling_model [--output FILE]

A run of A agents on R ranks and n GPUs takes

    T = A s + I_R A h / R + I_n A g / n + I_R A l t / R + m (R - 1)    seconds, with
    s   serial host work per agent: the part of the plan that every rank repeats, the combination, the result
    h   host work per agent that the ranks divide
    g   work of the GPU per agent; ranks that share a GPU take turns
    l   batches of kernel launches per agent; t seconds each
    m   messages: seconds per additional rank
    I_k imbalance: the agents of the busiest of k ranks (or GPUs) over the mean, k ceil(A/k) / A for equal agents.

Host work, launches and the GPU's work of one rank do not overlap. The fit minimises the squared relative
errors. Prints the constants of the saved runs on one and two GPUs (``benchmarks/results/ranks_and_gpus.txt``), the
predicted and the measured time of each, and predictions for four and eight GPUs. ``left out`` is the prediction for a
run by constants that are fitted to the others. Efficiency is T_1 / (n T_n), where T_1 is the predicted time on one GPU
with one rank.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import RESULTS, Columns, Report, options
from dmcmc.inference.execution.cost_model import COSTS

SECONDS_PER_RANK = 0.009  # m: results/ranks_and_gpus.txt, "tiny": 16 agents without work take 0.137 s more on 16 ranks
LAUNCH_SECONDS = COSTS.seconds_per_wave  # t: launches for the buckets of one wave of an elimination
TERMS = ("serial host", "divided host", "GPU", "launches", "messages")
SAVED_AGENTS = {"sample": 100, "eliminate": 256}
WAVES_PER_AGENT = {"eliminate": 8}  # l: at most one wave per variable; not known for samplers, where h includes it
_SAVED_LINE = re.compile(
    r"^(?P<gpus>\d)gpus?-\d+ranks? +(?P<problem>\w+) +ranks +(?P<ranks>\d+) .*? time +(?P<seconds>[\d.]+)"
)


class Run(NamedTuple):
    """A run whose time is measured or predicted.

    Attributes
    ----------
    agents, gpus, ranks : int
        Number of agents, GPUs, and ranks of all GPUs together.
    seconds : float
        Measured wall-clock seconds; 0 if not measured.
    """

    agents: int
    gpus: int
    ranks: int
    seconds: float = 0.0


class Constants(NamedTuple):
    """The constants of a problem.

    Attributes
    ----------
    serial, divided, gpu : float
        Seconds per agent: serial host work, divided host work, and work of the GPU (s, h and g).
    launches : float
        Batches of kernel launches per agent (l).
    """

    serial: float
    divided: float
    gpu: float
    launches: float = 0.0


# 800 agents ("sample-many"). GPU: 7.6 s on one GPU (results/four_gpus_mended.txt). The host's 0.63 s on every rank and
# 1.69 s divided follow from that file's runs on one and two GPUs, times 0.45: the ratio of the processor seconds after
# and before the plan and the report took NumPy operations for all factors (notebook/ranks-and-start-up.md).
MANY_AGENTS, MANY_AGENTS_CONSTANTS = 800, Constants(serial=0.00036, divided=0.00095, gpu=0.0095)


def imbalance(agents: int, parts: int) -> float:
    """Return the share of the busiest part over the mean, if equal agents are distributed over the parts.

    Examples
    --------
    >>> imbalance(8, 4), imbalance(10, 4)
    (1.0, 1.2)
    """
    return parts * -(-agents // parts) / agents


def seconds_by_term(constants: Constants, run: Run) -> dict[str, float]:
    """Return the predicted seconds of a run for each of ``TERMS``.

    Examples
    --------
    >>> seconds_by_term(Constants(0.001, 0.002, 0.02), Run(agents=100, gpus=2, ranks=4))["GPU"]
    1.0
    """
    serial, divided, gpu = _factors(run)
    launches = divided * constants.launches * LAUNCH_SECONDS
    values = (serial * constants.serial, divided * constants.divided, gpu * constants.gpu, launches, _messages(run))
    return dict(zip(TERMS, values, strict=True))


def predicted_seconds(constants: Constants, run: Run) -> float:
    """Return the predicted seconds of a run."""
    return sum(seconds_by_term(constants, run).values())


def efficiency(constants: Constants, run: Run) -> float:
    """Return T_1 / (n T_n): T_1 is the time of the same agents on one GPU with one rank."""
    one = predicted_seconds(constants, Run(run.agents, 1, 1))
    return one / (run.gpus * predicted_seconds(constants, run))


def fitted_constants(runs: Sequence[Run], launches: float = 0.0) -> Constants:
    """Return the constants that minimise the sum of squared relative errors of measured runs; none is negative.

    All subsets of the three constants are tried with the others 0, since the solution is the unconstrained one of some
    subset (Lawson and Hanson 1974, chapter 23). Runs that leave constants open give the solution of least norm.

    Parameters
    ----------
    runs
        Measured runs.
    launches
        Batches of kernel launches per agent, which are known.
    """
    factors = np.array([_factors(run) for run in runs])
    seconds = np.array([run.seconds for run in runs])
    known = factors[:, 1] * launches * LAUNCH_SECONDS + [_messages(run) for run in runs]
    matrix, target = factors / seconds[:, None], (seconds - known) / seconds
    best, least = np.zeros(3), float(target @ target)
    for size in (1, 2, 3):
        for subset in combinations(range(3), size):
            values = np.zeros(3)
            values[list(subset)] = np.linalg.lstsq(matrix[:, subset], target, rcond=None)[0]
            error = float(((matrix @ values - target) ** 2).sum())
            if values.min() >= 0 and error < least - 1e-12:
                best, least = values, error
    serial, divided, gpu = best.tolist()
    return Constants(serial, divided, gpu, launches)


def saved_runs(path: Path = RESULTS / "ranks_and_gpus.txt") -> dict[str, list[Run]]:
    """Return the saved runs on one and two GPUs, by problem."""
    found: dict[str, list[Run]] = {}
    for match in map(_SAVED_LINE.match, path.read_text(encoding="utf-8").splitlines()):
        if match is not None:
            name, gpus, ranks = match["problem"], int(match["gpus"]), int(match["ranks"])
            found.setdefault(name, []).append(Run(SAVED_AGENTS[name], gpus, ranks, float(match["seconds"])))
    return found


def report_model(report: Report, runs: Mapping[str, Sequence[Run]], predicted_gpus: Sequence[int] = (4, 8)) -> None:
    """Print constants and predictions for each problem, fitted to its runs on one and two GPUs.

    Parameters
    ----------
    report
        Takes the lines.
    runs
        Measured runs by problem.
    predicted_gpus
        Numbers of GPUs to predict, besides those of the runs, with one and two ranks per GPU.
    """
    columns = Columns(
        ("GPUs", ">4d"), ("ranks", ">5d"), ("measured s", ">10.3f"), ("model s", ">8.3f"), ("left out", ">8.3f"),
        ("efficiency", ">10.0%"), *((term, ">12.3f") for term in TERMS),
    )  # fmt: skip
    for name, measured in runs.items():
        fitted = [run for run in measured if run.gpus <= 2]
        if len(fitted) < 3:
            continue
        constants = fitted_constants(fitted, WAVES_PER_AGENT.get(name, 0.0))
        per_agent = ", ".join(
            f"{value * 1e3:.2f} ms {part}" for value, part in zip(constants[:3], TERMS[:3], strict=True)
        )
        report(f"{name}: per agent {per_agent}; fitted to {len(fitted)} runs on one and two GPUs")
        report(columns.head)
        known = {(run.gpus, run.ranks): run for run in measured}
        for gpus, per_gpu in product(predicted_gpus, (1, 2)):
            known.setdefault((gpus, gpus * per_gpu), Run(measured[0].agents, gpus, gpus * per_gpu))
        for run in [run for _, run in sorted(known.items())]:
            terms = seconds_by_term(constants, run)
            total, others = sum(terms.values()), [other for other in fitted if other is not run]
            left_out = predicted_seconds(fitted_constants(others, constants.launches), run) if run in fitted else None
            times = run.seconds or None, total, left_out
            report(columns.line(run.gpus, run.ranks, *times, efficiency(constants, run), *terms.values()))


def _factors(run: Run) -> tuple[float, float, float]:
    """Return what serial, divided and GPU seconds per agent are multiplied by."""
    return (
        float(run.agents),
        imbalance(run.agents, run.ranks) * run.agents / run.ranks,
        imbalance(run.agents, run.gpus) * run.agents / run.gpus,
    )


def _messages(run: Run) -> float:
    """Return the seconds of the messages between ranks."""
    return SECONDS_PER_RANK * (run.ranks - 1)


def main() -> None:
    """Print the model of the saved runs."""
    report = Report(__file__, options(__file__, __doc__ or "").parse_args())
    report_model(report, saved_runs())
    report(f"sample-many, {MANY_AGENTS} agents: predicted from the host's processor seconds, not fitted")
    for gpus in (1, 2, 4, 8):
        run = Run(MANY_AGENTS, gpus, gpus)
        seconds = predicted_seconds(MANY_AGENTS_CONSTANTS, run)
        report(f"{gpus} GPUs {seconds:6.2f} s {efficiency(MANY_AGENTS_CONSTANTS, run):4.0%}")
    report.keep()


if __name__ == "__main__":
    main()
