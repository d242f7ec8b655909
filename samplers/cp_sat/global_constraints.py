"""Global constraints in a CP-SAT model.

Hard constraints on intervals become intervals. Other global constraints become linear constraints on the loads of their
cells (``dmcmc.inference.constraints.global_constraint``); a convex penalty becomes linear inequalities.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, permutations
from typing import Any

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.cp_sat.cost_model import CpSatModel
from dmcmc.samplers.external.problem_arrays import codes_by_scope, implied_limits, never_shared


def add_constraints(model: CpSatModel, constraints: list[dict[str, Any]]) -> None:
    """Add the global constraints of a problem, and limits that several of them imply.

    Parameters
    ----------
    model : CpSatModel
        The model with all tables.
    constraints : list of dict
        The constraints as ``problem_arrays.constraints`` reads them.
    """
    model.codes = codes_by_scope(constraints)
    for given in constraints:
        _ADDED[given["kind"]](model, given)
    for groups, most in implied_limits(model.groups, model.limits):
        model.cp.add(sum(model.groups[group] for group in groups) <= most)


def _intervals(model: CpSatModel, given: dict[str, Any]) -> list[Any]:
    """Return intervals of time with variable starts."""
    return [
        model.cp.new_fixed_size_interval_var(model.expressions.number(v, times), duration, "")
        for v, times, duration in zip(given["scope"], given["times"], given["durations"], strict=False)
    ]


def _add_no_overlap(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a no-overlap constraint.

    A soft one becomes an overlap for each pair. A hard one becomes intervals; with places, an optional interval per
    place, and a cumulative constraint for all.
    """
    if given["cost"] is not None:
        for i, j in combinations(range(len(given["durations"])), 2):
            parts = [(given["scope"][k], given["times"][k], given["durations"][k]) for k in (i, j)]
            model.cost.charge(model.expressions.overlap(parts[0], parts[1]), given["cost"])
        return
    if given["places"] is None:
        model.cp.add_no_overlap(_intervals(model, given))
        return
    n, by_place = len(given["durations"]), defaultdict[int, list[Any]](list)
    for i, duration in enumerate(given["durations"]):
        start = model.expressions.number(given["scope"][i], given["times"][i])
        for place, literal in zip(given["places"][i], model.variables.literals(given["scope"][n + i]), strict=True):
            interval = model.cp.new_optional_fixed_size_interval_var(start, duration, literal, "")
            by_place[place].append(interval)
    for intervals in by_place.values():
        model.cp.add_no_overlap(intervals)
    model.cp.add_cumulative(_intervals(model, given), [1] * n, len(by_place))


