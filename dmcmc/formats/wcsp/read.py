"""Read ``.wcsp`` files: weighted CSPs as toulbar2 writes them.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. A constraint is a list of tuples
and a default, refers to the tuples of an earlier one, or is a global cost function
(:mod:`dmcmc.formats.global_functions.factors`). Nothing is allocated that a file merely declares.
"""

import re
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Source
from dmcmc.formats.common.scan import scan_integers, word_offset
from dmcmc.formats.global_functions.costs import Costs
from dmcmc.formats.global_functions.factors import build
from dmcmc.formats.global_functions.nested import Nested, between
from dmcmc.formats.global_functions.signatures import SIGNATURES, Field, record
from dmcmc.formats.wcsp import table_kernels as wcsp_kernels
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.memory import memory_limit, readable
from dmcmc.inference.runtime.types import Array

_SMALL, _EXPANSION, _MOST_AXES = 2048, 16, 64  # as dmcmc.inference.model.sparse_factor makes tables dense
_LOWEST = -(2**62)  # no cost is below it
_HARD = np.iinfo(np.int64).min
_COPIES = 4  # of a table while its factor is built
_NESTED = 4  # networks inside networks
_HEADER = re.compile(rb"\s*(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,100})(?=\s|$)")
_WHOLE = re.compile(rb"[+-]?\d+")


class _Shared(NamedTuple):
    """What later constraints may refer to: the shape, and the factor over the first scope."""

    shape: tuple[int, ...]
    factor: Factor


def read(source: Source) -> Problem:
    """Read a problem; one agent, ``all``, owns every variable.

    Variables are ``x0``, ``x1``, ..., factors ``c0``, ``c1``, ... in the order of the file. Of tuples that are listed
    twice the last counts.

    Raises
    ------
    FileError
        If the text is not well formed or does not fit the memory; names the line and the constraint.
    Unavailable
        For global cost functions that are not known here.
    """
    return _Reader(source).problem()


