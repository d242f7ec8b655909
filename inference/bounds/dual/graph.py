"""An agent's factors as variables, pairs, triangles and stars: what dual ascent shifts utilities between.

Hidden variables are numbered first, then the interface; so are the pairs and triangles among hidden ones. What is left
when a row is fixed is a prefix of all arrays but the stars.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import Scale, quantise
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Ints

LANES = 8  # domains are padded to a multiple of this with dead values
CLUSTER_BYTES = 1 << 28  # no more triangles than this holds


class Graph(NamedTuple):
    """The structure; all arrays int64.

    Attributes
    ----------
    domains, widths : (n,)
        Domain sizes, and the same padded.
    pairs : (m, 2)
        Variables a < b.
    incident_at : (n + 1,), incident : (2m,)
        The pairs of variable v are ``incident[incident_at[v]:incident_at[v + 1]]``.
    triangles : (t, 3)
        Pairs ab, ac, bc of a < b < c.
    corners : (t, 3)
        The variables a, b, c.
    star_start : (s + 1,), star_scope, star_at : (s + 1,)
        Scopes of the factors over three and more variables, and where their entries start.
    """

    domains: Ints
    widths: Ints
    pairs: Ints
    incident_at: Ints
    incident: Ints
    triangles: Ints
    corners: Ints
    star_start: Ints
    star_scope: Ints
    star_at: Ints


class Shares(NamedTuple):
    """A reparametrisation: the sum of all entries that an assignment picks never changes. All int32.

    Attributes
    ----------
    unary : (n, W)
        W is the largest width.
    pair : (m, W, W)
    cluster : (t, 3, W, W)
        A triangle's utility is the sum of three tables, over ab, ac and bc.
    star : (entries,)
        In C order over each star's domains, not padded.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    cluster: NDArray[np.int32]
    star: NDArray[np.int32]


@dataclass(frozen=True)
class Layout:
    """An agent's graph, the hidden part of it, and the utilities.

    Attributes
    ----------
    whole, hidden : Graph
    shares : Shares
        Of the whole graph, nothing shifted yet.
    n_hidden : int
    scale : Scale
    slices : (stars of the hidden graph,) int64
        Which star of the whole graph each is a part of.
    """

    whole: Graph
    hidden: Graph
    shares: Shares
    n_hidden: int
    scale: Scale
    slices: Ints


