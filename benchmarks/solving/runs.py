"""The runs that budgets are measured over: instances of every family, agents, ranks, methods."""

import os
import shutil
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import instances
from dmcmc.formats.registry import save
from dmcmc.generators import registry

FILES = (
    "instances/spot5/42b.wcsp",
    "instances/celar/CELAR6-SUB0.wcsp.xz",
    "instances/coloring_wcsp/le450_5a_3.wcsp",
    "instances/grids/75-26-5.uai",
    "instances/iscas89/s1196.wcsp",
    "instances/linkage/pedigree13.uai",
    "instances/bayesnet/munin2.bif.gz",
    "instances/tb2_default/cap131.wcsp",
    "instances/uai14_PR/Promedus_11.uai",
    "generated/r20d10.wcsp",
)
OWN_AGENTS = ("instances/dcop_xcsp/RandomDCOP_20_10_1.xml", "meetings/ms_A10_n50_D24_pl0.5_s0.npz")
DRAWN: dict[str, tuple[str, dict[str, int | float]]] = {
    "16 variables of 44 values": ("random-network", {"nodes": 16, "domain_size": 44, "tightness": 0.0}),
    "many rows": (
        "random",
        {"agents": 6, "variables_per_agent": 12, "domain_size": 12, "interface_variables": 4, "global_density": 0.3},
    ),
}
METHODS: dict[str, tuple[str, ...]] = {
    "auto": (),
    "exact": ("--method", "exact"),
    "mini-bucket": ("--method", "mini-bucket"),
    "annealing": ("--method", "annealing"),
    "gibbs": ("--method", "gibbs", "--set", "local.samples=1000000"),
}
UNBOUND = ("--bind-to", "none")  # else Open MPI puts the ranks of all jobs on the machine's first cores
AGENTS, RANKS = (1, 4, 10), (1, 2)


class Run(NamedTuple):
    """A problem, divided, solved by a method on some ranks; ``agents`` 0: those that the problem has."""

    problem: str
    agents: int
    method: str
    ranks: int

    @property
    def name(self) -> str:
        """What the lines of a result call it."""
        agents = f"{self.agents} agents" if self.agents else "its agents"
        return f"{self.problem}, {agents}, {self.method}, {self.ranks} ranks"


def runs(only: str = "", every: bool = False) -> list[Run]:
    """Return the runs whose names have a text in them.

    Parameters
    ----------
    every
        All methods, agents and ranks with each other; else each problem with each method, agents and ranks in turn.
    """
    found = []
    kinds = [(name, AGENTS) for name in (*FILES, *DRAWN)] + [(name, (0,)) for name in OWN_AGENTS]
    for place, (name, agents) in enumerate(kinds):
        if every:
            found += [Run(name, a, method, r) for a, method, r in product(agents, METHODS, RANKS)]
            continue
        for turn, method in enumerate(METHODS):
            found.append(Run(name, agents[(place + turn) % len(agents)], method, RANKS[(place + turn // 2) % 2]))
    return [run for run in found if only in run.name]


def command(run: Run, folder: Path, *more: str) -> list[str]:
    """Return the command line of a run; problems that are drawn are written to a folder."""
    file = instances() / run.problem
    if run.problem in DRAWN:
        file = folder / f"{run.problem.replace(' ', '_')}.npz"
        if not file.exists():
            family, parameters = DRAWN[run.problem]
            save(registry.generate(family, {"seed": 1, **parameters}), file)
    launch = [launcher(), *UNBOUND, "-n", str(run.ranks)] if run.ranks > 1 else []
    agents = ["--agents", str(run.agents)] if run.agents else []
    return [*launch, sys.executable, "-m", "dmcmc", "solve", str(file), *agents, *METHODS[run.method], *more]


def launcher() -> str:
    """Return ``$DMCMC_MPIEXEC``, or the launcher of this environment, or else the one on the path."""
    here = str(Path(sys.executable).parent)
    return os.environ.get("DMCMC_MPIEXEC") or shutil.which("mpiexec", path=here) or "mpiexec"
