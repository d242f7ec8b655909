"""``dmcmc warm-up``: compile all kernels in advance, so that no later run of this user on this machine waits for it.

Kernels are compiled by solving small problems of each kind with each kind of settings.
"""

import time
from dataclasses import replace
from itertools import product
from typing import Any

from dmcmc.api import generate, solve
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.storage.cache_folders import find_folders, stored_kernels
from dmcmc.run.monitoring.progress import NoProgress

# Time limit in seconds of each run after compilation: so short that tables may be unfinished and all improvers start.
_SECONDS = 0.02
_SETTINGS: dict[str, dict[str, Any]] = {
    "fixed work": {},
    "a time budget": {"timeout": _SECONDS},
    "a time budget, branch and bound": {"timeout": _SECONDS, "search": "branch-and-bound"},
    "Gibbs sampling": {"timeout": _SECONDS, "method": "gibbs"},
    "mini-buckets": {"combine": {"method": "mini-bucket", "z": 2}},
}


class _NumberedProgress(NoProgress):
    """Progress that puts the number of the run in front of each stage, such as ``3 of 20``."""

    def __init__(self, progress: Any, number: str) -> None:
        self._progress, self._number = progress, number

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage."""
        self._progress.stage(f"{self._number}: {title}")


def warm_up(device: str, progress: Any) -> tuple[int, float]:
    """Compile the kernels for a device; return the number of cached kernels and the seconds that it took.

    Raises
    ------
    DmcmcError
        If the device is missing, or there is no folder for the kernels.
    """
    found, start = find_folders(), time.perf_counter()
    if found.kernels is None:
        raise DmcmcError(f"warm-up: {found.problem}")
    runs = list(product(_problems().items(), _SETTINGS.items()))
    for number, ((problem_name, problem), (settings_name, settings)) in enumerate(runs, 1):
        numbered = _NumberedProgress(progress, f"{number} of {len(runs)}")
        numbered.stage(f"{problem_name}, {settings_name}")
        solve(problem, device=device, progress=numbered, **{"search": "none", **settings})
    return len(stored_kernels(found.kernels)), time.perf_counter() - start


def _problems() -> dict[str, Problem]:
    """Return small problems that need different kernels: one or several agents, hard constraints, float utilities."""
    meetings: dict[str, Any] = {"agents": 3, "variables_per_agent": 14, "domain_size": 6, "seed": 1}
    one_agent = generate("random", agents=1, variables_per_agent=30, domain_size=4, local_density=0.4, seed=1)
    return {
        "meetings": generate("meeting-scheduling", **meetings),
        "meetings with constraints": generate("meeting-scheduling", tables="hard", **meetings),
        "one agent": one_agent,
        "one agent, probabilities": replace(one_agent, factors=tuple(map(_as_logarithms, one_agent.factors))),
    }


def _as_logarithms(factor: Factor) -> Factor:
    """Return a factor with fractional utilities, as logarithms of probabilities are."""
    return Factor.of(factor.scope, -0.1 * factor.table)
