"""``dmcmc warm-up``: compile ahead what runs use, so that no run of this user on this machine waits for it.

Kernels are compiled by solving small problems of every kind with every kind of settings, as runs do.
"""

import time
from dataclasses import replace
from itertools import product
from typing import Any

from dmcmc.api import generate, solve
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.kernel_cache import kernel_folder
from dmcmc.run.monitoring.progress import Silent

# Of each run, once its kernels are compiled: so little that tables may not be through, and all else may be needed.
_SECONDS = 0.02
_SETTINGS: dict[str, dict[str, Any]] = {
    "fixed work": {},
    "a time budget": {"timeout": _SECONDS},
    "a time budget, branch and bound": {"timeout": _SECONDS, "search": "branch-and-bound"},
    "Gibbs sampling": {"timeout": _SECONDS, "method": "gibbs"},
    "mini-buckets": {"combine": {"method": "mini-bucket", "z": 2}},
}


class _Numbered(Silent):
    """Says before each stage which of all runs it is in."""

    def __init__(self, progress: Any, number: str) -> None:
        self._progress, self._number = progress, number

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage."""
        self._progress.stage(f"{self._number}: {title}")


def warm_up(device: str, progress: Any) -> tuple[int, float]:
    """Compile what runs on a device use; return how many kernels there are now, and the seconds that it took.

    Raises
    ------
    DmcmcError
        If the device is not there, or nothing can be kept.
    """
    folder, start = kernel_folder(), time.perf_counter()
    if folder is None:
        raise DmcmcError(
            "warm-up: there is no place for kernels; let XDG_CACHE_HOME name a folder that can be written to"
        )
    runs = list(product(_problems().items(), _SETTINGS.items()))
    for number, ((what, problem), (how, settings)) in enumerate(runs, 1):
        numbered = _Numbered(progress, f"{number} of {len(runs)}")
        numbered.stage(f"{what}, {how}")
        solve(problem, device=device, progress=numbered, **{"search": "none", **settings})
    return sum(1 for _ in folder.rglob("*.nbi")), time.perf_counter() - start


def _problems() -> dict[str, Problem]:
    """Return small problems whose runs differ in what they use: several agents or one, something forbidden, numbers."""
    meetings: dict[str, Any] = {"agents": 3, "variables_per_agent": 14, "domain_size": 6, "seed": 1}
    alone = generate("random", agents=1, variables_per_agent=30, domain_size=4, local_density=0.4, seed=1)
    return {
        "meetings": generate("meeting-scheduling", **meetings),
        "meetings with constraints": generate("meeting-scheduling", tables="hard", **meetings),
        "one agent": alone,
        "one agent, probabilities": replace(alone, factors=tuple(map(_as_logarithms, alone.factors))),
    }


def _as_logarithms(factor: Factor) -> Factor:
    """Return a factor with numbers that are not whole."""
    return Factor.of(factor.scope, -0.1 * factor.table)