def padded(local: LocalProblem) -> int:
    """Return the columns of an agent's tables: its largest domain, padded."""
    largest = max((int(local.domains[v]) for v in (*local.hidden, *local.interface)), default=1)
    return max(LANES, -(-largest // LANES) * LANES)


def lay_out(local: LocalProblem, triangles: bool) -> Layout:
    """Lay an agent's factors out; ``triangles`` adds the triangles of its graph, as many as :data:`CLUSTER_BYTES`."""
    order = (*local.hidden, *local.interface)
    position = {v: i for i, v in enumerate(order)}
    n, h = len(order), len(local.hidden)
    domains = local.domains[list(order)] if n else np.zeros(0, dtype=np.int64)
    scale, tables = quantise(local.factors)
    size = padded(local)
    unary = np.full((n, size), DEAD, dtype=np.int32)
    for v, d in enumerate(domains.tolist()):
        unary[v, :d] = 0
    matrices: dict[tuple[int, int], NDArray[np.int32]] = {}
    stars: list[tuple[tuple[int, ...], NDArray[np.int32]]] = []
    for factor, table in zip(local.factors, tables, strict=True):
        scope = tuple(position[v] for v in factor.scope)
        if len(scope) == 1:
            part = unary[scope[0], : table.size]
            part[:] = _sum(part, table)
        elif len(scope) == 2:
            a, b = sorted(scope)
            if (a, b) not in matrices:
                matrices[a, b] = np.full((size, size), DEAD, dtype=np.int32)
                matrices[a, b][: domains[a], : domains[b]] = 0
            part = matrices[a, b][: domains[a], : domains[b]]
            part[:] = _sum(part, table if scope[0] == a else table.T)
        else:
            stars.append((scope, table))
    pairs = sorted(matrices, key=lambda p: (p[1] >= h, p))
    cliques = _cliques(pairs, n, h) if triangles else []
    cliques = cliques[: ACCOUNT.part(1 / 16, CLUSTER_BYTES) // (12 * size * size)]
    hidden_stars = [
        (i, tuple(v for v in scope if v < h)) for i, (scope, _) in enumerate(stars) if any(v < h for v in scope)
    ]
    shares = Shares(
        unary,
        np.array([matrices[p] for p in pairs], dtype=np.int32).reshape(-1, size, size),
        _no_shifts(cliques, domains, size),
        np.concatenate([np.zeros(0, dtype=np.int32), *(table.ravel() for _, table in stars)]),
    )
    inside = [p for p in pairs if p[1] < h]
    return Layout(
        whole=_graph(domains, pairs, cliques, [scope for scope, _ in stars]),
        hidden=_graph(domains[:h], inside, [c for c in cliques if c[2] < h], [scope for _, scope in hidden_stars]),
        shares=shares,
        n_hidden=h,
        scale=scale,
        slices=np.array([i for i, _ in hidden_stars], dtype=np.int64),
    )


def spread(shares: Shares) -> float:
    """Return how far the live entries of pairs' tables are from their means, on average: standard deviations."""
    live = shares.pair >= THRESHOLD
    count = live.sum(axis=(1, 2))
    if not count.any():
        return 0.0
    entries = np.where(live, shares.pair, 0).astype(np.float64)
    sums, squares = entries.sum(axis=(1, 2)), np.square(entries).sum(axis=(1, 2))
    count = np.maximum(1, count)
    return float(np.sqrt(np.maximum(0, squares / count - np.square(sums / count)).mean()))


def add_triangles(layout: Layout, shares: Shares, triples: Sequence[tuple[int, int, int]]) -> tuple[Layout, Shares]:
    """Return a layout with more triangles, a < b < c, and shares with nothing in those and in missing pairs."""
    whole, h = layout.whole, layout.n_hidden
    size, domains = shares.unary.shape[1], whole.domains
    old_pairs = {(a, b): i for i, (a, b) in enumerate(whole.pairs.tolist())}
    old_cliques = {(a, b, c): i for i, (a, b, c) in enumerate(whole.corners.tolist())}
    wanted = {pair for triple in triples for pair in combinations(triple, 2)}
    pairs = sorted(wanted | old_pairs.keys(), key=lambda p: (p[1] >= h, p))
    cliques = sorted(set(triples) | old_cliques.keys(), key=lambda t: (t[2] >= h, t))
    pair = np.full((len(pairs), size, size), DEAD, dtype=np.int32)
    for i, (a, b) in enumerate(pairs):
        if (a, b) in old_pairs:
            pair[i] = shares.pair[old_pairs[a, b]]
        else:
            pair[i, : domains[a], : domains[b]] = 0
    cluster = _no_shifts(cliques, domains, size)
    for i, triple in enumerate(cliques):
        if triple in old_cliques:
            cluster[i] = shares.cluster[old_cliques[triple]]
    stars = [tuple(whole.star_scope[i:j].tolist()) for i, j in pairwise(whole.star_start.tolist())]
    inside = [tuple(v for v in stars[i] if v < h) for i in layout.slices.tolist()]
    made = Shares(shares.unary, pair, cluster, shares.star)
    return replace(
        layout,
        whole=_graph(domains, pairs, cliques, stars),
        hidden=_graph(domains[:h], [p for p in pairs if p[1] < h], [c for c in cliques if c[2] < h], inside),
        shares=made,
    ), made


def _sum(left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int32]:
    total = left + right
    return np.where(total < THRESHOLD, np.int32(DEAD), total)


def _cliques(pairs: Sequence[tuple[int, int]], n: int, h: int) -> list[tuple[int, int, int]]:
    """Return the triangles of a graph, those inside the first h variables first."""
    later: list[set[int]] = [set() for _ in range(n)]
    for a, b in pairs:
        later[a].add(b)
    found = [(a, b, c) for a, b in pairs for c in sorted(later[a] & later[b])]
    return sorted(found, key=lambda t: (t[2] >= h, t))


def _no_shifts(cliques: Sequence[tuple[int, int, int]], domains: Ints, size: int) -> NDArray[np.int32]:
    clusters = np.zeros((len(cliques), 3, size, size), dtype=np.int32)
    for t, corners in enumerate(cliques) if (domains < size).any() else ():
        for k, (u, v) in enumerate(combinations(corners, 2)):
            clusters[t, k, domains[u] :] = DEAD
            clusters[t, k, :, domains[v] :] = DEAD
    return clusters


def _graph(
    domains: Ints,
    pairs: Sequence[tuple[int, int]],
    cliques: Sequence[tuple[int, int, int]],
    stars: Sequence[tuple[int, ...]],
) -> Graph:
    index = {p: i for i, p in enumerate(pairs)}
    incident: list[list[int]] = [[] for _ in domains]
    for i, (a, b) in enumerate(pairs):
        incident[a].append(i)
        incident[b].append(i)
    sizes = [int(np.prod(domains[list(scope)])) for scope in stars]
    return Graph(
        domains=domains,
        widths=-(-domains // LANES) * LANES,
        pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        incident_at=np.cumsum([0, *(len(e) for e in incident)], dtype=np.int64),
        incident=np.array([e for edges in incident for e in edges], dtype=np.int64),
        triangles=np.array([[index[p] for p in combinations(c, 2)] for c in cliques], dtype=np.int64).reshape(-1, 3),
        corners=np.array(cliques, dtype=np.int64).reshape(-1, 3),
        star_start=np.cumsum([0, *(len(s) for s in stars)], dtype=np.int64),
        star_scope=np.array([v for s in stars for v in s], dtype=np.int64),
        star_at=np.cumsum([0, *sizes], dtype=np.int64),
    )
