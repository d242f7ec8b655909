"""The answer of a run that is continued: sums over all agents, which the reports of all ranks change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from dmcmc.inference.dpop.util_and_value import Clock, latest
from dmcmc.inference.model.arithmetic import exact_sum, nearest
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge
from dmcmc.results.result import EXACT_ELIMINATION, AgentMetrics, Result, TracePoint
from dmcmc.run.incremental.agent_utility import AgentUtility
from dmcmc.solving.incumbent import total_of
from dmcmc.solving.metrics import control_of, levels_of, messages_of
from dmcmc.solving.planning.setup import Setup


class ChangeReport(NamedTuple):
    """The changes on one rank.

    Attributes
    ----------
    growth : AgentUtility
        By how much the utilities of its agents have grown.
    roots : dict of int to number
        Encoded upper bounds of its roots on paths.
    assignment : dict of str to label
        The new values of its variables, by their names; empty if they are private.
    metrics : dict of str to AgentMetrics
        The metrics of its agents that have worked or sent messages.
    clock : Clock
        The latest of its agents' simulated clocks.
    control : dict of str to (int, int)
        Number and bytes of its messages between ranks, by kind.
    """

    growth: AgentUtility
    roots: Mapping[int, Number | None]
    assignment: Mapping[str, Label]
    metrics: Mapping[str, AgentMetrics]
    clock: Clock
    control: Mapping[str, tuple[int, int]]


@dataclass
class KnownAnswer:
    """The answer of the last run, on a rank that may know it.

    Attributes
    ----------
    result : Result
        The result.
    total : AgentUtility
        The sum of the utilities of all agents.
    roots : dict of int to number
        Encoded upper bounds of the roots.
    assignment : dict of str to label, or None
        The values of all variables by name, also if they break hard constraints; None if they are private.
    """

    result: Result
    total: AgentUtility
    roots: dict[int, Number | None]
    assignment: dict[str, Label] | None

    @classmethod
    def begin(
        cls,
        result: Result,
        parts: Iterable[tuple[AgentUtility, Mapping[int, Number | None]]],
        assignment: dict[str, Label] | None,
    ) -> "KnownAnswer":
        """Return the answer of a new run.

        Parameters
        ----------
        result
            The result. Its assignment may be another optimum than that of the messages.
        parts
            Utility and roots of each rank's agents.
        assignment
            The values of all variables, as the messages have chosen them; None if they are private.
        """
        total, roots = AgentUtility(), dict[int, Number | None]()
        for utility, own_roots in parts:
            total, roots = total.plus(utility), {**roots, **own_roots}
        return cls(result, total, roots, assignment)

    def update(
        self,
        reports: Sequence[ChangeReport],
        setup: Setup,
        factors: int,
        idle: Mapping[str, AgentMetrics],
        variables: Sequence[str],
    ) -> None:
        """Add the reports of all ranks; the time of the result remains to be set.

        Parameters
        ----------
        reports
            The reports of all ranks.
        setup
            The changed plan.
        factors
            Number of factors of the whole problem.
        idle
            The metrics of each agent if it does nothing, by its name.
        variables
            The names of the variables of the problem as it stands.
        """
        worked = dict[str, AgentMetrics]()
        for report in reports:
            worked |= report.metrics
            self.total, self.roots = self.total.plus(report.growth), {**self.roots, **report.roots}
            if self.assignment is not None:
                self.assignment.update(report.assignment)
        self.roots = {agent: root for agent, root in self.roots.items() if setup.tree.parent[agent] < 0}
        if self.assignment is not None and len(self.assignment) != len(variables):
            self.assignment = {name: self.assignment[name] for name in variables}
        clock, outcome = latest(report.clock for report in reports), self._outcome(setup, factors)
        self.result = msgspec.structs.replace(
            self.result,
            **outcome._asdict(),
            assignment=None if outcome.status == "infeasible" or self.assignment is None else dict(self.assignment),
            time_compiling=0.0,
            simulated_time=clock.seconds,
            ncccs=clock.checks,
            messages=messages_of(tuple(worked.values())),
            control=control_of(report.control for report in reports),
            msg_count=sum(agent.msg_count for agent in worked.values()),
            msg_size=sum(agent.msg_size for agent in worked.values()),
            extra_msg_count=0,
            extra_msg_size=0,
            work=(),
            agents=tuple({**idle, **worked}.values()),
        )

    def divide_by_levels(self, problem: Problem) -> None:
        """Set objective and bound of each level of the objective of the changed problem."""
        named = self.result.assignment
        values = None if named is None else problem.values_of(named)
        self.result = msgspec.structs.replace(self.result, levels=levels_of(problem, values, self.result.bound))

    def end(self, seconds: float) -> Result:
        """Return the result with the time that the run has taken."""
        point = TracePoint(seconds, self.result.objective, self.result.bound, EXACT_ELIMINATION)
        self.result = msgspec.structs.replace(self.result, time=seconds, trace=(point,))
        return self.result

    def _outcome(self, setup: Setup, factors: int) -> SolveOutcome:
        """Return status, objective, bound and gap."""
        violations, utility = self.total
        constants = [factor.entry(()) for factor in setup.division.constants]
        total = nearest(utility + exact_sum(entry for entry in constants if entry is not None))
        forbidden = violations + sum(entry is None for entry in constants)
        quality = AssignmentQuality(-forbidden, utility, setup.problem.to_own_sense(total))
        bound = total_of(self.roots, setup.arithmetic)
        proof = None if bound is None else BoundProof([bound], setup.arithmetic, factors)
        return judge(setup.problem, quality, setup.division.constants, proof)


def total_utility(parts: Iterable[AgentUtility]) -> AgentUtility:
    """Return the sum of some utilities."""
    total = AgentUtility()
    for part in parts:
        total = total.plus(part)
    return total
