"""Problems from applications: sensor networks, smart lighting, smart homes and the allocation of resources.

The papers describe their problems in words; numbers that they leave open are chosen here and named in the parameters.
All random numbers are whole, so that equal parameters give equal problems on every platform.
"""

from itertools import combinations, product
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.generators.networks import random_subset
from dmcmc.generators.parameters import Count, Parameters, check_size, problem_of_domains, stream, uniform
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem

AtLeastTwo = Annotated[int, msgspec.Meta(ge=2, le=2**63 - 1)]


class Sensors(Parameters, frozen=True, kw_only=True):
    """Parameters of ``sensors``: sensors on a grid track targets.

    Attributes
    ----------
    rows, columns : int
        Size of the grid of sensors, at least 2 each.
    targets : int
        Number of targets; each lies in a random cell between four sensors, which see it.
    needed : int
        Number of sensors that have to track a target for its full worth.
    """

    rows: AtLeastTwo = 4
    columns: AtLeastTwo = 4
    targets: Count = 9
    needed: Count = 3


def sensors(params: Sensors) -> Problem:
    """Return a target-tracking problem: each sensor tracks one of the targets that it sees.

    A target that k sensors track is worth ⌊w · min(k, needed) / needed⌋, with w uniform in 1..100.

    References
    ----------
    R. Béjar et al.: Sensor networks and distributed CSP: communication, computation and complexity. Artificial
    Intelligence 161 (2005), 117-147. There a target that fewer sensors track is worth nothing.
    """
    rows, columns, n = params.rows, params.columns, params.rows * params.columns
    check_size(n, n, params.targets, params.targets * 5**4)
    cells = stream(params.seed, 0).integers((rows - 1) * (columns - 1), size=params.targets)
    worth = uniform(stream(params.seed, 1), 1, 100, (params.targets,))
    corner = cells // (columns - 1) * columns + cells % (columns - 1)
    corners = corner[:, None] + np.array([0, 1, columns, columns + 1])
    seen = [np.flatnonzero((corners == s).any(axis=1)) for s in range(n)]
    factors = []
    for t, four in enumerate(corners):
        tracks = [(seen[s] == t).astype(np.int64) for s in four]
        count = sum(np.ix_(*tracks), np.int64(0))
        factors.append(Factor.of(four.tolist(), int(worth[t]) * np.minimum(count, params.needed) // params.needed))
    name = f"sensors_{rows}x{columns}_t{params.targets}_k{params.needed}_s{params.seed}"
    domains = [max(1, targets.size) for targets in seen]
    return problem_of_domains(name, [f"s{s}" for s in range(n)], domains, range(n), factors, "max")


class Lighting(Parameters, frozen=True, kw_only=True):
    """Parameters of ``secp``, the smart environment configuration problem of lights.

    Attributes
    ----------
    lights, models, rules : int
        Numbers of lights, of places whose brightness is a weighted mean of some lights, and of rules.
    levels : int
        Number of levels of a light and of a brightness.
    max_model_size, max_rule_size : int
        Largest number of lights of a place, and of lights and places that a rule names.
    """

    lights: Count = 10
    models: Count = 4
    rules: Count = 4
    levels: Count = 5
    max_model_size: Count = 3
    max_rule_size: Count = 3


_COST_OF_DISTANCE = 1000  # cost of a rule per level of distance, in hundredths as the costs of energy
_MAX_EFFICIENCY = 90  # cost of a light per level: 0.._MAX_EFFICIENCY
_MAX_INFLUENCE = 7  # weights of the lights of a place: 1.._MAX_INFLUENCE


def lighting(params: Lighting) -> Problem:
    """Return a problem of lights that save energy and follow rules about the brightness of places.

    A light costs energy in proportion to its level. A place has the rounded weighted mean of its lights' levels (hard).
    A rule wants levels for some lights and places, and costs 1000 per level of distance.

    References
    ----------
    P. Rust, G. Picard, F. Ramparany: Using message-passing DCOP algorithms to solve energy-efficient smart environment
    configuration problems. IJCAI 2016; with the ranges of pyDCOP's generator ``secp``.
    """
    n, m, d = params.lights, params.models, params.levels
    size, named = min(params.max_model_size, n), min(params.max_rule_size, n + m)
    check_size(n, n + m, n + m + params.rules, n * d + m * d ** (size + 1) + params.rules * d**named)
    efficiency = uniform(stream(params.seed, 0), 0, _MAX_EFFICIENCY, (n,))
    level, rng = np.arange(d), stream(params.seed, 1)
    factors = [Factor.of((v,), int(efficiency[v]) * level, "min") for v in range(n)]
    owner = list(range(n))
    for place in range(m):
        lights = random_subset(rng, n, int(rng.integers(min(2, size), size + 1))).tolist()
        weights = uniform(rng, 1, _MAX_INFLUENCE, (len(lights),)).astype(np.int64)
        total = sum(np.ix_(*(weight * level for weight in weights)), np.int64(0))
        mean = (2 * total + weights.sum()) // (2 * weights.sum())
        costs = np.where(mean[..., None] == level, 0.0, np.inf)
        factors.append(Factor.of((*lights, n + place), costs, "min"))
        owner.append(lights[0])
    rng = stream(params.seed, 2)
    for _ in range(params.rules):
        scope = random_subset(rng, n + m, int(rng.integers(1, named + 1))).tolist()
        wanted = rng.integers(d, size=len(scope))
        distance = sum(np.ix_(*(abs(level - w) for w in wanted)), np.int64(0))
        factors.append(Factor.of(scope, _COST_OF_DISTANCE * distance, "min"))
    names = [f"light{v}" for v in range(n)] + [f"place{v}" for v in range(m)]
    name = f"secp_l{n}_m{m}_r{params.rules}_d{d}_s{params.seed}"
    return problem_of_domains(name, names, [d] * (n + m), owner, factors, "min")


class SmartHomes(Parameters, frozen=True, kw_only=True):
    """Parameters of ``smart-homes``: the devices of homes along a street are scheduled.

    Attributes
    ----------
    homes, devices : int
        Numbers of homes, and of devices of each home.
    slots : int
        Number of time slots, at least 6.
    neighbours : int
        Number of next homes along the street whose load counts together with that of a home.
    peak : int
        Cost of the square of a common load.
    """

    homes: Count = 5
    devices: Count = 3
    slots: Annotated[int, msgspec.Meta(ge=6, le=2**20)] = 12
    neighbours: Count = 1
    peak: Count = 1


# Durations, powers and prices are uniform from 1 to these. Two devices fit into six slots one after the other.
_MAX_DURATION, _MAX_POWER, _MAX_PRICE = 3, 5, 10


def smart_homes(params: SmartHomes) -> Problem:
    """Return a problem of devices that start when energy is cheap and few others run.

    A device costs its power times the prices of its slots. Two devices of one home, or of two homes that are at most
    ``neighbours`` apart, cost 2 · peak · (product of powers) per common slot: the part of the square of their common
    load that depends on the schedule. The second device of a home starts after the end of the first (hard).

    References
    ----------
    F. Fioretto, W. Yeoh, E. Pontelli: A multiagent system approach to scheduling devices in smart homes. AAMAS 2017; a
    small form of its problem: devices of constant power, and loads of neighbours in place of all homes together.
    """
    h, k, slots = params.homes, params.devices, params.slots
    near = min(params.neighbours, h - 1)
    check_size(h, h * k, h * k * k * (near + 1), h * k * k * (near + 1) * slots * slots)
    price = uniform(stream(params.seed, 0), 1, _MAX_PRICE, (slots,)).astype(np.int64)
    rng = stream(params.seed, 1)
    duration, power = uniform(rng, 1, _MAX_DURATION, (h * k,)), uniform(rng, 1, _MAX_POWER, (h * k,)).astype(np.int64)
    runs: list[NDArray[np.int64]] = []  # (starts, slots) 0 or 1: the slots in which a device runs, by its start
    for device in range(h * k):
        first, last = 0, slots - int(duration[device]) + 1
        if device % k > 1:
            first = int(rng.integers(last // 2 + 1))
            last = int(rng.integers(max(first + 1, last // 2), last)) + 1
        start, slot = np.arange(first, last)[:, None], np.arange(slots)
        runs.append(((slot >= start) & (slot < start + duration[device])).astype(np.int64))
    factors = [Factor.of((v,), power[v] * (runs[v] @ price), "min") for v in range(h * k)]
    for u, v in combinations(range(h * k), 2):
        if v // k - u // k <= near:
            costs = 2 * params.peak * power[u] * power[v] * (runs[u] @ runs[v].T)
            factors.append(Factor.of((u, v), costs, "min"))
    for u in range(0, h * k if k > 1 else 0, k):
        end = np.arange(len(runs[u]))[:, None] + duration[u]
        before = np.where(end <= np.arange(len(runs[u + 1])), 0.0, np.inf)
        factors.append(Factor.of((u, u + 1), before, "min"))
    names = [f"a{v // k}.d{v % k}" for v in range(h * k)]
    owner, domains = [v // k for v in range(h * k)], [len(starts) for starts in runs]
    name = f"smart-homes_h{h}_k{k}_t{slots}_n{params.neighbours}_s{params.seed}"
    return problem_of_domains(name, names, domains, owner, factors, "min")


class ResourceAllocation(Parameters, frozen=True, kw_only=True):
    """Parameters of ``resource-allocation``.

    Attributes
    ----------
    consumers, resources : int
        Numbers of agents, and of resources, each of which one agent can have.
    bids : int
        Number of bundles of resources that an agent would take; it gets one of them or nothing.
    bundle : int
        Largest number of resources of a bundle.
    """

    consumers: Count = 15
    resources: Count = 20
    bids: Count = 4
    bundle: Count = 3


def allocation(params: ResourceAllocation) -> Problem:
    """Return a problem of bundles of resources: the sum of what agents give for theirs is maximised.

    A bundle of k resources is worth a number uniform in k..100·k. Two agents that want a common resource share a
    factor, which forbids bundles that overlap.

    References
    ----------
    T. Léauté, B. Faltings: Distributed constraint optimization under stochastic uncertainty, and FRODO's manual:
    resource allocation problems from combinatorial auctions (K. Leyton-Brown et al.: CATS, EC 2000).
    """
    n, d = params.consumers, params.bids + 1
    check_size(n, n, n * n // 2, n * n // 2 * d * d)
    rng, bundles = stream(params.seed, 0), list[list[set[int]]]()
    factors = []
    for v in range(n):
        sizes = rng.integers(1, min(params.bundle, params.resources) + 1, size=params.bids).tolist()
        bundles.append([set(), *(set(random_subset(rng, params.resources, size).tolist()) for size in sizes)])
        factors.append(Factor.of((v,), [0, *(int(rng.integers(size, 100 * size + 1)) for size in sizes)]))
    for u, v in combinations(range(n), 2):
        overlap = [bool(first & second) for first, second in product(bundles[u], bundles[v])]
        if any(overlap):
            factors.append(Factor.of((u, v), np.where(np.reshape(overlap, (d, d)), -np.inf, 0.0)))
    name = f"resource-allocation_n{n}_r{params.resources}_b{params.bids}_s{params.seed}"
    return problem_of_domains(name, [f"x{v}" for v in range(n)], [d] * n, range(n), factors, "max")
