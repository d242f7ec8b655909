"""Parse expressions of problem files without ``eval``, and evaluate them for all assignments.

Two languages are read: a small part of Python, and XCSP's functional form. :mod:`ast` parses the text. A ``Compiler``
turns the syntax tree into closures and refuses unknown syntax; a closure takes an environment (a dict from names to
values) and returns the value of its node. The work is bounded: numbers have at most 4096 bits, sequences at most 4096
items, and steps are counted.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NoReturn, TypeGuard

from dmcmc.formats.expressions import functions as library
from dmcmc.formats.expressions.functions import ExpressionError

MAX_STEPS = 10_000_000  # evaluation steps for one file, a few seconds
_STEPS_PER_BYTE = 500  # further steps per byte of a file

Environment = dict[str, Any]  # value of each name
Closure = Callable[[Environment], Any]


@dataclass
class StepBudget:
    """Number of evaluation steps that are left for a file; all expressions of the file share it.

    A step is the evaluation of one node of an expression for one assignment.

    Attributes
    ----------
    steps : int
        Steps that are left; negative once the budget was exceeded.
    """

    steps: int = MAX_STEPS

    @classmethod
    def of(cls, text: bytes) -> "StepBudget":
        """Return the budget for a file, which grows with its length."""
        return cls(MAX_STEPS + _STEPS_PER_BYTE * len(text))

    def spend(self, steps: int) -> None:
        """Subtract steps; raise ``ExpressionError`` if none are left."""
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionError("takes too many steps; list its tuples instead")


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes
    ----------
    names : tuple of str
        Free names in the order of their appearance: the variables.
    size : int
        Number of nodes, an upper bound on the steps per evaluation except for loops.
    run : callable
        Closure that evaluates the expression in an environment.
    budget : StepBudget
        Steps that are left for the file.
    """

    names: tuple[str, ...]
    size: int
    run: Closure = field(repr=False)
    budget: StepBudget = field(repr=False)

    def __call__(self, values: Mapping[str, Any]) -> int | float:
        """Return the value for one assignment, given by name; raises ``ExpressionError`` as ``evaluate_all`` does."""
        return self._one_by_one([dict(values)])[0]

    def evaluate_all(self, values: Sequence[Sequence[Any]], axes: Sequence[int] | None = None) -> list[int | float]:
        """Return the values for all assignments.

        Parameters
        ----------
        values
            Values on each axis; the last axis is the fastest.
        axes
            Axis of each name; by default the names' positions.

        Raises
        ------
        ExpressionError
            If Python would raise (division by zero, wrong types), if a value is not a number, or if the step budget is
            exhausted.
        """
        axes = range(len(values)) if axes is None else axes
        self.budget.spend(self.size * prod(map(len, values)))
        return self._one_by_one(
            {n: assignment[i] for n, i in zip(self.names, axes, strict=True)} for assignment in product(*values)
        )

    def _one_by_one(self, assignments: Iterable[Environment]) -> list[int | float]:
        """Return the values for environments one by one; the evaluation may modify the environments."""
        run, results = self.run, []
        try:
            for assignment in assignments:
                result = run(assignment)
                kind = type(result)
                if kind is not int and kind is not float:
                    if kind is not bool:
                        raise ExpressionError(f"has the value {str(result)[:40]!r}, which is not a number")
                    result = int(result)
                results.append(result)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise ExpressionError(f"cannot be evaluated: {' '.join(str(error).split())[:200]}") from None
        return results


_MAX_DEPTH = 60  # levels of nesting; keeps the recursion far from Python's limit


