"""A command line that gets stuck at a point, deaf to every wish, once it has said so: ``stuck.py POINT run ...``.

It says so in the file that the environment names.
"""

import importlib
import os
import sys
import time
from pathlib import Path

PLACES = {
    "reading": ("dmcmc.cli.commands", "problem_of"),
    "compiling": ("dmcmc.run.solve", "warm_up_planning"),
    "dividing": ("dmcmc.run.solve", "divided"),
    "sampling": ("dmcmc.run.rank_run", "Run.first_tables"),
    "improving": ("dmcmc.run.rank_run", "Run.improve"),
}


def stick(point):
    """Replace a function by one that never returns; on rank 1 alone where there are ranks."""
    module, name = PLACES[point]
    *outer, name = name.split(".")
    home = importlib.import_module(module)
    for part in outer:
        home = getattr(home, part)

    real = getattr(home, name)

    def stuck(*arguments, **options):
        # A tiny problem is solved for its kernels.
        if getattr(sys.modules.get("dmcmc.run.compilation.once_per_node"), "_AT_WORK", None):
            return real(*arguments, **options)
        Path(os.environ["STUCK"]).write_text(str(os.getpid()))
        while True:
            time.sleep(60)

    if int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "1"))) == 1:
        setattr(home, name, stuck)


if __name__ == "__main__":
    from dmcmc.cli import signals
    from dmcmc.cli.main import main
    from dmcmc.cli.signals import SIGNALS

    point, patience = sys.argv.pop(1), os.environ.get("PATIENCE")
    if patience is not None:  # how long the run may take to end by itself
        signals._GRACE = signals._LAST = float(patience)
    listen = SIGNALS.listen

    def listening():
        listen()
        stick(point)

    SIGNALS.listen = listening
    sys.exit(main())
