"""The format .wcsp: reading and writing.

Read ``.wcsp`` files: weighted CSPs in toulbar2's format.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. A constraint is a list of tuples
with a default, a reference to the tuples of an earlier constraint, or a global cost function
(:mod:`dmcmc.formats.global_functions.factors`). Memory is allocated only for numbers that the file contains, never for
sizes that it merely declares.

The tables of all plain constraints of a ``.wcsp`` file, filled by compiled code in one pass.

The numbers of a ``.wcsp`` file after its header, consumed one after another.

The parameters of a global cost function in a ``.wcsp`` file.

Write ``.wcsp``: non-negative integer costs, minimised. Forbidden entries have the cost ``top`` of the header.

If a factor has negative costs, each factor is shifted so that its least cost is 0, and the sum of the shifts becomes a
constant. The format has no negative constant: toulbar2 would read it as 0.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats import wcsp_kernels
from dmcmc.formats.common import factor_entries
from dmcmc.formats.common.tokens import scan_integers, word_offset
from dmcmc.formats.global_functions import builder
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ProblemError, ResourceError, Unavailable
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.tuning.run import STEPS_PER_BYTE

_INTEGER = re.compile(rb"[+-]?\d+")


class WcspNumbers:
    """The words after the header of a file, of which most are numbers.

    Parameters
    ----------
    source : SourceFile
        The file.
    begin : int
        Byte offset of the end of the header.

    Attributes
    ----------
    all : (words,) int64
        All words as numbers; 0 for words that are not numbers.
    position : int
        Index in ``all`` of the next word to consume.
    _unconverted : (k, 3) int64
        For each word that is not a number: its index in ``all``, its first byte and the byte after its last.
    _words_taken : int
        Number of rows of ``_unconverted`` consumed so far.
    """

    def __init__(self, source: SourceFile, begin: int) -> None:
        self._source, self._begin = source, begin
        self.all, self._unconverted = scan_integers(source.data, begin)
        self.position = self._words_taken = 0

    @property
    def left(self) -> int:
        """The number of words that are not consumed."""
        return int(self.all.size) - self.position

    def check_rest(self) -> None:
        """Fail if a word that is not consumed is not a number."""
        self._check_words(self.all.size)

    def take(self, count: int, what: str) -> NDArray[np.int64]:
        """Consume and return the next ``count`` numbers; ``what`` names them in error messages."""
        self._check_words(min(self.position + count, self.all.size))
        left = self.left
        if count > left:
            self.fail(f"{what}: {count} numbers are expected, {left} are left", self.all.size)
        self.position += count
        return self.all[self.position - count : self.position]

    def word(self) -> str | None:
        """Consume and return the next word if it is not a number; otherwise, or at the end of the file, return None."""
        if self.next_word() != self.position or self.position == self.all.size:
            return None
        _, first, last = self._unconverted[self._words_taken].tolist()
        self._words_taken += 1
        self.position += 1
        return self._source.data[first:last].decode("utf-8", "replace")

    def fail(self, message: str, number: int) -> NoReturn:
        """Raise the error for the line of a number; ``number`` is its index in ``all``."""
        offset = word_offset(self._source.data, self._begin, number)
        raise self._source.error(min(offset, len(self._source.data.rstrip())), message)

    def refusal(self, message: str, number: int) -> Unavailable:
        """Return the error that something is not supported, for the line of a number by its index."""
        return self._source.refusal(word_offset(self._source.data, self._begin, number), message)

    def next_word(self) -> int:
        """Return the index of the next word that is not a number; the number of words if there is none."""
        return (
            int(self._unconverted[self._words_taken, 0])
            if self._words_taken < len(self._unconverted)
            else self.all.size
        )

    def _check_words(self, end: int) -> None:
        """Fail if a word before index ``end`` is not a number."""
        if self.next_word() >= end:
            return
        _, first, last = self._unconverted[self._words_taken].tolist()
        word = self._source.data[first:last]
        shown = f"{word[:40].decode('latin-1')!a}"
        reason = "more than 63 bits; scale the costs down" if _INTEGER.fullmatch(word) else "is not a whole number"
        raise self._source.error(first, f"{shown}: {reason}" if _INTEGER.fullmatch(word) else f"{shown} {reason}")


# The limits for dense tables are those of dmcmc.inference.model.sparse_factor.
_ALWAYS_DENSE_ENTRIES = 2048  # a table of up to this many entries is dense
_MAX_ENTRIES_PER_TUPLE = 16  # a larger dense table may have this many entries per listed tuple
_MAX_DENSE_AXES = 64  # NumPy's limit for the axes of a dense table
_COPIES = 4  # arrays of a table's size that exist while its factor is built
MIN_COST = -(2**62)
"""Lower limit for a cost; leaves headroom in int64."""

FORBIDDEN = np.iinfo(np.int64).min
"""Utility of a forbidden entry."""


def dense_factors(numbers: WcspNumbers, domains: Ints, starts: Ints, entries: Ints, top: int) -> list[Factor | None]:
    """Return the factors of the plain constraints whose tables are small or full enough to be dense.

    Parameters
    ----------
    numbers : WcspNumbers
        The numbers of the file.
    domains : (variables,) int64
        Domain sizes.
    starts : (constraints,) int64
        Index in ``numbers.all`` of the first number of each plain constraint.
    entries : (constraints,) int64
        Number of entries of each plain constraint's dense table; 0 for other constraints.
    top : int
        The cost from which on an assignment is forbidden.

    Returns
    -------
    list of Factor or None
        The factors, one per constraint; None for those that are not plain or not dense.

    Raises
    ------
    FileError
        If the tables do not fit the memory, or a value or cost is invalid.
    """
    count = starts.size
    factor_entries.claim_structures(domains.size, count)
    n_tuples = np.zeros(count, dtype=np.int64)
    plain = entries > 0
    arity = np.where(plain, numbers.all[starts], 0) if numbers.all.size else np.zeros(count, dtype=np.int64)
    n_tuples[plain] = numbers.all[starts[plain] + 2 + arity[plain]]
    dense = (
        plain
        & (entries <= np.maximum(_ALWAYS_DENSE_ENTRIES, _MAX_ENTRIES_PER_TUPLE * n_tuples))
        & (arity <= _MAX_DENSE_AXES)
    )
    sizes = np.where(dense, entries, 0)
    total, limit = int(sizes.sum(dtype=np.float64)), memory_limit()
    if 8 * _COPIES * total > limit:
        constraint = int(np.flatnonzero(np.cumsum(sizes.astype(np.float64)) * 8 * _COPIES > limit)[0])
        what = f"constraint {constraint}: a table of {sizes[constraint]} entries"
        numbers.fail(f"{what}; tables may take {format_bytes(limit)} in all", int(starts[constraint]))
    table_begin = np.append(0, np.cumsum(sizes))
    data, max_abs_cost = np.empty(int(table_begin[-1]), dtype=np.int64), np.zeros(count, dtype=np.int64)
    max_cost = min(top, 2**63) - 1
    constraint, number, reason = wcsp_kernels.fill_tables(
        numbers.all, domains, starts, table_begin, data, max_cost, MIN_COST, max_abs_cost
    )
    if reason == wcsp_kernels.VALUE:
        numbers.fail(f"constraint {constraint}: a value outside its domain", number)
    if reason == wcsp_kernels.COST:
        numbers.fail(f"constraint {constraint}: a cost below -2^62", number)
    wide, narrow = _frozen(data, max_abs_cost)
    sizes_of, is_narrow, begins = domains.tolist(), (max_abs_cost < 2**31).tolist(), table_begin.tolist()
    factors: list[Factor | None] = []
    for c, scope in enumerate(_scopes(numbers.all, starts, arity, dense)):
        if scope is None:
            factors.append(None)
            continue
        table = (narrow if is_narrow[c] else wide)[begins[c] : begins[c + 1]]
        factors.append(Factor(scope, table.reshape([sizes_of[v] for v in scope]), f"c{c}"))
    return factors


def _frozen(data: Array, max_abs_cost: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return the dense tables as read-only int64 and int32 arrays.

    A constraint uses the int32 array if its costs fit (absolute value below 2^31), else the int64 array.

    Parameters
    ----------
    data
        (entries,) int64. Utilities of all dense tables, concatenated; the smallest int64 is forbidden.
    max_abs_cost
        (constraints,) int64. Largest absolute cost of each constraint.

    Returns
    -------
    wide, narrow
        (entries,) int64, empty if no constraint needs it; and (entries,) int32, whose entries are valid only for
        constraints with costs below 2^31.
    """
    hard = data == FORBIDDEN
    narrow = data.astype(np.int32)
    narrow[hard] = forbidden_value(narrow.dtype)
    data.flags.writeable = narrow.flags.writeable = False
    return data if (max_abs_cost >= 2**31).any() else data[:0], narrow


