"""Read ``.wcsp`` files: weighted CSPs in toulbar2's format.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. A constraint is a list of tuples
with a default, a reference to the tuples of an earlier constraint, or a global cost function
(:mod:`dmcmc.formats.global_functions.factors`). Memory is allocated only for numbers that the file contains, never for
sizes that it merely declares.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.global_functions.costs import CostScale
from dmcmc.formats.global_functions.factors import build
from dmcmc.formats.global_functions.nested import NestedNetwork, nested_constraint
from dmcmc.formats.global_functions.signatures import SIGNATURES
from dmcmc.formats.wcsp import table_kernels as wcsp_kernels
from dmcmc.formats.wcsp.dense_tables import FORBIDDEN, MIN_COST, dense_factors
from dmcmc.formats.wcsp.numbers import WcspNumbers
from dmcmc.formats.wcsp.parameters import read_parameters
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.tuning.formats import STEPS_PER_BYTE

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
        if keyword not in SIGNATURES:
            raise self.numbers.refusal(f"{what}: global cost function {keyword!r} is", begin)
        what = f"{what}: {keyword}"
        arguments = read_parameters(self.numbers, keyword, what, len(scope))
        try:
            return build(keyword, scope, shape, arguments, CostScale(self.top), name)
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
        nested = NestedNetwork(inner.domains.tolist(), factors, 1, low, min(high, inner.top))
        try:
            return nested_constraint(nested, scope, self.domains[list(scope)].tolist(), name)
        except (ProblemError, ResourceError) as error:
            self.numbers.fail(f"{what}: wcsp: {error}", begin)

    def _scope_error(self, index: int, v: int, reason: int) -> str:
        """Return the message for a variable that does not exist or occurs twice."""
        if reason == wcsp_kernels.TWICE:
            return f"constraint {index}: variable {v} occurs twice in its scope"
        return f"constraint {index}: variable {v} does not exist; there are 0 to {self.n - 1}"
