"""The regular constraint: a sequence of variables is accepted by an automaton, whose transitions may have costs."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from dmcmc.inference.model.automaton import AutomatonFactor, unroll
from dmcmc.inference.model.python_number import python_number
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Label

State = Hashable
Cost = int | float


class Automaton(NamedTuple):
    """A deterministic finite automaton over the labels of variables.

    Attributes
    ----------
    start : hashable
        The initial state.
    transitions : mapping from (state, label) to state or (state, cost)
        The next state, with the cost (or utility, if the problem is maximised) of the transition; 0 if it is left out.
        All other transitions are forbidden. A state must not be a pair (tuple of two entries).
    accepting : collection of states, mapping from state to cost, or None
        The states in which a sequence may end, with their costs; None for all states.
    """

    start: State
    transitions: Mapping[tuple[State, Label], State | tuple[State, Cost]]
    accepting: Sequence[State] | frozenset[State] | Mapping[State, Cost] | None = None

    def factor(
        self, scope: Sequence[int], domains: Sequence[Sequence[Label]], sense: str, name: str = ""
    ) -> AutomatonFactor:
        """Return the factor of a sequence of variables.

        Parameters
        ----------
        scope : sequence of int
            Variable indices in the order in which the automaton reads them; at least one.
        domains : sequence of sequence of label
            The labels of the values of each variable.
        sense : {"max", "min"}
            Whether the costs of transitions are utilities ("max") or costs ("min").
        name : str
            Name of the factor.

        Raises
        ------
        ProblemError
            If the scope is empty.
        ResourceError
            If there are too many states.
        """
        if not scope:
            raise ProblemError(f"constraint {name or 'regular'}: needs at least one variable")

        def step(position: int, state: State, value: int) -> tuple[State, Cost | None]:
            found = self.transitions.get((state, domains[position][value]))
            if found is None:
                return None, None
            following, cost = found if isinstance(found, tuple) and len(found) == 2 else (found, 0)
            cost = python_number(cost, f"constraint {name or 'regular'}: the cost of a transition")
            if position < len(scope) - 1:
                return following, cost
            if self.accepting is None:
                return 0, cost
            if following not in self.accepting:
                return None, None
            end = self.accepting[following] if isinstance(self.accepting, Mapping) else 0
            return 0, cost + python_number(end, f"constraint {name or 'regular'}: the cost of a state")

        return unroll(scope, [len(domain) for domain in domains], self.start, step, sense, name)
