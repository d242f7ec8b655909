"""Count each agent's work, on one rank each: what methods are chosen by."""

from array import array
from collections.abc import Mapping
from functools import partial
from math import isqrt
from typing import NamedTuple

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.memory_shares import Shares, largest_share
from dmcmc.inference.dpop.pseudotree import PseudoTree, neighbours_of
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import narrow
from dmcmc.inference.orders.exact_order import FEW
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.mpi.message_contents import Sent
from dmcmc.mpi.world import World
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.samplers import registry
from dmcmc.samplers.auto.survey import Survey, Surveys, survey

_ENUMERATED, _LISTED = 1 << 17, 4096  # rows of a sampled agent: all of them up to here, else so many
_LISTED_LEAST = 64  # however little memory there is
_ROW, _STATES = 128, 4  # bytes of a row, both sides and what is thought of it; of each hidden variable in it


class Placed(NamedTuple):
    """What is agreed on before agents' own parts are read, where each rank reads those of its agents only.

    Attributes
    ----------
    tree : PseudoTree
    owner : tuple of int
        The rank of each agent.
    shares : Shares
        Of the budget.
    told : dict
        What agents have sent to find the tree.
    helpers : tuple of tuple of int
        Ranks that work on each agent's rows, too.
    private : bool
        Whether agents keep their orders to themselves; else rank 0 is told.
    """

    tree: PseudoTree
    owner: tuple[int, ...]
    shares: Shares
    told: Mapping[int, Sent] = {}
    helpers: tuple[tuple[int, ...], ...] = ()
    private: bool = True


class Counting(NamedTuple):
    """What agents' work is counted by.

    Where nobody says, a sampled agent's table has ``rows`` rows at most, or lists of ``listed``.
    """

    config: Settings
    arithmetic: Arithmetic
    shares: Shares
    rows: int
    listed: int

    @property
    def planned(self) -> bool:
        """Whether eliminations are of interest."""
        return self.config.local.method in ("auto", "exact")


def rows_at_most(division: Division, config: Settings, shares: Shares) -> int:
    """Return the most rows of a sampled agent's table; fewer where all agents' would be too many for the memory."""
    if config.local.method == "exact" and config.budget.time is None:
        return _ENUMERATED
    sizes, needs = array("q"), array("d")
    for local in division.locals:
        sizes.append(_ROW + _STATES * len(local.hidden))
        needs.append(sizes[-1] * min(local.rows, _ENUMERATED))
    return max(1, min(_ENUMERATED, int(largest_share(needs, shares.kept)) // max(sizes, default=1)))


def listed_at_most(parts: Divided, shares: Shares) -> int:
    """Return how many rows are listed where there are too many: tables over two agents' lists have to fit."""
    degrees = neighbours_of(parts.problem, parts.division).lengths
    most = 1 + int(degrees.max()) if degrees.any() else 0  # itself among them
    return max(_LISTED_LEAST, min(_LISTED, isqrt(shares.steps // (2 * parts.arithmetic.dtype.itemsize * max(1, most)))))


def count(
    division: Division,
    counting: Counting,
    world: World,
    threads: int,
    stop: Stop,
    placed: Placed | None,
) -> Surveys:
    """Count all agents' work, each on one rank: that of its owner, where only that one knows its factors."""
    agents, planned = len(division.locals), counting.planned
    home = [agent % world.size for agent in range(agents)] if placed is None else placed.owner
    mine = [division.locals[a] for a in range(agents) if home[a] == world.rank]

    def surveyed() -> dict[int, Survey]:
        if planned:  # orders of few variables hold the interpreter's lock
            run_parallel([partial(getattr, local, "plan") for local in mine if len(local.hidden) > FEW], threads)
        return {local.agent: _survey(local, counting, stop) for local in mine}

    counted = world.together(surveyed)
    works = world.allgather((narrow(list(counted)), Surveys.of(list(counted.values()))), "surveys")
    if planned and not (placed is not None and placed.private):
        found = {local.agent: local.order for local in mine}
        told = world.allgather(found) if placed is None else world.gather(found) or []
        for agent, order in ((agent, order) for part in told for agent, order in part.items()):
            division.locals[agent].take_order(order)
    return Surveys.merged(agents, works)


def _survey(local: LocalProblem, counting: Counting, stop: Stop) -> Survey:
    """Count an agent's work; raise what forbids a method that was asked for.

    With a time budget an agent that ``exact`` is too much for is sampled: some answer is better than none.
    """
    stop.check()
    options, memory, arithmetic = counting.config.local, counting.shares.work, counting.arithmetic
    most = counting.rows if options.rows == "auto" else options.rows
    listed = 0 if local.rows <= most else (min(counting.listed, most) if options.rows == "auto" else options.rows)
    if options.method != "auto" and not (options.method == "exact" and counting.config.budget.time is not None):
        checked = local
        if listed and options.method != "exact":
            hidden = (*local.interface, *local.hidden)
            checked = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
        registry.get(options.method).check(checked, memory, arithmetic)
    return survey(local, listed, options.runs, options.samples, memory, arithmetic, counting.planned)
