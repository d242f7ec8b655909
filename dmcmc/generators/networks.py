"""Random networks of variables: graphs, tables, and RandomDCOP.

Generate the binary networks of the GpuBE paper (journal, §8.1): random, scale-free, grid; some entries forbidden.

Generate random DCOPs after the DMCMC paper, §6: dense local graphs, and a graph over the interface variables.

A graph of n vertices has ⌊n(n−1)p/2⌋ edges here. The paper prints ⌊n(n−1)p⌋, which exceeds the complete graph at p = 1.

Random graphs for the problem generators: an exact number of edges, and connected by a random spanning tree.

A pair of nodes u < v has the code v(v−1)/2 + u (combinatorial number system). Sets of edges are drawn as sets of codes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.generators.parameters import (
    Count,
    MultiVariableAgents,
    Parameters,
    Ratio,
    agents_problem,
    binary_factors,
    binary_problem,
    check_size,
    edge_count,
    problem_of_domains,
    share,
    stream,
    uniform,
)
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ConfigError

Edges = NDArray[np.int64]
"""Shape (m, 2), each row u < v, rows in ascending order."""


def random_subset(rng: np.random.Generator, total: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` distinct numbers below ``total`` in ascending order; every set is equally likely.

    If more than half of the numbers are needed, those that are left out are drawn instead. Numbers drawn twice are
    drawn again.
    """
    if 2 * count > total:
        left_out = random_subset(rng, total, total - count)
        is_chosen = np.ones(total, dtype=bool)
        is_chosen[left_out] = False
        return np.flatnonzero(is_chosen).astype(np.int64)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < count:
        chosen = np.union1d(chosen, rng.integers(total, size=count - len(chosen)))
    return chosen


