"""The runs over which time and memory budgets are measured: instances of every family, agents, ranks and methods."""

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
FILES_WITH_AGENTS = ("instances/dcop_xcsp/RandomDCOP_20_10_1.xml", "meetings/ms_A10_n50_D24_pl0.5_s0.npz")
GENERATED: dict[str, tuple[str, dict[str, int | float]]] = {
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
UNBOUND = ("--bind-to", "none")  # otherwise Open MPI binds the ranks of all jobs to the first cores of the machine
AGENTS, RANKS = (1, 4, 10), (1, 2)


class BudgetRun(NamedTuple):
    """A problem, divided among agents and solved by a method on some ranks.

    Attributes
    ----------
    problem : str
        A file below ``$DMCMC_INSTANCES``, or a key of ``DRAWN``.
    agents : int
        Number of agents; 0: the agents that the problem has.
    method : str
        A key of ``METHODS``.
    ranks : int
        Number of MPI ranks.
    """

    problem: str
    agents: int
    method: str
    ranks: int

    @property
    def name(self) -> str:
        """Return the name of the run in results."""
        agents = f"{self.agents} agents" if self.agents else "its agents"
        return f"{self.problem}, {agents}, {self.method}, {self.ranks} ranks"


def runs(only: str = "", every: bool = False) -> list[BudgetRun]:
    """Return the runs whose names contain ``only``.

    Parameters
    ----------
    only : str
        A part of the names.
    every : bool
        Combine all methods, agents and ranks with each other; otherwise each problem is combined with each method, and
        with agents and ranks in turn.
    """
    found = []
    problems = [(name, AGENTS) for name in (*FILES, *GENERATED)] + [(name, (0,)) for name in FILES_WITH_AGENTS]
    for number, (name, agents) in enumerate(problems):
        if every:
            found += [BudgetRun(name, a, method, r) for a, method, r in product(agents, METHODS, RANKS)]
            continue
        for offset, method in enumerate(METHODS):
            found.append(
                BudgetRun(name, agents[(number + offset) % len(agents)], method, RANKS[(number + offset // 2) % 2])
            )
    return [run for run in found if only in run.name]


def command(run: BudgetRun, folder: Path, *options: str) -> list[str]:
    """Return the command line of a run; generated problems are written to ``folder``."""
    file = instances() / run.problem
    if run.problem in GENERATED:
        file = folder / f"{run.problem.replace(' ', '_')}.npz"
        if not file.exists():
            family, parameters = GENERATED[run.problem]
            save(registry.generate(family, {"seed": 1, **parameters}), file)
    launch_command = [launcher(), *UNBOUND, "-n", str(run.ranks)] if run.ranks > 1 else []
    agents = ["--agents", str(run.agents)] if run.agents else []
    return [*launch_command, sys.executable, "-m", "dmcmc", "solve", str(file), *agents, *METHODS[run.method], *options]


def launcher() -> str:
    """Return ``$DMCMC_MPIEXEC``, or the launcher of this environment, or else ``mpiexec`` on the path."""
    here = str(Path(sys.executable).parent)
    return os.environ.get("DMCMC_MPIEXEC") or shutil.which("mpiexec", path=here) or "mpiexec"
