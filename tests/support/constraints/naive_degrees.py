"""Degrees of violation of global constraints, computed from their definitions by loops over values and times."""

from collections import Counter
from itertools import combinations


def naive_degree(constraint, values):
    """Return the degree of violation of a constraint at one combination of values."""
    return _DEGREES[constraint.kind](constraint, list(values))


def _count(c, values):
    number = sum(int(counted[x]) for counted, x in zip(c.counted, values, strict=True))
    return max(0, c.low - number, number - c.high)


def _all_different(c, values):
    taken = Counter(int(codes[x]) for codes, x in zip(c.codes, values, strict=True))
    return sum(number - 1 for code, number in taken.items() if code >= 0)


def _intervals(c, values):
    return [
        set(range(int(times[x]), int(times[x]) + d))
        for times, d, x in zip(c.times, c.durations, values[: len(c.durations)], strict=True)
    ]


def _no_overlap(c, values):
    intervals, n = _intervals(c, values), len(c.durations)
    places = [0] * n if c.places is None else [int(p[x]) for p, x in zip(c.places, values[n:], strict=True)]
    return sum(len(intervals[i] & intervals[j]) for i, j in combinations(range(n), 2) if places[i] == places[j])


def _cumulative(c, values):
    load = Counter()
    for interval, demand in zip(_intervals(c, values), c.demands, strict=True):
        for time in interval:
            load[time] += demand
    return sum(max(0, amount - c.capacity) for amount in load.values())


def _breaks(c, values):
    busy = set().union(*_intervals(c, values))
    holes = sum(1 for time in busy if time + 1 not in busy) - 1
    return max(0, holes - c.high)


def _precedence(c, values):
    first, second = (int(numbers[x]) for numbers, x in zip(c.numbers, values, strict=True))
    return max(0, first + c.distance - second)


def _element(c, values):
    index, result, *entries = values
    chosen = int(c.selected[index])
    return int(c.codes[0][result] != c.codes[1 + chosen][entries[chosen]])


_DEGREES = {
    "count": _count,
    "all_different": _all_different,
    "no_overlap": _no_overlap,
    "cumulative": _cumulative,
    "breaks": _breaks,
    "precedence": _precedence,
    "element": _element,
}
