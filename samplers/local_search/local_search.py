"""Local search over complete assignments: annealed chains in tournament rounds, with block moves between the rounds.

A chain makes Gibbs *sweeps*, draws of every variable given the others, at falling temperature. A *tournament* compares
temperature ranges by successive halving: in each round the better half of the chains continue, with twice the sweeps. A
*block move* redraws many variables at once by elimination. An assignment is *1-opt* if no change of a single variable
improves it.

With fixed work the ranks share the chains of a round and exchange the results once per round. By the clock each rank
searches independently.
"""

from functools import cached_property

import numpy as np

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.local_search.ascent import Ascent, ascent_of
from dmcmc.samplers.local_search.rank_exchange import SINGLE_PROCESS, Exchange, from_first_rank
from dmcmc.samplers.local_search.tournament_search import OnBetter, TournamentSearch, Values
from dmcmc.samplers.tuning import common


class SharedSearch:
    """State that all parts of a rank's local search share; the attributes may change between two searches.

    Attributes
    ----------
    original, problem : Problem
        The original problem, and the same as dense tables; variables beyond the original ones are states of automata.
    seed, threads : int
        Seed of the chains, and threads of this rank.
    stop : Deadline
        Checked by all searches.
    exchange : Exchange
        Joins the ranks.
    ascent : Ascent
        Hill climbing on the original problem.
    behind : bool
        Whether chains leave the cores to other work of the process.
    suggested : list of ndarray
        Assignments of the original variables from which the next search by the clock starts, too.
    """

    seed: int
    threads: int
    stop: Deadline
    exchange: Exchange
    ascent: Ascent

    def __init__(self, original: Problem, problem: Problem) -> None:
        self.original, self.problem, self.behind = original, problem, False
        self.suggested: list[Values] = []
        first = original.n_variables
        added = problem.factors if problem.n_variables > first else ()
        self._state_factors = [factor for factor in added if factor.scope and factor.scope[-1] >= first]

    def original_values(self, values: Values) -> Values:
        """Return the values of the original variables."""
        return values[: self.original.n_variables]

    def extended(self, original_values: Values) -> Values:
        """Extend an assignment of the original variables by the automaton states that follow from it."""
        values = np.append(original_values, np.zeros(self.problem.n_variables - original_values.size, dtype=np.int64))
        for factor in self._state_factors:  # in the order of the states; each has one allowed value at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values

    def better(self, one: Values, other: Values) -> bool:
        """Return whether ``one`` is better than ``other``: fewer violations, or equally many and more utility."""
        return self.ascent.better(self.original_values(one), self.original_values(other))


class LocalSearch(SharedSearch):
    """Local search over the variables of all agents.

    Parameters
    ----------
    original : Problem
        The original problem, by which assignments are compared.
    problem : Problem
        The same problem as dense tables; variables beyond the original ones are states of automata.
    seed : int
        Seed of the chains.
    threads : int
        Threads of this rank.
    stop : Deadline
        Checked by all searches.
    exchange : Exchange
        Joins the ranks; all ranks must call the same methods with the same arguments.
    ascent : Ascent or None
        Hill climbing on ``original`` that exists already; None to make it.
    """

    def __init__(
        self,
        original: Problem,
        problem: Problem,
        seed: int,
        threads: int,
        stop: Deadline,
        exchange: Exchange = SINGLE_PROCESS,
        ascent: Ascent | None = None,
    ) -> None:
        super().__init__(original, problem)
        self.seed, self.threads, self.stop, self.exchange = seed, threads, stop, exchange
        self.ascent = ascent or ascent_of(original, threads, stop)

    @cached_property
    def chains(self) -> TournamentSearch:
        """The chains and block moves of a problem of tables."""
        return TournamentSearch(self)

    def first(self, on_better: OnBetter = lambda values: None, start: Values | None = None) -> Values:
        """Return a first assignment: greedy by factors, then 1-opt hill climbing.

        Parameters
        ----------
        on_better : callable
            Called with the greedy assignment of a large problem: hill climbing takes some hundredths of a second.
        start : (n,) int64 or None
            An assignment of the original variables to climb from; None for the greedy one.
        """
        greedy = self.ascent.greedy() if start is None else start
        if self.original.tabular and self.ascent.graph.data.size > common.LARGE_ENTRIES:
            on_better(self.extended(greedy))
        return self.extended(self.ascent.climb(greedy))

    def one_opt(self, values: Values) -> Values:
        """Return a 1-opt assignment that is at least as good as the one given.

        An assignment is better if it has fewer violations, or as many and more utility, as counted by
        :meth:`dmcmc.inference.model.problem.Problem.evaluate`. If the deadline passes, the result may not be 1-opt.
        """
        return self.extended(self.ascent.climb(self.original_values(values)))

    def improve(
        self, values: Values, seconds: float | None, sweeps: int, on_better: OnBetter = lambda values: None
    ) -> Values:
        """Continue the search from an assignment; return one that is at least as good.

        Parameters
        ----------
        values : (n,) int64
            The assignment.
        seconds : float or None
            Time limit; None for fixed work, with the same result on any number of ranks. By the clock each rank
            searches independently with its share of the temperature ranges, and the caller takes the best result.
            A round that is interrupted continues in the next call.
        sweeps : int
            With fixed work: number of sweeps, summed over all chains.
        on_better : callable
            Called at once with every better assignment.
        """
        best = self.one_opt(values) if seconds is not None else from_first_rank(self.exchange, self.one_opt(values))
        if self.better(best, values):
            on_better(best)
        if not self.original.tabular:
            return self._improve_constraints(best, seconds, sweeps, on_better)
        if self.original.n_variables:
            self.chains.tighten(best)
            improvements = (
                self.chains.improve_by_sweeps(best, sweeps)
                if seconds is None
                else self.chains.improve_timed(best, seconds, self._improve_constraints)
            )
            for better in improvements:
                best = better
                on_better(best)
        return best

    def _improve_constraints(self, best: Values, seconds: float | None, sweeps: int, on_better: OnBetter) -> Values:
        """Search on the global constraints themselves, by the clock on each rank or by moves on the first rank."""
        n = self.original.n_variables

        def take(found: Values) -> None:
            nonlocal best
            candidate = self.extended(found)
            if self.better(candidate, best):
                best = candidate
                on_better(best)

        while self.suggested and not self.stop.over:
            take(self.ascent.climb(self.suggested.pop(0)))
        if seconds is None:
            search, moves = self._constraint_search, sweeps * n
            found = search.improve_by_moves(best[:n], moves, self.stop) if self.exchange.rank == 0 else best[:n]
            take(from_first_rank(self.exchange, found))
        else:
            self._constraint_search.improve(best[:n], seconds, self.threads, self.stop, take)
        return best

    @cached_property
    def _constraint_search(self) -> ConstraintSearch:
        """The search of this rank on global constraints."""
        return ConstraintSearch(self.original, self.seed, self.exchange.rank)

    def suggest(self, values: Values) -> None:
        """Add a start assignment for the next search by the clock."""
        self.suggested.append(self.original_values(values))

    def graph_from(self, values: Values) -> FactorGraph:
        """Return the factor graph for the chains; until they begin, entries dominated by ``values`` are forbidden."""
        self.chains.tighten(values)
        return self.chains.chain_problem.graph
