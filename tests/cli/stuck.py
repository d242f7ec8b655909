"""Run a command line that gets stuck at a certain point: ``stuck.py POINT run ...``.

At this point it writes its process id to the file ``$STUCK`` and then ignores all requests to end.
"""

import importlib
import os
import sys
import time
from pathlib import Path

PLACES = {
    "reading": ("dmcmc.cli.commands.solve", "problem_of"),
    "compiling": ("dmcmc.run.compilation.kernel_supply", "KernelSupply.request"),
    "dividing": ("dmcmc.solving.planning.divided_problem", "divide_problem"),
    "sampling": ("dmcmc.solving.rank_tables", "RankTables.make"),
    "improving": ("dmcmc.anytime.rank_run", "RankRun.improve"),
}


def stick(point):
    """Replace the function of a point by one that never returns; under MPI on rank 1 only."""
    module, name = PLACES[point]
    *outer, name = name.split(".")
    home = importlib.import_module(module)
    for part in outer:
        home = getattr(home, part)

    real = getattr(home, name)

    def stuck(*arguments, **options):
        # Tiny problems that are solved to compile kernels are not affected.
        if getattr(sys.modules.get("dmcmc.run.compilation.kernel_supply"), "_in_compilation", False):
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
    if patience is not None:  # seconds for the run to end by itself
        signals._GRACE = signals._FORCED_END = float(patience)
    real_listen = SIGNALS.listen

    def listen_and_stick():
        real_listen()
        stick(point)

    SIGNALS.listen = listen_and_stick
    sys.exit(main())
