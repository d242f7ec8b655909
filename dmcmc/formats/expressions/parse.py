"""Parse expressions of problem files without ``eval``: a small part of Python, and XCSP's functional form.

:mod:`ast` parses the text and :mod:`dmcmc.formats.expressions.closures` compiles the tree to closures; unknown syntax
is refused. The work is bounded: numbers have at most 4096 bits, sequences at most 4096 items, and steps are counted.
"""

import ast
import re
import warnings
from collections.abc import Sequence
from typing import TypeGuard

from dmcmc.formats.expressions import functions as library
from dmcmc.formats.expressions.closures import Compiler
from dmcmc.formats.expressions.expression import Expression, StepBudget
from dmcmc.formats.expressions.functions import ExpressionError

_MAX_CHARACTERS = 1 << 16  # characters of an expression


def parse_python(text: str, budget: StepBudget | None = None) -> Expression:
    """Parse a Python expression, or the body of a function with ``return``, ``if`` and assignments.

    Raises
    ------
    ExpressionError
        If the text is not Python, or uses unsupported syntax.

    Examples
    --------
    >>> parse_python("0 if x != y else 10")({"x": 1, "y": 1})
    10
    >>> parse_python('''
    ... if x > 2:
    ...     return x
    ... return 0''').names
    ('x',)
    """
    tree = _tree(text.strip() if "\n" not in text.strip() else _dedented(text))
    return Compiler(library.PYTHON, budget).expression(tree.body)


def parse_terms(text: str, budget: StepBudget | None = None) -> list[Expression]:
    """Parse the terms of a sum separately; an expression that is not a sum is its only term.

    >>> [term.names for term in parse_terms("x * y + (z - 1)")]
    [('x', 'y'), ('z',), ()]
    """
    body = _tree(text.strip()).body if "\n" not in text.strip() else []
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        return [parse_python(text, budget)]
    terms: list[ast.expr] = []
    remaining: list[ast.expr] = [body[0].value]
    while remaining:
        node = remaining.pop()
        if _is_sum(node):
            remaining += [_negated(node.right, isinstance(node.op, ast.Sub)), node.left]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_sum(node.operand):
            inner = node.operand
            remaining += [_negated(inner.right, isinstance(inner.op, ast.Add)), _negated(inner.left, True)]
        else:
            terms.append(node)
    return [Compiler(library.PYTHON, budget).expression([ast.Expr(term)]) for term in terms]


def _is_sum(node: ast.expr) -> TypeGuard[ast.BinOp]:
    """Return whether a node is a sum or a difference."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def _negated(node: ast.expr, negate: bool) -> ast.expr:
    """Return a node, with a minus sign if ``negate``."""
    return ast.UnaryOp(ast.USub(), node) if negate else node


def parse_functional(text: str, parameters: Sequence[str], budget: StepBudget | None = None) -> Expression:
    """Parse XCSP's functional form, such as ``eq(abs(sub(X0,X1)),2)``.

    Parameters
    ----------
    text
        The expression.
    parameters
        Names that it may use.
    budget
        Limit for the evaluation steps.

    Examples
    --------
    >>> parse_functional("and(ne(X0,X1),not(eq(X1,3)))", ["X0", "X1"])({"X0": 1, "X1": 2})
    1
    """
    words = re.sub(r"\b(and|or|not|if|in)\s*(?=\()", r"\1_", text.strip())
    words = re.sub(r"\b(true|false)\b", lambda match: match[0].capitalize(), words)
    if re.search(r"[^\w\s(),.+\-]|,\s*\)", words):
        raise ExpressionError("is not in functional form, such as eq(X0,add(X1,2))")
    expression = Compiler(library.FUNCTIONAL, budget).expression(_tree(words).body)
    for name in expression.names:
        if name not in parameters:
            raise ExpressionError(f"uses {name}, which is none of its parameters ({', '.join(parameters) or 'none'})")
    return expression


def _tree(text: str) -> ast.Module:
    """Parse a text to a syntax tree, or raise ``ExpressionError``."""
    if len(text) > _MAX_CHARACTERS:
        raise ExpressionError(f"has more than {_MAX_CHARACTERS:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise ExpressionError(f"is not valid: {error.msg} (its line {error.lineno or 1})") from None
    except (ValueError, RecursionError, MemoryError):  # zero bytes, or deep nesting
        raise ExpressionError("is not valid: it has zero bytes, or is nested too deeply") from None


def _dedented(text: str) -> str:
    """Return several lines without their common indentation; YAML may have removed that of the first line."""
    first, *others = text.strip("\n").splitlines()
    margins = [len(line) - len(line.lstrip()) for line in others if line.strip()]
    first_margin = len(first) - len(first.lstrip())
    margin = min([first_margin, *margins]) if first_margin else 0
    return "\n".join(line[margin:] for line in (first, *others))
