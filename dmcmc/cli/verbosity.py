"""Set how much a command writes to standard error: ``--quiet``, ``--verbose`` or the default."""

import logging
import sys
import warnings
from argparse import Namespace

from dmcmc.inference.runtime.errors import DivisionWarning
from dmcmc.results.result import TracePoint
from dmcmc.solving.monitoring.progress import NoProgress

LOG = logging.getLogger("dmcmc")


class Logged(NoProgress):
    """Progress that writes stages, and each new objective and bound, to the log ``dmcmc``."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.solving.monitoring.progress.ProgressReporter`."""
        LOG.info("%s", title if total is None else f"{title}: {total}")

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        LOG.info(
            "%.3f s: objective %s, bound %s, found by %s",
            point.time,
            point.objective,
            point.bound,
            point.found_by or "-",
        )


def set_verbosity(arguments: Namespace) -> None:
    """Apply ``--quiet`` and ``--verbose`` to the log and the warnings of this process."""
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
    """Return whether only errors are written."""
    return LOG.level > logging.WARNING


def logs() -> bool:
    """Return whether a log is written (``--verbose``)."""
    return LOG.isEnabledFor(logging.INFO)