class Compiler:
    """Compile syntax nodes to closures and collect the free names.

    A *closure* is a function that takes an environment (a dict from names to values) and returns the value of its node.
    The functions of ``_NODES`` compile one type of node each; other nodes are refused. One compiler compiles one
    expression.

    Attributes
    ----------
    functions : mapping of str to callable
        Functions that expressions may call.
    names : dict
        Free names in the order of their appearance (a dict used as an ordered set).
    local : set of str
        Names that the body assigns; they are not free.
    size : int
        Number of nodes compiled, an estimate of the work of one evaluation.
    depth : int
        Current depth of nesting.
    budget : StepBudget
        Limit for the steps at run time, shared by all expressions of a file.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], budget: StepBudget | None) -> None:
        """Start without names."""
        self.functions = functions
        self.names: dict[str, None] = {}
        self.local: set[str] = set()
        self.size = 0
        self.depth = 0
        self.budget = budget or StepBudget()

    def expression(self, body: list[ast.stmt]) -> Expression:
        """Compile a body: one expression, or statements that return a value."""
        if not body:
            raise ExpressionError("is empty")
        if len(body) == 1 and isinstance(body[0], ast.Expr):
            run = self.node(body[0].value)
        else:
            self.local = {
                node.id
                for statement in body
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            block = self.block(body)

            def run(env: Environment) -> Any:
                returned = block(env)
                if returned is None:
                    raise ExpressionError("ends without a return")
                return returned[0]

        return Expression(tuple(self.names), self.size, run, self.budget)

    def node(self, node: ast.expr) -> Closure:
        """Compile one node."""
        self.size += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ExpressionError("is nested too deeply")
        compile_node = _NODES.get(type(node))
        if compile_node is None:
            _refuse(node)
        built = compile_node(self, node)
        self.depth -= 1
        return built

    def nodes(self, nodes: Sequence[ast.expr]) -> list[Closure]:
        """Compile several nodes."""
        return [self.node(n) for n in nodes]

    def block(self, statements: list[ast.stmt]) -> Callable[[Environment], tuple[Any] | None]:
        """Return a closure that runs statements; it gives a 1-tuple of the returned value, or None without a return."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ExpressionError("is nested too deeply")
        built = [self.statement(s) for s in statements]
        self.depth -= 1

        def run(env: Environment) -> tuple[Any] | None:
            for statement in built:
                returned = statement(env)
                if returned is not None:
                    return returned
            return None

        return run

    def statement(self, node: ast.stmt) -> Callable[[Environment], tuple[Any] | None]:
        """Compile a return, a conditional, an assignment or ``pass``.

        The closure returns a 1-tuple of the returned value, or None if the next statement follows.
        """
        self.size += 1
        if isinstance(node, ast.Return) and node.value is not None:
            value = self.node(node.value)
            return lambda env: (value(env),)
        if isinstance(node, ast.If):
            test, yes, no = self.node(node.test), self.block(node.body), self.block(node.orelse)
            return lambda env: yes(env) if test(env) else no(env)
        if isinstance(node, ast.Pass):
            return lambda env: None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return _assign(node.targets[0].id, self.node(node.value))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            value = self.node(ast.BinOp(ast.Name(node.target.id), node.op, node.value))
            return _assign(node.target.id, value)
        _refuse(node)


def _constant(compiler: Compiler, node: ast.Constant) -> Closure:
    """Compile a number, a truth value or a string."""
    value = node.value
    if not isinstance(value, bool | int | float | str):
        _refuse(node)
    library.number(value) if not isinstance(value, str) else None
    return lambda env: value


def _name(compiler: Compiler, node: ast.Name) -> Closure:
    """Compile a constant, a local name or a free name."""
    name = node.id
    if name not in compiler.local:
        if name in library.CONSTANTS:
            value = library.CONSTANTS[name]
            return lambda env: value
        compiler.names[name] = None

    def lookup(env: Environment) -> Any:
        try:
            return env[name]
        except KeyError:
            raise ExpressionError(f"uses {name} before it has a value") from None

    return lookup


def _operation(compiler: Compiler, node: ast.BinOp) -> Closure:
    """Compile an arithmetic operation; a chain such as a + b + c, which may be long, becomes a loop."""
    operations: list[tuple[Callable[[Any, Any], Any], ast.expr]] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp):
        function = library.BINARY.get(type(left.op))
        if function is None:
            _refuse(left.op)
        operations.append((function, left.right))
        left = left.left
    leftmost = compiler.node(left)
    steps = [(function, compiler.node(right)) for function, right in reversed(operations)]
    if len(steps) == 1:
        ((operation, right),) = steps
        return lambda env: operation(leftmost(env), right(env))

    def chain(env: Environment) -> Any:
        value = leftmost(env)
        for function, right in steps:
            value = function(value, right(env))
        return value

    return chain


def _unary_operation(compiler: Compiler, node: ast.UnaryOp) -> Closure:
    """Compile a sign or ``not``."""
    function = library.UNARY.get(type(node.op))
    if function is None:
        _refuse(node.op)
    operand = compiler.node(node.operand)
    return lambda env: function(operand(env))


def _boolean_operation(compiler: Compiler, node: ast.BoolOp) -> Closure:
    """Compile ``and`` or ``or``, which return the deciding operand as in Python."""
    parts, deciding_value = compiler.nodes(node.values), isinstance(node.op, ast.Or)

    def first_deciding(env: Environment) -> Any:
        value: Any = None
        for part in parts:
            value = part(env)
            if bool(value) == deciding_value:
                return value
        return value

    return first_deciding


