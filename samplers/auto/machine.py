"""Inspect this machine for ``auto``: its rates, and whether a GPU is available."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.auto.choose import ResourceLimits, exact_option
from dmcmc.samplers.auto.rates import NOMINAL, Rates
from dmcmc.samplers.auto.survey import AgentWorkCounts
from dmcmc.samplers.tuning import auto, common


def inspect_machine(
    surveys: Sequence[AgentWorkCounts], limits: ResourceLimits, device: str, measure: Callable[[], Rates]
) -> tuple[ResourceLimits, Rates]:
    """Return limits that say whether there is a GPU, and the machine's rates; both only if they can change a choice.

    Parameters
    ----------
    surveys : sequence of AgentWorkCounts
        Counts of all agents.
    limits : ResourceLimits
        Limits of the run.
    device : {"auto", "cpu", "cuda"}
        Which device may be used.
    measure : callable
        Returns this machine's rates.
    """
    needed = [exact_option(work, limits, NOMINAL).seconds for work in surveys]
    opened = device == "cuda"
    if opened or (device == "auto" and _gpu_may_change(surveys, sum(needed), limits)):
        limits = replace(limits, gpu=gpu_problem() is None, opened=opened)
    measured = limits.time is not None and sum(needed) > common.UNTRIED_SHARE * limits.time
    return limits, measure() if measured else NOMINAL


def _gpu_may_change(surveys: Sequence[AgentWorkCounts], seconds: float, limits: ResourceLimits) -> bool:
    """Return whether a GPU could change the choice: to look for one takes a moment."""
    if limits.time is not None:
        return limits.time > NOMINAL.gpu_open and seconds > NOMINAL.gpu_open
    return limits.cells is None and any(work.cells > auto.CPU_CELLS for work in surveys)
