"""Constraints of meeting schedules against their definitions, and their decompositions."""

from itertools import product

import numpy as np
import pytest

from dmcmc.inference.constraints.registry import get
from dmcmc.inference.constraints.schedules import AFTER, BEFORE, TAKEN


def drawn(seed):
    """Return random times, durations and places of up to three intervals."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    times = [np.sort(rng.choice(12, rng.integers(2, 6), replace=False)) + rng.integers(4) for _ in range(n)]
    places = [rng.choice(5, rng.integers(1, 4), replace=False) for _ in range(n)]
    return rng, times, rng.integers(1, 4, n).tolist(), places


def total(parts, values):
    return sum(part.entry([values[v] for v in part.scope]) for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_degrees_follow_the_definitions_and_equal_the_decompositions(seed):
    rng, times, durations, places = drawn(seed)
    n, gap = len(times), int(rng.integers(3))
    sizes, choices = [len(t) for t in times], [len(p) for p in places]
    breaks = get("adjacency").from_parameters(range(n), sizes, 1, "", {"times": times, "durations": durations})
    given = {"times": times, "durations": durations, "places": places, "gap": gap}
    changes = get("place_changes").from_parameters(range(2 * n), [*sizes, *choices], 1, "", given)
    parts = breaks.parts(), changes.parts()
    for _ in range(30):
        values, chosen = [int(rng.integers(size)) for size in sizes], [int(rng.integers(size)) for size in choices]
        start, place = (
            [t[x] for t, x in zip(times, values, strict=True)],
            [p[x] for p, x in zip(places, chosen, strict=True)],
        )
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        touching = sum(start[i] + durations[i] == start[j] for i, j in pairs)
        soon = [(i, j) for i, j in pairs if start[i] < start[j] <= start[i] + durations[i] + gap]
        changed = sum(place[i] != place[j] for i, j in soon)
        assert breaks.degree(values) == touching == -total(parts[0], values)
        assert changes.degree([*values, *chosen]) == changed == -total(parts[1], [*values, *chosen])
    narrowed = changes.restricted([np.array([x]) for x in (*values, *chosen)])
    assert narrowed.degree([0] * 2 * n) == changes.degree([*values, *chosen])


@pytest.mark.parametrize("kind", ["adjacency", "place_changes"])
def test_the_number_of_cells_does_not_depend_on_the_unit_of_time(kind):
    for seed in range(10):
        rng, times, durations, places = drawn(seed)
        gap, found = int(rng.integers(3)), []
        shape = [len(array) for array in (*times, *(places if kind == "place_changes" else ()))]
        for unit in (1, 10**9):
            given = {"times": [t * unit for t in times], "durations": [d * unit for d in durations], "places": places}
            given["gap"] = gap * unit
            found.append(get(kind).from_parameters(range(len(shape)), shape, None, "", given))
        assert found[0].loads.cells == found[1].loads.cells
        for values in product(*map(range, shape)):
            assert found[0].degree(values) == found[1].degree(values)


@pytest.mark.parametrize("seed", range(10))
def test_a_slot_is_idle_if_it_is_free_between_others(seed):
    rng = np.random.default_rng(seed)
    sides = [rng.choice([-1, BEFORE, TAKEN, AFTER], size=3, p=[0.3, 0.3, 0.1, 0.3]) for _ in range(4)]
    constraint = get("idle_slot").from_parameters(range(4), [3] * 4, 2, "", {"sides": sides})
    narrowed = constraint.restricted([np.array([2, 0])] * 4)
    for values in product(range(3), repeat=4):
        chosen = {int(side[x]) for side, x in zip(sides, values, strict=True)}
        idle = chosen >= {BEFORE, AFTER} and TAKEN not in chosen
        assert constraint.degree(values) == idle and constraint.table[values] == -2 * idle
        assert total(constraint.parts(), values) == -2 * idle
        if 1 not in values:
            assert narrowed.degree([int(x != 2) for x in values]) == idle
