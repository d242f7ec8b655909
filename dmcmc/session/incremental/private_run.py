"""Solve a problem with private inputs again after changes, from the messages of the last run (S-DPOP).

Each rank finds the changes of its agents. The ranks exchange the numbers of the changed agents, and the growth of the
sum of the largest entries, which they also share in a new run. Then only agents between a change and the root of the
pseudo-tree make UTIL messages, and each rank reports sums and the metrics of its agents to rank 0.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Exact, exact_sum
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.mpi.world import World
from dmcmc.session.incremental import changed_problem, incremental_run
from dmcmc.session.incremental.repeated_messages import RoundChanges
from dmcmc.solving.combine_tables import FinishedCycle
from dmcmc.solving.private.agreement import RankAssignment
from dmcmc.solving.private.private_inputs import PrivateAnswer
from dmcmc.solving.warm_start.retained_work import RetainedWork

if TYPE_CHECKING:
    from dmcmc.solving.private.private_inputs import RankInputs


@dataclass
class PrivateRun(incremental_run.ContinuedRun):
    """A finished exact run on private inputs that can be continued with new tables.

    Attributes
    ----------
    inputs : RankInputs
        The inputs of the first run; the parts of this rank's agents are those of the last run.
    parts : dict of int to Problem
        The problems of this rank's agents in the last run.
    places : dict of int to list of FactorPlace
        Where the division holds each factor of each of these problems.
    todo : Continuation
        The plan of the last run.
    factors : int
        Number of factors of the whole problem.
    shares_assignment : bool
        Whether rank 0 knows the values of all variables.
    answer : KnownAnswer or None
        The answer on rank 0, None on the others.
    kept : (int, int)
        Number of agents of all ranks whose tables, and whose UTIL steps, the last change has left as they were.
    """

    inputs: "RankInputs" = field(repr=False)
    parts: Mapping[int, Problem]
    places: Mapping[int, list[changed_problem.FactorPlace]]
    todo: changed_problem.Continuation = field(repr=False)
    factors: int
    shares_assignment: bool
    answer: incremental_run.KnownAnswer | None
    kept: tuple[int, int] = (0, 0)

    @classmethod
    def begin(
        cls,
        inputs: "RankInputs",
        settings: Settings,
        answer: PrivateAnswer,
        cycle: FinishedCycle,
        shares_assignment: bool,
        world: World,
    ) -> "PrivateRun":
        """Return the state after a run; called by all ranks.

        Parameters
        ----------
        inputs
            The inputs of the run on this rank.
        settings
            The settings of the session.
        answer
            The answer as this rank knows it.
        cycle
            The last cycle of messages on this rank.
        shares_assignment
            Whether rank 0 knows the values of all variables.
        world
            The ranks.
        """
        setup, utilities, result = cycle.setup, incremental_run.utilities_of(cycle), answer.result
        idle = {
            setup.divided.problem.agents[agent]: incremental_run.new_metrics(setup, agent) for agent in cycle.tables
        }
        own = _labels(inputs, cycle.values) if shares_assignment else {}
        counted = inputs.view.counted(list(cycle.tables), setup.tree.placed)
        sizes = world.allgather(exact_sum(magnitude(factor.table) for factor in counted))
        reports, known = world.gather((incremental_run.total_utility(utilities.values()), cycle.roots, own)), None
        if reports is not None and result is not None:
            named = {name: value for *_, values in reports for name, value in values.items()}
            ordered = sorted(named.items(), key=lambda item: item[1][0])
            assignment = {name: label for name, (_, label) in ordered} if shares_assignment else None
            known = incremental_run.KnownAnswer.begin(result, [report[:2] for report in reports], assignment)
            idle = {agent.name: incremental_run.without_work(agent) for agent in result.agents}
        return cls(
            settings,
            cycle,
            sum(sizes),
            utilities,
            idle,
            sum(factor.table.nbytes for part in inputs.parts.values() for factor in part.factors),
            inputs,
            inputs.parts,
            {agent: _places(inputs, agent) for agent in inputs.parts},
            changed_problem.Continuation.of(setup),
            answer.factors,
            shares_assignment,
            known,
        )

    def solve_changed(self, parts: Mapping[int, Problem], settings: Settings, world: World) -> PrivateAnswer | None:
        """Solve the changed problem, and keep the answer for the next change; called by all ranks.

        Parameters
        ----------
        parts
            The problems of this rank's agents.
        settings
            Settings of the run.
        world
            The ranks.

        Returns
        -------
        PrivateAnswer or None
            The answer as this rank knows it; None on all ranks if a new run is needed, since numbers need another type,
            agents need rows that their children have left out, or time or memory ran out.
        """
        start, changes = time.perf_counter(), None
        if incremental_run.comparable(settings) == incremental_run.comparable(self.settings):
            changes = self._changes(parts)
        own = None if changes is None else changed_problem.with_new_tables(self.todo, changes)
        shared = world.allgather(own and (own.local_agents, own.growth))
        if own is None or not all(shared):
            return None
        changed = set(chain.from_iterable(agents for agents, _ in shared))
        todo = changed_problem.Continuation(
            own.setup, own.positions, changed, changed, sum(growth for _, growth in shared)
        )
        reports = list[incremental_run.ChangeReport]()

        def share(changes: RoundChanges) -> None:
            """Keep a report for rank 0; other ranks do not receive it."""
            values = _labels(self.inputs, changes.values).items() if self.shares_assignment else ()
            report = self.report(changes, todo.setup.divided.problem.agents, world)
            reports.append(report._replace(assignment={name: label for name, (_, label) in values}))

        update = self.repeat(todo, settings, start, world, share)
        if update is None:
            return None
        agents = len(todo.positions)
        self.kept = agents - len(changed), agents - len(update.path)
        gathered = world.gather(reports)
        self.parts, self.todo, setup = parts, todo, update.cycle.setup
        result = None
        if gathered is not None and self.answer is not None:
            self.answer.update(list(chain(*gathered)), setup, self.factors, self.idle, setup.divided.problem.variables)
            result = self.answer.end(time.perf_counter() - start)
        return PrivateAnswer(result, self._known(), self._deliver(parts, settings, world), self.factors)

    def _changes(self, parts: Mapping[int, Problem]) -> changed_problem.TableChanges | None:
        """Return the new tables of this rank's agents; None if a new run is needed."""
        factors = dict[changed_problem.FactorPlace, Factor]()
        growth: Exact = 0
        for agent, part in parts.items():
            before, numbers = self.parts[agent], np.array(self.inputs.index.known_variables(agent))
            positions = [] if part is before else changed_problem.changed_positions(before, part)
            changes = (
                None
                if positions is None
                else changed_problem.table_changes(before, part, positions, self.places[agent], numbers)
            )
            if changes is None or changes.crossing():
                return None
            factors |= changes.factors
            growth += changes.magnitude
        return changed_problem.TableChanges(factors, growth)

    def _known(self) -> dict[int, int]:
        """Return the assignment as this rank knows it: of its agents, and of variables that they share factors with."""
        cycle = self.cycle
        known = dict(cycle.values)
        for context in cycle.contexts.values():
            known |= cycle.sides.lower.expand(context)
        return known

    def _deliver(self, parts: Mapping[int, Problem], settings: Settings, world: World) -> dict[str, Label]:
        """Return the values of this rank's agents by name, after they were written where the settings ask for it."""
        storage = RankAssignment(self.inputs.index, list(parts), self.inputs.view.problem, parts, settings)
        storage.keep(self.cycle.values)
        storage.end()
        if settings.output is not None and not self.shares_assignment:
            world.on_all_ranks(lambda: storage.write(self.cycle.values))
        by_agent = storage.by_name(self.cycle.values)
        return {name: label for values in by_agent.values() for name, label in values.items()}