def _scopes(
    numbers: NDArray[np.int64], starts: NDArray[np.int64], arity: NDArray[np.int64], dense: NDArray[np.bool_]
) -> list[tuple[int, ...] | None]:
    """Return the scope of each dense constraint, None for others; constraints of equal arity are read together."""
    scopes: list[tuple[int, ...] | None] = [None] * starts.size
    for k in np.unique(arity[dense]).tolist():
        constraints = np.flatnonzero(dense & (arity == k))
        columns = [numbers[starts[constraints] + 1 + i].tolist() for i in range(k)]
        for c, scope in zip(
            constraints.tolist(), zip(*columns, strict=True) if k else [()] * constraints.size, strict=True
        ):
            scopes[c] = scope
    return scopes


def read_parameters(numbers: WcspNumbers, keyword: str, what: str, arity: int) -> dict[str, Any]:
    """Read the parameters of a global cost function.

    Parameters
    ----------
    numbers : WcspNumbers
        The numbers of the file, of which those of the parameters come next.
    keyword : str
        The name of the function, one of ``SIGNATURES``.
    what : str
        The constraint, for error messages.
    arity : int
        The number of its variables.

    Returns
    -------
    dict of str to object
        The parameters by name.

    Raises
    ------
    FileError
        If a number is missing or a length is negative.
    """
    arguments: dict[str, Any] = {}
    for field in builder.SIGNATURES[keyword]:
        if field.kind == "variables" and field.name not in arguments:
            arguments |= _variable_lists(
                numbers, what, [f.name for f in builder.SIGNATURES[keyword] if f.kind == field.kind]
            )
        elif field.kind == "rules" and field.name not in arguments:
            arguments |= _rules(numbers, what)
        elif field.name not in arguments:
            arguments[field.name] = _parameter(numbers, field, f"{what}: {field.name}", arguments, arity)
    return arguments


