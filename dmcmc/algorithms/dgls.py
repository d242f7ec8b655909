"""DGLS, distributed guided local search (after arXiv 2508.06899): MGM with penalties that let it leave local optima.

The loss of a factor is its largest entry less its current one. If neither a variable nor any of its neighbours gains
anything, the entries with the largest loss around it are penalised, equally in the table copies of all variables of the
factor. Penalties decay in every cycle, so a penalty is at most weight / evaporation times the loss of its entry.

The paper's components are an adaptive condition of violation, evaporation and coordinated penalties. Here an entry
counts as violated if its loss is at least the mean loss of its variable's factors. Its penalty then grows by ``weight``
times its loss.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.agent import ANYTIME, SynchronousAgent
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import BYTES, AgentNetwork, Draws
from dmcmc.inference.runtime.types import Ints


def dgls(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Move as MGM does on utilities less penalties; raise penalties where no variable can gain.

    A cycle has two rounds of messages, values and gains. A variable is *stuck* if neither it nor a neighbour gains
    anything. It then names the factors that it penalises to the agents of their other variables. *Scores* are the
    utilities of a variable's factors less their penalties, per value; ``guided`` is the layout of tables with penalties
    subtracted.
    """
    values, layout = network.start(rng), network.layout
    penalties = np.zeros(layout.data.size, dtype=np.int64)
    guided = layout._replace(data=layout.data.copy())
    scores = network.scores(values, guided)
    limit = layout.least_violation  # of a loss and of a penalty
    # The kernel decays integer penalties: penalty * kept_1024ths // 1024.
    kept_1024ths, weight = round(1024 * (1 - float(given["evaporation"]))), float(given["weight"])
    yield values
    while values.size:
        best, gain = network.best_moves(values, scores)
        network.sends(1, kind="VALUE")
        network.sends(1, kind="GAIN")
        moves = (gain > 0) & network.leads(gain)
        network.move(values, scores, np.where(moves, best, values), guided)
        stuck = ~network.near(gain > 0)
        _count_penalties(network, values, stuck)
        kernels.penalise(layout, values, penalties, guided.data, stuck, weight, kept_1024ths, limit)
        kernels.fill_scores(guided, values, scores)
        yield values


def _count_penalties(network: AgentNetwork, values: Ints, stuck: NDArray[np.bool_]) -> None:
    """Count the messages of stuck variables: the numbers of the penalised factors that another agent shares.

    A stuck variable penalises those of its factors that lose something, and at least the mean loss of its factors.
    """
    layout, owner, agents = network.layout, network.problem.owner, network.problem.n_agents
    n_columns = layout.column_at.size
    variable = np.repeat(np.arange(values.size), np.diff(layout.column_start))  # of each column
    column = np.repeat(np.arange(n_columns), np.diff(layout.other_start))  # of each other variable of a column
    at = layout.column_at + values[variable]
    np.add.at(at, column, layout.other_stride * values[layout.other_variable])
    loss = layout.column_top - layout.data[at]
    columns_of_variable = np.diff(layout.column_start)
    mean = np.bincount(variable, loss, values.size) / np.maximum(columns_of_variable, 1)
    penalised = stuck[variable] & (loss > 0) & (loss >= mean[variable])
    receiver = owner[layout.other_variable]
    notified = penalised[column] & (receiver != owner[variable[column]])
    named = np.unique(column[notified] * agents + receiver[notified])  # each factor once per agent
    messages, factors = np.unique(variable[named // agents] * agents + named % agents, return_counts=True)
    network.count_messages("PENALTY", owner[messages // agents], BYTES * factors)


class DGLS(SynchronousAgent):
    """MGM with penalties; see :func:`dgls`."""

    name, rounds = "dgls", 3
    summary = "distributed guided local search: MGM with decaying penalties"
    paper = "after arXiv 2508.06899"
    parameters: ClassVar = {
        "weight": Parameter(0.4, 1e-6, 100.0, text="penalty per unit of an entry's loss"),
        "evaporation": Parameter(0.2, 0.0, 1.0, text="share of all penalties that decays in each cycle"),
        **ANYTIME,
    }
    compiled = Algorithm("dgls", summary, dgls, parameters)

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, gains, and the numbers of penalised factors."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        kept, weight = round(1024 * (1 - float(self.given["evaporation"]))), float(self.given["weight"])
        # of each constraint: the penalties of its entries, by the values of the other variables
        penalties = [defaultdict[tuple[int, ...], list[int]](lambda: [0] * self.domain) for _ in self.constraints]
        shared = {u: [i for i, c in enumerate(self.constraints) if u in c.others] for u in self.neighbours}
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            known = [i for i, c in enumerate(self.constraints) if all(v in view for v in c.others)]
            place = {i: tuple(view[v] for v in self.constraints[i].others) for i in known}
            rows = {i: self.constraints[i].costs(view) for i in known}
            costs = [sum(rows[i][d] + penalties[i][place[i]][d] for i in known) for d in range(self.domain)]
            best, before = costs.index(min(costs)), self.value
            gain = costs[self.value] - costs[best]
            self.tell("GAIN", gain)
            gains, losses = (yield), {i: min(row[before], self.violation) for i, row in rows.items()}
            if gain > 0 and all((gain, -self.me) > (other, -v) for v, other in gains.items()):
                self.value = best
            penalised = set[int]()
            if max([gain, *gains.values()]) <= 0:
                penalised = {i for i, loss in losses.items() if loss > 0 and loss >= sum(losses.values()) / len(losses)}
                for u, factors in shared.items():
                    if numbers := [number for number, i in enumerate(factors) if i in penalised]:
                        self.send(u, "PENALTY", numbers)
            for u, numbers in (yield).items():
                penalised |= {shared[u][number] for number in numbers}
            for own in penalties:
                for others, entries in own.items():
                    own[others] = [entry * kept // 1024 for entry in entries]
            for i in penalised & rows.keys():
                entries, added = penalties[i][place[i]], max(1, int(weight * losses[i]))
                entries[before] = min(entries[before] + added, self.violation)