def _places(inputs: "RankInputs", agent: int) -> list[changed_problem.FactorPlace]:
    """Return where the division holds each factor of an agent's problem."""
    own, shared = set(inputs.index.variables_by_agent[agent]), iter(inputs.index.shared_factors[agent])
    variables, places, count = inputs.index.known_variables(agent), list[changed_problem.FactorPlace](), 0
    for factor in inputs.parts[agent].factors:
        if own.issuperset(variables[v] for v in factor.scope):
            places.append(changed_problem.FactorPlace(agent, count))
            count += 1
        else:
            places.append(changed_problem.FactorPlace(changed_problem.CROSSING, next(shared)))
    return places


def _labels(inputs: "RankInputs", values: Mapping[int, int]) -> dict[str, tuple[int, Label]]:
    """Return the number and the label of the value of some variables of this rank, by their names."""
    problem = inputs.view.problem
    return {problem.variables[v]: (v, problem.label(v, x)) for v, x in values.items()}


def solve_private_again(
    parts: Mapping[int, Problem],
    settings: Settings,
    world: World,
    retained: RetainedWork,
    shares_assignment: bool,
    solve_anew: Callable[[Settings], tuple["RankInputs", PrivateAnswer]],
) -> PrivateAnswer:
    """Solve a problem of a session on private inputs; called by all ranks, each with its agents' parts.

    Parameters
    ----------
    parts
        The problems of this rank's agents as they stand.
    settings
        Settings of the run.
    world
        The ranks.
    retained
        Work of earlier runs; receives that of this run.
    shares_assignment
        Whether rank 0 knows the values of all variables.
    solve_anew
        Solves the problem without continuing the last run; returns the inputs, too.

    Returns
    -------
    PrivateAnswer
        The answer as this rank knows it.
    """
    last = retained.incremental
    if isinstance(last, PrivateRun):
        again = incremental_run.continued(retained, world, partial(last.solve_changed, parts, settings, world))
        if again is not None:
            retained.kept_on_all_ranks = last.kept
            return again
    retained.incremental = retained.finished_cycle = None
    inputs, answer = solve_anew(settings)
    cycle = retained.finished_cycle
    may_continue = (
        isinstance(cycle, FinishedCycle) and inputs.is_as_given and incremental_run.is_continuable(cycle, settings)
    )
    if all(world.allgather(may_continue and all(part.dense for part in parts.values()))):
        assert isinstance(cycle, FinishedCycle)
        given = inputs, settings, answer, cycle, shares_assignment, world
        retained.incremental = PrivateRun.begin(*given)
    return answer
