"""Generate random DCOPs after the DMCMC paper, §6: dense local graphs, and a graph over the interface variables.

A graph of n vertices has ⌊n(n−1)p/2⌋ edges here. The paper prints ⌊n(n−1)p⌋, which exceeds the complete graph at
p = 1.
"""

import numpy as np

from dmcmc.generators import graphs
from dmcmc.generators.parameters import Count, Parameters, Ratio, check_size, edge_count, stream
from dmcmc.generators.tables import agents_problem, binary_problem, uniform
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError


class RandomDcop(Parameters, frozen=True, kw_only=True):
    """Parameters of ``random``; the defaults are from the paper's Fig. 5, which leaves ``interface_variables`` open.

    Attributes
    ----------
    agents, variables_per_agent, domain_size : int
        Sizes, each at least 1.
    local_density : float
        p_l: ⌊n(n−1)p_l/2⌋ edges among an agent's n variables, at least the n−1 of a spanning tree.
    global_density : float
        p_g: ⌊B(B−1)p_g/2⌋ edges among the B interface variables of all agents together, each edge between two agents.
        The number is at least that of a spanning tree over the agents, and at most that of all pairs across agents.
    interface_variables : int
        Number of each agent's variables that may share a factor with another agent's; these are its first variables.
    seed : int
        Seed of the random streams; equal seeds give equal problems.
    """

    agents: Count = 5
    variables_per_agent: Count = 10
    domain_size: Count = 10
    local_density: Ratio = 0.5
    global_density: Ratio = 0.5
    interface_variables: Count = 1

    def check(self) -> None:
        """Check that an agent has at least as many variables as interface variables."""
        if self.interface_variables > self.variables_per_agent:
            raise ConfigError(
                f"interface_variables: must be at most variables_per_agent ({self.variables_per_agent}),"
                f" not {self.interface_variables}"
            )


def generate(params: RandomDcop) -> Problem:
    """Return a random DCOP with utilities uniform in 1..1000 (DMCMC paper, §6).

    Raises
    ------
    ResourceError
        If the problem does not fit the memory.
    """
    a, n, d, b = params.agents, params.variables_per_agent, params.domain_size, params.interface_variables
    edges_per_agent = edge_count(n, params.local_density, at_least=n - 1)
    crossing_edges = min(edge_count(a * b, params.global_density, at_least=a - 1), a * (a - 1) // 2 * b * b)
    n_factors = a * edges_per_agent + crossing_edges
    check_size(a, a * n, n_factors, n_factors * d * d)
    rng = stream(params.seed, 0)
    edges = [graphs.connected(rng, n, edges_per_agent) + agent * n for agent in range(a)]
    crossing = graphs.edges_across_groups(rng, a, b, crossing_edges)
    edges.append(np.stack([crossing[:, 0] * n + crossing[:, 1], crossing[:, 2] * n + crossing[:, 3]], axis=1))
    tables = uniform(stream(params.seed, 1), 1, 1000, (n_factors, d, d))
    name = f"random_A{a}_n{n}_D{d}_pl{params.local_density:g}_pg{params.global_density:g}_B{b}_s{params.seed}"
    return binary_problem(np.concatenate(edges), tables, lambda factors: agents_problem(name, a, n, d, factors, "x"))