def _parameter(
    numbers: WcspNumbers, field: builder.ParameterSpec, what: str, earlier: dict[str, Any], arity: int
) -> Any:
    """Read one parameter; the length of a list precedes it."""
    match field.kind:
        case "word":
            word = numbers.word()
            if word not in field.layout.split("|"):
                numbers.fail(
                    f"{what}: expected {' or '.join(field.layout.split('|'))}", numbers.position - (word is not None)
                )
            return word
        case "list":
            return _records(numbers, what, builder.record_layout(field, earlier))
        case "lists":
            return [_records(numbers, what, field.layout) for _ in range(arity)]
        case "groups":
            return [_records(numbers, what, field.layout) for _ in range(int(numbers.take(1, what)[0]))]
        case "each":
            return numbers.take(arity, what).tolist()
    return int(numbers.take(1, what)[0])


def _records(numbers: WcspNumbers, what: str, kinds: str) -> list[list[int]]:
    """Read a list of records; a record has as many numbers as ``kinds`` has letters (see ``ParameterSpec``)."""
    begin = numbers.position
    count = int(numbers.take(1, what)[0])
    if count < 0:
        numbers.fail(f"{what}: {count} entries", begin)
    records: list[list[int]] = numbers.take(count * len(kinds), what).reshape(count, len(kinds)).tolist()
    return records


