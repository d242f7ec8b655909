"""Costs of words in a language: cheapest runs of an automaton and cheapest parses by a grammar.

A *word* is an assignment of the scope, read in its order.
"""

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.global_functions.costs import CostScale
from dmcmc.inference.model.automaton import StepFunction
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_MAX_PARSE_ENTRIES = 2**22  # limit for the number of words times the number of symbols: 32 MiB of int64 costs per span
_Spans = dict[int, NDArray[np.int64]]  # for each symbol, the costs of all words over some positions of the scope
_NO_PARSE = np.iinfo(np.int64).max // 4  # cost of a word without a parse; two of them can be added without overflow


def automaton_for(
    keyword: str, length: int, arguments: Mapping[str, Any], costs: CostScale
) -> tuple[Hashable, StepFunction]:
    """Return the initial state and the step of an automaton that computes the cheapest run of the file's automaton.

    The file's automaton may be nondeterministic; the result is its subset construction with costs. A state of the new
    automaton is a sorted tuple of pairs: a state of the file's automaton, and the cost of reaching it. With the metric
    ``var`` a value may be replaced at a cost; with ``edit`` values may also be deleted and inserted. In the code, q and
    r are states of the file's automaton, and v is the value that labels a transition.

    Parameters
    ----------
    keyword
        ``wregular``: starts, ends and transitions have costs. ``sregular`` and ``sregulardp``: they have none, and
        edits cost the parameter ``cost`` each.
    length
        Number of variables of the scope.
    arguments
        Parameters of the function: records (state, cost) of ``starts`` and ``ends``, and (state, value, next state,
        cost) of ``transitions``; all without the cost unless the keyword is ``wregular``.
    costs
        Converts costs to utilities.

    Returns
    -------
    start, step
        ``step`` maps (position, state, value) to the next state and a utility; None as utility is forbidden.
    """
    a, is_unweighted, allows_edits = arguments, keyword != "wregular", arguments.get("metric") == "edit"
    edit_cost: int = a.get("cost", 0)
    starts = [(q, 0) for (q,) in a["starts"]] if is_unweighted else a["starts"]
    ends = {q: 0 for (q,) in a["ends"]} if is_unweighted else dict(a["ends"])
    edges = [(q, v, r, 0) for q, v, r in a["transitions"]] if is_unweighted else a["transitions"]
    for q in (*(q for q, _ in starts), *ends, *(q for e in edges for q in (e[0], e[2]))):
        if not 0 <= q < a["nb_states"]:
            raise ProblemError(f"state {q} does not exist; there are 0 to {a['nb_states'] - 1}")
    leaving: dict[int, list[tuple[int, int, int]]] = {}
    for q, v, r, cost in edges:
        leaving.setdefault(q, []).append((v, r, cost))

    def with_insertions(best: dict[int, int]) -> dict[int, int]:
        """Add the states that insertions reach, and lower the costs that insertions make cheaper."""
        queue = list(best) if allows_edits else []
        while queue:
            q = queue.pop()
            for _, r, _ in leaving.get(q, ()):
                if best[q] + edit_cost < best.get(r, best[q] + edit_cost + 1):
                    best[r] = best[q] + edit_cost
                    queue.append(r)
        return best

    def step(position: int, reached: Any, value: int) -> tuple[Hashable, int | float | None]:
        best: dict[int, int] = {}
        for q, cost in reached:
            for v, r, edge_cost in leaving.get(q, ()):
                if v == value or is_unweighted:
                    total = cost + edge_cost + (0 if v == value else edit_cost)
                    best[r] = min(best.get(r, total), total)
            if allows_edits:
                best[q] = min(best.get(q, cost + edit_cost), cost + edit_cost)
        best = with_insertions(best)
        if position == length - 1:
            finals = [cost + ends[q] for q, cost in best.items() if q in ends]
            return 0, costs.utility(min(finals) if finals else None)
        if not best:
            return (), None
        # Pay the common part of all costs now, so that states that differ only by it become equal.
        common = min(best.values())
        return tuple(sorted((q, cost - common) for q, cost in best.items())), _finite_utility(common, costs)

    initial: dict[int, int] = {}
    for q, cost in starts:
        initial[q] = min(initial.get(q, cost), cost)
    return tuple(sorted(with_insertions(initial).items())), step


