"""The relations, predicates and functions of XCSP.

A relation lists tuples that have costs, or are allowed, or are forbidden. The global constraint ``allDifferent``
becomes hard tables over pairs of variables.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import inf

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.factor_entries import entries, number
from dmcmc.formats.common.xml_tree import Element
from dmcmc.formats.expressions.expression import Expression, StepBudget, parse_functional
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Array, Number

ValueIndex = Mapping[Number, int]


class Relation:
    """A list of tuples.

    Attributes
    ----------
    source, element : SourceFile, Element
        The file and the element of the relation, for the line in error messages.
    sense : {"min", "max"}
        Whether the objective is minimised or maximised.
    name, what : str
        Name of the relation, and its designation in error messages.
    arity : int or None
        As the file declares it, or the length of the first tuple; None if both are missing (a relation of XDisCSP 1.0
        without tuples).
    tuples : list of tuple of numbers
        Values (not value indices) of each tuple.
    default : number or None
        Cost of all other tuples; None if the file does not give it.
    costs : list of numbers
        Cost of each tuple; ±inf is forbidden.
    """

    def __init__(self, source: SourceFile, element: Element, sense: str) -> None:
        """Read a relation."""
        self.source, self.element, self.sense = source, element, sense
        self.name = element.attributes.get("name", "")
        self.what = f"relation {self.name!r}"
        self.arity = self._count("arity") if "arity" in element.attributes else None
        soft = ":" in element.text or "defaultCost" in element.attributes
        semantics = element.attributes.get("semantics", "soft" if soft else "")
        forbidden = inf if sense == "min" else -inf
        if semantics not in ("soft", "supports", "conflicts"):
            raise self.fail(f"semantics is soft, supports or conflicts, not {semantics!r}")
        self.default = (
            {"supports": forbidden, "conflicts": 0}.get(semantics) if semantics != "soft" else self._default()
        )
        listed = {"supports": 0, "conflicts": forbidden}.get(semantics)
        self.tuples: list[tuple[Number, ...]] = []
        self.costs: list[Number] = []
        self._read(listed)
        if "nbTuples" in element.attributes and self._count("nbTuples") != len(self.tuples):
            raise self.fail(f"nbTuples is {element.attributes['nbTuples']}, but {len(self.tuples)} tuples are listed")

    def fail(self, message: str) -> FileError:
        """Return the error that names this relation."""
        return self.source.error(self.element.offset, f"{self.what}: {message}")

    def _count(self, attribute: str) -> int:
        """Return an attribute as a non-negative integer."""
        word = self.element.attributes.get(attribute, "")
        if not re.fullmatch(r"[0-9]{1,18}", word):
            raise self.fail(f"{attribute} is {word!r}; a whole number is needed")
        return int(word)

    def _default(self) -> Number | None:
        """Return the attribute ``defaultCost``, or None."""
        word = self.element.attributes.get("defaultCost")
        return None if word is None else self._cost(word)

    def _cost(self, word: str) -> Number:
        """Return the number that a cost stands for."""
        cost = number(word.strip())
        if cost is None:
            raise self.fail(f"{word.strip()[:40]!r} is not a cost")
        return cost

    def _read(self, cost: Number | None) -> None:
        """Read ``cost: a b|c d|...``; a cost also holds for the tuples that follow without one.

        ``cost`` is that of the first tuples if the text gives none; None if it must give one.
        """
        values_of: dict[str, Number] = {}
        parts = self.element.text.split("|")
        if not parts[-1].strip():
            parts.pop()  # no tuple at all, or a bar after the last one
        for part in parts:
            before, colon, after = part.rpartition(":")
            if colon:
                cost = self._cost(before)
            words = after.split()
            if not words:
                raise self.fail(f"the tuple {part.strip()[:40]!r} has no values")
            if self.arity is None:
                self.arity = len(words)
            if len(words) != self.arity:
                raise self.fail(f"the tuple {after.strip()[:40]!r} has {len(words)} values; the arity is {self.arity}")
            if cost is None:
                raise self.fail(f"the tuple {after.strip()[:40]!r} has no cost; 'cost: values' is needed")
            for word in words:
                if word not in values_of:
                    value = number(word)
                    if value is None:
                        raise self.fail(f"{word[:40]!r} is not a value")
                    values_of[word] = value
            self.tuples.append(tuple([values_of[word] for word in words]))
            self.costs.append(cost)

    def indexed_tuples(self, index: Sequence[ValueIndex], top: Number) -> tuple[list[list[int]], Array]:
        """Return the tuples as value indices, and their costs followed by the default.

        The costs are int64 or float64 as ``Factor.of`` takes them, with the smallest int64 or ±∞ for forbidden tuples.

        Parameters
        ----------
        index
            For each position, the index of each value.
        top
            Costs from here on are forbidden.
        """
        rows: list[list[int]] = []
        for values in self.tuples:
            try:
                rows.append([index_of[value] for index_of, value in zip(index, values, strict=True)])
            except KeyError:
                shown = " ".join(map(str, values))
                raise self.fail(f"the tuple '{shown}' has a value outside its variable's domain") from None
        default = self.default
        if default is None:
            count = 1
            for index_of in index:
                count *= len(index_of)
            if len({tuple(row) for row in rows}) < count:
                raise self.fail("not all tuples are listed and there is no defaultCost")
            default = 0
        costs = [*self.costs, default]
        try:
            return rows, entries([inf if c >= top else c for c in costs], self.sense)
        except OverflowError as error:
            raise self.fail(str(error)) from None


class Formula:
    """A predicate (hard: values other than 0 are allowed) or a function (its value is the cost).

    Attributes
    ----------
    source, element : SourceFile, Element
        The file and the element of the formula, for the line in error messages.
    name : str
        Name of the predicate or function.
    hard : bool
        Whether it is a predicate.
    parameters : list of str
        Names of the parameters.
    expression : Expression
        The parsed expression.
    """

    def __init__(self, source: SourceFile, element: Element, budget: StepBudget) -> None:
        """Parse a predicate or function."""
        self.source, self.element, self.hard = source, element, element.tag == "predicate"
        self.name = element.attributes.get("name", "")
        words = _text(element.first("parameters")).split()
        if len(words) % 2 or any(kind not in ("int", "real") for kind in words[::2]):
            raise self.fail("parameters are pairs such as 'int X0 int X1'")
        self.parameters = words[1::2]
        expression = element.first("expression")
        functional = None if expression is None else expression.first("functional")
        if functional is None:
            raise source.refusal(element.offset, f"{element.tag} {self.name!r}: anything but <functional> is")
        try:
            self.expression: Expression = parse_functional(_text(functional), self.parameters, budget)
        except ExpressionError as error:
            raise self.fail(f"the expression {error}") from None

    def fail(self, message: str) -> FileError:
        """Return the error that names this predicate or function."""
        return self.source.error(self.element.offset, f"{self.element.tag} {self.name!r}: {message}")

    def costs(
        self,
        arguments: Sequence[tuple[int] | Number],
        values: Sequence[Sequence[Number]],
        sense: str,
        top: Number,
    ) -> Array:
        """Return the costs of all assignments as a flat array, the last variable fastest.

        Forbidden entries are the smallest int64, or ±∞ in an array of floats.

        A predicate costs 0 if it holds and is forbidden otherwise. Constant arguments become axes of one value.

        Parameters
        ----------
        arguments
            One per parameter: ``(position,)`` for a variable of the scope, or a number.
        values
            The values of each variable of the scope.
        sense
            Whether the costs are minimised or maximised.
        top
            Costs from here on are forbidden.
        """
        axes = [*values, *([a] for a in arguments if not isinstance(a, tuple))]
        constant_axes = iter(range(len(values), len(axes)))
        axis_of = {
            p: a[0] if isinstance(a, tuple) else next(constant_axes)
            for p, a in zip(self.parameters, arguments, strict=True)
        }
        try:
            results = self.expression.evaluate_all(axes, [axis_of[name] for name in self.expression.names])
            if self.hard:
                return np.where(np.asarray(results, dtype=bool), 0, _FORBIDDEN)
            if top < inf:
                results = [inf if cost >= top else cost for cost in results]
            return entries(results, sense)
        except (ExpressionError, OverflowError) as error:
            raise self.fail(f"the expression {error}") from None


def _text(element: Element | None) -> str:
    """Return the text of an element; empty if it is missing."""
    return "" if element is None else element.text.strip()


MAX_OPERANDS = 1000  # largest number of operands: they have half a million pairs
_FORBIDDEN = np.iinfo(np.int64).min  # utility of a forbidden entry in int64


def operands_of(
    text: str, scope: Sequence[int], variables: Mapping[str, int], constant: Callable[[str], Number | None]
) -> list[tuple[int] | Number]:
    """Return the operands of the constraint.

    Parameters
    ----------
    text
        Text of the element ``<parameters>``: names of variables and numbers, mostly in brackets, ``[ x y 3 ]``. Empty
        if the file has no such element, as FRODO's files: then the operands are the variables of the scope.
    scope
        Indices of the variables of the constraint, with repetitions.
    variables
        Index of each variable of the problem by its name.
    constant
        Returns the number that a word stands for, or None.

    Returns
    -------
    list
        ``(v,)`` for the variable with index v, or a number.

    Raises
    ------
    ValueError
        For a word that is neither a variable of the scope nor a number; the message says so.
    """
    words = text.strip()
    if not words:
        return [(v,) for v in scope]
    if words.startswith("[") and words.endswith("]"):
        words = words[1:-1]
    operands: list[tuple[int] | Number] = []
    for word in words.split():
        v, value = variables.get(word, -1), constant(word)
        if v in scope:
            operands.append((v,))
        elif value is not None:
            operands.append(value)
        else:
            raise ValueError(f"parameter {word[:40]!r} is neither a variable of its scope nor a number")
    return operands


def all_different(
    operands: Sequence[tuple[int] | Number],
    domain_of: Sequence[str],
    domains: Mapping[str, ValueIndex],
    name: str,
) -> list[Factor]:
    """Return factors that forbid equal values of any two operands.

    Pairs of variables with the same domains share one table. A constant removes its value from every domain. If an
    operand occurs twice, no assignment satisfies the constraint.

    Parameters
    ----------
    operands
        ``(v,)`` for the variable with index v, or a number.
    domain_of
        Name of each variable's domain.
    domains
        The index of each value by the name of a domain.
    name
        Name of the factors.
    """
    if len(set(operands)) < len(operands):
        return [Factor.of((), np.array(_FORBIDDEN), name=name)]
    variables = [operand[0] for operand in operands if isinstance(operand, tuple)]
    constants = {operand for operand in operands if not isinstance(operand, tuple)}
    factors: list[Factor] = []
    for v in variables:
        removed = [value in constants for value in domains[domain_of[v]]]
        if any(removed):
            factors.append(Factor.of((v,), np.where(removed, _FORBIDDEN, 0), name=name))
    tables: dict[tuple[str, str], Factor] = {}
    for u, v in combinations(variables, 2):
        pair = (domain_of[u], domain_of[v])
        if pair not in tables:
            tables[pair] = Factor.of((0, 1), _unequal(domains[pair[0]], domains[pair[1]]), name=name)
        factors.append(tables[pair].renamed((u, v), name))
    return factors


def _unequal(left: ValueIndex, right: ValueIndex) -> Array:
    """Return the utilities of the pairs of values: 0 if they differ, forbidden if not."""
    table: Array = np.zeros((len(left), len(right)), dtype=np.int64)
    for value, i in left.items():
        if value in right:
            table[i, right[value]] = _FORBIDDEN
    return table