def _variable_lists(numbers: WcspNumbers, what: str, names: Sequence[str]) -> dict[str, list[int]]:
    """Read lists of variables; all their lengths precede the first list."""
    begin = numbers.position
    sizes = numbers.take(len(names), f"{what}: sizes of lists").tolist()
    if min(sizes) < 0:
        numbers.fail(f"{what}: a list of {min(sizes)} variables", begin)
    return {name: numbers.take(size, f"{what}: {name}").tolist() for name, size in zip(names, sizes, strict=True)}


def _rules(numbers: WcspNumbers, what: str) -> dict[str, list[list[int]]]:
    """Read a grammar's rules. Type 0 produces a value and type 1 two symbols; 2 and 3 are the same with weights."""
    rules: dict[str, list[list[int]]] = {"terminals": [], "non_terminals": []}
    for _ in range(int(numbers.take(1, f"{what}: number of rules")[0])):
        begin, kind = numbers.position, int(numbers.take(1, f"{what}: a rule")[0])
        if not 0 <= kind <= 3:
            numbers.fail(f"{what}: a rule of kind {kind}; there are 0 to 3", begin)
        rule = numbers.take(2 + kind % 2 + kind // 2, f"{what}: a rule").tolist()
        rules["non_terminals" if kind % 2 else "terminals"].append(rule)
    return rules


_MAX_NESTING = 4  # limit for networks nested in networks
_HEADER = re.compile(rb"\s*(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,100})(?=\s|$)")


class _Header(NamedTuple):
    """The header of a network: number of variables, number of constraints, and the cost from which on it forbids."""

    variables: int
    constraints: int
    top: int


class _SharedTuples(NamedTuple):
    """Tuples to which later constraints may refer: their shape, and the factor of the constraint that defines them."""

    shape: tuple[int, ...]
    factor: Factor


def read(source: SourceFile) -> Problem:
    """Read a problem; one agent, ``all``, owns every variable.

    Variables are ``x0``, ``x1``, ... and factors ``c0``, ``c1``, ... in the order of the file. If a tuple is listed
    twice, the last cost counts.

    Raises
    ------
    FileError
        If the text is malformed or does not fit the memory; the message names the line and the constraint.
    Unavailable
        For unsupported global cost functions.
    """
    with interpreted_if_short(STEPS_PER_BYTE * len(source.data)):
        return _read(source)


def _read(source: SourceFile) -> Problem:
    """Read the whole file and return the problem."""
    match = _HEADER.match(source.data)
    if match is None:
        what = "expected 'name variables largest-domain constraints top'"
        raise source.error(0, f"{what}{'' if source.data.strip() else ', but the file is empty'}")
    header = _Header(int(match[2]), int(match[4]), int(match[5]))
    numbers = WcspNumbers(source, match.end())
    reader = _WcspReader(numbers, header)
    factors = reader.network()
    if numbers.left:
        numbers.check_rest()
        message = f"{numbers.left} numbers follow the last of {header.constraints} constraints; check the header"
        numbers.fail(message, numbers.position)
    variables, owner = tuple(f"x{i}" for i in range(header.variables)), np.zeros(header.variables, dtype=np.int64)
    name = match[1].decode("utf-8", "replace")
    return Problem(variables, reader.domains, ("all",), owner, factors, sense="min", name=name)


class _WcspReader:
    """Parser that consumes the constraints of a network number by number.

    Plain constraints (a list of tuples) are read by compiled code; this class reads the others.

    Attributes
    ----------
    numbers : WcspNumbers
        The numbers of the file.
    n, count, top : int
        From the header: number of variables, number of constraints, and the cost from which on an assignment is
        forbidden.
    depth : int
        Number of networks around this one; 0 for the network of the file.
    domains : (variables,) int64
        Domain sizes.
    shared : list of _SharedTuples
        Constraints whose tuples later constraints may reuse. The file marks them by a negative arity.
    """

    def __init__(self, numbers: WcspNumbers, header: _Header, depth: int = 0) -> None:
        self.numbers, self.depth = numbers, depth
        self.n, self.count, self.top = header
        self.domains = np.empty(0, dtype=np.int64)
        self.shared: list[_SharedTuples] = []

    def network(self) -> tuple[Factor, ...]:
        """Read domain sizes and constraints, and return all factors."""
        numbers, begin = self.numbers, self.numbers.position
        self.domains = numbers.take(self.n, "domain sizes")
        for i in np.flatnonzero(self.domains < 1)[:1].tolist():
            numbers.fail(f"variable {i}: has {self.domains[i]} values; at least 1 is needed", begin + i)
        if self.count > numbers.left:
            numbers.fail(f"{self.count} constraints are declared, but the file has fewer numbers", numbers.all.size)
        return self._constraints()

    def _constraints(self) -> tuple[Factor, ...]:
        """Read all constraints: plain ones in two compiled passes, others one by one."""
        numbers = self.numbers
        starts, entries = np.zeros((2, self.count), dtype=np.int64)
        seen = np.full(self.n, -1, dtype=np.int64)
        special: dict[int, list[Factor]] = {}
        index = 0
        while index < self.count:
            index, position, reason = wcsp_kernels.find_constraints(
                numbers.all, numbers.next_word(), numbers.position, self.domains, index, starts, entries, seen
            )
            if reason in (wcsp_kernels.SCOPE, wcsp_kernels.TWICE):
                numbers.fail(self._scope_error(index, int(numbers.all[position]), reason), position)
            numbers.position = position
            if reason == wcsp_kernels.DONE:
                break
            special[index] = self._special(index)
            index += 1
        dense = dense_factors(numbers, self.domains, starts, entries, self.top)
        factors: list[Factor] = []
        for c, factor in enumerate(dense):
            if factor is not None:
                factors.append(factor)
            else:
                factors += special[c] if c in special else [self._factor_of_tuples(c, int(starts[c]))]
        return tuple(factors)

    def _special(self, index: int) -> list[Factor]:
        """Read one constraint that is not plain: with shared tuples, a reference to them, or a global cost function.

        A negative arity marks tuples that later constraints may share; a negative number of tuples, −k, refers to the
        k-th shared constraint. A word after the default cost −1 is the keyword of a global cost function (a function
        that is given by parameters instead of a list of tuples).
        """
        what, begin = f"constraint {index}", self.numbers.position
        arity = int(self.numbers.take(1, what)[0])
        defines = arity < 0
        scope = self.numbers.take(abs(arity), f"{what}: scope").tolist()
        for position, v in enumerate(scope):
            if not 0 <= v < self.n:
                self.numbers.fail(self._scope_error(index, v, wcsp_kernels.SCOPE), begin + 1 + position)
        if len(set(scope)) < len(scope):
            repeated = next(i for i, v in enumerate(scope) if v in scope[:i])
            self.numbers.fail(self._scope_error(index, scope[repeated], wcsp_kernels.TWICE), begin + 1 + repeated)
        default = int(self.numbers.take(1, f"{what}: default cost")[0])
        keyword = self.numbers.word() if default == -1 else None
        if keyword is not None:
            return self._global(f"c{index}", what, scope, keyword, begin)
        tuples = int(self.numbers.take(1, f"{what}: number of tuples")[0])
        if tuples < 0:
            return [self._reference(what, f"c{index}", scope, -tuples, begin)]
        rows = self.numbers.take(tuples * (len(scope) + 1), f"{what}: tuples").reshape(tuples, len(scope) + 1)
        factor = self._table(what, f"c{index}", scope, rows, default, begin)
        if defines:
            self.shared.append(_SharedTuples(factor.shape, factor))
        return [factor]

    def _factor_of_tuples(self, index: int, start: int) -> Factor:
        """Return a plain constraint as a list of tuples, because its dense table would be too large.

        ``start`` is the index in ``numbers`` of the constraint's first number.
        """
        arity = int(self.numbers.all[start])
        scope = self.numbers.all[start + 1 : start + 1 + arity].tolist()
        default, tuples = self.numbers.all[start + 1 + arity : start + 3 + arity].tolist()
        rows = self.numbers.all[start + 3 + arity :][: tuples * (arity + 1)].reshape(tuples, arity + 1)
        return self._table(f"constraint {index}", f"c{index}", scope, rows, default, start)

    def _table(
        self, what: str, name: str, scope: Sequence[int], rows: NDArray[np.int64], default: int, begin: int
    ) -> Factor:
        """Return the factor of a list of tuples with a default cost.

        ``rows`` is (tuples, arity + 1) int64: the values of each tuple and its cost. ``begin`` is the index of the
        constraint's first number, for error messages.
        """
        costs = np.where(rows[:, -1] >= self.top, FORBIDDEN, rows[:, -1])
        if min(default, int(rows[:, -1].min(initial=0))) < MIN_COST:
            self.numbers.fail(f"{what}: a cost below -2^62", begin)
        shape = self.domains[list(scope)].tolist()
        hard = int(FORBIDDEN) if default >= self.top else default
        try:
            return tabulate(scope, shape, rows[:, :-1], costs, hard, "min", name)
        except ProblemError as error:
            self.numbers.fail(f"{what}: {str(error).partition(': ')[2] or error}", begin)

    def _reference(self, what: str, name: str, scope: Sequence[int], number: int, begin: int) -> Factor:
        """Return a constraint with the costs and the default of a shared one; ``number`` counts these from 1."""
        if number > len(self.shared):
            self.numbers.fail(
                f"{what}: refers to shared function {number}; {len(self.shared)} are defined before", begin
            )
        shape, factor = self.shared[number - 1]
        own_shape = tuple(self.domains[list(scope)].tolist())
        if own_shape != shape:
            self.numbers.fail(f"{what}: domains {own_shape}, but shared function {number} has {shape}", begin)
        return factor.renamed(tuple(scope), name)

    def _global(self, name: str, what: str, scope: Sequence[int], keyword: str, begin: int) -> list[Factor]:
        """Read the parameters of a global cost function and build its factors."""
        shape = self.domains[list(scope)].tolist()
        if keyword == "wcsp":
            return [self._nested(name, what, scope, begin)]
        if keyword not in builder.SIGNATURES:
            raise self.numbers.refusal(f"{what}: global cost function {keyword!r} is", begin)
        what = f"{what}: {keyword}"
        arguments = read_parameters(self.numbers, keyword, what, len(scope))
        try:
            return build(keyword, scope, shape, arguments, builder.CostScale(self.top), name)
        except (ProblemError, ResourceError) as error:
            self.numbers.fail(f"{what}: {error}", begin)

    def _nested(self, name: str, what: str, scope: Sequence[int], begin: int) -> Factor:
        """Read a nested network with the bounds of its cost and its options.

        The constraint holds if ``low`` ≤ cost < ``high`` and the cost is below the network's own bound. Of the two
        options, the first makes no difference here, and the second, strong duality, is not supported.
        """
        low, high, duplicate, dual = self.numbers.take(4, f"{what}: wcsp: bounds and options").tolist()
        if dual or duplicate not in (0, 1):
            option = "strong duality" if dual else f"the option {duplicate} for duplicates of hard constraints"
            raise self.numbers.refusal(f"{what}: 'wcsp' with {option} is", begin)
        if low >= high:
            self.numbers.fail(f"{what}: wcsp: the bounds {low} and {high} allow no cost", begin)
        if self.numbers.word() is None:
            self.numbers.take(1, f"{what}: wcsp: its name")
        n, _, count, top = self.numbers.take(4, f"{what}: wcsp: its header").tolist()
        if self.depth == _MAX_NESTING or min(n, count) < 0:
            message = f"{what}: wcsp: networks more than {_MAX_NESTING} deep, or a size below 0"
            self.numbers.fail(message, begin)
        inner = _WcspReader(self.numbers, _Header(n, count, top), self.depth + 1)
        factors = inner.network()
        nested = builder.NestedNetwork(inner.domains.tolist(), factors, 1, low, min(high, inner.top))
        try:
            return builder.nested_constraint(nested, scope, self.domains[list(scope)].tolist(), name)
        except (ProblemError, ResourceError) as error:
            self.numbers.fail(f"{what}: wcsp: {error}", begin)

    def _scope_error(self, index: int, v: int, reason: int) -> str:
        """Return the message for a variable that does not exist or occurs twice."""
        if reason == wcsp_kernels.TWICE:
            return f"constraint {index}: variable {v} occurs twice in its scope"
        return f"constraint {index}: variable {v} does not exist; there are 0 to {self.n - 1}"


_MAX_TOP = 2**62  # limit for the sum of all costs; leaves headroom in int64


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem.

    Raises
    ------
    ProblemError
        For agents, labels, names and a maximisation (``--drop`` removes them), for costs that are not integers, and
        for costs whose least sum is negative.
    """
    missing = factor_entries.missing_features(problem, sense="min")
    named = list(factor_entries.named_factor_entries(replace(problem, sense="min")))
    functions = [listing for _, listing in named]
    costs = [(name, cost) for name, listing in named for cost in listing.all_costs if cost is not None]
    for name, cost in costs:
        if cost != int(cost):
            besides = f"factor {name!r}: cost {cost}; whole numbers from 0 are needed (cfn has others)"
            factor_entries.check_missing(missing, besides)
    negative = next(((name, cost) for name, cost in costs if cost < 0), None)
    if negative is not None:
        least = factor_entries.least_total_cost(functions) or 0
        if least < 0:
            what = f"factor {negative[0]!r}: cost {negative[1]}; whole numbers from 0 are needed"
            missing["constant"] = f"no negative constant such as {least} ({what})"
        functions = _shifted(functions, least)
    factor_entries.check_missing(missing)
    top = 1 + sum(int(max((c for c in listing.all_costs if c is not None), default=0)) for listing in functions)
    if top >= _MAX_TOP:
        raise ProblemError(f"the costs add up to {top - 1}; the sum must be below 2^62")
    name = "_".join(problem.name.split()) or "problem"
    yield f"{name} {problem.n_variables} {problem.domains.max(initial=0)} {len(functions)} {top}\n"
    yield " ".join(map(str, problem.domains.tolist())) + "\n"
    for listing in functions:
        yield from _function(listing, top)


def _shifted(functions: Sequence[factor_entries.FactorEntries], constant: int) -> list[factor_entries.FactorEntries]:
    """Return functions whose least costs are 0, and a constant function. All costs are whole numbers."""
    shifted = [factor_entries.FactorEntries((), (), [], [], constant)] if constant else []
    for listing in functions:
        least = factor_entries.least_total_cost([listing]) or 0
        if listing.scope:
            costs: list[factor_entries.Cost] = [None if cost is None else int(cost) - least for cost in listing.costs]
            default = None if listing.default is None else int(listing.default) - least
            shifted.append(replace(listing, costs=costs, default=default))
        elif listing.default is None:
            shifted.append(listing)  # forbids every assignment
    return shifted


def _function(listing: factor_entries.FactorEntries, top: int) -> Iterator[str]:
    """Yield the text of one constraint: a default cost and the tuples that differ from it."""
    default = top if listing.default is None else int(listing.default)
    yield " ".join(map(str, (len(listing.scope), *listing.scope, default, len(listing.rows)))) + "\n"
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        yield f"{' '.join(map(str, row))} {top if cost is None else int(cost)}\n"