class _Reader:
    """Takes constraints off the numbers of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        header = _HEADER.match(source.data)
        if header is None:
            what = "expected 'name variables largest-domain constraints top'"
            raise source.error(0, f"{what}{'' if source.data.strip() else ', but the file is empty'}")
        self.name = header[1].decode("utf-8", "replace")
        self.n, self.count, self.top = int(header[2]), int(header[4]), int(header[5])
        self.body = header.end()
        self.numbers, self.noted = scan_integers(source.data, self.body)
        self.words = 0  # noted ones that have been taken
        self.at = self.depth = 0
        self.domains = np.empty(0, dtype=np.int64)
        self.shared: list[_Shared] = []

    def problem(self) -> Problem:
        """Read domain sizes and constraints."""
        factors = self.network()
        if self.at < self.numbers.size:
            self._check_words(self.numbers.size)
            left = self.numbers.size - self.at
            self.fail(f"{left} numbers follow the last of {self.count} constraints; check the header", self.at)
        variables = tuple(f"x{i}" for i in range(self.n))
        owner = np.zeros(self.n, dtype=np.int64)
        return Problem(variables, self.domains, ("all",), owner, factors, sense="min", name=self.name)

    def network(self) -> tuple[Factor, ...]:
        """Read domain sizes and constraints; return all factors."""
        begin = self.at
        self.domains = self.take(self.n, "domain sizes")
        for i in np.flatnonzero(self.domains < 1)[:1].tolist():
            self.fail(f"variable {i}: has {self.domains[i]} values; at least 1 is needed", begin + i)
        if self.count > self.numbers.size - self.at:
            self.fail(f"{self.count} constraints are declared; there are fewer numbers", self.numbers.size)
        return self._constraints()

    def take(self, count: int, what: str) -> NDArray[np.int64]:
        """Return the next ``count`` numbers."""
        self._check_words(min(self.at + count, self.numbers.size))
        left = self.numbers.size - self.at
        if count > left:
            self.fail(f"{what}: {count} numbers are expected, {left} are left", self.numbers.size)
        self.at += count
        return self.numbers[self.at - count : self.at]

    def word(self) -> str | None:
        """Return the next word if it is none of the numbers, and step over it."""
        if self._next_word() != self.at or self.at == self.numbers.size:
            return None
        _, first, last = self.noted[self.words].tolist()
        self.words += 1
        self.at += 1
        return self.source.data[first:last].decode("utf-8", "replace")

    def fail(self, message: str, number: int) -> NoReturn:
        """Raise the error for the place of a number of the body."""
        offset = word_offset(self.source.data, self.body, number)
        raise self.source.error(min(offset, len(self.source.data.rstrip())), message)

    def _next_word(self) -> int:
        return int(self.noted[self.words, 0]) if self.words < len(self.noted) else self.numbers.size

    def _check_words(self, end: int) -> None:
        """Refuse a word among the numbers before ``end``."""
        if self._next_word() >= end:
            return
        _, first, last = self.noted[self.words].tolist()
        word = self.source.data[first:last]
        shown = f"{word[:40].decode('latin-1')!a}"
        reason = "more than 63 bits; scale the costs down" if _WHOLE.fullmatch(word) else "is not a whole number"
        raise self.source.error(first, f"{shown}: {reason}" if _WHOLE.fullmatch(word) else f"{shown} {reason}")

    def _constraints(self) -> tuple[Factor, ...]:
        """Read all constraints: plain ones in two passes, others one by one."""
        starts, cells = np.zeros((2, self.count), dtype=np.int64)
        seen = np.full(self.n, -1, dtype=np.int64)
        special: dict[int, list[Factor]] = {}
        index = 0
        while index < self.count:
            index, at, reason = wcsp_kernels.survey(
                self.numbers, self._next_word(), self.at, self.domains, index, starts, cells, seen
            )
            if reason in (wcsp_kernels.SCOPE, wcsp_kernels.TWICE):
                self.fail(self._scope_error(index, int(self.numbers[at]), reason), at)
            self.at = at
            if reason == wcsp_kernels.DONE:
                break
            special[index] = self._special(index)
            index += 1
        return self._factors(starts, cells, special)

    def _factors(
        self, starts: NDArray[np.int64], cells: NDArray[np.int64], special: dict[int, list[Factor]]
    ) -> tuple[Factor, ...]:
        """Return the factors of all constraints in their order."""
        listed = np.zeros(self.count, dtype=np.int64)
        plain = cells > 0
        arity = np.where(plain, self.numbers[starts], 0) if self.numbers.size else np.zeros(self.count, dtype=np.int64)
        listed[plain] = self.numbers[starts[plain] + 2 + arity[plain]]
        dense = plain & (cells <= np.maximum(_SMALL, _EXPANSION * listed)) & (arity <= _MOST_AXES)
        sizes = np.where(dense, cells, 0)
        total, limit = int(sizes.sum(dtype=np.float64)), memory_limit()
        if 8 * _COPIES * total > limit:
            bad = int(np.flatnonzero(np.cumsum(sizes.astype(np.float64)) * 8 * _COPIES > limit)[0])
            what = f"constraint {bad}: a table of {sizes[bad]} entries"
            self.fail(f"{what}; tables may take {readable(limit)} in all", int(starts[bad]))
        places = np.append(0, np.cumsum(sizes))
        data, reach = np.empty(int(places[-1]), dtype=np.int64), np.zeros(self.count, dtype=np.int64)
        most = min(self.top, 2**63) - 1
        bad, number, reason = wcsp_kernels.fill(self.numbers, self.domains, starts, places, data, most, _LOWEST, reach)
        if reason == wcsp_kernels.VALUE:
            self.fail(f"constraint {bad}: a value outside its domain", number)
        if reason == wcsp_kernels.COST:
            self.fail(f"constraint {bad}: a cost below -2^62", number)
        wide, narrow = _frozen(data, reach)
        factors: list[Factor] = []
        place, is_narrow = places.tolist(), (reach < 2**31).tolist()
        domains = self.domains.tolist()
        scopes = _scopes(self.numbers, starts, arity, dense)
        for c, scope in enumerate(scopes):
            if scope is None:
                factors += special[c] if c in special else [self._listed(c, int(starts[c]))]
                continue
            part = (narrow if is_narrow[c] else wide)[place[c] : place[c + 1]]
            factors.append(Factor(scope, part.reshape([domains[v] for v in scope]), f"c{c}"))
        return tuple(factors)

    def _special(self, index: int) -> list[Factor]:
        """Read one constraint of any kind."""
        what, begin = f"constraint {index}", self.at
        arity = int(self.take(1, what)[0])
        defines = arity < 0
        scope = self.take(abs(arity), f"{what}: scope").tolist()
        for position, v in enumerate(scope):
            if not 0 <= v < self.n:
                self.fail(self._scope_error(index, v, wcsp_kernels.SCOPE), begin + 1 + position)
        if len(set(scope)) < len(scope):
            twice = next(i for i, v in enumerate(scope) if v in scope[:i])
            self.fail(self._scope_error(index, scope[twice], wcsp_kernels.TWICE), begin + 1 + twice)
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
            self.shared.append(_Shared(factor.shape, factor))
        return [factor]

    def _listed(self, index: int, start: int) -> Factor:
        """Return a plain constraint that is too large to be dense."""
        arity = int(self.numbers[start])
        scope = self.numbers[start + 1 : start + 1 + arity].tolist()
        default, tuples = self.numbers[start + 1 + arity : start + 3 + arity].tolist()
        rows = self.numbers[start + 3 + arity :][: tuples * (arity + 1)].reshape(tuples, arity + 1)
        return self._table(f"constraint {index}", f"c{index}", scope, rows, default, start)

    def _table(
        self, what: str, name: str, scope: Sequence[int], rows: NDArray[np.int64], default: int, begin: int
    ) -> Factor:
        costs = np.where(rows[:, -1] >= self.top, _HARD, rows[:, -1])
        if min(default, int(rows[:, -1].min(initial=0))) < _LOWEST:
            self.fail(f"{what}: a cost below -2^62", begin)
        shape = self.domains[list(scope)].tolist()
        hard = int(_HARD) if default >= self.top else default
        try:
            return tabulate(scope, shape, rows[:, :-1], costs, hard, "min", name)
        except ProblemError as error:
            self.fail(f"{what}: {str(error).partition(': ')[2] or error}", begin)

    def _reference(self, what: str, name: str, scope: Sequence[int], number: int, begin: int) -> Factor:
        """Return a constraint with the costs of a shared one; its default is the shared one's."""
        if number > len(self.shared):
            self.fail(f"{what}: refers to shared function {number}; {len(self.shared)} are defined before", begin)
        shape, factor = self.shared[number - 1]
        here = tuple(self.domains[list(scope)].tolist())
        if here != shape:
            self.fail(f"{what}: domains {here}, but shared function {number} has {shape}", begin)
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
            return build(keyword, scope, shape, arguments, Costs(self.top), name)
        except (ProblemError, ResourceError) as error:
            self.fail(f"{what}: {error}", begin)

    def _nested(self, name: str, what: str, scope: Sequence[int], begin: int) -> Factor:
        """Read the bounds of a network's cost, whether it repeats what is forbidden outside of it, and the network."""
        low, high, _, dual = self.take(4, f"{what}: wcsp: bounds and options").tolist()
        if dual:
            offset = word_offset(self.source.data, self.body, begin)
            raise self.source.refusal(offset, f"{what}: 'wcsp' with strong duality is")
        inner = copy(self)
        if inner.word() is None:
            inner.take(1, f"{what}: wcsp: its name")
        inner.n, _, inner.count, inner.top = inner.take(4, f"{what}: wcsp: its header").tolist()
        inner.depth, inner.shared = self.depth + 1, []
        if inner.depth > _NESTED or min(inner.n, inner.count) < 0:
            self.fail(f"{what}: wcsp: networks more than {_NESTED} deep, or a size below 0", begin)
        factors = inner.network()
        self.at, self.words = inner.at, inner.words
        nested = Nested(inner.domains.tolist(), factors, 1, low, high)
        try:
            return between(nested, scope, self.domains[list(scope)].tolist(), name)
        except (ProblemError, ResourceError) as error:
            self.fail(f"{what}: wcsp: {error}", begin)

    def _parameter(self, field: Field, what: str, earlier: dict[str, Any], arity: int) -> Any:
        """Read one parameter; a list's length stands before it."""
        match field.kind:
            case "word":
                word = self.word()
                if word not in field.of.split("|"):
                    self.fail(f"{what}: expected {' or '.join(field.of.split('|'))}", self.at - (word is not None))
                return word
            case "list":
                return self._records(what, record(field, earlier))
            case "lists":
                return [self._records(what, field.of) for _ in range(arity)]
            case "groups":
                return [self._records(what, field.of) for _ in range(int(self.take(1, what)[0]))]
            case "each":
                return self.take(arity, what).tolist()
        return int(self.take(1, what)[0])

    def _records(self, what: str, kinds: str) -> list[list[int]]:
        begin = self.at
        count = int(self.take(1, what)[0])
        if count < 0:
            self.fail(f"{what}: {count} entries", begin)
        records: list[list[int]] = self.take(count * len(kinds), what).reshape(count, len(kinds)).tolist()
        return records

    def _variable_lists(self, what: str, names: Sequence[str]) -> dict[str, list[int]]:
        """Read lists of variables; their lengths stand before the first."""
        begin = self.at
        sizes = self.take(len(names), f"{what}: sizes of lists").tolist()
        if min(sizes) < 0:
            self.fail(f"{what}: a list of {min(sizes)} variables", begin)
        return {name: self.take(size, f"{what}: {name}").tolist() for name, size in zip(names, sizes, strict=True)}

    def _rules(self, what: str) -> dict[str, list[list[int]]]:
        """Read a grammar's rules: 0 a value, 1 two symbols; 2, 3 the same with weights."""
        rules: dict[str, list[list[int]]] = {"terminals": [], "non_terminals": []}
        for _ in range(int(self.take(1, f"{what}: number of rules")[0])):
            begin, kind = self.at, int(self.take(1, f"{what}: a rule")[0])
            if not 0 <= kind <= 3:
                self.fail(f"{what}: a rule of kind {kind}; there are 0 to 3", begin)
            rule = self.take(2 + kind % 2 + kind // 2, f"{what}: a rule").tolist()
            rules["non_terminals" if kind % 2 else "terminals"].append(rule)
        return rules

    def _scope_error(self, index: int, v: int, reason: int) -> str:
        if reason == wcsp_kernels.TWICE:
            return f"constraint {index}: variable {v} stands twice in its scope"
        return f"constraint {index}: variable {v} does not exist; there are 0 to {self.n - 1}"


def _frozen(data: Array, reach: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return utilities in 64 and 32 bits, read-only; where |utility| exceeds ``reach`` only the first is right."""
    hard = data == _HARD
    narrow = data.astype(np.int32)
    narrow[hard] = forbidden_value(narrow.dtype)
    data.flags.writeable = narrow.flags.writeable = False
    return data if (reach >= 2**31).any() else data[:0], narrow


def _scopes(
    numbers: NDArray[np.int64], starts: NDArray[np.int64], arity: NDArray[np.int64], dense: NDArray[np.bool_]
) -> list[tuple[int, ...] | None]:
    """Return the scope of each dense constraint, None for the others; constraints of equal arity in one go."""
    scopes: list[tuple[int, ...] | None] = [None] * starts.size
    for k in np.unique(arity[dense]).tolist():
        which = np.flatnonzero(dense & (arity == k))
        columns = [numbers[starts[which] + 1 + i].tolist() for i in range(k)]
        for c, scope in zip(which.tolist(), zip(*columns, strict=True) if k else [()] * which.size, strict=True):
            scopes[c] = scope
    return scopes
