"""What ``auto`` may count on here: how fast this machine is, and whether a GPU is worth looking for."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.auto.choose import CPU_CELLS, Limits, exact_option
from dmcmc.samplers.auto.rates import NOMINAL, Rates
from dmcmc.samplers.auto.survey import Survey

_QUICK = 0.05  # of the time budget: what takes less needs no measuring


def look_around(
    surveys: Sequence[Survey], limits: Limits, device: str, measure: Callable[[], Rates]
) -> tuple[Limits, Rates]:
    """Return limits that know of a GPU, and rates; both are only looked for where they can change a choice.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        What may be used.
    measure
        Returns this machine's rates.
    """
    needed = [exact_option(work, limits, NOMINAL).seconds for work in surveys]
    opened = device == "cuda"
    if opened or (device == "auto" and _gpu_may_change(surveys, sum(needed), limits)):
        limits = replace(limits, gpu=gpu_problem() is None, opened=opened)
    measured = limits.time is not None and sum(needed) > _QUICK * limits.time
    return limits, measure() if measured else NOMINAL


def _gpu_may_change(surveys: Sequence[Survey], seconds: float, limits: Limits) -> bool:
    """Return whether a GPU could change the choice: to look for one takes a moment."""
    if limits.time is not None:
        return limits.time > NOMINAL.gpu_open and seconds > NOMINAL.gpu_open
    return limits.cells is None and any(work.cells > CPU_CELLS for work in surveys)
