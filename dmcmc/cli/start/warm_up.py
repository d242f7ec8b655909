"""``dmcmc warm-up``: compile ahead what runs use, so that no run of this user on this machine waits for it.

Kernels are compiled by solving small problems of every kind with every kind of settings, as runs do.
"""

import time
from collections.abc import Iterator
from typing import Any

from dmcmc.api import generate, solve
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.cache import kernel_folder
from dmcmc.inference.runtime.errors import DmcmcError

_SECONDS = 0.5  # of each run, once its kernels are compiled
_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"timeout": _SECONDS},
    {"timeout": _SECONDS, "method": "gibbs"},
    {"combine": {"method": "mini-bucket", "z": 2}},
)


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
    for problem in _problems():
        for settings in _SETTINGS:
            solve(problem, device=device, search="none", progress=progress, **settings)
    return sum(1 for _ in folder.rglob("*.nbi")), time.perf_counter() - start


def _problems() -> Iterator[Problem]:
    """Yield small problems whose runs differ in what they use: several agents or one, and something forbidden."""
    meetings: dict[str, Any] = {"domain_size": 6, "seed": 1}
    yield generate("meeting-scheduling", agents=3, variables_per_agent=14, **meetings)
    yield generate("meeting-scheduling", agents=3, variables_per_agent=14, tables="hard", **meetings)
    yield generate("random", agents=1, variables_per_agent=16, domain_size=3, seed=1)
