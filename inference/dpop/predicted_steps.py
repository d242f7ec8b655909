"""Predict the agents' exact UTIL steps from scopes alone: elimination orders and message scopes.

In its UTIL step an agent joins its tables, the crossing factors (over variables of several agents) placed at it, and
its children's messages, and eliminates its interface. The prediction estimates memory and time before any table exists,
for example for :mod:`dmcmc.inference.dpop.slicing`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import DEFAULT_BUDGET, SHORT_BUDGET
from dmcmc.inference.runtime.types import Ints

if TYPE_CHECKING:
    from dmcmc.inference.dpop.pseudotree import PseudoTree

Scope = tuple[int, ...]


class PredictedStep(NamedTuple):
    """The predicted UTIL step of one agent.

    Attributes
    ----------
    scopes : tuple of tuple of int
        Scopes of the joined tables: the agent's own tables, crossing factors, and its children's messages.
    order : tuple of int
        Its interface variables in elimination order.
    separator : tuple of int
        Variables of ancestors that the message may range over.
    message : tuple of tuple of int
        Scopes of the tables in its message.
    """

    scopes: tuple[Scope, ...]
    order: tuple[int, ...]
    separator: tuple[int, ...]
    message: tuple[Scope, ...]

    def plan(self, sizes: Ints) -> EliminationPlan:
        """Return the elimination plan of the step for the given domain sizes."""
        return plan_elimination(self.scopes, sizes, self.order, self.separator)


class StepScopes(NamedTuple):
    """The inputs of an agent's UTIL step that exist before any message arrives.

    Attributes
    ----------
    local_scopes, crossing : sequence of tuple of int
        Scopes of the agent's own tables, and of the crossing factors placed at it.
    interface, separator : tuple of int
        Its interface variables, and the variables of ancestors that its message may range over.
    """

    local_scopes: Sequence[Scope]
    crossing: Sequence[Scope]
    interface: Scope
    separator: Scope


def predict_steps(
    tree: "PseudoTree", inputs: Sequence[StepScopes], sizes: Ints, short_search: bool = False
) -> list[PredictedStep]:
    """Return the predicted step of each agent, as ``util_step`` would compute it.

    Parameters
    ----------
    tree
        The agents' pseudo-tree.
    inputs
        Scopes known before the messages, per agent.
    sizes : (variables,) int64
        Domain sizes.
    short_search
        Search less for orders: some tenths of a millisecond per agent. The orders may then differ from those of the
        step.
    """
    predicted: list[PredictedStep | None] = [None] * len(inputs)
    for agent in tree.bottom_up:
        local_scopes, crossing, interface, separator = inputs[agent]
        messages = [step.message for child in tree.children[agent] if (step := predicted[child]) is not None]
        scopes = (*local_scopes, *crossing, *(scope for message in messages for scope in message))
        budget = SHORT_BUDGET if short_search else DEFAULT_BUDGET
        order = best_order(scopes, sizes, interface, separator, budget).variables
        step = PredictedStep(scopes, order, separator, ())
        plan = step.plan(sizes)
        predicted[agent] = step._replace(message=_absorbed([plan.scope(t) for t in plan.remaining]))
    return [step for step in predicted if step is not None]


def _absorbed(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Return the scopes that no larger scope contains: those that ``eliminate.absorb`` leaves."""
    maximal: list[Scope] = []
    for scope in sorted(scopes, key=lambda s: -len(s)):
        if not any(set(scope) <= set(other) for other in maximal):
            maximal.append(scope)
    return tuple(maximal)
