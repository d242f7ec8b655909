"""From syntax trees to closures: what an :class:`~dmcmc.formats.expressions.expression.Expression` runs."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from dmcmc.formats.expressions import functions as library
from dmcmc.formats.expressions.expression import Env, Expression, Meter, Node
from dmcmc.formats.expressions.functions import ExpressionError

_MOST_DEPTH = 60


class Compiler:
    """Turns nodes into closures and notes the free names."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], meter: Meter | None) -> None:
        self.functions = functions
        self.names: dict[str, None] = {}
        self.local: set[str] = set()
        self.size = 0
        self.depth = 0
        self.meter = meter or Meter()

    def expression(self, body: list[ast.stmt]) -> Expression:
        if not body:
            raise ExpressionError("is empty")
        tree = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
        if tree is not None:
            run = self.node(tree)
        else:
            self.local = _assigned(body)
            block = self.block(body)

            def run(env: Env) -> Any:
                returned = block(env)
                if returned is None:
                    raise ExpressionError("ends without a return")
                return returned[0]

        return Expression(tuple(self.names), self.size, run, self.meter, tree or _conditions(body))

    def node(self, node: ast.expr) -> Node:
        self.size += 1
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise ExpressionError("is nested too deeply")
        method = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if method is None:
            _refuse(node)
        built: Node = method(node)
        self.depth -= 1
        return built

    def nodes(self, nodes: Sequence[ast.expr]) -> list[Node]:
        return [self.node(n) for n in nodes]

    def on_constant(self, node: ast.Constant) -> Node:
        value = node.value
        if not isinstance(value, bool | int | float | str):
            _refuse(node)
        library.number(value) if not isinstance(value, str) else None
        return lambda env: value

    def on_name(self, node: ast.Name) -> Node:
        name = node.id
        if name not in self.local:
            if name in library.CONSTANTS:
                value = library.CONSTANTS[name]
                return lambda env: value
            self.names[name] = None

        def look(env: Env) -> Any:
            try:
                return env[name]
            except KeyError:
                raise ExpressionError(f"uses {name} before it has a value") from None

        return look

    def on_binop(self, node: ast.BinOp) -> Node:
        """Follow a chain such as a + b + c to its left end by a loop: it may have hundreds of terms."""
        rest: list[tuple[Callable[[Any, Any], Any], ast.expr]] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            function = library.BINARY.get(type(left.op))
            if function is None:
                _refuse(left.op)
            rest.append((function, left.right))
            left = left.left
        first = self.node(left)
        steps = [(function, self.node(right)) for function, right in reversed(rest)]
        if len(steps) == 1:
            ((only, right),) = steps
            return lambda env: only(first(env), right(env))

        def chain(env: Env) -> Any:
            value = first(env)
            for function, right in steps:
                value = function(value, right(env))
            return value

        return chain

    def on_unaryop(self, node: ast.UnaryOp) -> Node:
        function = library.UNARY.get(type(node.op))
        if function is None:
            _refuse(node.op)
        operand = self.node(node.operand)
        return lambda env: function(operand(env))

    def on_boolop(self, node: ast.BoolOp) -> Node:
        parts, stop = self.nodes(node.values), isinstance(node.op, ast.Or)

        def either(env: Env) -> Any:
            value: Any = None
            for part in parts:
                value = part(env)
                if bool(value) == stop:
                    return value
            return value

        return either

    def on_compare(self, node: ast.Compare) -> Node:
        first, rest = self.node(node.left), self.nodes(node.comparators)
        functions = [library.COMPARE.get(type(op)) or _refuse(op) for op in node.ops]
        if len(rest) == 1:
            function, right = functions[0], rest[0]
            return lambda env: function(first(env), right(env))

        def chain(env: Env) -> Any:
            left = first(env)
            for function, part in zip(functions, rest, strict=True):
                right = part(env)
                if not function(left, right):
                    return False
                left = right
            return True

        return chain

    def on_ifexp(self, node: ast.IfExp) -> Node:
        test, yes, no = self.nodes([node.test, node.body, node.orelse])
        return lambda env: yes(env) if test(env) else no(env)

    def on_tuple(self, node: ast.Tuple) -> Node:
        parts = self.nodes(node.elts)
        library.check_length(len(parts))
        return lambda env: tuple(part(env) for part in parts)

    def on_list(self, node: ast.List) -> Node:
        return self.on_tuple(ast.Tuple(node.elts))

    def on_set(self, node: ast.Set) -> Node:
        parts = self.nodes(node.elts)
        library.check_length(len(parts))
        return lambda env: frozenset(part(env) for part in parts)

    def on_subscript(self, node: ast.Subscript) -> Node:
        sequence, index = self.nodes([node.value, node.slice])

        def item(env: Env) -> Any:
            try:
                return sequence(env)[library.integer(index(env))]
            except IndexError:
                raise ExpressionError("has an index outside its sequence") from None

        return item

    def on_call(self, node: ast.Call) -> Node:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            name = node.func.attr if node.func.value.id == "math" else None
        if name is None or name not in self.functions:
            called = ast.unparse(node.func)[:40]
            raise ExpressionError(f"calls {called}(), which is none of {', '.join(sorted(self.functions))}")
        if node.keywords:
            raise ExpressionError(f"calls {name}() with named arguments, which are not supported")
        function, arguments, meter = self.functions[name], self.nodes(node.args), self.meter

        def call(env: Env) -> Any:
            given = [argument(env) for argument in arguments]
            meter.spend(sum(len(g) for g in given if isinstance(g, tuple | str | frozenset | range)))
            return function(*given)

        return call

    def on_generatorexp(self, node: ast.GeneratorExp | ast.ListComp) -> Node:
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            _refuse(node)
        clause = node.generators[0]
        source, name, outer = self.node(clause.iter), node.generators[0].target.id, set(self.local)
        self.local.add(name)
        body, tests = self.node(node.elt), self.nodes(clause.ifs)
        self.local, meter, size = outer, self.meter, self.size

        def comprehension(env: Env) -> Any:
            items, inner = library.sequence(source(env)), dict(env)
            meter.spend(len(items) * size)
            result = []
            for inner[name] in items:
                if all(test(inner) for test in tests):
                    result.append(body(inner))
            return tuple(result)

        return comprehension

    on_listcomp = on_generatorexp

    def block(self, statements: list[ast.stmt]) -> Callable[[Env], tuple[Any] | None]:
        """Return a function that runs statements: a 1-tuple of what was returned, or None if nothing was."""
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise ExpressionError("is nested too deeply")
        built = [self.statement(s) for s in statements]
        self.depth -= 1

        def run(env: Env) -> tuple[Any] | None:
            for statement in built:
                returned = statement(env)
                if returned is not None:
                    return returned
            return None

        return run

    def statement(self, node: ast.stmt) -> Callable[[Env], tuple[Any] | None]:
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


def _conditions(body: list[ast.stmt]) -> ast.expr | None:
    """Return statements that do nothing but choose what to return as one expression; None for others."""
    match body:
        case [ast.Return(value=value), *_]:
            return value
        case [ast.If() as choice, *rest] if len(body) <= _MOST_DEPTH:
            yes, no = _conditions(choice.body), _conditions([*choice.orelse, *rest])
            return None if yes is None or no is None else ast.IfExp(choice.test, yes, no)
    return None


def _assign(name: str, value: Node) -> Callable[[Env], None]:
    def assign(env: Env) -> None:
        env[name] = value(env)

    return assign


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that a body assigns to."""
    return set(_targets(body))


def _targets(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _refuse(node: ast.AST) -> NoReturn:
    raise ExpressionError(f"has {_CALLED.get(type(node).__name__, type(node).__name__)}, which is not supported")


_CALLED = {
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
