"""How much is said on stderr while a command works: ``--quiet``, ``--verbose``, or what a terminal shows."""

import logging
import sys
import warnings
from argparse import Namespace

from dmcmc.inference.runtime.errors import DivisionWarning
from dmcmc.results.result import TracePoint
from dmcmc.run.monitoring.progress import Silent

LOG = logging.getLogger("dmcmc")


class Logged(Silent):
    """Writes stages, and every new objective and bound, to the log ``dmcmc``."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.run.monitoring.progress.Progress`."""
        LOG.info("%s", title if total is None else f"{title}: {total}")

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        LOG.info("%.3f s: objective %s, bound %s, by %s", point.time, point.objective, point.bound, point.by or "-")


def listen(arguments: Namespace) -> None:
    """Do as ``--quiet`` and ``--verbose`` say; the last word of a process counts."""
    LOG.setLevel(logging.INFO if getattr(arguments, "verbose", False) else logging.WARNING)
    if LOG.isEnabledFor(logging.INFO) and not LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        LOG.addHandler(handler)
        LOG.propagate = False
    if getattr(arguments, "quiet", False):
        LOG.setLevel(logging.CRITICAL)
        warnings.simplefilter("ignore", DivisionWarning)


def quiet() -> bool:
    """Return whether nothing but errors is wanted."""
    return LOG.level > logging.WARNING


def logs() -> bool:
    """Return whether a log is wanted."""
    return LOG.isEnabledFor(logging.INFO)