def _finite_utility(cost: int, costs: CostScale) -> int | float:
    """Return the utility of a cost that is never forbidden itself: −cost / unit.

    The step before the last charges only a part of the total cost, so the limit ``costs.top`` does not apply to it.
    """
    return -cost if costs.unit == 1 else (0 - cost) / costs.unit


def parse_utilities(shape: Sequence[int], arguments: Mapping[str, Any], costs: CostScale) -> NDArray[Any]:
    """Return the utility of every word by its cheapest parse (CYK algorithm, for all words at once).

    With the metric ``var`` a value may be replaced at a cost. With ``weight`` rules have costs, and a word without a
    parse is forbidden.

    Parameters
    ----------
    shape
        Domain sizes of the scope: position i of a word has ``shape[i]`` possible values.
    arguments
        ``nb_symbols``, ``start`` (the symbol that derives a word), ``terminals`` with records (symbol, value), and
        ``non_terminals`` with records (symbol, left symbol, right symbol); each record ends with a cost for ``weight``.
    costs
        Converts costs to utilities.

    Returns
    -------
    ndarray of int64 or float64, one axis per position
        Utilities; the smallest int64 or −∞ is forbidden.
    """
    a, n, symbols = arguments, len(shape), arguments["nb_symbols"]
    if prod(shape) * max(1, symbols) > _MAX_PARSE_ENTRIES:
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
            span_costs = np.full(size, a["cost"] if soft else _NO_PARSE, dtype=np.int64)
            if value < size:
                span_costs[value] = sum(weight)
            _keep_cheaper(spans, symbol, span_costs)
        best[i, i + 1] = spans
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            best[i, i + width] = _combined_spans(best, i, i + width, a["non_terminals"])
    word_costs = best[0, n].get(a["start"], np.full(tuple(shape), _NO_PARSE, dtype=np.int64))
    entries = [costs.utility(None if cost >= _NO_PARSE else cost) for cost in word_costs.ravel().tolist()]
    all_integers = all(u is None or isinstance(u, int) for u in entries)
    hard = np.iinfo(np.int64).min if all_integers else -np.inf
    return np.array([hard if u is None else u for u in entries]).reshape(tuple(shape))


def _combined_spans(
    best: Mapping[tuple[int, int], Mapping[int, NDArray[np.int64]]],
    begin: int,
    end: int,
    rules: Sequence[Sequence[int]],
) -> dict[int, NDArray[np.int64]]:
    """Return each symbol's costs for the words over positions ``begin`` to ``end``, combined from shorter spans.

    ``best`` maps a span (begin, end) to the costs by symbol. A rule is (symbol, left symbol, right symbol), with a
    weight if the grammar has weights.
    """
    spans: _Spans = {}
    for middle in range(begin + 1, end):
        left, right = best[begin, middle], best[middle, end]
        for symbol, left_symbol, right_symbol, *weight in rules:
            if left_symbol in left and right_symbol in right:
                both = (
                    left[left_symbol].reshape(*left[left_symbol].shape, *(1,) * right[right_symbol].ndim)
                    + right[right_symbol]
                    + sum(weight)
                )
                _keep_cheaper(spans, symbol, np.minimum(both, _NO_PARSE))
    return spans


def _keep_cheaper(spans: _Spans, symbol: int, costs: NDArray[np.int64]) -> None:
    """Lower the costs of a symbol to the given costs where these are cheaper."""
    spans[symbol] = np.minimum(spans[symbol], costs) if symbol in spans else costs
