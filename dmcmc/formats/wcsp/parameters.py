"""The parameters of a global cost function in a ``.wcsp`` file."""

from collections.abc import Sequence
from typing import Any

from dmcmc.formats.global_functions.signatures import SIGNATURES, ParameterSpec, record_layout
from dmcmc.formats.wcsp.numbers import WcspNumbers


def read_parameters(numbers: WcspNumbers, keyword: str, what: str, arity: int) -> dict[str, Any]:
    """Read the parameters of a global cost function.

    Parameters
    ----------
    numbers : WcspNumbers
        The numbers of the file, of which those of the parameters come next.
    keyword : str
        The name of the function, one of ``SIGNATURES``.
    what : str
        The constraint, for error messages.
    arity : int
        The number of its variables.

    Returns
    -------
    dict of str to object
        The parameters by name.

    Raises
    ------
    FileError
        If a number is missing or a length is negative.
    """
    arguments: dict[str, Any] = {}
    for field in SIGNATURES[keyword]:
        if field.kind == "variables" and field.name not in arguments:
            arguments |= _variable_lists(numbers, what, [f.name for f in SIGNATURES[keyword] if f.kind == field.kind])
        elif field.kind == "rules" and field.name not in arguments:
            arguments |= _rules(numbers, what)
        elif field.name not in arguments:
            arguments[field.name] = _parameter(numbers, field, f"{what}: {field.name}", arguments, arity)
    return arguments


def _parameter(numbers: WcspNumbers, field: ParameterSpec, what: str, earlier: dict[str, Any], arity: int) -> Any:
    """Read one parameter; the length of a list precedes it."""
    match field.kind:
        case "word":
            word = numbers.word()
            if word not in field.layout.split("|"):
                numbers.fail(
                    f"{what}: expected {' or '.join(field.layout.split('|'))}", numbers.position - (word is not None)
                )
            return word
        case "list":
            return _records(numbers, what, record_layout(field, earlier))
        case "lists":
            return [_records(numbers, what, field.layout) for _ in range(arity)]
        case "groups":
            return [_records(numbers, what, field.layout) for _ in range(int(numbers.take(1, what)[0]))]
        case "each":
            return numbers.take(arity, what).tolist()
    return int(numbers.take(1, what)[0])


def _records(numbers: WcspNumbers, what: str, kinds: str) -> list[list[int]]:
    """Read a list of records; a record has as many numbers as ``kinds`` has letters (see ``ParameterSpec``)."""
    begin = numbers.position
    count = int(numbers.take(1, what)[0])
    if count < 0:
        numbers.fail(f"{what}: {count} entries", begin)
    records: list[list[int]] = numbers.take(count * len(kinds), what).reshape(count, len(kinds)).tolist()
    return records


def _variable_lists(numbers: WcspNumbers, what: str, names: Sequence[str]) -> dict[str, list[int]]:
    """Read lists of variables; all their lengths precede the first list."""
    begin = numbers.position
    sizes = numbers.take(len(names), f"{what}: sizes of lists").tolist()
    if min(sizes) < 0:
        numbers.fail(f"{what}: a list of {min(sizes)} variables", begin)
    return {name: numbers.take(size, f"{what}: {name}").tolist() for name, size in zip(names, sizes, strict=True)}


def _rules(numbers: WcspNumbers, what: str) -> dict[str, list[list[int]]]:
    """Read a grammar's rules. Type 0 produces a value and type 1 two symbols; 2 and 3 are the same with weights."""
    rules: dict[str, list[list[int]]] = {"terminals": [], "non_terminals": []}
    for _ in range(int(numbers.take(1, f"{what}: number of rules")[0])):
        begin, kind = numbers.position, int(numbers.take(1, f"{what}: a rule")[0])
        if not 0 <= kind <= 3:
            numbers.fail(f"{what}: a rule of kind {kind}; there are 0 to 3", begin)
        rule = numbers.take(2 + kind % 2 + kind // 2, f"{what}: a rule").tolist()
        rules["non_terminals" if kind % 2 else "terminals"].append(rule)
    return rules
