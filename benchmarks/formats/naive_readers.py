"""Short readers of XCSP 2.1 and pyDCOP files that only evaluate assignments, for ``mutated_cost_networks``.

They share no code with dmcmc: XML by the standard library, YAML by PyYAML, expressions by Python itself. They check
little, so that they accept some invalid files. A cost of ±infinity is forbidden.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import yaml

FUNCTIONS: dict[str, Any] = {
    "abs": abs, "min": min, "max": max, "pow": pow, "neg": lambda a: -a, "add": lambda *v: sum(v),
    "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: int(a / b),
    "mod": lambda a, b: a - b * int(a / b), "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
    "not_": lambda a: not a, "and_": lambda *v: all(v), "or_": lambda *v: any(v),
    "if_": lambda test, yes, no: yes if test else no,
}  # fmt: skip


@dataclass(frozen=True)
class Network:
    """A cost network.

    Attributes
    ----------
    names : list of str
        Names of the variables.
    values : list of list
        Values of each variable.
    functions : list of callable
        Each maps the values of all variables, by name, to a cost.
    sense : str
        ``min`` or ``max``.
    """

    names: Sequence[str]
    values: Sequence[Sequence[Any]]
    functions: Sequence[Callable[[Mapping[str, Any]], float]]
    sense: str

    @property
    def shape(self) -> list[int]:
        """Domain sizes."""
        return [len(values) for values in self.values]

    def cost(self, indices: Sequence[int]) -> float | None:
        """Return the objective of an assignment by value indices; None if it is forbidden."""
        chosen = {n: v[i] for n, v, i in zip(self.names, self.values, indices, strict=True)}
        costs = [function(chosen) for function in self.functions]
        forbidding = inf if self.sense == "min" else -inf
        if -forbidding in costs:
            raise ValueError("an infinite cost of the wrong sign")
        return None if forbidding in costs else float(sum(costs))


def _number(word: str) -> int | float:
    """Return the number that a word stands for."""
    return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)


def _xcsp_values(text: str) -> list[int | float]:
    """Return the values of a domain."""
    values: list[int | float] = []
    for word in text.split():
        first, dots, last = word.partition("..")
        values += range(int(first), int(last) + 1) if dots else [_number(word)]
    if len(set(values)) < len(values) or not values:
        raise ValueError("values")
    return values


def _xcsp_relation(element: ElementTree.Element, sense: str) -> tuple[dict[tuple[Any, ...], float], float | None]:
    """Return the costs of the tuples of a relation, and the cost of all others."""
    text, hard = element.text or "", inf if sense == "min" else -inf
    semantics = element.get("semantics", "soft")
    default = {"supports": hard, "conflicts": 0.0}.get(semantics)
    cost = {"supports": 0.0, "conflicts": hard}.get(semantics)
    if semantics == "soft" and element.get("defaultCost") is not None:
        default = float(element.get("defaultCost", ""))
    costs: dict[tuple[Any, ...], float] = {}
    for part in text.split("|") if text.strip() else []:
        before, colon, after = part.rpartition(":")
        cost = float(before) if colon else cost
        if cost is None or len(after.split()) != int(element.get("arity", len(after.split()))):
            raise ValueError("tuple")
        costs[tuple(map(_number, after.split()))] = cost
    if int(element.get("nbTuples", text.count("|") + bool(text.strip()))) != text.count("|") + bool(text.strip()):
        raise ValueError("nbTuples")
    return costs, default


def _xcsp_formula(element: ElementTree.Element) -> tuple[list[str], Any]:
    """Return the parameters and the compiled expression of a predicate or function."""
    words = element.findtext("parameters", "").split()
    expression = element.findtext("expression/functional", "").strip()
    return words[1::2], compile(re.sub(r"\b(and|or|not|if)\s*(?=\()", r"\1_", expression), "functional", "eval")


def read_xcsp(text: str) -> Network:
    """Read an XCSP 2.1 file."""
    root = ElementTree.fromstring(text)
    presentation = root.find("presentation")
    maximize = presentation is not None and presentation.get("maximize", "") == "true"
    sense = "max" if maximize else "min"
    domains = {e.attrib["name"]: _xcsp_values(e.text or "") for e in root.iterfind("domains/domain")}
    variables = {e.attrib["name"]: domains[e.attrib["domain"]] for e in root.iterfind("variables/variable")}
    relations = {e.attrib["name"]: _xcsp_relation(e, sense) for e in root.iterfind("relations/relation")}
    predicates = {e.attrib["name"]: _xcsp_formula(e) for e in root.iterfind("predicates/predicate")}
    formulas = predicates | {e.attrib["name"]: _xcsp_formula(e) for e in root.iterfind("functions/function")}
    hard = inf if sense == "min" else -inf

    def function(element: ElementTree.Element) -> Callable[[Mapping[str, Any]], float]:
        scope, reference = element.attrib["scope"].split(), element.attrib["reference"]
        if any(name not in variables for name in scope) or int(element.get("arity", len(scope))) != len(scope):
            raise ValueError("scope")
        words = re.sub(r"[\[\]]", " ", element.findtext("parameters", "")).split() or scope

        def operands(chosen: Mapping[str, Any]) -> list[Any]:
            return [chosen[word] if word in scope else _number(word) for word in words]

        if reference == "global:allDifferent":
            return lambda chosen: 0 if len(set(operands(chosen))) == len(words) else hard
        if reference in relations:
            costs, default = relations[reference]
            for values in costs:
                if any(value not in variables[name] for name, value in zip(scope, values, strict=True)):
                    raise ValueError("value")

            def relation(chosen: Mapping[str, Any]) -> float:
                cost = costs.get(tuple(chosen[name] for name in scope), default)
                if cost is None:
                    raise ValueError("no cost")
                return cost

            return relation
        parameters, code = formulas[reference]
        if len(parameters) != len(words):
            raise ValueError("parameters")

        def formula(chosen: Mapping[str, Any]) -> float:
            named = dict(zip(parameters, operands(chosen), strict=True))
            result = eval(code, {"__builtins__": {}} | FUNCTIONS, named)
            return (0 if result else hard) if reference in predicates else result

        return formula

    section = root.find("constraints")
    initial = float("0" if section is None else section.get("initialCost", "0"))
    functions = [function(e) for e in root.iterfind("constraints/constraint")]
    return Network(list(variables), list(variables.values()), [*functions, lambda chosen: initial], sense)


def read_pydcop(text: str) -> Network:
    """Read a pyDCOP file; a key that occurs twice is refused, as dmcmc does."""
    data = yaml.load(text, Loader=_UniqueKeys)
    sense = {"min": "min", "max": "max"}[data["objective"]]
    domains = {name: _pydcop_values(entry["values"]) for name, entry in data["domains"].items()}
    variables = {name: domains[entry["domain"]] for name, entry in data["variables"].items()}
    external = {name: entry["initial_value"] for name, entry in (data.get("external_variables") or {}).items()}
    for name, value in external.items():
        if value not in domains[data["external_variables"][name]["domain"]]:
            raise ValueError("initial_value")
    known = variables | external

    def expression(source: Any) -> Callable[[Mapping[str, Any]], float]:
        code = compile(str(source), "expression", "eval")
        names = [name for name in code.co_names if name not in FUNCTIONS]
        if any(name not in known for name in names):
            raise ValueError("name")
        return lambda chosen: eval(code, {"__builtins__": {}} | FUNCTIONS, dict(chosen) | external)

    def constraint(entry: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], float]:
        if entry["type"] == "intention":
            return expression(entry["function"])
        if entry["type"] != "extensional":
            raise ValueError("type")
        scope = [entry["variables"]] if isinstance(entry["variables"], str) else entry["variables"]
        words = {name: [str(value) for value in known[name]] for name in scope}
        costs: dict[tuple[str, ...], float] = {}
        for cost, assignments in entry["values"].items():
            for part in str(assignments).split("|"):
                if any(word not in words[name] for name, word in zip(scope, part.split(), strict=True)):
                    raise ValueError("value")
                costs[tuple(part.split())] = float(cost)
        default = None if entry.get("default") is None else float(entry["default"])

        def cost_of(chosen: Mapping[str, Any]) -> float:
            cost = costs.get(tuple(str(chosen[name]) for name in scope), default)
            if cost is None:
                raise ValueError("no cost")
            return cost

        return cost_of

    functions = [expression(e["cost_function"]) for e in data["variables"].values() if "cost_function" in e]
    functions += [constraint(entry) for entry in (data.get("constraints") or {}).values()]
    return Network(list(variables), list(variables.values()), functions, sense)


def _pydcop_values(values: Any) -> list[Any]:
    """Return the values of a domain."""
    if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
        first, last = values[0].split("..")
        return list(range(int(first), int(last) + 1))
    if len(set(map(str, values))) < len(values) or not all(isinstance(v, str | int | float) for v in values):
        raise ValueError("values")
    return list(values)


class _UniqueKeys(yaml.SafeLoader):
    """Loader that refuses a key that occurs twice in a mapping."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    """Return a mapping, or raise ``ValueError`` if a key occurs twice."""
    keys = [key.value for key, _ in node.value]
    if len(set(keys)) < len(keys):
        raise ValueError("a key occurs twice")
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


_UniqueKeys.add_constructor("tag:yaml.org,2002:map", _mapping)
READERS: Mapping[str, Callable[[str], Network]] = {"xcsp": read_xcsp, "pydcop": read_pydcop}
