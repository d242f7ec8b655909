"""Read ``.uai`` files: Bayesian and Markov networks.

A potential p becomes the utility ln p, 0 is forbidden: the best assignment is the most probable explanation, and the
objective is the natural logarithm of its (unnormalised) probability.
"""

import re
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Source
from dmcmc.formats.common.scan import scan_floats, word_offset
from dmcmc.formats.uai import table_kernels as uai_kernels
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.types import Array

_HEADER = re.compile(rb"\s*(MARKOV|BAYES)(?=\s|$)", re.IGNORECASE)


def read(source: Source) -> Problem:
    """Read a network; one agent, ``all``, owns every variable.

    Variables are ``x0``, ``x1``, ..., factors ``f0``, ``f1``, ... in the order of the file.

    Raises
    ------
    FileError
        If the file is not well formed; names the line.
    """
    return _Reader(source).problem()


class _Reader:
    """A network as the file has it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        header = _HEADER.match(source.data)
        if header is None:
            raise source.error(0, f"expected MARKOV or BAYES{'' if source.data.strip() else ', but the file is empty'}")
        self.body = header.end()
        self.numbers, noted = scan_floats(source.data, self.body)
        for _, first, last in noted[:1].tolist():
            raise source.error(first, f"{source.data[first:last][:40].decode('latin-1')!a} is not a number")
        n = self._whole(0, "the number of variables")
        if n > self.numbers.size - 2:
            self._fail(0, f"{n} variables are declared; there are fewer numbers")
        sizes = self.numbers[1 : 1 + n]
        for i in np.flatnonzero((sizes < 1) | (sizes != np.floor(sizes)) | (sizes > 2**53))[:1]:
            self._fail(1 + int(i), f"variable {i}: has {sizes[i]:g} values; a whole number from 1 on is needed")
        self.domains: NDArray[np.int64] = sizes.astype(np.int64)
        m = self._whole(1 + n, "the number of factors")
        if m > (self.numbers.size - 2 - n) // 2:
            self._fail(1 + n, f"{m} factors are declared; there are fewer numbers")
        self.scope_start, self.table_start = np.empty((2, m), dtype=np.int64)
        seen = np.full(n, -1, dtype=np.int64)
        f, at, reason = uai_kernels.survey(self.numbers, 2 + n, self.domains, self.scope_start, self.table_start, seen)
        if reason != uai_kernels.DONE:
            self._refuse(f, at, reason)
        if at < self.numbers.size:
            self._fail(at, f"{self.numbers.size - at} numbers follow the last of {m} factors; check their number")

    def problem(self) -> Problem:
        """Return the problem."""
        utilities = self._utilities()
        factors = []
        domains = self.domains.tolist()
        parts = zip(self.scope_start.tolist(), self.table_start.tolist(), self._whole_tables(utilities), strict=True)
        for f, (start, place, whole) in enumerate(parts):
            arity = int(self.numbers[start - 1])
            scope = tuple(map(int, self.numbers[start : start + arity].tolist()))
            shape = [domains[v] for v in scope]
            count = int(self.numbers[place - 1])
            table = utilities[place : place + count].reshape(shape)
            factors.append(Factor.of(scope, table, name=f"f{f}") if whole else Factor(scope, table, f"f{f}"))
        return Problem(
            variables=tuple(f"x{v}" for v in range(len(domains))),
            domains=self.domains,
            agents=("all",),
            owner=np.zeros(len(domains), dtype=np.int64),
            factors=tuple(factors),
            sense="max",
        )

    def _utilities(self) -> Array:
        """Return ln of all numbers; only those of tables mean something."""
        if self.table_start.size:
            tables = self.numbers[self.table_start[0] :]
            for bad in np.flatnonzero(~((tables >= 0) & (tables < np.inf)))[:1]:
                number = int(self.table_start[0] + bad)
                self._fail(number, f"{tables[bad]:g} is no potential; numbers from 0 on are needed")
        with np.errstate(divide="ignore", invalid="ignore"):
            utilities: Array = np.log(self.numbers)
        utilities += 0.0  # no negative zero
        utilities.flags.writeable = False
        return utilities

    def _whole_tables(self, utilities: Array) -> list[bool]:
        """Return of each table whether all its utilities are whole: an integer table then."""
        if not self.table_start.size:
            return []
        fractional = (utilities != np.rint(utilities)) & (utilities > -np.inf)
        fractional[self.table_start - 1] = False  # the number of entries
        counts: NDArray[np.int64] = np.add.reduceat(fractional, self.table_start - 1, dtype=np.int64)
        flags: list[bool] = (counts == 0).tolist()
        return flags

    def _whole(self, number: int, what: str) -> int:
        if number >= self.numbers.size:
            self._fail(number, f"expected {what}, but the file ends")
        value = float(self.numbers[number])
        if not 0 <= value < 2**53 or value != int(value):
            self._fail(number, f"expected {what}, got {value:g}")
        return int(value)

    def _refuse(self, f: int, at: int, reason: int) -> NoReturn:
        """Raise the error of the compiled pass."""
        if reason == uai_kernels.SHORT:
            self._fail(at, f"factor {f}: numbers are missing at the end of the file")
        found = f"{self.numbers[at]:g}"
        if reason == uai_kernels.WHOLE:
            self._fail(at, f"factor {f}: expected the number of its variables, got {found}")
        if reason == uai_kernels.SCOPE:
            self._fail(at, f"factor {f}: variable {found} does not exist; there are 0 to {self.domains.size - 1}")
        if reason == uai_kernels.TWICE:
            self._fail(at, f"factor {f}: variable {found} stands twice in its scope")
        self._fail(at, f"factor {f}: {found} entries do not fit its variables' domains")

    def _fail(self, number: int, message: str) -> NoReturn:
        offset = word_offset(self.source.data, self.body, number)
        raise self.source.error(min(offset, len(self.source.data.rstrip())), message)
