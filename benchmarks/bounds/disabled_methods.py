"""Run ``dmcmc`` without some methods for the bound; everything else is as usual.

    python -m benchmarks.bounds.disabled_methods METHOD ... -- solve FILE --timeout 60

Methods are improvers (``"branch and bound"`` over boundary assignments, ``semidefinite``) and ``smoothing``: sweeps of
dual ascent with smoothed maxima.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from dmcmc.anytime.improvers import registry
from dmcmc.cli.main import main as command
from dmcmc.inference.bounds.dual import dual_bound
from dmcmc.inference.bounds.semidefinite_rows import relaxation_pays
from dmcmc.inference.bounds.tuning.dual import MAX_TEMPERATURE_RATIO
from dmcmc.results.improver_names import BRANCH, SEMIDEFINITE
from dmcmc.solving.agent import upper_table

SMOOTHING = "smoothing"
METHODS = (BRANCH, SEMIDEFINITE, SMOOTHING)


@contextmanager
def disabled(names: Collection[str]) -> Iterator[None]:
    """Disable some methods for the bound, or other improvers of agents, in this process."""
    improvers = tuple(improver for improver in registry.installed() if improver.name not in names)
    with (
        patch.object(registry, "installed", lambda: improvers),
        patch.object(dual_bound, "MAX_TEMPERATURE_RATIO", 0 if SMOOTHING in names else MAX_TEMPERATURE_RATIO),
        # dual ascent waits for the first semidefinite bounds of agents that may have such a relaxation
        patch.object(
            upper_table,
            "relaxation_pays",
            relaxation_pays if SEMIDEFINITE not in names else lambda local, backend: False,
        ),
    ):
        yield


def main(arguments: Sequence[str]) -> int:
    """Run a command without the methods that are named before ``--``."""
    if "--" not in arguments or not set(arguments[: arguments.index("--")]) <= set(METHODS):
        print(
            f"{__doc__}\npython -m benchmarks.bounds.disabled_methods: expected methods ({', '.join(METHODS)}), then --"
        )
        return 0 if "--help" in arguments else 2
    cut = arguments.index("--")
    sys.argv = ["dmcmc", *arguments[cut + 1 :]]
    with disabled(arguments[:cut]):
        return int(command() or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
