"""What agents' exact UTIL steps will be, before there are any tables: orders, and what their messages range over."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.orders.best_order import BUDGET, best_order
from dmcmc.inference.runtime.types import Ints

Scope = tuple[int, ...]

_BRIEF = 1e5  # words of search


class StepAhead(NamedTuple):
    """One agent's UTIL step.

    Attributes
    ----------
    scopes : tuple of tuple of int
        Of the tables that it joins: its own, crossing factors, its children's messages.
    order : tuple of int
        Its interface, in the order of its elimination.
    separator : tuple of int
    message : tuple of tuple of int
        Scopes of the tables that it sends.
    """

    scopes: tuple[Scope, ...]
    order: tuple[int, ...]
    separator: tuple[int, ...]
    message: tuple[Scope, ...]

    def plan(self, sizes: Ints) -> Plan:
        """Return the plan of the step with some domain sizes."""
        return plan_elimination(self.scopes, sizes, self.order, self.separator)


class Met(NamedTuple):
    """What an agent has before messages come: scopes of its own tables and of crossing ones, interface, separator."""

    own: Sequence[Scope]
    crossing: Sequence[Scope]
    interface: Scope
    separator: Scope


def steps_ahead(tree: PseudoTree, met: Sequence[Met], sizes: Ints, brief: bool = False) -> list[StepAhead]:
    """Return all agents' steps, as :func:`.util_step` makes them of tables over these scopes.

    Parameters
    ----------
    brief
        Search less for orders: some tenths of a millisecond for each. They may be others then.
    """
    found: list[StepAhead | None] = [None] * len(met)
    for agent in tree.bottom_up:
        own, crossing, interface, separator = met[agent]
        sent = [step.message for child in tree.children[agent] if (step := found[child]) is not None]
        scopes = (*own, *crossing, *(scope for message in sent for scope in message))
        words = _BRIEF if brief else BUDGET
        order = best_order(scopes, sizes, interface, separator, words).variables
        step = StepAhead(scopes, order, separator, ())
        plan = step.plan(sizes)
        found[agent] = step._replace(message=_absorbed([plan.scope(t) for t in plan.remaining]))
    return [step for step in found if step is not None]


def _absorbed(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Return the scopes that :func:`dmcmc.inference.elimination.eliminate.absorb` leaves."""
    kept: list[Scope] = []
    for scope in sorted(scopes, key=lambda s: -len(s)):
        if not any(set(scope) <= set(other) for other in kept):
            kept.append(scope)
    return tuple(kept)
