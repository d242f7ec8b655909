"""Read ``.wcsp`` files: weighted CSPs in toulbar2's format.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. A constraint is a list of tuples
with a default, a reference to the tuples of an earlier constraint, or a global cost function
(:mod:`dmcmc.formats.global_functions.factors`). Memory is allocated only for numbers that the file contains, never for
sizes that it merely declares.
"""

import re
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.scan import STEPS_PER_BYTE, scan_integers, word_offset
from dmcmc.formats.global_functions.costs import CostScale
from dmcmc.formats.global_functions.factors import build
from dmcmc.formats.global_functions.nested import NestedNetwork, nested_constraint
from dmcmc.formats.global_functions.signatures import SIGNATURES, ParameterSpec, record_layout
from dmcmc.formats.wcsp import table_kernels as wcsp_kernels
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

# The limits for dense tables are those of dmcmc.inference.model.sparse_factor.
_ALWAYS_DENSE_ENTRIES = 2048  # a table of up to this many entries is dense
_MAX_ENTRIES_PER_TUPLE = 16  # a larger dense table may have this many entries per listed tuple
_MAX_DENSE_AXES = 64  # NumPy's limit for the axes of a dense table
_MIN_COST = -(2**62)  # lower limit for a cost; leaves headroom in int64
_FORBIDDEN = np.iinfo(np.int64).min  # utility of a forbidden entry
_COPIES = 4  # arrays of a table's size that exist while its factor is built
_MAX_NESTING = 4  # limit for networks nested in networks
_HEADER = re.compile(rb"\s*(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,100})(?=\s|$)")
_INTEGER = re.compile(rb"[+-]?\d+")


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
        return _WcspReader(source).problem()


