"""Generate the binary networks of the GpuBE paper (journal, §8.1): random, scale-free, grid; some entries forbidden."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.generators import graphs
from dmcmc.generators.parameters import Count, Parameters, Ratio, check_size, edge_count, share, stream
from dmcmc.generators.tables import binary_problem, uniform
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ConfigError

_MAX_COST = 100  # costs are uniform in 0.._MAX_COST
_ENTRIES_PER_BLOCK = 2**21  # table entries for which the forbidden positions are drawn at once


class NetworkParameters(Parameters, frozen=True, kw_only=True):
    """Parameters that the three topologies share.

    Attributes
    ----------
    domain_size : int
        Number of values of each variable.
    tightness : float
        p2: ⌊p2·d²⌋ random entries of each table have cost ∞. Infeasible problems are not rejected.
    agents : int, optional
        Number of agents, which own contiguous blocks of variables; by default one agent per variable.
    seed : int
        Seed of the random streams; equal seeds give equal problems.
    """

    domain_size: Count = 10
    tightness: Ratio = 0.5
    agents: Count | None = None

    @property
    def size(self) -> int:
        """Number of variables."""
        raise NotImplementedError

    def check(self) -> None:
        """Check that there are at most as many agents as variables."""
        if self.agents is not None and self.agents > self.size:
            raise ConfigError(f"agents: must be at most one per variable ({self.size}), not {self.agents}")


class RandomNetwork(NetworkParameters, frozen=True, kw_only=True):
    """Parameters of ``random-network``: n = ``nodes`` variables.

    The network has ⌊n(n−1)p1/2⌋ edges, at least those of a spanning tree; ``density`` is p1.
    """

    nodes: Count = 10
    density: Ratio = 0.3

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.nodes


class Colouring(Parameters, frozen=True, kw_only=True):
    """Parameters of ``colouring``: a random graph whose neighbours should have different colours.

    Attributes
    ----------
    nodes : int
        Number of nodes.
    density : float
        p: the graph has ⌊n(n−1)p/2⌋ edges, at least a spanning tree.
    domain_size : int
        Number of colours.
    agents : int, optional
        Number of agents, which own contiguous blocks of variables; by default one agent per variable.
    seed : int
        Seed of the random streams; equal seeds give equal problems.
    """

    nodes: Count = 120
    density: Ratio = 0.05
    domain_size: Count = 3
    agents: Count | None = None

    def check(self) -> None:
        """Check that there are at most as many agents as variables."""
        if self.agents is not None and self.agents > self.nodes:
            raise ConfigError(f"agents: must be at most one per variable ({self.nodes}), not {self.agents}")


class ScaleFree(NetworkParameters, frozen=True, kw_only=True):
    """Parameters of ``scale-free``: n = ``nodes`` variables and 2(n−2)+1 edges."""

    nodes: Count = 10

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.nodes


class GridNetwork(NetworkParameters, frozen=True, kw_only=True):
    """Parameters of ``grid``: a grid of rows × columns variables; a square if ``columns`` is absent."""

    rows: Count = 10
    columns: Count | None = None

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.rows * (self.columns or self.rows)


def random_network(params: RandomNetwork) -> Problem:
    """Return a connected random network."""
    n = params.nodes
    count = edge_count(n, params.density, at_least=n - 1)
    _check(params, count)
    edges = graphs.connected(stream(params.seed, 0), n, count)
    return _costs(params, edges, f"random-network_n{n}_d{params.domain_size}_p{params.density:g}")


def colouring(params: Colouring) -> Problem:
    """Return a weighted colouring problem: two neighbours of equal colour cost 1 to 100, a random number per edge."""
    n, d, agents = params.nodes, params.domain_size, params.agents or params.nodes
    count = edge_count(n, params.density, at_least=n - 1)
    check_size(agents, n, count, count * d * d)
    edges = graphs.connected(stream(params.seed, 0), n, count)
    tables = np.zeros((len(edges), d, d), dtype=np.int32)
    colour = np.arange(d)
    tables[:, colour, colour] = -uniform(stream(params.seed, 1), 1, _MAX_COST, (len(edges),))[:, None]
    name = f"colouring_n{n}_d{d}_p{params.density:g}_s{params.seed}"
    return binary_problem(edges, tables, lambda factors: _problem(name, n, d, agents, factors))


def scale_free(params: ScaleFree) -> Problem:
    """Return a Barabási–Albert network: each new node is joined to two nodes, chosen in proportion to their degree."""
    n = params.nodes
    _check(params, max(2 * n - 3, 0))
    rng = stream(params.seed, 0)
    ends = [0, 1]  # contains every node once per edge, so that a random element is chosen in proportion to degree
    for node in range(2, n):
        first_node = second_node = ends[int(rng.integers(len(ends)))]
        while second_node == first_node:
            second_node = ends[int(rng.integers(len(ends)))]
        ends += [first_node, node, second_node, node]
    edges = np.array(ends if n > 1 else [], dtype=np.int64).reshape(-1, 2)
    return _costs(params, graphs.sorted_edges(edges), f"scale-free_n{n}_d{params.domain_size}")


def grid(params: GridNetwork) -> Problem:
    """Return a rectangular grid: horizontal and vertical neighbours share a factor."""
    rows, columns = params.rows, params.columns or params.rows
    _check(params, rows * (columns - 1) + (rows - 1) * columns)
    node = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    across = np.stack([node[:, :-1].ravel(), node[:, 1:].ravel()], axis=1)
    down = np.stack([node[:-1].ravel(), node[1:].ravel()], axis=1)
    edges = graphs.sorted_edges(np.concatenate([across, down]))
    return _costs(params, edges, f"grid_{rows}x{columns}_d{params.domain_size}")


def _check(params: NetworkParameters, edges: int) -> None:
    """Raise ``ResourceError`` if a problem with this number of edges does not fit the memory."""
    agents = params.agents or params.size
    # Choosing the forbidden entries needs 16 more bytes per entry of a block of tables (at least one table).
    block = max(_ENTRIES_PER_BLOCK, params.domain_size**2)
    check_size(
        agents, params.size, edges, edges * params.domain_size**2 + 2 * min(block, edges * params.domain_size**2)
    )


def _costs(params: NetworkParameters, edges: NDArray[np.int64], name: str) -> Problem:
    """Return the problem on a graph: costs uniform in 0..100, with equally many forbidden entries in each table.

    Parameters
    ----------
    params
        Number of variables and agents, domain size d, seed, and tightness p2: ⌊p2·d²⌋ entries of each table are
        forbidden.
    edges
        (m, 2) int64. The pairs of variables that share a factor.
    name
        Beginning of the problem's name.
    """
    n, d = params.size, params.domain_size
    agents = params.agents or n
    rng = stream(params.seed, 1)
    tables = uniform(rng, 0, _MAX_COST, (len(edges), d, d))
    np.negative(tables, out=tables)
    forbidden_count, tables_per_block = share(d * d, params.tightness), max(1, _ENTRIES_PER_BLOCK // (d * d))
    for begin in range(0, len(edges) if forbidden_count else 0, tables_per_block):
        block = tables[begin : begin + tables_per_block].reshape(-1, d * d)
        # A random subset of each table's entries: the first of a permutation by random 62-bit keys.
        positions = np.argsort(rng.integers(2**62, size=block.shape), axis=1, kind="stable")[:, :forbidden_count]
        np.put_along_axis(block, positions, forbidden_value(tables.dtype), axis=1)
    name = f"{name}_t{params.tightness:g}_s{params.seed}"
    return binary_problem(edges, tables, lambda factors: _problem(name, n, d, agents, factors))


def _problem(name: str, n: int, d: int, agents: int, factors: tuple[Factor, ...]) -> Problem:
    """Return a minimisation problem whose agents own contiguous blocks of variables."""
    return Problem(
        variables=tuple(f"x{i}" for i in range(n)),
        domains=np.full(n, d, dtype=np.int64),
        agents=tuple(f"a{i}" for i in range(agents)),
        owner=np.arange(n, dtype=np.int64) * agents // n,
        factors=factors,
        sense="min",
        name=name,
    )
