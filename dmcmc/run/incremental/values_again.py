"""Choose values again after a change: along the paths, and below them where an agent's context has changed."""

from collections.abc import Mapping, Sequence

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import ChosenValues, Clock, SentMessages, Values, value_size
from dmcmc.mpi.util_value_phases import UtilStepPair, value_phase
from dmcmc.run.incremental.tree_part import part_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.util_value_cycle import FinishedCycle


def choose_values_again(
    setup: Setup,
    last: FinishedCycle,
    steps: Mapping[int, UtilStepPair],
    path: PseudoTree,
    positions: Sequence[int],
    mailbox: Mailbox,
    clocks: dict[int, Clock],
) -> tuple[dict[int, ChosenValues], dict[int, Values], list[dict[int, SentMessages]]]:
    """Send VALUE messages along the paths, and then to the agents whose context has changed, level by level.

    Parameters
    ----------
    setup
        The plan with the new tables.
    last
        The cycle before the change.
    steps
        The steps of all agents of this rank.
    path
        The part of the tree that is on paths.
    positions
        The position of each agent in the tree's bottom-up order.
    mailbox
        The messages.
    clocks
        The agents' simulated clocks; advanced here.

    Returns
    -------
    chosen : dict
        The interface values of the agents that have chosen again.
    contexts : dict
        The values of their separators.
    sent : list of dict
        The messages of each round, by agent.
    """
    scope, world = last.sides.lower.scope, mailbox.world
    separators = LazySequence(len(setup.tree.parent), lambda agent: (scope(setup.tree.separators[agent]),) * 2, {})
    chosen, contexts, sent = dict[int, ChosenValues](), dict[int, Values](), list[dict[int, SentMessages]]()
    part = path
    while part.bottom_up:
        new_chosen, new_contexts, messages = value_phase(part, mailbox, clocks, steps, separators)
        chosen, contexts = chosen | new_chosen, contexts | new_contexts
        to_send = {
            (agent, child): context
            for agent in new_chosen
            for child in setup.tree.children[agent]
            if child not in part.children[agent]
            and (
                context := _new_context(
                    last, agent, new_chosen[agent].lower | new_contexts[agent], separators[child][0]
                )
            )
        }
        below = {child for children in world.allgather({child for _, child in to_send}) for child in children}
        for (agent, child), context in to_send.items():
            message = ChosenValues(context, context)
            mailbox.send("VALUE", child, child, message, clocks[agent])
            before = messages.get(agent, SentMessages(0, 0, "VALUE"))
            messages[agent] = SentMessages(before.count + 1, before.size + value_size(message), "VALUE")
        for child in mailbox.local_agents(below):
            clocks.setdefault(child, Clock())
        sent.append(messages)
        part = part_of(setup.tree, below, positions)
    return chosen, contexts, sent


def _new_context(last: FinishedCycle, agent: int, known: Values, separator: Sequence[int]) -> Values | None:
    """Return the values that an agent sends to a child; None if they are those of the last run."""
    before = last.chosen[agent].lower | last.contexts[agent]
    return {v: known[v] for v in separator} if any(known[v] != before[v] for v in separator) else None
