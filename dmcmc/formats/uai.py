"""The format .uai: reading and writing.

Read ``.uai`` files: Bayesian and Markov networks.

A potential p becomes the utility ln p, and p = 0 is forbidden. The best assignment is therefore the most probable
explanation, and the objective is the natural logarithm of its (unnormalised) probability.

Comments are skipped: from ``#`` to the end of the line, as pyAgrum writes them, and lines that begin with ``c``, as in
the evaluation of 2016. So are the lists that follow the tables in some files of Merlin, if they say nothing.

Read the query files of the UAI competitions: the number of query variables, then their indices.

Write ``.uai``: a Markov network whose potentials are the exponentials of the utilities.
"""

import os
import re
from collections.abc import Iterator
from math import exp
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile, open_source
from dmcmc.formats import uai_kernels
from dmcmc.formats.common import factor_entries
from dmcmc.formats.common.tokens import scan_floats, scan_integers, word_offset
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError, ProblemError, ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.tuning.run import STEPS_PER_BYTE

_COMMENT = re.compile(rb"#[^\n]*|^c(?:[ \t\r][^\n]*)?$", re.MULTILINE)
_HEADER = re.compile(rb"\s*(MARKOV|BAYES)(?=\s|$)", re.IGNORECASE)


def read(source: SourceFile) -> Problem:
    """Read a network; one agent, ``all``, owns every variable.

    Variables are ``x0``, ``x1``, ... and factors ``f0``, ``f1``, ... in the order of the file.

    Raises
    ------
    FileError
        If the file is malformed; the message names the line.
    """
    with interpreted_if_short(STEPS_PER_BYTE * len(source.data)):
        return _UaiReader(source).problem()


