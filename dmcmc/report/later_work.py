"""Describe the improvers that can follow the first combination of a run with a time budget."""

from typing import TYPE_CHECKING

from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.results.improver_names import (
    BOUND,
    BRANCH,
    EXACT_ELIMINATION,
    FUNCTION_FILTERING,
    LOCAL_SEARCH,
    RECOMBINATION,
    SAMPLING,
    SEMIDEFINITE,
)

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup

# Beginnings of the names of bounds that branch and bound and per-row relaxations can follow.
_ASCENTS = ("dual", "triangles", "semidefinite")


def work_after_first_answer(setup: "Setup") -> tuple[str, ...]:
    """Return the improvers that can follow the first combination: ``name: work`` each."""
    from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable, runs_after_branch_and_bound

    sampled = [choice for choice in setup.choices if choice.method != "exact"]
    bounded = sum(choice.bound != "none" for choice in sampled)
    exact_seconds = [
        seconds for seconds in map(setup.exact_seconds, range(setup.divided.problem.n_agents)) if seconds is not None
    ]
    lines = [f"{LOCAL_SEARCH}: the whole assignment"]
    if exact_seconds:
        seconds_each = (
            f"{min(exact_seconds):.2g} s"
            if len(exact_seconds) == 1
            else f"{min(exact_seconds):.2g} to {max(exact_seconds):.2g} s each"
        )
        lines.append(
            f"{EXACT_ELIMINATION}: {_agents(len(exact_seconds))} ({seconds_each}, {sum(exact_seconds):.2g} s in total)"
        )
    filtered = sum(map(setup.may_filter, range(setup.divided.problem.n_agents)))
    if filtered:
        lines.append(f"{FUNCTION_FILTERING}: {_agents(filtered)}, without entries that cannot beat the best answer")
    if sampled:
        lines.append(f"{SAMPLING}: {_agents(len(sampled))}")
    if bounded:
        lines.append(f"{BOUND}: {_agents(bounded)}")
    searched = sum(choice.bound.startswith(_ASCENTS) for choice in sampled)
    if searched:
        lines.append(f"{BRANCH}: {_agents(searched)}, in table rows whose gap dual ascent leaves open")
    cpu_note = _cpu_relaxation_note(setup)
    relaxed = [
        local
        for choice, local in zip(setup.choices, setup.divided.division.locals, strict=True)
        if choice.method != "exact" and choice.bound.startswith(_ASCENTS)
        if is_suitable(local, _gpu_in_use(setup) and not cpu_note)
    ]
    if relaxed:
        later = ", once branch and bound makes no progress" if all(map(runs_after_branch_and_bound, relaxed)) else ""
        lines.append(f"{SEMIDEFINITE}: bounds of {_agents(len(relaxed))} by semidefinite relaxation{later}{cpu_note}")
    if setup.divided.config.combine.method == "auto" and setup.divided.config.combine.z == "auto":
        lines.append(f"{RECOMBINATION}: with larger tables, if some are split")
    return tuple(lines)


def _gpu_in_use(setup: "Setup") -> bool:
    """Return whether the run may use a GPU and one is there."""
    return setup.backend.device != "cpu" and bool(setup.limits.gpu or is_gpu_in_use())


def _cpu_relaxation_note(setup: "Setup") -> str:
    """Return why semidefinite relaxations run on the CPU although a GPU is in use; empty otherwise."""
    if not _gpu_in_use(setup):
        return ""
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem

    reason = relaxation_gpu_problem()
    return "" if reason is None else f" (on the CPU: {reason})"


def _agents(count: int) -> str:
    """Return a number of agents in words."""
    return f"{count} agent{'s' * (count != 1)}"
