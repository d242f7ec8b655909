# mypy: ignore-errors
"""Compiled moves and chains of local search, on the factor graph and on score columns.

Exact single-variable moves on a factor graph: fewer violations first, then more utility.

They serve the descent to a 1-opt assignment and the first greedy assignment of the local search. A utility is the sum
of a high and a low float64 part, so that sums of int64 are exact: ``graph.low`` has the low parts of the entries, and
is empty if float64 holds them all (*split* in the code means that it is not).

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.inference.model.factor_graph``. The scope of factor f is
    ``graph.scope[graph.scope_start[f]:graph.scope_start[f + 1]]``; factors below ``graph.dense`` are dense tables, the
    others are automata (states with a utility and a next state per value; they stand for sparse or global constraints).
    ``graph.stride`` is a variable's stride in its dense table, or the offset of its layer of transitions in an
    automaton. ``graph.factor`` and ``graph.position`` from ``graph.start[v]`` on are the factors of variable v and the
    index of v in ``graph.scope``. ``graph.forbidden_entry`` marks forbidden entries in ``graph.data``.
z : (n,) int64
    The assignment.
sums : (3, at least the largest domain) float64
    For each value of one variable: number of violated factors, utility (high part), utility (low part).

Annealed Gibbs chains on a factor graph that compute scores when a variable is drawn.

They serve problems whose score columns (copies of the tables, one per variable of each factor) would not fit in memory.

Shared arguments: ``graph`` (FactorGraph) and ``z`` (n,) int64 (the assignment) are described in ``graph_kernels``.
``sums`` is (3, largest domain) float64: for each value of one variable the number of violations, and the high and low
part of the utility.

Annealed Gibbs chains over complete assignments, with all scores kept up to date.

Arguments that several kernels share:

model : ChainModel
    All variables of the problem, numbered in the order of a sweep; see ``dmcmc.samplers.model.chain_model``. Utilities
    are integers in *chain units* (utilities times a power of two, rounded), with −2^k per forbidden entry; draws
    subtract a finite penalty instead.
z : (n,) int32
    The state.
scores : (n, lanes) uint16 or int32
    Utility of each value of each variable, given the others.
scratch : (lanes,) int32
    Workspace of a draw.
key : (2,) uint64
    Key of the random numbers. Their counter is ``chain``, ``trial`` (the sweep's number) and the variable.
halt : (1,) uint8
    Nonzero when the kernel should return.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.draw_kernels import best_value_weight, draw, rate_of
from dmcmc.samplers.model.state_kernels import best_value, change, evaluate, fill_scores, gain_of, philox, uniform

TIE = 2.0**-96  # relative difference of two sums that rounding alone can explain


@njit(allocates=False)
def two_sum(high, low, more, more_low):
    """Add a two-part number to another; the rounding error of the high parts goes to the low part (Knuth's two-sum)."""
    total = high + more
    part = total - high
    return total, low + ((high - (total - part)) + (more - part)) + more_low


@njit(allocates=False)
def add(sums, d, high, low):
    """Add a two-part utility (``high`` + ``low``) to the sums of value d."""
    sums[1, d], sums[2, d] = two_sum(sums[1, d], sums[2, d], high, low)


@njit(allocates=False)
def score_values(graph, z, v, sums):
    """Sum the factors of v for each value of v, with all other variables fixed; write the result to ``sums``."""
    size = graph.domains[v]
    for d in range(size):
        sums[0, d] = sums[1, d] = sums[2, d] = 0.0
    split = graph.low.size > 0
    for i in range(graph.start[v], graph.start[v + 1]):
        f, position = graph.factor[i], graph.position[i]
        if f >= graph.dense:
            score_automaton(graph, z, f, position, sums)
            continue
        offset = graph.table_start[f]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            if s != position:
                offset += z[graph.scope[s]] * graph.stride[s]
        step = graph.stride[position]
        for d in range(size):
            entry = graph.data[offset]
            if entry == graph.forbidden_entry:
                sums[0, d] += 1.0
            else:
                add(sums, d, np.float64(entry), graph.low[offset] if split else 0.0)
            offset += step


@njit(allocates=False)
def run_automaton(graph, z, begin, end, position, value, state, high, low):
    """Make an automaton's transitions at the positions ``begin`` to ``end`` − 1 of the scopes, from a state.

    Each transition reads a variable's value: ``value`` at ``position``, and that in ``z`` at other positions. Returns
    the next state, −1 if a transition is forbidden, and the two parts of ``high`` + ``low`` plus the utilities.
    """
    split = graph.low.size > 0
    for s in range(begin, end):
        w = graph.scope[s]
        transition = graph.stride[s] + state * graph.domains[w] + (value if s == position else z[w])
        entry = graph.data[graph.first_step + transition]
        if entry == graph.forbidden_entry:
            return np.int64(-1), high, low
        low_entry = graph.low[graph.first_step + transition] if split else 0.0
        high, low = two_sum(high, low, np.float64(entry), low_entry)
        state = np.int64(graph.following[transition])
    return state, high, low


@njit(allocates=False)
def score_automaton(graph, z, f, position, sums):
    """Add the utility or violation of automaton f to ``sums``, per value of the variable at ``scope[position]``.

    The transitions before ``position`` are common to all values and are made once.
    """
    first, last, none = graph.scope_start[f], graph.scope_start[f + 1], np.int64(-1)
    common, common_high, common_low = run_automaton(graph, z, first, position, none, none, np.int64(0), 0.0, 0.0)
    for d in range(graph.domains[graph.scope[position]]):
        state, high, low = common, common_high, common_low
        if state >= 0:
            state, high, low = run_automaton(graph, z, position, last, position, d, state, high, low)
        if state < 0:
            sums[0, d] += 1.0
        else:
            add(sums, d, high, low)


@njit(nogil=True, allocates=False)
def evaluate_graph(graph, z, out):
    """Evaluate an assignment: write its violations and the two parts of its utility to ``out[:, 0]``."""
    split, none = graph.low.size > 0, np.int64(-1)
    violations, high, low = 0.0, 0.0, 0.0
    for f in range(graph.scope_start.size - 1):
        first, last = graph.scope_start[f], graph.scope_start[f + 1]
        if f < graph.dense:
            offset = graph.table_start[f]
            for s in range(first, last):
                offset += z[graph.scope[s]] * graph.stride[s]
            more, more_low = np.float64(graph.data[offset]), graph.low[offset] if split else 0.0
            is_forbidden = graph.data[offset] == graph.forbidden_entry
        else:
            state, more, more_low = run_automaton(graph, z, first, last, none, none, np.int64(0), 0.0, 0.0)
            is_forbidden = state < 0
        if is_forbidden:
            violations += 1.0
        else:
            high, low = two_sum(high, low, more, more_low)
    out[0, 0], out[1, 0], out[2, 0] = violations, high, low


@njit(nogil=True, allocates=False)
def is_better(graph, one, other, sums):
    """Return whether assignment ``one`` is better than ``other``: fewer violations, or equally many and more utility.

    A difference of utility that rounding alone can explain does not count. ``sums`` is overwritten.
    """
    evaluate_graph(graph, other, sums)
    violations, high, low = sums[0, 0], sums[1, 0], sums[2, 0]
    evaluate_graph(graph, one, sums)
    if sums[0, 0] != violations:
        return sums[0, 0] < violations
    return (sums[1, 0] - high) + (sums[2, 0] - low) > TIE * (abs(high) + abs(sums[1, 0]))


@njit(allocates=False)
def is_better_value(sums, first, second):
    """Return whether value ``first`` is better than value ``second`` by more than rounding.

    Better is a lower number of violations, or an equal one and more utility.
    """
    if sums[0, first] != sums[0, second]:
        return sums[0, first] < sums[0, second]
    gain = (sums[1, first] - sums[1, second]) + (sums[2, first] - sums[2, second])
    return gain > TIE * (abs(sums[1, first]) + abs(sums[1, second]))


@njit(allocates=False)
def best_of(sums, size, old):
    """Return the best value in ``sums``: ``old`` if no value is better, else the first of the best."""
    new = 0
    for d in range(1, size):
        if is_better_value(sums, d, new):
            new = d
    return new if is_better_value(sums, new, old) else old


@njit(nogil=True, allocates=False)
def ascend(graph, z, may_improve, cursor, sums, reads_left):
    """Assign best values in turn until no single move is an improvement, or the budget of table reads is used up.

    1-opt means that no change of a single variable is an improvement.

    Parameters
    ----------
    may_improve : (n,) bool
        Variables that may have a better value; the others are known to have none. All true at first; true again for
        the neighbours of a variable that changes.
    cursor : (2,) int64
        The next variable, and the number of consecutive variables before it that could not improve. Kept between calls.
    reads_left : int
        Number of table entries to read before the kernel returns.

    Returns
    -------
    bool
        Whether the assignment is 1-opt.
    """
    n = z.size
    v, unchanged = cursor
    while unchanged < n and reads_left > 0:
        unchanged += 1
        if may_improve[v]:
            score_values(graph, z, v, sums)
            reads_left -= (graph.start[v + 1] - graph.start[v] + 1) * graph.domains[v]
            new = best_of(sums, graph.domains[v], z[v])
            if new != z[v]:
                z[v] = new
                unchanged = 0
                for i in range(graph.start[v], graph.start[v + 1]):
                    f = graph.factor[i]
                    for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                        may_improve[graph.scope[s]] = True
            may_improve[v] = False
        v = v + 1 if v + 1 < n else 0
    cursor[0], cursor[1] = v, unchanged
    return unchanged >= n


@njit(nogil=True)
def average_factors(graph, first, last, means_start, out):
    """Average dense factors over all variables but one, for each of their variables and its values.

    ``choose_greedily`` uses the averages of factors whose other variables have no value yet.

    Parameters
    ----------
    first, last : int
        Factors ``first`` to ``last`` - 1.
    means_start : (scope entries,) int64
        Offset in ``out`` of the averages of each variable of each factor.
    out : (2, averages) float64
        The share of forbidden entries, and the mean of the others.
    """
    for f in range(first, last):
        size = 1
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            size *= graph.domains[graph.scope[s]]
        table = graph.data[graph.table_start[f] : graph.table_start[f] + size]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            domain, step = graph.domains[graph.scope[s]], graph.stride[s]
            share = out[0, means_start[s] : means_start[s] + domain]
            mean = out[1, means_start[s] : means_start[s] + domain]
            share[:] = 0.0
            mean[:] = 0.0
            if step == 1:
                for offset in range(0, size, domain):
                    add_entries(table[offset : offset + domain], graph.forbidden_entry, share, mean)
            else:
                for offset in range(0, size, domain * step):
                    for d in range(domain):
                        row = table[offset + d * step : offset + (d + 1) * step]
                        forbidden, total = sum_entries(row, graph.forbidden_entry)
                        share[d] += forbidden
                        mean[d] += total
            others = size // domain
            for d in range(domain):
                mean[d] /= max(1.0, others - share[d])
                share[d] /= others


@njit(allocates=False)
def add_entries(row, forbidden_entry, violations, total):
    """Add each allowed entry to its total and count each forbidden one."""
    for d in range(row.size):
        forbidden = row[d] == forbidden_entry
        violations[d] += 1.0 if forbidden else 0.0
        total[d] += 0.0 if forbidden else np.float64(row[d])


@njit(fastmath={"reassoc", "nsz"})
def sum_entries(row, forbidden_entry):
    """Return the number of forbidden entries and the sum of the others, in any order of addition (a heuristic)."""
    violations, total = 0.0, 0.0
    for d in range(row.size):
        forbidden = row[d] == forbidden_entry
        violations += 1.0 if forbidden else 0.0
        total += 0.0 if forbidden else np.float64(row[d])
    return violations, total


@njit(nogil=True, allocates=False)
def choose_greedily(graph, order, first, z, assigned, means_start, means, sums, reads_left):
    """Assign variables in turn: the best value by exact entries if the other variables are assigned, else by averages.

    Parameters
    ----------
    order : (n,) int64
        Variables in the order of assignment.
    first : int
        Index in ``order`` to begin at.
    assigned : (n,) bool
        Variables that have a value in ``z``.
    means_start : (scope entries,) int64
        Offset in ``means`` of the averages of each variable of each factor.
    means : (2, averages) float64
        From ``average_factors``.
    reads_left : int
        Number of table entries to read before the kernel returns.

    Returns
    -------
    int
        Index in ``order`` of the first variable that is not assigned yet.
    """
    i = first
    while i < order.size and reads_left > 0:
        v = order[i]
        size = graph.domains[v]
        reads_left -= (graph.start[v + 1] - graph.start[v] + 1) * size
        for d in range(size):
            sums[0, d] = sums[1, d] = sums[2, d] = 0.0
        for j in range(graph.start[v], graph.start[v + 1]):
            f, position = graph.factor[j], graph.position[j]
            if f >= graph.dense:
                continue
            at, others_assigned = graph.table_start[f], True
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                if s != position:
                    others_assigned = others_assigned and assigned[graph.scope[s]]
                    at += z[graph.scope[s]] * graph.stride[s]
            for d in range(size):
                if not others_assigned:
                    sums[0, d] += means[0, means_start[position] + d]
                    sums[1, d] += means[1, means_start[position] + d]
                elif graph.data[at + d * graph.stride[position]] == graph.forbidden_entry:
                    sums[0, d] += 1.0
                else:
                    sums[1, d] += np.float64(graph.data[at + d * graph.stride[position]])
        z[v] = best_of(sums, size, 0)
        assigned[v] = True
        i += 1
    return i


@njit(nogil=True, allocates=False)
def typical_spread(graph, z, sums):
    """Return the root mean square over variables of the standard deviation of their values' utilities.

    Values with more or fewer violations than the present value are left out.
    """
    total = 0.0
    for v in range(z.size):
        score_values(graph, z, v, sums)
        count, mean, square = 0, 0.0, 0.0
        for d in range(graph.domains[v]):
            if sums[0, d] == sums[0, z[v]]:
                count += 1
                mean += sums[1, d] - sums[1, z[v]]
                square += (sums[1, d] - sums[1, z[v]]) * (sums[1, d] - sums[1, z[v]])
        if count > 0:
            total += max(0.0, square / count - (mean / count) * (mean / count))
    return math.sqrt(total / max(1, z.size))


@njit(nogil=True, allocates=False)
def draw_value(sums, size, penalty, temperature, chance):
    """Draw a value with probability ∝ exp((utility − penalty · violations) / temperature).

    ``chance`` is a random number in (0, 1). At temperature 0 the first best value is returned.
    """
    top = -np.inf
    for d in range(size):
        top = max(top, sums[1, d] - penalty * sums[0, d])
    if temperature <= 0:
        for d in range(size):
            if sums[1, d] - penalty * sums[0, d] == top:
                return d
    total = 0.0
    for d in range(size):
        total += math.exp((sums[1, d] - penalty * sums[0, d] - top) / temperature)
    remaining = chance * total
    for d in range(size):
        remaining -= math.exp((sums[1, d] - penalty * sums[0, d] - top) / temperature)
        if remaining < 0:
            return d
    return size - 1


@njit(nogil=True, allocates=False)
def anneal_graph(graph, order, z, best, sums, best_score, temperatures, penalty, trial, key, chain, halt):
    """Make sweeps over all variables in the given order, and keep the best state seen at the end of a sweep.

    Parameters
    ----------
    order : (n,) int64
        Variables in the order of a sweep.
    best : (n,) int64
        The best state.
    best_score : (2,) float64
        The best state's violations, negated, and utility.
    temperatures : (sweeps,) float64
        Temperature of each sweep, in units of utility.
    penalty : float
        Utility that a violation costs.
    trial : int
        Number of the first sweep, from 1.
    key : (2,) uint64
        Key of the random numbers.
    chain : int
        Number of the chain.
    halt : (1,) uint8
        Nonzero when the kernel should return.

    Returns
    -------
    int
        Sweeps made; fewer than asked for if halted, or if a sweep at temperature 0 moves nothing.
    """
    for t in range(temperatures.size):
        moved = False
        for i in range(order.size):
            if halt[0] != 0:
                return t
            v = order[i]
            score_values(graph, z, v, sums)
            # Second counter word 1: chains with score columns use 0.
            words = philox(key[0], key[1], chain, 1, trial + t, v)
            new = draw_value(sums, graph.domains[v], penalty, temperatures[t], uniform(words[0]))
            moved = moved or new != z[v]
            z[v] = new
        evaluate_graph(graph, z, sums)
        score = (-sums[0, 0], sums[1, 0] + sums[2, 0])
        if score > (best_score[0], best_score[1]):
            best_score[0], best_score[1] = score
            for v in range(z.size):
                best[v] = z[v]
        elif not moved and temperatures[t] <= 0:
            return t + 1
    return temperatures.size


HALT_MASK = 1023  # a mask: ``halt`` is read at variables whose number is a multiple of 1024


@njit(nogil=True)
def begin(model, z, scores):
    """Fill the scores of a state and return its utility."""
    fill_scores(model, z, scores)
    return evaluate(model, z)


@njit(allocates=False)
def sweep(model, span, z, scores, scratch, temperature, key, chain, trial, halt):
    """Draw the variables in ``range(span[0], span[1])`` in turn (a Gibbs sweep) and return the utility gain.

    At temperature 0 each variable takes its best value.
    """
    gained = np.int64(0)
    if temperature <= 0:
        for v in range(span[0], span[1]):
            if v & HALT_MASK == 0 and halt[0] != 0:
                break
            new = best_value(scores, v, model.domains[v], z[v])
            if new != z[v]:
                gained += gain_of(scores, v, new, z[v])
                change(model, z, scores, v, new)
        return gained
    rate = rate_of(temperature)
    best_weight = best_value_weight(model.lanes)
    # One block of random bits has four words, one per variable.
    words = philox(key[0], key[1], chain, 0, trial, span[0] >> 2)
    for v in range(span[0], span[1]):
        if v & HALT_MASK == 0 and halt[0] != 0:
            break
        if v & 3 == 0:
            words = philox(key[0], key[1], chain, 0, trial, v >> 2)
        old = z[v]
        new = draw(model, scores, v, rate, best_weight, old, words[v & 3], scratch)
        if new != old:
            gained += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return gained


@njit(nogil=True)
def anneal(model, order, first_part, z, scores, scratch, best, utilities, temperatures, trial, key, chain, halt):
    """Make sweeps over all parts, beginning with part ``first_part``, and keep the best state seen between sweeps.

    The kernel returns early if it is halted, or if a sweep at temperature 0 gains nothing.

    Parameters
    ----------
    order : tuple
        A part has the variables of agents that share no factor; a block is a range of variables, a whole part or one
        agent. The entries are: offsets of the parts in ``blocks`` and the end, (parts + 1,) int64; first variables of
        the blocks and the end, (blocks + 1,) int64; the number of consecutive sweeps that a block makes while its
        tables are in the cache.
    first_part : int
        The part to begin with; the others follow cyclically.
    best : (n,) int32
        The best state.
    utilities : (2,) int64
        Utility of the state and of the best state; updated.
    temperatures : (sweeps,) float32
        Temperature of each sweep, in chain units.
    trial : int
        Number of the first sweep, from 1.

    Returns
    -------
    int
        Sweeps made.
    """
    parts, blocks, sweeps_per_visit = order
    k, t = parts.size - 1, 0
    while t < temperatures.size:
        if halt[0] != 0:
            return t
        gained, end = np.int64(0), min(temperatures.size, t + sweeps_per_visit)
        for i in range(k):
            part = (first_part + i) % k
            for block in range(parts[part], parts[part + 1]):
                span = (blocks[block], blocks[block + 1])
                for s in range(t, end):
                    gained += sweep(model, span, z, scores, scratch, temperatures[s], key, chain, trial + s, halt)
        utilities[0] += gained
        if utilities[0] > utilities[1]:
            utilities[1] = utilities[0]
            for v in range(z.size):
                best[v] = z[v]
        elif temperatures[t] <= 0 and gained == 0:
            return end
        t = end
    return t


@njit(nogil=True, allocates=False)
def pair_moves(model, z, scores, first, last, halt):
    """Make the best 2-opt move of each variable in ``range(first, last)``, together with one neighbour, if it gains.

    Returns
    -------
    int64
        Utility gain of all moves.
    """
    gained = np.int64(0)
    for u in range(first, last):
        if halt[0] != 0:
            break
        old = z[u]
        top, best_a, best_v, best_b = np.int64(0), 0, -1, 0
        for a in range(model.domains[u]):
            if a == old:
                continue
            loss = gain_of(scores, u, a, old)
            change(model, z, scores, u, a)
            for t in range(model.touch_start[u], model.touch_start[u + 1]):
                v = model.touch_variable[t]
                b = best_value(scores, v, model.domains[v], z[v])
                gain = loss + gain_of(scores, v, b, z[v])
                if gain > top:
                    top, best_a, best_v, best_b = gain, a, v, b
            change(model, z, scores, u, old)
        if best_v >= 0:
            change(model, z, scores, u, best_a)
            change(model, z, scores, best_v, best_b)
            gained += top
    return gained