class _UaiReader:
    """Parser of a UAI file, with the positions of all scopes and tables.

    Attributes
    ----------
    source : SourceFile
        The file.
    body : int
        Byte offset after the header word.
    numbers : (numbers,) float64
        All numbers after the header word.
    domains : (variables,) int64
        Domain size of each variable.
    scope_start, table_start : (factors,) int64
        Index in ``numbers`` of each factor's first variable and first entry.
    """

    def __init__(self, source: SourceFile) -> None:
        """Convert all numbers and find the scopes and tables."""
        if b"#" in source.data or b"\nc" in source.data or source.data.startswith(b"c"):
            blanked = _COMMENT.sub(lambda comment: b" " * len(comment[0]), source.data)
            source = SourceFile(source.name, blanked, source.path)
        self.source = source
        header = _HEADER.match(source.data)
        if header is None:
            raise source.error(0, f"expected MARKOV or BAYES{'' if source.data.strip() else ', but the file is empty'}")
        self.body = header.end()
        self.numbers, unconverted = scan_floats(source.data, self.body)
        for _, first, last in unconverted[:1].tolist():
            raise source.error(first, f"{source.data[first:last][:40].decode('latin-1')!a} is not a number")
        n = self._integer(0, "the number of variables")
        if n > self.numbers.size - 2:
            self._fail(0, f"{n} variables are declared, but the file has fewer numbers")
        sizes = self.numbers[1 : 1 + n]
        for i in np.flatnonzero((sizes < 1) | (sizes != np.floor(sizes)) | (sizes > 2**53))[:1]:
            self._fail(1 + int(i), f"variable {i}: has {sizes[i]:g} values; a whole number from 1 on is needed")
        self.domains: NDArray[np.int64] = sizes.astype(np.int64)
        m = self._integer(1 + n, "the number of factors")
        if m > (self.numbers.size - 2 - n) // 2:
            self._fail(1 + n, f"{m} factors are declared, but the file has fewer numbers")
        factor_entries.claim_structures(n, m)
        self.scope_start, self.table_start = np.empty((2, m), dtype=np.int64)
        seen = np.full(n, -1, dtype=np.int64)
        f, position, reason = uai_kernels.find_factors(
            self.numbers, 2 + n, self.domains, self.scope_start, self.table_start, seen
        )
        if reason != uai_kernels.DONE:
            self._refuse(f, position, reason)
        if position < self.numbers.size and not self._is_empty_trailer(self.numbers[position:]):
            self._fail(
                position,
                f"{self.numbers.size - position} numbers follow the last of {m} factors; check the number of factors",
            )

    def _is_empty_trailer(self, numbers: Array) -> bool:
        """Return whether the numbers after the last table are lists that some files of Merlin have, with no content.

        These are the number 0, a list of all n variables in some order, the number 0, and a list of n ones. Each list
        begins with its length. Merlin does not read beyond the last table.
        """
        n = self.domains.size
        if numbers.size != 2 * n + 4 or numbers[[0, n + 2]].any() or (numbers[[1, n + 3]] != n).any():
            return False
        return bool((np.sort(numbers[2 : n + 2]) == np.arange(n)).all() and (numbers[n + 4 :] == 1).all())

    def problem(self) -> Problem:
        """Return the problem."""
        utilities = self._utilities()
        factors = []
        domains = self.domains.tolist()
        tables = zip(self.scope_start.tolist(), self.table_start.tolist(), self._has_integers(utilities), strict=True)
        for f, (start, table_begin, has_integers) in enumerate(tables):
            arity = int(self.numbers[start - 1])
            scope = tuple(map(int, self.numbers[start : start + arity].tolist()))
            shape = [domains[v] for v in scope]
            count = int(self.numbers[table_begin - 1])
            table = utilities[table_begin : table_begin + count].reshape(shape)
            factors.append(Factor.of(scope, table, name=f"f{f}") if has_integers else Factor(scope, table, f"f{f}"))
        return Problem(
            variables=tuple(f"x{v}" for v in range(len(domains))),
            domains=self.domains,
            agents=("all",),
            owner=np.zeros(len(domains), dtype=np.int64),
            factors=tuple(factors),
            sense="max",
        )

    def _utilities(self) -> Array:
        """Return the logarithms of ``numbers``, (numbers,) float64; only those of table entries are meaningful."""
        if self.table_start.size:
            tables = self.numbers[self.table_start[0] :]
            for bad in np.flatnonzero(~((tables >= 0) & (tables < np.inf)))[:1]:
                number = int(self.table_start[0] + bad)
                self._fail(number, f"{tables[bad]:g} is not a potential; numbers from 0 on are needed")
        MEMORY_ACCOUNT.claim(3 * self.numbers.nbytes, "the logarithms of the numbers")
        with np.errstate(divide="ignore", invalid="ignore"):
            utilities: Array = np.log(self.numbers)
        utilities += 0.0  # turn negative zeros into 0.0
        utilities.flags.writeable = False
        return utilities

    def _has_integers(self, utilities: Array) -> list[bool]:
        """Return, for each table, whether all its utilities are integers, so that it can be an integer table."""
        if not self.table_start.size:
            return []
        fractional = (utilities != np.rint(utilities)) & (utilities > -np.inf)
        fractional[self.table_start - 1] = False  # the number before the table is the number of its entries
        counts: NDArray[np.int64] = np.add.reduceat(fractional, self.table_start - 1, dtype=np.int64)
        flags: list[bool] = (counts == 0).tolist()
        return flags

    def _integer(self, number: int, what: str) -> int:
        """Return ``numbers[number]`` as a non-negative integer, or fail with ``what`` was expected."""
        if number >= self.numbers.size:
            self._fail(number, f"expected {what}, but the file ends")
        value = float(self.numbers[number])
        if not 0 <= value < 2**53 or value != int(value):
            self._fail(number, f"expected {what}, got {value:g}")
        return int(value)

    def _refuse(self, f: int, position: int, reason: int) -> NoReturn:
        """Raise the error for the compiled pass that ended at number ``position`` of factor ``f``."""
        if reason == uai_kernels.SHORT:
            self._fail(position, f"factor {f}: numbers are missing at the end of the file")
        number_text = f"{self.numbers[position]:g}"
        if reason == uai_kernels.WHOLE:
            self._fail(position, f"factor {f}: expected the number of its variables, got {number_text}")
        if reason == uai_kernels.SCOPE:
            self._fail(
                position, f"factor {f}: variable {number_text} does not exist; there are 0 to {self.domains.size - 1}"
            )
        if reason == uai_kernels.TWICE:
            self._fail(position, f"factor {f}: variable {number_text} occurs twice in its scope")
        self._fail(position, f"factor {f}: {number_text} entries do not fit its variables' domains")

    def _fail(self, number: int, message: str) -> NoReturn:
        """Raise the error that names the line of ``numbers[number]``."""
        offset = word_offset(self.source.data, self.body, number)
        raise self.source.error(min(offset, len(self.source.data.rstrip())), message)


