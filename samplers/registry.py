"""Local solvers by name: ours, and those that other distributions register under ``dmcmc.samplers``."""

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from dmcmc.inference.errors import ConfigError
from dmcmc.samplers import annealing, exact, gibbs, metropolis, metropolis_single, tempering
from dmcmc.samplers.launch import ChainSolver
from dmcmc.samplers.protocol import LocalSolver, Sampler

GROUP = "dmcmc.samplers"

_OURS: dict[str, LocalSolver] = {
    solver.name: solver
    for solver in (
        exact.SOLVER,
        ChainSolver(gibbs.SAMPLER),
        ChainSolver(annealing.SAMPLER),
        ChainSolver(tempering.SAMPLER),
        ChainSolver(metropolis.SAMPLER),
        ChainSolver(metropolis_single.SAMPLER),
    )
}


def names() -> dict[str, str]:
    """Return every known name with its line of help; a plug-in that cannot be loaded says why."""
    lines = {name: solver.summary for name, solver in _OURS.items()}
    for name, entry in _entries().items():
        try:
            lines[name] = _load(entry).summary
        except ConfigError as error:
            lines[name] = f"cannot be loaded: {error}"
    return lines


def get(name: str) -> LocalSolver:
    """Return a local solver.

    Raises
    ------
    ConfigError
        If there is none of this name; lists the known ones.
    """
    if name in _OURS:
        return _OURS[name]
    entries = _entries()
    if name in entries:
        return _load(entries[name])
    known = [*_OURS, *entries]
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"unknown sampler {name!r}{hint} (known: auto, {', '.join(known)})")


def _entries() -> dict[str, EntryPoint]:
    """Return the registered plug-ins; a name of ours is not replaced."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _OURS}


def _load(entry: EntryPoint) -> LocalSolver:
    """Import a plug-in: a Sampler, or anything with name, summary and solve."""
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a foreign module raises on import
        raise ConfigError(f"plug-in {entry.name!r} ({entry.value}): {type(error).__name__}: {error}") from error
    if isinstance(loaded, Sampler):
        return ChainSolver(loaded)
    if all(hasattr(loaded, part) for part in ("name", "summary", "check", "solve")):
        solver: LocalSolver = loaded
        return solver
    raise ConfigError(f"plug-in {entry.name!r} ({entry.value}) is neither a Sampler nor a LocalSolver")
