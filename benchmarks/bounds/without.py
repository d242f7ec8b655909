"""``dmcmc`` without some ingredients of the bound: what it does as usual, but for those.

    python -m benchmarks.bounds.without INGREDIENT ... -- solve FILE --timeout 60

Ingredients are kinds of work (``branch``: search in rows, ``semidefinite``: lifts) and ``warm``: sweeps that smooth the
maxima.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from dmcmc.cli.main import main as command
from dmcmc.inference.bounds.dual import dual_bound
from dmcmc.inference.bounds.semidefinite.relaxation import suits
from dmcmc.run.agent import upper_table
from dmcmc.run.improvers import registry
from dmcmc.run.scheduler.proposal import BRANCH, SEMIDEFINITE

WARM = "warm"
INGREDIENTS = (BRANCH, SEMIDEFINITE, WARM)


@contextmanager
def without(names: Collection[str]) -> Iterator[None]:
    """Leave out some ingredients, or other kinds of agents' work, in this process."""
    kinds = [kind for kind in registry.OF_AGENTS if kind.name not in names]
    with (
        patch.object(registry, "OF_AGENTS", kinds),
        patch.object(dual_bound, "WARMTH", 0 if WARM in names else dual_bound.WARMTH),
        # ascent waits for lifts to show what they bring, where there may be any
        patch.object(upper_table, "suits", suits if SEMIDEFINITE not in names else lambda local: False),
    ):
        yield


def main(arguments: Sequence[str]) -> int:
    """Run a command without what is named before ``--``."""
    if "--" not in arguments or not set(arguments[: arguments.index("--")]) <= set(INGREDIENTS):
        print(f"{__doc__}\npython -m benchmarks.bounds.without: ingredients are {', '.join(INGREDIENTS)}; then --")
        return 0 if "--help" in arguments else 2
    cut = arguments.index("--")
    sys.argv = ["dmcmc", *arguments[cut + 1 :]]
    with without(arguments[:cut]):
        return int(command() or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