def read_query(path: str | os.PathLike[str], problem: Problem) -> tuple[str, ...]:
    """Return the names of the variables that a query file lists, in its order.

    Parameters
    ----------
    path
        The file, ``FILE.query`` for a network ``FILE`` in the competitions.
    problem
        The problem; the file's indices count its variables from 0.

    Raises
    ------
    FileError
        If the file is malformed; the message names the line.
    """
    source = open_source(path)
    if source is None:
        raise FileError(f"{path}: is a native archive, not a query file")
    numbers, unconverted = scan_integers(source.data)
    for _, first, last in unconverted[:1].tolist():
        raise source.error(first, f"{source.data[first:last][:40].decode('latin-1')!a} is not a whole number")
    values = numbers.tolist()
    if not values or values[0] != len(values) - 1:
        what = f"{values[0]} variables after their number" if values else "the number of query variables"
        raise source.error(0, f"expected {what}; there are {max(0, len(values) - 1)}")
    for position, v in enumerate(values[1:], 1):
        at = word_offset(source.data, 0, position)
        if not 0 <= v < problem.n_variables:
            raise source.error(at, f"variable {v} does not exist; there are 0 to {problem.n_variables - 1}")
        if v in values[1:position]:
            raise source.error(at, f"variable {v} occurs twice")
    return tuple(problem.variables[v] for v in values[1:])


# Outside these utilities, exp underflows, overflows or loses digits.
_MIN_UTILITY = -700.0
_MAX_UTILITY = 700.0
_MAX_TABLE_ENTRIES = 2**28  # entries of a table; each is written as text


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        For agents, labels and names (``--drop`` removes them), a minimisation, and utilities outside ±700.
    """
    factor_entries.check_expressible(problem, sense="max")
    functions = list(factor_entries.named_factor_entries(problem, constants=False))
    yield f"MARKOV\n{problem.n_variables}\n{' '.join(map(str, problem.domains.tolist()))}\n{len(functions)}\n"
    for _, listing in functions:
        yield " ".join(map(str, (len(listing.scope), *listing.scope))) + "\n"
    for name, listing in functions:
        yield from _table(name, listing)


def _table(name: str, listing: factor_entries.FactorEntries) -> Iterator[str]:
    """Yield the text of one table."""
    entries = 1
    for size in listing.shape:
        entries *= size
    if entries > _MAX_TABLE_ENTRIES:
        raise ResourceError(
            f"factor {name!r}: a table of {entries:.3g} entries; uai writes at most {_MAX_TABLE_ENTRIES:,}"
        )
    words = [_potential(name, listing.default)] * entries
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        index = 0
        for value, size in zip(row, listing.shape, strict=True):
            index = index * size + value
        words[index] = _potential(name, cost)
    yield f"\n{entries}\n{' '.join(words)}\n"


def _potential(name: str, utility: factor_entries.Cost) -> str:
    """Return the exponential of a utility as text."""
    if utility is None:
        return "0"
    if not _MIN_UTILITY <= utility <= _MAX_UTILITY:
        raise ProblemError(f"factor {name!r}: utility {utility}; only utilities from -700 to 700 can be written")
    return repr(exp(utility))