class _WcspReader:
    """Parser that consumes the constraints of a file number by number.

    Plain constraints (a list of tuples) are read by compiled code; this class reads the others.

    Attributes
    ----------
    source : SourceFile
        The file.
    name : str
        Name of the problem.
    n, count, top : int
        From the header: number of variables, number of constraints, and the cost from which on an assignment is
        forbidden.
    body : int
        Byte offset of the end of the header.
    numbers : (words,) int64
        All words after the header as numbers; 0 for words that are not numbers.
    unconverted : (k, 3) int64
        For each word that is not a number: its index in ``numbers``, its first byte and the byte after its last.
    words_taken : int
        Number of rows of ``unconverted`` consumed so far.
    position : int
        Index in ``numbers`` of the next word to consume.
    depth : int
        Number of networks around this one; 0 for the network of the file.
    domains : (variables,) int64
        Domain sizes.
    shared : list of _SharedTuples
        Constraints whose tuples later constraints may reuse. The file marks them by a negative arity.
    """

    def __init__(self, source: SourceFile) -> None:
        """Read the header and convert all numbers."""
        self.source = source
        header = _HEADER.match(source.data)
        if header is None:
            what = "expected 'name variables largest-domain constraints top'"
            raise source.error(0, f"{what}{'' if source.data.strip() else ', but the file is empty'}")
        self.name = header[1].decode("utf-8", "replace")
        self.n, self.count, self.top = int(header[2]), int(header[4]), int(header[5])
        self.body = header.end()
        self.numbers, self.unconverted = scan_integers(source.data, self.body)
        self.words_taken = 0  # consumed words that are not numbers
        self.position = self.depth = 0
        self.domains = np.empty(0, dtype=np.int64)
        self.shared: list[_SharedTuples] = []

    def problem(self) -> Problem:
        """Read the whole file and return the problem."""
        factors = self.network()
        if self.position < self.numbers.size:
            self._check_words(self.numbers.size)
            left = self.numbers.size - self.position
            self.fail(f"{left} numbers follow the last of {self.count} constraints; check the header", self.position)
        variables = tuple(f"x{i}" for i in range(self.n))
        owner = np.zeros(self.n, dtype=np.int64)
        return Problem(variables, self.domains, ("all",), owner, factors, sense="min", name=self.name)

    def network(self) -> tuple[Factor, ...]:
        """Read domain sizes and constraints, and return all factors."""
        begin = self.position
        self.domains = self.take(self.n, "domain sizes")
        for i in np.flatnonzero(self.domains < 1)[:1].tolist():
            self.fail(f"variable {i}: has {self.domains[i]} values; at least 1 is needed", begin + i)
        if self.count > self.numbers.size - self.position:
            self.fail(f"{self.count} constraints are declared, but the file has fewer numbers", self.numbers.size)
        return self._constraints()

    def take(self, count: int, what: str) -> NDArray[np.int64]:
        """Consume and return the next ``count`` numbers; ``what`` names them in error messages."""
        self._check_words(min(self.position + count, self.numbers.size))
        left = self.numbers.size - self.position
        if count > left:
            self.fail(f"{what}: {count} numbers are expected, {left} are left", self.numbers.size)
        self.position += count
        return self.numbers[self.position - count : self.position]

    def word(self) -> str | None:
        """Consume and return the next word if it is not a number; otherwise, or at the end of the file, return None."""
        if self._next_word() != self.position or self.position == self.numbers.size:
            return None
        _, first, last = self.unconverted[self.words_taken].tolist()
        self.words_taken += 1
        self.position += 1
        return self.source.data[first:last].decode("utf-8", "replace")

    def fail(self, message: str, number: int) -> NoReturn:
        """Raise the error for the line of a number; ``number`` is its index in ``numbers``."""
        offset = word_offset(self.source.data, self.body, number)
        raise self.source.error(min(offset, len(self.source.data.rstrip())), message)

    def _next_word(self) -> int:
        """Return the index of the next word that is not a number; the number of words if there is none."""
        return (
            int(self.unconverted[self.words_taken, 0])
            if self.words_taken < len(self.unconverted)
            else self.numbers.size
        )

    def _check_words(self, end: int) -> None:
        """Fail if a word before index ``end`` is not a number."""
        if self._next_word() >= end:
            return
        _, first, last = self.unconverted[self.words_taken].tolist()
        word = self.source.data[first:last]
        shown = f"{word[:40].decode('latin-1')!a}"
        reason = "more than 63 bits; scale the costs down" if _INTEGER.fullmatch(word) else "is not a whole number"
        raise self.source.error(first, f"{shown}: {reason}" if _INTEGER.fullmatch(word) else f"{shown} {reason}")

    def _constraints(self) -> tuple[Factor, ...]:
        """Read all constraints: plain ones in two compiled passes, others one by one."""
        starts, entries = np.zeros((2, self.count), dtype=np.int64)
        seen = np.full(self.n, -1, dtype=np.int64)
        special: dict[int, list[Factor]] = {}
        index = 0
        while index < self.count:
            index, position, reason = wcsp_kernels.find_constraints(
                self.numbers, self._next_word(), self.position, self.domains, index, starts, entries, seen
            )
            if reason in (wcsp_kernels.SCOPE, wcsp_kernels.TWICE):
                self.fail(self._scope_error(index, int(self.numbers[position]), reason), position)
            self.position = position
            if reason == wcsp_kernels.DONE:
                break
            special[index] = self._special(index)
            index += 1
        return self._factors(starts, entries, special)

    def _factors(
        self, starts: NDArray[np.int64], entries: NDArray[np.int64], special: dict[int, list[Factor]]
    ) -> tuple[Factor, ...]:
        """Return the factors of all constraints in order.

        Parameters
        ----------
        starts
            (constraints,) int64. Index in ``numbers`` of the first number of each plain constraint.
        entries
            (constraints,) int64. Number of entries of each plain constraint's dense table; 0 for other constraints.
        special
            The factors of the other constraints, by the constraint's index.
        """
        n_tuples = np.zeros(self.count, dtype=np.int64)
        plain = entries > 0
        arity = np.where(plain, self.numbers[starts], 0) if self.numbers.size else np.zeros(self.count, dtype=np.int64)
        n_tuples[plain] = self.numbers[starts[plain] + 2 + arity[plain]]
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
            self.fail(f"{what}; tables may take {format_bytes(limit)} in all", int(starts[constraint]))
        table_begin = np.append(0, np.cumsum(sizes))
        data, max_abs_cost = np.empty(int(table_begin[-1]), dtype=np.int64), np.zeros(self.count, dtype=np.int64)
        max_cost = min(self.top, 2**63) - 1
        constraint, number, reason = wcsp_kernels.fill_tables(
            self.numbers, self.domains, starts, table_begin, data, max_cost, _MIN_COST, max_abs_cost
        )
        if reason == wcsp_kernels.VALUE:
            self.fail(f"constraint {constraint}: a value outside its domain", number)
        if reason == wcsp_kernels.COST:
            self.fail(f"constraint {constraint}: a cost below -2^62", number)
        wide, narrow = _frozen(data, max_abs_cost)
        factors: list[Factor] = []
        begins, is_narrow = table_begin.tolist(), (max_abs_cost < 2**31).tolist()
        domains = self.domains.tolist()
        scopes = _scopes(self.numbers, starts, arity, dense)
        for c, scope in enumerate(scopes):
            if scope is None:
                factors += special[c] if c in special else [self._factor_of_tuples(c, int(starts[c]))]
                continue
            table = (narrow if is_narrow[c] else wide)[begins[c] : begins[c + 1]]
            factors.append(Factor(scope, table.reshape([domains[v] for v in scope]), f"c{c}"))
        return tuple(factors)

    def _special(self, index: int) -> list[Factor]:
        """Read one constraint that is not plain: with shared tuples, a reference to them, or a global cost function.

        A negative arity marks tuples that later constraints may share; a negative number of tuples, −k, refers to the
        k-th shared constraint. A word after the default cost −1 is the keyword of a global cost function (a function
        that is given by parameters instead of a list of tuples).
        """
        what, begin = f"constraint {index}", self.position
        arity = int(self.take(1, what)[0])
        defines = arity < 0
        scope = self.take(abs(arity), f"{what}: scope").tolist()
        for position, v in enumerate(scope):
            if not 0 <= v < self.n:
                self.fail(self._scope_error(index, v, wcsp_kernels.SCOPE), begin + 1 + position)
        if len(set(scope)) < len(scope):
            repeated = next(i for i, v in enumerate(scope) if v in scope[:i])
            self.fail(self._scope_error(index, scope[repeated], wcsp_kernels.TWICE), begin + 1 + repeated)
        default = int(self.take(1, f"{what}: default cost")[0])
        keyword = self.word() if default == -1 else None
        if keyword is not None:
            return self._global(f"c{index}", what, scope, keyword, begin)
        tuples = int(self.take(1, f"{what}: number of tuples")[0])
        if tuples < 0:
            return [self._reference(what, f"c{index}", scope, -tuples, begin)]
        rows = self.take(tuples * (len(scope) + 1), f"{what}: tuples").reshape(tuples, len(scope) + 1)
        factor = self._table(what, f"c{index}", scope, rows, default, begin)
        if defines:
            self.shared.append(_SharedTuples(factor.shape, factor))
        return [factor]

    def _factor_of_tuples(self, index: int, start: int) -> Factor:
        """Return a plain constraint as a list of tuples, because its dense table would be too large.

        ``start`` is the index in ``numbers`` of the constraint's first number.
        """
        arity = int(self.numbers[start])
        scope = self.numbers[start + 1 : start + 1 + arity].tolist()
        default, tuples = self.numbers[start + 1 + arity : start + 3 + arity].tolist()
        rows = self.numbers[start + 3 + arity :][: tuples * (arity + 1)].reshape(tuples, arity + 1)
        return self._table(f"constraint {index}", f"c{index}", scope, rows, default, start)

    def _table(
        self, what: str, name: str, scope: Sequence[int], rows: NDArray[np.int64], default: int, begin: int
    ) -> Factor:
        """Return the factor of a list of tuples with a default cost.

        ``rows`` is (tuples, arity + 1) int64: the values of each tuple and its cost. ``begin`` is the index of the
        constraint's first number, for error messages.
        """
        costs = np.where(rows[:, -1] >= self.top, _FORBIDDEN, rows[:, -1])
        if min(default, int(rows[:, -1].min(initial=0))) < _MIN_COST:
            self.fail(f"{what}: a cost below -2^62", begin)
        shape = self.domains[list(scope)].tolist()
        hard = int(_FORBIDDEN) if default >= self.top else default
        try:
            return tabulate(scope, shape, rows[:, :-1], costs, hard, "min", name)
        except ProblemError as error:
            self.fail(f"{what}: {str(error).partition(': ')[2] or error}", begin)

    def _reference(self, what: str, name: str, scope: Sequence[int], number: int, begin: int) -> Factor:
        """Return a constraint with the costs and the default of a shared one; ``number`` counts these from 1."""
        if number > len(self.shared):
            self.fail(f"{what}: refers to shared function {number}; {len(self.shared)} are defined before", begin)
        shape, factor = self.shared[number - 1]
        own_shape = tuple(self.domains[list(scope)].tolist())
        if own_shape != shape:
            self.fail(f"{what}: domains {own_shape}, but shared function {number} has {shape}", begin)
        return factor.renamed(tuple(scope), name)

    def _global(self, name: str, what: str, scope: Sequence[int], keyword: str, begin: int) -> list[Factor]:
        """Read the parameters of a global cost function and build its factors."""
        shape = self.domains[list(scope)].tolist()
        if keyword == "wcsp":
            return [self._nested(name, what, scope, begin)]
        if keyword not in SIGNATURES:
            offset = word_offset(self.source.data, self.body, begin)
            raise self.source.refusal(offset, f"{what}: global cost function {keyword!r} is")
        what = f"{what}: {keyword}"
        arguments: dict[str, Any] = {}
        for field in SIGNATURES[keyword]:
            if field.kind == "variables" and field.name not in arguments:
                arguments |= self._variable_lists(what, [f.name for f in SIGNATURES[keyword] if f.kind == field.kind])
            elif field.kind == "rules" and field.name not in arguments:
                arguments |= self._rules(what)
            elif field.name not in arguments:
                arguments[field.name] = self._parameter(field, f"{what}: {field.name}", arguments, len(scope))
        try:
            return build(keyword, scope, shape, arguments, CostScale(self.top), name)
        except (ProblemError, ResourceError) as error:
            self.fail(f"{what}: {error}", begin)

    def _nested(self, name: str, what: str, scope: Sequence[int], begin: int) -> Factor:
        """Read a nested network with the bounds of its cost and its options.

        The constraint holds if ``low`` ≤ cost < ``high`` and the cost is below the network's own bound. Of the two
        options, the first makes no difference here, and the second, strong duality, is not supported.
        """
        low, high, duplicate, dual = self.take(4, f"{what}: wcsp: bounds and options").tolist()
        if dual or duplicate not in (0, 1):
            offset = word_offset(self.source.data, self.body, begin)
            option = "strong duality" if dual else f"the option {duplicate} for duplicates of hard constraints"
            raise self.source.refusal(offset, f"{what}: 'wcsp' with {option} is")
        if low >= high:
            self.fail(f"{what}: wcsp: the bounds {low} and {high} allow no cost", begin)
        inner = copy(self)
        if inner.word() is None:
            inner.take(1, f"{what}: wcsp: its name")
        inner.n, _, inner.count, inner.top = inner.take(4, f"{what}: wcsp: its header").tolist()
        inner.depth, inner.shared = self.depth + 1, []
        if inner.depth > _MAX_NESTING or min(inner.n, inner.count) < 0:
            self.fail(f"{what}: wcsp: networks more than {_MAX_NESTING} deep, or a size below 0", begin)
        factors = inner.network()
        self.position, self.words_taken = inner.position, inner.words_taken
        nested = NestedNetwork(inner.domains.tolist(), factors, 1, low, min(high, inner.top))
        try:
            return nested_constraint(nested, scope, self.domains[list(scope)].tolist(), name)
        except (ProblemError, ResourceError) as error:
            self.fail(f"{what}: wcsp: {error}", begin)

    def _parameter(self, field: ParameterSpec, what: str, earlier: dict[str, Any], arity: int) -> Any:
        """Read one parameter; the length of a list precedes it."""
        match field.kind:
            case "word":
                word = self.word()
                if word not in field.layout.split("|"):
                    self.fail(
                        f"{what}: expected {' or '.join(field.layout.split('|'))}", self.position - (word is not None)
                    )
                return word
            case "list":
                return self._records(what, record_layout(field, earlier))
            case "lists":
                return [self._records(what, field.layout) for _ in range(arity)]
            case "groups":
                return [self._records(what, field.layout) for _ in range(int(self.take(1, what)[0]))]
            case "each":
                return self.take(arity, what).tolist()
        return int(self.take(1, what)[0])

    def _records(self, what: str, kinds: str) -> list[list[int]]:
        """Read a list of records; a record has as many numbers as ``kinds`` has letters (see ``ParameterSpec``)."""
        begin = self.position
        count = int(self.take(1, what)[0])
        if count < 0:
            self.fail(f"{what}: {count} entries", begin)
        records: list[list[int]] = self.take(count * len(kinds), what).reshape(count, len(kinds)).tolist()
        return records

    def _variable_lists(self, what: str, names: Sequence[str]) -> dict[str, list[int]]:
        """Read lists of variables; all their lengths precede the first list."""
        begin = self.position
        sizes = self.take(len(names), f"{what}: sizes of lists").tolist()
        if min(sizes) < 0:
            self.fail(f"{what}: a list of {min(sizes)} variables", begin)
        return {name: self.take(size, f"{what}: {name}").tolist() for name, size in zip(names, sizes, strict=True)}

    def _rules(self, what: str) -> dict[str, list[list[int]]]:
        """Read a grammar's rules. Type 0 produces a value and type 1 two symbols; 2 and 3 are the same with weights."""
        rules: dict[str, list[list[int]]] = {"terminals": [], "non_terminals": []}
        for _ in range(int(self.take(1, f"{what}: number of rules")[0])):
            begin, kind = self.position, int(self.take(1, f"{what}: a rule")[0])
            if not 0 <= kind <= 3:
                self.fail(f"{what}: a rule of kind {kind}; there are 0 to 3", begin)
            rule = self.take(2 + kind % 2 + kind // 2, f"{what}: a rule").tolist()
            rules["non_terminals" if kind % 2 else "terminals"].append(rule)
        return rules

    def _scope_error(self, index: int, v: int, reason: int) -> str:
        """Return the message for a variable that does not exist or occurs twice."""
        if reason == wcsp_kernels.TWICE:
            return f"constraint {index}: variable {v} occurs twice in its scope"
        return f"constraint {index}: variable {v} does not exist; there are 0 to {self.n - 1}"


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
    hard = data == _FORBIDDEN
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
