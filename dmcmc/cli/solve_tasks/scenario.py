"""``dmcmc run`` with a scenario: go through its events, and write a line of result for each as soon as it is known."""

from collections.abc import Sequence

from msgspec import structs

from dmcmc.config.configuration import Config
from dmcmc.config.settings import Settings
from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.mpi.world import World
from dmcmc.results.scenario import EventResult, ScenarioResult
from dmcmc.session.run_scenario import external_tables, run_scenario
from dmcmc.session.scenario import ScenarioEvent
from dmcmc.session.session import Session
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import ProgressReporter


def run_events(
    problem: Problem,
    config: Config,
    events: Sequence[ScenarioEvent],
    world: World,
    progress: ProgressReporter,
    ending: RunHandle | None,
) -> ScenarioResult | None:
    """Go through the events of a scenario on all ranks; return the results on rank 0.

    After a signal, the results so far are delivered.
    """
    lines = _Lines(config.output if world.rank == 0 else None)
    if ending is not None:
        ending.best = lines.so_far
    path, distribution = config.problem.get("file"), config.problem.get("distribution")
    external = None if path is None else external_tables(str(path), distribution)
    settings = Settings(**{name: getattr(config, name) for name in Settings.__struct_fields__})

    def finished(event: EventResult) -> None:
        lines.add(event)
        progress.advance()

    progress.stage("events", len(events))
    settings = structs.replace(settings, output=None)
    session = Session(problem, settings, world=world)
    found = run_scenario(session, events, settings.budget.time, external=external, on_event=finished)
    return found if world.rank == 0 else None


class _Lines:
    """The results so far, which are also written to a file."""

    def __init__(self, path: str | None) -> None:
        self.path, self.events = path, list[EventResult]()
        if path is not None:
            replace_file(path, [])

    def add(self, event: EventResult) -> None:
        """Keep a result, and write its line."""
        self.events.append(event)
        if self.path is not None:
            try:
                with open(self.path, "a", encoding="utf-8") as stream:
                    stream.write(event.to_line())
            except OSError as error:
                raise FileError(f"{self.path}: cannot be written: {error.strerror or error}") from None

    def so_far(self) -> ScenarioResult | None:
        """Return the results so far; None if there are none, or on other ranks than 0."""
        return ScenarioResult(events=tuple(self.events)) if self.events else None
