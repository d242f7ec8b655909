"""Observations of a network: the file that has them, and the problem that is left.

Two forms are read. UAI's: whole numbers, how many variables are observed and then each with the index of its value
(``2  0 1  4 0``); an older form has the number of samples, 1, first. By names, where a format has them: one observation
a line, ``variable = label``, quoted or not; empty lines and those that begin with ``#`` or ``//`` say nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Source, open_source
from dmcmc.formats.common.scan import scan_integers, word_offset
from dmcmc.inference.model.problem import Factor, Label, Problem

_SUFFIX = ".evid"
_NUMBERS = re.compile(rb"[\s0-9+-]*")
_LINE = re.compile(r'(?:"([^"]*)"|([^"=\s][^=]*?))\s*=\s*(?:"([^"]*)"|([^"].*))')


def observe(problem: Problem, path: Path | None, given: Path | None, suffix: str) -> Problem:
    """Return what is left of a problem when its observed variables have the observed value alone.

    Parameters
    ----------
    problem
        As its file has it.
    path
        Its file, if it is one.
    given
        The file of observations; None takes the one beside ``path``, with ``.evid`` appended to the name (before or
        after a packing suffix) or in place of ``suffix``, if there is one.
    suffix
        Of the format.

    Raises
    ------
    FileError
        If the file of observations is not well formed; names the line.
    """
    file = given if given is not None else _beside(path, suffix)
    if file is None:
        return problem
    source = open_source(file)
    assert source is not None  # only a native archive is none
    if _NUMBERS.fullmatch(source.data) or problem.labels == (None,) * problem.n_variables:
        return condition(problem, _by_index(source, problem.domains))
    return condition(problem, _by_name(source, problem))


def condition(problem: Problem, observed: Mapping[int, int]) -> Problem:
    """Return the problem given the values of some variables: they keep their names, and have that value alone."""
    domains, labels = problem.domains.copy(), list(problem.labels)
    for v, value in observed.items():
        domains[v], labels[v] = 1, (problem.label(v, value),)
    factors = tuple(_conditioned(factor, observed) for factor in problem.factors)
    return replace(problem, domains=domains, labels=tuple(labels), factors=factors)


def _conditioned(factor: Factor, observed: Mapping[int, int]) -> Factor:
    if observed.keys().isdisjoint(factor.scope):
        return factor
    kept = tuple(slice(observed[v], observed[v] + 1) if v in observed else slice(None) for v in factor.scope)
    return Factor.of(factor.scope, factor.table[kept], name=factor.name)


def _beside(path: Path | None, suffix: str) -> Path | None:
    """Return the file of observations that belongs to a file, if there is one."""
    if path is None:
        return None
    at = path.name.lower().rfind(suffix)
    stem = path.name[:at] if at >= 0 else path.stem
    names = [path.name + _SUFFIX, *([] if path.suffix.lower() == suffix else [path.stem + _SUFFIX])]
    names += [stem + _SUFFIX, stem + suffix + _SUFFIX]
    return next((file for name in names if (file := path.with_name(name)).is_file()), None)


def _by_index(source: Source, domains: NDArray[np.int64]) -> dict[int, int]:
    """Read UAI's form."""
    numbers, noted = scan_integers(source.data)
    if len(noted):
        raise source.error(
            int(noted[0, 1]), "expected whole numbers: the number of observations, then variable and value"
        )
    given = numbers.tolist()
    if not given or given == [0, 0]:
        return {}
    if len(given) == 1 + 2 * given[0]:
        first = 1
    elif len(given) > 1 and given[0] == 1 and len(given) == 2 + 2 * given[1]:
        first = 2
    else:
        what = f"expected {given[0]} observations, a variable and a value each, after their number"
        raise source.error(0, f"{what}; there are {len(given) - 1} numbers")
    observed: dict[int, int] = {}
    for i in range(first, len(given), 2):
        v, value = given[i : i + 2]
        at = word_offset(source.data, 0, i)
        if not 0 <= v < domains.size:
            raise source.error(at, f"variable {v} does not exist; there are 0 to {domains.size - 1}")
        if not 0 <= value < domains[v]:
            raise source.error(at, f"variable {v}: value {value} is not in 0..{domains[v] - 1}")
        if observed.setdefault(v, value) != value:
            raise source.error(at, f"variable {v} is observed twice, as {observed[v]} and {value}")
    return observed


def _by_name(source: Source, problem: Problem) -> dict[int, int]:
    """Read the form by names."""
    index = {name: v for v, name in enumerate(problem.variables)}
    observed: dict[int, int] = {}
    at = 0
    for line in source.text().splitlines(keepends=True):
        word, place = line.strip(), at
        at += len(line.encode())
        if not word or word.startswith(("#", "//")):
            continue
        match = _LINE.fullmatch(word)
        if match is None:
            raise source.error(place, f"expected 'variable = label', got {word[:40]!a}")
        name, label = match[1] or match[2] or "", match[3] or match[4] or ""
        if name not in index:
            raise source.error(place, f"variable {name!r} does not exist")
        v = index[name]
        known = _words(problem.labels[v], int(problem.domains[v]))
        if label not in known:
            raise source.error(place, f"variable {name!r}: {label!r} is none of its values {', '.join(known)}")
        value = known.index(label)
        if observed.setdefault(v, value) != value:
            raise source.error(place, f"variable {name!r} is observed twice, as {known[observed[v]]!r} and {label!r}")
    return observed


def _words(labels: Sequence[Label] | None, size: int) -> list[str]:
    return [str(label) for label in (range(size) if labels is None else labels)]