def pairs(codes: NDArray[np.int64]) -> Edges:
    """Return the pair u < v for each code v(v−1)/2 + u.

    Examples
    --------
    >>> pairs(np.array([0, 1, 2, 3])).tolist()
    [[0, 1], [0, 2], [1, 2], [0, 3]]
    """
    v = ((1 + np.sqrt(1 + 8.0 * codes)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > codes  # corrects a floating-point root that is too large by one
    v += v * (v + 1) // 2 <= codes  # and one that is too small by one
    return np.stack([codes - v * (v - 1) // 2, v], axis=1)


def codes(edges: Edges) -> NDArray[np.int64]:
    """Return the code of each pair, the inverse of :func:`pairs`; the two ends may be in either order."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    return np.asarray(high * (high - 1) // 2 + low)


def sorted_edges(edges: Edges) -> Edges:
    """Return the edges with u < v, in ascending order."""
    edges = np.sort(edges, axis=1)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def recursive_tree(rng: np.random.Generator, nodes: int) -> Edges:
    """Return a random recursive tree: the parent of node i is one of the nodes before it, each equally likely."""
    child = np.arange(1, nodes, dtype=np.int64)
    return np.stack([rng.integers(child) if nodes > 1 else child, child], axis=1)


def connected(rng: np.random.Generator, nodes: int, count: int) -> Edges:
    """Return a connected graph: a random spanning tree, then uniformly random further edges.

    Parameters
    ----------
    rng
        Source of randomness.
    nodes
        Number of nodes, at least 1.
    count
        Number of edges, raised to ``nodes - 1`` and limited to the complete graph.
    """
    # A random permutation: sort the nodes by random 62-bit keys, since only integers are the same on all platforms.
    shuffled = np.argsort(rng.integers(2**62, size=nodes), kind="stable")
    tree = shuffled[recursive_tree(rng, nodes)]
    return add_edges(rng, tree, nodes * (nodes - 1) // 2, max(count - len(tree), 0))


def add_edges(rng: np.random.Generator, tree: Edges, complete: int, count: int) -> Edges:
    """Add random edges to a tree; return all edges with u < v in ascending order.

    The added edges are a random subset of the pairs that are not in the tree: numbers are drawn below the number of
    such pairs, and the codes of the tree's edges are skipped.

    Parameters
    ----------
    rng
        Source of randomness.
    tree
        (m, 2) int64. The edges of the tree, with the ends in any order.
    complete
        Codes below this number are candidates; n(n−1)/2 for the pairs of n nodes.
    count
        Number of edges to add, limited to the candidates that the tree does not use.
    """
    taken = np.sort(codes(tree))
    extra = _skip(random_subset(rng, complete - len(taken), min(count, complete - len(taken))), taken)
    return sorted_edges(np.concatenate([tree, pairs(extra)]))


def _skip(numbers: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each number i, the i-th number that is not taken; ``taken`` is in ascending order."""
    return numbers + np.searchsorted(taken - np.arange(len(taken)), numbers, side="right")


def edges_across_groups(rng: np.random.Generator, groups: int, members: int, count: int) -> NDArray[np.int64]:
    """Return edges between members of different groups such that the groups are connected.

    A random tree over the groups comes first, with random members as the ends of its edges. Uniformly random further
    pairs follow.

    Parameters
    ----------
    rng
        Source of randomness.
    groups, members
        Number of groups, and of members in each group.
    count
        Number of edges, raised to ``groups - 1`` and limited to all pairs across groups.

    Returns
    -------
    ndarray of int64, shape (m, 4)
        Group and member of one end, group and member of the other end; in ascending order.
    """
    tree = recursive_tree(rng, groups)
    ends = rng.integers(members, size=(len(tree), 2))
    pairs_per_edge = members * members
    # The code of an edge: the code of its pair of groups, times members², plus the code of its two members.
    taken = np.sort(codes(tree) * pairs_per_edge + ends[:, 0] * members + ends[:, 1])
    free = groups * (groups - 1) // 2 * pairs_per_edge - len(taken)
    extra = _skip(random_subset(rng, free, min(max(count - len(tree), 0), free)), taken)
    code = np.concatenate([taken, extra])
    group, member = pairs(code // pairs_per_edge), code % pairs_per_edge
    table: NDArray[Any] = np.stack([group[:, 0], member // members, group[:, 1], member % members], axis=1)
    return table[np.lexsort(table.T[::-1])]


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


class NodeNetwork(NetworkParameters, frozen=True, kw_only=True):
    """Parameters of networks with a given number of variables, ``nodes``."""

    nodes: Count = 10

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.nodes


class RandomNetwork(NodeNetwork, frozen=True, kw_only=True):
    """Parameters of ``random-network``: n = ``nodes`` variables.

    The network has ⌊n(n−1)p1/2⌋ edges, at least those of a spanning tree; ``density`` is p1.
    """

    density: Ratio = 0.3


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


class ScaleFree(NodeNetwork, frozen=True, kw_only=True):
    """Parameters of ``scale-free``: n = ``nodes`` variables and 2(n−2)+1 edges."""


class GridNetwork(NetworkParameters, frozen=True, kw_only=True):
    """Parameters of ``grid``: a grid of rows × columns variables; a square if ``columns`` is absent."""

    rows: Count = 10
    columns: Count | None = None

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.rows * (self.columns or self.rows)


class Torus(GridNetwork, frozen=True, kw_only=True):
    """Parameters of ``torus``: a grid of rows × columns variables whose opposite borders are joined."""

    def check(self) -> None:
        """Check the number of agents, and that no two variables are joined twice."""
        super().check()
        for name, length in (("rows", self.rows), ("columns", self.columns or self.rows)):
            if length < 3:
                raise ConfigError(f"{name}: must be at least 3, not {length}")


class Spins(Parameters, frozen=True, kw_only=True):
    """Parameters of spins on a torus of rows × columns; a square if ``columns`` is absent.

    Attributes
    ----------
    rows, columns : int
        Size of the torus, at least 3 each.
    agents : int, optional
        Number of agents, which own contiguous blocks of variables; by default one agent per variable.
    """

    rows: Count = 10
    columns: Count | None = None
    agents: Count | None = None

    def check(self) -> None:
        """Check the sizes as for a torus of two values per variable."""
        Torus(rows=self.rows, columns=self.columns, agents=self.agents, domain_size=2)


class SpinGlass(Spins, frozen=True, kw_only=True):
    """Parameters of ``spin-glass``; ``positive`` is the probability that a coupling is +1 (1: the ferromagnet)."""

    positive: Ratio = 0.5


class Ising(Spins, frozen=True, kw_only=True):
    """Parameters of ``ising``: couplings uniform in ±``coupling``, and fields uniform in ±``field``."""

    coupling: Count = 1600
    field: Count = 50


class SmallWorld(NodeNetwork, frozen=True, kw_only=True):
    """Parameters of ``small-world``: n = ``nodes`` variables on a ring, with random shortcuts.

    Attributes
    ----------
    nodes : int
        Number of variables.
    neighbours : int
        k: each variable is joined to the k nearest variables on either side of the ring.
    shortcuts : float
        φ: probability that an edge of the ring adds one shortcut.
    """

    neighbours: Count = 2
    shortcuts: Ratio = 0.3

    def check(self) -> None:
        """Check the number of agents, and that no two variables are joined twice."""
        super().check()
        if 2 * self.neighbours >= self.nodes:
            raise ConfigError(f"neighbours: must be less than half of nodes ({self.nodes}), not {self.neighbours}")


def random_network(params: RandomNetwork) -> Problem:
    """Return a connected random network."""
    n = params.nodes
    count = edge_count(n, params.density, at_least=n - 1)
    _check(params, count)
    edges = connected(stream(params.seed, 0), n, count)
    return _costs(params, edges, f"random-network_n{n}_d{params.domain_size}_p{params.density:g}")


def colouring(params: Colouring) -> Problem:
    """Return a weighted colouring problem: two neighbours of equal colour cost 1 to 100, a random number per edge."""
    n, d, agents = params.nodes, params.domain_size, params.agents or params.nodes
    count = edge_count(n, params.density, at_least=n - 1)
    check_size(agents, n, count, count * d * d)
    edges = connected(stream(params.seed, 0), n, count)
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
    return _costs(params, sorted_edges(edges), f"scale-free_n{n}_d{params.domain_size}")


def grid(params: GridNetwork) -> Problem:
    """Return a rectangular grid: horizontal and vertical neighbours share a factor."""
    rows, columns = params.rows, params.columns or params.rows
    _check(params, rows * (columns - 1) + (rows - 1) * columns)
    node = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    across = np.stack([node[:, :-1].ravel(), node[:, 1:].ravel()], axis=1)
    down = np.stack([node[:-1].ravel(), node[1:].ravel()], axis=1)
    edges = sorted_edges(np.concatenate([across, down]))
    return _costs(params, edges, f"grid_{rows}x{columns}_d{params.domain_size}")


def torus(params: Torus) -> Problem:
    """Return a torus: each variable shares a factor with its four neighbours on a grid without a border."""
    rows, columns = params.rows, params.columns or params.rows
    _check(params, 2 * rows * columns)
    return _costs(params, _torus_edges(rows, columns), f"torus_{rows}x{columns}_d{params.domain_size}")


def spin_glass(params: SpinGlass) -> Problem:
    """Return a spin glass: the energy -J·s·t per edge of a torus is minimised; values 0 and 1 are the spins -1 and +1.

    References
    ----------
    S. F. Edwards and P. W. Anderson: Theory of spin glasses. Journal of Physics F 5 (1975), 965-974; here with
    couplings J of ±1.
    """
    rows, columns = params.rows, params.columns or params.rows
    n, agents = rows * columns, params.agents or rows * columns
    check_size(agents, n, 2 * n, 8 * n)
    edges = _torus_edges(rows, columns)
    is_positive = stream(params.seed, 1).integers(2**53, size=len(edges)) < share(2**53, params.positive)
    ferromagnet = np.array([[1, -1], [-1, 1]], dtype=np.int32)
    tables = np.where(is_positive[:, None, None], ferromagnet, -ferromagnet)
    name = f"spin-glass_{rows}x{columns}_p{params.positive:g}_s{params.seed}"
    return binary_problem(edges, tables, lambda factors: _problem(name, n, 2, agents, factors))


def ising(params: Ising) -> Problem:
    """Return an Ising model with random fields: the energy -J·s·t per edge of a torus and -h·s per spin is minimised.

    References
    ----------
    pyDCOP's generator ``ising``, with its default ranges in thousandths: J in ±1.6, h in ±0.05.
    """
    rows, columns = params.rows, params.columns or params.rows
    n, agents = rows * columns, params.agents or rows * columns
    check_size(agents, n, 3 * n, 10 * n)
    edges = _torus_edges(rows, columns)
    coupling = uniform(stream(params.seed, 1), -params.coupling, params.coupling, (len(edges), 1, 1))
    field = uniform(stream(params.seed, 2), -params.field, params.field, (n, 1)) * np.array([-1, 1], dtype=np.int32)
    factors = binary_factors(edges, coupling * np.array([[1, -1], [-1, 1]], dtype=np.int32))
    name = f"ising_{rows}x{columns}_j{params.coupling}_h{params.field}_s{params.seed}"
    return _problem(name, n, 2, agents, factors + tuple(Factor.of((v,), field[v]) for v in range(n)))


def _torus_edges(rows: int, columns: int) -> Edges:
    """Return the edges of a torus whose variables are numbered row by row."""
    node = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    ends = [np.stack([node.ravel(), np.roll(node, -1, axis).ravel()], axis=1) for axis in (0, 1)]
    return sorted_edges(np.concatenate(ends))


def small_world(params: SmallWorld) -> Problem:
    """Return a small-world network: a ring lattice, and shortcuts between random pairs that are not joined yet.

    References
    ----------
    M. E. J. Newman and D. J. Watts: Renormalization group analysis of the small-world network model. Physics Letters A
    263 (1999), 341-346. Shortcuts are added and no edge is removed, so that the network is always connected.
    """
    n, k = params.nodes, params.neighbours
    _check(params, 2 * n * k)  # at most one shortcut per edge of the ring
    rng, node = stream(params.seed, 0), np.arange(n, dtype=np.int64)
    ring = np.concatenate([np.stack([node, (node + step) % n], axis=1) for step in range(1, k + 1)])
    shortcuts = int(np.count_nonzero(rng.integers(2**53, size=len(ring)) < share(2**53, params.shortcuts)))
    edges = add_edges(rng, ring, n * (n - 1) // 2, shortcuts)
    return _costs(params, edges, f"small-world_n{n}_k{k}_d{params.domain_size}_p{params.shortcuts:g}")


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
    owner = np.arange(n, dtype=np.int64) * agents // n
    return problem_of_domains(name, [f"x{i}" for i in range(n)], np.full(n, d), owner, factors, "min")


class RandomDcop(MultiVariableAgents, frozen=True, kw_only=True):
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

    local_density: Ratio = 0.5
    global_density: Ratio = 0.5


def generate_random_dcop(params: RandomDcop) -> Problem:
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
    edges = [connected(rng, n, edges_per_agent) + agent * n for agent in range(a)]
    crossing = edges_across_groups(rng, a, b, crossing_edges)
    edges.append(np.stack([crossing[:, 0] * n + crossing[:, 1], crossing[:, 2] * n + crossing[:, 3]], axis=1))
    tables = uniform(stream(params.seed, 1), 1, 1000, (n_factors, d, d))
    name = f"random_A{a}_n{n}_D{d}_pl{params.local_density:g}_pg{params.global_density:g}_B{b}_s{params.seed}"
    return binary_problem(np.concatenate(edges), tables, lambda factors: agents_problem(name, a, n, d, factors, "x"))