def _comparison(compiler: Compiler, node: ast.Compare) -> Closure:
    """Compile a comparison, possibly chained."""
    leftmost, operands = compiler.node(node.left), compiler.nodes(node.comparators)
    functions = [library.COMPARE.get(type(op)) or _refuse(op) for op in node.ops]
    if len(operands) == 1:
        function, right = functions[0], operands[0]
        return lambda env: function(leftmost(env), right(env))

    def chain(env: Environment) -> Any:
        left = leftmost(env)
        for function, part in zip(functions, operands, strict=True):
            right = part(env)
            if not function(left, right):
                return False
            left = right
        return True

    return chain


def _conditional(compiler: Compiler, node: ast.IfExp) -> Closure:
    """Compile a conditional expression."""
    test, yes, no = compiler.nodes([node.test, node.body, node.orelse])
    return lambda env: yes(env) if test(env) else no(env)


def _tuple(compiler: Compiler, node: ast.Tuple) -> Closure:
    """Compile a tuple."""
    parts = compiler.nodes(node.elts)
    library.check_length(len(parts))
    return lambda env: tuple(part(env) for part in parts)


def _list(compiler: Compiler, node: ast.List) -> Closure:
    """Compile a list as a tuple."""
    return _tuple(compiler, ast.Tuple(node.elts))


def _set(compiler: Compiler, node: ast.Set) -> Closure:
    """Compile a set."""
    parts = compiler.nodes(node.elts)
    library.check_length(len(parts))
    return lambda env: frozenset(part(env) for part in parts)


def _item(compiler: Compiler, node: ast.Subscript) -> Closure:
    """Compile an index."""
    sequence, index = compiler.nodes([node.value, node.slice])

    def item(env: Environment) -> Any:
        try:
            return sequence(env)[library.integer(index(env))]
        except IndexError:
            raise ExpressionError("has an index outside its sequence") from None

    return item


def _call(compiler: Compiler, node: ast.Call) -> Closure:
    """Compile a call of a permitted function, with or without the prefix ``math.``."""
    name = node.func.id if isinstance(node.func, ast.Name) else None
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        name = node.func.attr if node.func.value.id == "math" else None
    if name is None or name not in compiler.functions:
        called = ast.unparse(node.func)[:40]
        raise ExpressionError(f"calls {called}(), which is none of {', '.join(sorted(compiler.functions))}")
    if node.keywords:
        raise ExpressionError(f"calls {name}() with named arguments, which are not supported")
    function, arguments, budget = compiler.functions[name], compiler.nodes(node.args), compiler.budget

    def call(env: Environment) -> Any:
        given = [argument(env) for argument in arguments]
        budget.spend(sum(len(g) for g in given if isinstance(g, tuple | str | frozenset | range)))
        return function(*given)

    return call


def _comprehension(compiler: Compiler, node: ast.GeneratorExp | ast.ListComp) -> Closure:
    """Compile a comprehension with a single loop; its value is a tuple.

    At run time it spends the number of items times the number of nodes compiled so far, an upper bound on its
    steps.
    """
    if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
        _refuse(node)
    clause = node.generators[0]
    source, name, outer = compiler.node(clause.iter), node.generators[0].target.id, set(compiler.local)
    compiler.local.add(name)
    body, tests = compiler.node(node.elt), compiler.nodes(clause.ifs)
    compiler.local, budget, size = outer, compiler.budget, compiler.size

    def comprehension(env: Environment) -> Any:
        items, inner = library.sequence(source(env)), dict(env)
        budget.spend(len(items) * size)
        result = []
        for inner[name] in items:
            if all(test(inner) for test in tests):
                result.append(body(inner))
        return tuple(result)

    return comprehension


_NODES: dict[type[ast.expr], Callable[[Compiler, Any], Closure]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.BinOp: _operation,
    ast.UnaryOp: _unary_operation,
    ast.BoolOp: _boolean_operation,
    ast.Compare: _comparison,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Subscript: _item,
    ast.Call: _call,
    ast.GeneratorExp: _comprehension,
    ast.ListComp: _comprehension,
}


def _assign(name: str, value: Closure) -> Callable[[Environment], None]:
    """Return a closure that assigns a value to a name."""

    def assign(env: Environment) -> None:
        env[name] = value(env)

    return assign


def _refuse(node: ast.AST) -> NoReturn:
    """Raise the error for an unsupported node."""
    raise ExpressionError(
        f"has {_NODE_DESCRIPTIONS.get(type(node).__name__, type(node).__name__)}, which is not supported"
    )


_NODE_DESCRIPTIONS = {
    "Attribute": "an attribute (.name)",
    "Lambda": "a lambda",
    "JoinedStr": "an f-string",
    "Import": "an import",
    "While": "a while loop",
    "For": "a for loop",
    "Slice": "a slice",
    "Expr": "a statement without effect",
    "Is": "'is' (use ==)",
    "IsNot": "'is not' (use !=)",
}


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
