"""Words of a language: runs of an automaton, parses of a grammar, and how far a word is from having one."""

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.global_functions.costs import Costs
from dmcmc.inference.model.automaton import Step
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_MOST_PARSED = 2**22  # words times symbols
_Spans = dict[int, NDArray[np.int64]]  # the costs of all words of some positions, for each symbol
_NEVER = np.iinfo(np.int64).max // 4  # costs are at most 2^62 / 2


def runs(keyword: str, length: int, arguments: Mapping[str, Any], costs: Costs) -> tuple[Hashable, Step]:
    """Return the first state and the step of an automaton whose state is what each state of the file costs.

    The cost of a word is that of the cheapest run: with ``var`` a value is taken for another at a cost, with ``edit``
    values can be left out and put in, too.
    """
    a, soft, edit = arguments, keyword != "wregular", arguments.get("metric") == "edit"
    wrong: int = a.get("cost", 0)
    starts = [(q, 0) for (q,) in a["starts"]] if soft else a["starts"]
    ends = {q: 0 for (q,) in a["ends"]} if soft else dict(a["ends"])
    edges = [(q, v, r, 0) for q, v, r in a["transitions"]] if soft else a["transitions"]
    for q in (*(q for q, _ in starts), *ends, *(q for e in edges for q in (e[0], e[2]))):
        if not 0 <= q < a["nb_states"]:
            raise ProblemError(f"state {q} does not exist; there are 0 to {a['nb_states'] - 1}")
    leaving: dict[int, list[tuple[int, int, int]]] = {}
    for q, v, r, cost in edges:
        leaving.setdefault(q, []).append((v, r, cost))

    def put_in(best: dict[int, int]) -> dict[int, int]:
        """Let values be put in where that is cheaper."""
        waiting = list(best) if edit else []
        while waiting:
            q = waiting.pop()
            for _, r, _ in leaving.get(q, ()):
                if best[q] + wrong < best.get(r, best[q] + wrong + 1):
                    best[r] = best[q] + wrong
                    waiting.append(r)
        return best

    def step(position: int, reached: Any, value: int) -> tuple[Hashable, int | float | None]:
        best: dict[int, int] = {}
        for q, cost in reached:
            for v, r, more in leaving.get(q, ()):
                if v == value or soft:
                    total = cost + more + (0 if v == value else wrong)
                    best[r] = min(best.get(r, total), total)
            if edit:
                best[q] = min(best.get(q, cost + wrong), cost + wrong)
        best = put_in(best)
        if position == length - 1:
            finals = [cost + ends[q] for q, cost in best.items() if q in ends]
            return 0, costs.utility(min(finals) if finals else None)
        if not best:
            return (), None
        # What all have paid is paid now, so that states that differ by that alone are one.
        paid = min(best.values())
        return tuple(sorted((q, cost - paid) for q, cost in best.items())), _plain(paid, costs)

    first: dict[int, int] = {}
    for q, cost in starts:
        first[q] = min(first.get(q, cost), cost)
    return tuple(sorted(put_in(first).items())), step


def _plain(cost: int, costs: Costs) -> int | float:
    """Return a part of a cost as a utility."""
    return -cost if costs.unit == 1 else (0 - cost) / costs.unit


def parses(shape: Sequence[int], arguments: Mapping[str, Any], costs: Costs) -> NDArray[Any]:
    """Return the utility of every word by its cheapest parse (Cocke, Younger and Kasami, for all words at once).

    With ``var`` a value is taken for another at a cost; with ``weight`` rules have costs, and a word without a parse
    is forbidden.
    """
    a, n, symbols = arguments, len(shape), arguments["nb_symbols"]
    if prod(shape) * max(1, symbols) > _MOST_PARSED:
        raise ResourceError(f"{prod(shape)} words of {symbols} symbols are too many to be parsed")
    soft = a["metric"] == "var"
    named = [s for rule in a["terminals"] for s in rule[:1]] + [s for r in a["non_terminals"] for s in r[:3]]
    for symbol in (a["start"], *named):
        if not 0 <= symbol < symbols:
            raise ProblemError(f"symbol {symbol} does not exist; there are 0 to {symbols - 1}")
    best: dict[tuple[int, int], _Spans] = {}
    for i, size in enumerate(shape):
        spans: _Spans = {}
        for symbol, value, *weight in a["terminals"]:
            worth = np.full(size, a["cost"] if soft else _NEVER, dtype=np.int64)
            if value < size:
                worth[value] = sum(weight)
            _take(spans, symbol, worth)
        best[i, i + 1] = spans
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            best[i, i + width] = _longer(best, i, i + width, a["non_terminals"])
    found = best[0, n].get(a["start"], np.full(tuple(shape), _NEVER, dtype=np.int64))
    entries = [costs.utility(None if cost >= _NEVER else cost) for cost in found.ravel().tolist()]
    whole = all(u is None or isinstance(u, int) for u in entries)
    hard = np.iinfo(np.int64).min if whole else -np.inf
    return np.array([hard if u is None else u for u in entries]).reshape(tuple(shape))


def _longer(
    best: Mapping[tuple[int, int], Mapping[int, NDArray[np.int64]]],
    begin: int,
    end: int,
    rules: Sequence[Sequence[int]],
) -> dict[int, NDArray[np.int64]]:
    """Return each symbol's costs for the values from one place to another, by the costs of shorter parts."""
    spans: _Spans = {}
    for middle in range(begin + 1, end):
        left, right = best[begin, middle], best[middle, end]
        for symbol, one, two, *weight in rules:
            if one in left and two in right:
                both = left[one].reshape(*left[one].shape, *(1,) * right[two].ndim) + right[two] + sum(weight)
                _take(spans, symbol, np.minimum(both, _NEVER))
    return spans


def _take(spans: _Spans, symbol: int, costs: NDArray[np.int64]) -> None:
    """Let a symbol have the cheaper of two costs for each word."""
    spans[symbol] = np.minimum(spans[symbol], costs) if symbol in spans else costs
