"""Choose values again after a change: along the paths, and below them where an agent's context has changed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, SentMessages, Values, value_size
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.mpi.message_phases import Phase, value_phase
from dmcmc.run.incremental.tree_part import part_of

if TYPE_CHECKING:
    from dmcmc.solving.util_value_cycle import FinishedCycle

T = TypeVar("T")


def choose_values_again(
    cycle: "FinishedCycle",
    last: "FinishedCycle",
    path: PseudoTree,
    positions: Sequence[int],
    phase: Phase,
    clocks: dict[int, Clock],
    take: Callable[[dict[int, ChosenValues], dict[int, Values]], None],
    end_round: Callable[[dict[int, SentMessages]], T],
) -> list[T]:
    """Send VALUE messages along the paths, and then to the agents whose context has changed, level by level.

    Parameters
    ----------
    cycle
        The cycle after the change, with the steps of all agents of this rank that have not failed.
    last
        The cycle before the change.
    path
        The part of the tree that is on paths.
    positions
        The position of each agent in the tree's bottom-up order.
    phase
        The messages, and the errors of the UTIL phase.
    clocks
        The agents' simulated clocks; advanced here.
    take
        Receives the values of the interface and of the separator of each agent of this rank that has chosen again.
    end_round
        Receives the messages of a round, by agent of this rank; returns the report of the round for all ranks.

    Returns
    -------
    list
        The reports of all rounds and ranks, in this order.
    """
    scope, tree, mailbox = last.sides.lower.scope, cycle.setup.tree, phase.mailbox
    separators = LazySequence(len(tree.parent), lambda agent: (scope(tree.separators[agent]),) * 2, {})
    part, shared = path, list[T]()
    while part.bottom_up:
        chosen, contexts, messages = value_phase(part, mailbox, clocks, cycle.steps, separators, phase)
        to_send = {
            (agent, child): context
            for agent in chosen
            for child in tree.children[agent]
            if child not in part.children[agent]
            and (context := _new_context(last, agent, chosen[agent].lower | contexts[agent], separators[child][0]))
        }
        if chosen:
            with phase.storing_errors(min(chosen)):
                take(chosen, contexts)
        for (agent, _), context in to_send.items():
            before = messages[agent]
            size = before.size + value_size(ChosenValues(context, context))
            messages[agent] = SentMessages(before.count + 1, size, "VALUE")
        phase.report()
        found = mailbox.world.allgather(({child for _, child in to_send}, end_round(messages)))
        below = {child for children, _ in found for child in children}
        shared += [of_rank for _, of_rank in found]
        for (agent, child), context in to_send.items():
            mailbox.send("VALUE", child, child, ChosenValues(context, context), clocks[agent])
        for child in mailbox.local_agents(below):
            clocks.setdefault(child, Clock())
        part = part_of(tree, below, positions)
    return shared


def _new_context(last: "FinishedCycle", agent: int, known: Values, separator: Sequence[int]) -> Values | None:
    """Return the values that an agent sends to a child; None if they are those of the last run."""
    before = last.chosen[agent].lower | last.contexts[agent]
    return {v: known[v] for v in separator} if any(known[v] != before[v] for v in separator) else None