def _add_cumulative(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a hard cumulative constraint, and its sum at each time if the starts have literals and are few."""
    model.cp.add_cumulative(_intervals(model, given), given["demands"], given["capacity"])
    items = list(zip(given["scope"], given["times"], given["durations"], given["demands"], strict=True))
    terms = sum(len(times) * duration for _, times, duration, _ in items)
    if terms > tuning.MAX_LOAD_TERMS or any(model.variables.literals_of[v] is None for v in given["scope"]):
        return
    loads = defaultdict[int, list[tuple[int, Any]]](list)
    for v, times, duration, demand in items:
        for time, literal in zip(times, model.variables.literals(v), strict=True):
            for moment in range(time, time + duration):
                loads[moment].append((demand, literal))
    for load in loads.values():
        model.cp.add(sum(demand * literal for demand, literal in load) <= given["capacity"])


def _add_adjacency(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a Boolean for each ordered pair of intervals, which is true if the second starts at the end of the first."""
    scope, durations = given["scope"], given["durations"]
    times = given["times"]
    for i, j in permutations(range(len(scope)), 2):
        earlier = model.expressions.at_most((scope[j], scope[i]), (times[j], times[i]), 1 - durations[i])
        later = model.expressions.at_most((scope[i], scope[j]), (times[i], times[j]), durations[i] + 1)
        touch = model.cp.new_bool_var("")
        model.cp.add_bool_or(earlier, later, touch)
        model.cost.charge(touch, given["cost"])


def _add_place_changes(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a Boolean for each pair of intervals, which is true if they follow each other soon in different places."""
    n, scope, durations = len(given["durations"]), given["scope"], given["durations"]
    times = given["times"]
    for i, j in combinations(range(n), 2):
        same = model.expressions.same_number((scope[n + i], scope[n + j]), (given["places"][i], given["places"][j]))
        far = [
            model.expressions.at_most((scope[a], scope[b]), (times[a], times[b]), durations[a] + given["gap"] + 1)
            for a, b in ((i, j), (j, i))
        ]
        # Intervals that start together do not follow each other.
        together = model.expressions.same_number((scope[i], scope[j]), (times[i], times[j]))
        change = model.cp.new_bool_var("")
        model.cp.add_bool_or(*far, together, same, change)
        model.cost.charge(change, given["cost"])


def _add_precedence(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a linear constraint; if soft, its degree is a variable."""
    first, second = (model.expressions.number(v, n) for v, n in zip(given["scope"], given["numbers"], strict=True))
    if given["cost"] is None:
        model.cp.add(first + given["distance"] <= second)
        return
    largest = max(given["numbers"][0]) + given["distance"] - min(given["numbers"][1])
    degree = model.cp.new_int_var(0, max(0, largest), "")
    model.cp.add(first + given["distance"] <= second + degree)
    model.cost.charge(degree, given["cost"])


def _add_element(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add for each value of the index that the result equals the selected entry, unless the constraint is violated."""
    index, result, *entries = given["scope"]
    violated = model.cp.new_bool_var("")
    for literal, entry in zip(model.variables.literals(index), given["selected"], strict=True):
        codes = given["codes"][0], given["codes"][1 + entry]
        same = model.expressions.same_number((result, entries[entry]), codes)
        model.cp.add_bool_or(literal.negated(), same, violated)
    model.cost.charge(violated, given["cost"])


def _add_loads(model: CpSatModel, given: dict[str, Any]) -> None:
    """Add a constraint that is a function of the loads of cells."""
    loads: list[list[tuple[int, Any]]] = [[] for _ in given["width"]]
    largest = [0] * len(loads)
    for item in given["items"]:
        reached = set[int]()
        for first, end, literal in _placed(model, given["scope"], item):
            cells = range(first, end)
            reached.update(cells)
            for cell in cells:
                loads[cell].append((item["weight"], literal))
        for cell in reached:
            largest[cell] += item["weight"]
    if given["counts_runs"]:
        _add_runs(model, loads, given)
        return
    for load, most, width in zip(loads, largest, given["width"], strict=True):
        penalty = given["penalty"][: most + 1]
        if any(penalty):
            _add_penalty(model, load, penalty, None if given["cost"] is None else width * given["cost"])


def _placed(model: CpSatModel, scope: list[int], item: dict[str, Any]) -> Iterator[tuple[int, int, Any]]:
    """Yield the first cell and the end of an item's range with the literal of the values that give it."""
    if len(item["positions"]) == 1:
        found = [(item["first"], item["end"], model.variables.literals(scope[item["positions"][0]]))]
    else:
        u, v = (scope[position] for position in item["positions"])
        found = list(zip(item["first"], item["end"], model.expressions.products(u, v), strict=True))
    for firsts, ends, literals in found:
        for first, end, literal in zip(firsts, ends, literals, strict=True):
            if first >= 0:
                yield first, end, literal


def _add_penalty(model: CpSatModel, load: list[tuple[int, Any]], penalty: list[int], cost: int | None) -> None:
    """Add the penalty of a load: allowed loads, inequalities if the penalty is convex, otherwise an element."""
    total = sum(weight * literal for weight, literal in load)
    if cost is None:
        allowed = [i for i, degree in enumerate(penalty) if degree <= 0]
        if allowed == [0, 1] and all(weight == 1 for weight, _ in load):
            model.cp.add_at_most_one(literal for _, literal in load)
        else:
            model.expressions.restrict(total, allowed)
        if allowed == list(range(len(allowed))) and all(weight == 1 for weight, _ in load):
            model.limits.append((frozenset(literal.index for _, literal in load), len(allowed) - 1))
        return
    increments = [after - before for before, after in pairwise(penalty)]
    if len(set(increments)) <= 1:
        unit = increments[0] if increments else 0
        model.cost.charge_terms([(unit * weight, literal) for weight, literal in load], cost)
        model.cost.charge(penalty[0], cost)
        return
    degree = model.cp.new_int_var(min(penalty), max(penalty), "")
    index = model.cp.new_int_var(0, len(penalty) - 1, "")
    model.cp.add(index == total)
    if increments == sorted(increments):
        for i, increment in enumerate(increments):
            if not i or increment > increments[i - 1]:
                model.cp.add(degree >= penalty[i] + increment * (index - i))
    else:
        model.cp.add_element(index, penalty, degree)
    model.cost.charge(degree, cost)


def _add_runs(model: CpSatModel, loads: list[list[tuple[int, Any]]], given: dict[str, Any]) -> None:
    """Add the penalty of the number of maximal runs of cells with a positive load.

    A cell ends a break if its load is positive, that of the cell before is 0, and that of an earlier one is positive
    (Bofill et al., JAIR 74, 2022). There is a run for each break, and one more if any load is positive.
    """
    cells = [[literal for _, literal in load] for load in loads]
    occupied = [model.expressions.any_of(literals) for literals in cells]
    for literals, literal in zip(cells, occupied, strict=True):
        if literals:
            model.groups[frozenset(x.index for x in literals)] = literal
    before = occupied[:1]
    for literal in occupied[1:]:
        before.append(model.expressions.any_of([before[-1], literal]))
    ends = [
        model.expressions.all_of([occupied[cell], occupied[cell - 1].negated(), before[cell - 2]])
        for cell in range(2, len(occupied))
    ]
    if never_shared(model.codes, given):  # implied
        model.cp.add(sum(occupied) == len(given["items"]))
    penalty = given["penalty"]
    if len(penalty) > 1 and penalty[0] == penalty[1]:
        _add_penalty(model, [(1, end) for end in ends], penalty[1:], given["cost"])
    else:
        _add_penalty(model, [(1, literal) for literal in (*ends, before[-1])], penalty, given["cost"])


_ADDED: dict[str, Callable[[CpSatModel, dict[str, Any]], None]] = {
    "no_overlap": _add_no_overlap,
    "cumulative": _add_cumulative,
    "adjacency": _add_adjacency,
    "place_changes": _add_place_changes,
    "precedence": _add_precedence,
    "element": _add_element,
    "loads": _add_loads,
}
