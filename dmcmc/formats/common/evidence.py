"""Read observations of variables, and condition a problem on them; :mod:`dmcmc.formats.registry` calls ``observe``.

Two file formats are supported. UAI's format has integers only: the number of observed variables, then each variable
with the index of its value (``2  0 1  4 0``). Until 2010 the number of samples came first, then such a list for each
sample. The other format uses names: one observation ``variable = label`` per line, quoted or not; empty lines and lines
that begin with ``#`` or ``//`` are skipped. ``FILE:2`` is the second sample of a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile, open_source
from dmcmc.formats.common.tokens import scan_integers, word_offset
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.runtime.errors import FileError

_SUFFIX = ".evid"
_SAMPLE = re.compile(r"(.+):([0-9]{1,9})")
_NUMBERS = re.compile(rb"[\s0-9+-]*")
_LINE = re.compile(r'(?:"([^"]*)"|([^"=\s][^=]*?))\s*=\s*(?:"([^"]*)"|([^"].*))')


def observe(problem: Problem, path: Path | None, given: Path | None, suffix: str) -> Problem:
    """Condition a problem on its observations, if there are any.

    Parameters
    ----------
    problem
        The problem as read from its file.
    path
        The problem's file, or None for text from memory.
    given
        The file of observations, or ``FILE:N`` for its sample N, counted from 1. None looks in the folder of ``path``
        for a file whose name has ``.evid`` appended (before or after a compression suffix) or in place of ``suffix``.
    suffix
        File suffix of the format.

    Raises
    ------
    FileError
        If the file of observations is malformed; the message names the line.
    """
    file = given if given is not None else _default_file(path, suffix)
    if file is None:
        return problem
    file, sample = _file_and_sample(file)
    source = open_source(file)
    assert source is not None  # open_source returns None only for native archives
    if _NUMBERS.fullmatch(source.data) or problem.labels == (None,) * problem.n_variables:
        return condition(problem, _by_index(source, problem.domains, sample))
    if sample is not None:
        raise FileError(f"{file}: names variables and has no samples; leave out ':{sample}'")
    return condition(problem, _by_name(source, problem))


def _file_and_sample(given: Path) -> tuple[Path, int | None]:
    """Split ``FILE:N`` into the file and the number of the sample, unless a file has that name."""
    match = _SAMPLE.fullmatch(given.name)
    if match is None or given.exists():
        return given, None
    return given.with_name(match[1]), int(match[2])


def condition(problem: Problem, observed: Mapping[int, int]) -> Problem:
    """Return the problem given the values of some variables, whose domains shrink to the observed value."""
    domains, labels = problem.domains.copy(), list(problem.labels)
    for v, value in observed.items():
        domains[v], labels[v] = 1, (problem.label(v, value),)
    factors = tuple(_conditioned(factor, observed) for factor in problem.factors)
    return replace(problem, domains=domains, labels=tuple(labels), factors=factors)


def _conditioned(factor: Factor, observed: Mapping[int, int]) -> Factor:
    """Return a factor restricted to the observed values."""
    if observed.keys().isdisjoint(factor.scope):
        return factor
    restriction = tuple(slice(observed[v], observed[v] + 1) if v in observed else slice(None) for v in factor.scope)
    return Factor.of(factor.scope, factor.table[restriction], name=factor.name)


def _default_file(path: Path | None, suffix: str) -> Path | None:
    """Return the file of observations in the folder of a problem file, or None."""
    if path is None:
        return None
    suffix_start = path.name.lower().rfind(suffix)
    stem = path.name[:suffix_start] if suffix_start >= 0 else path.stem
    names = [path.name + _SUFFIX, *([] if path.suffix.lower() == suffix else [path.stem + _SUFFIX])]
    names += [stem + _SUFFIX, stem + suffix + _SUFFIX]
    return next((file for name in names if (file := path.with_name(name)).is_file()), None)


def _by_index(source: SourceFile, domains: NDArray[np.int64], sample: int | None) -> dict[int, int]:
    """Read observations in UAI's format: the value index of each observed variable, by the variable's index."""
    numbers, unconverted = scan_integers(source.data)
    if len(unconverted):
        raise source.error(
            int(unconverted[0, 1]), "expected whole numbers: the number of observations, then variable and value"
        )
    values = numbers.tolist()
    starts = _samples(values, source.data)
    if starts is None:
        what = f"expected {values[0]} observations, a variable and a value each, after their number"
        raise source.error(0, f"{what}; there are {len(values) - 1} numbers")
    if sample is None and len(starts) > 1:
        raise FileError(
            f"{source.name}: has {len(starts)} samples; choose one, from {source.name}:1 to {source.name}:{len(starts)}"
        )
    if not starts and sample is None:
        return {}
    if not 1 <= (sample or 1) <= len(starts):
        raise FileError(f"{source.name}: there is no sample {sample}; the file has {len(starts)}")
    first = starts[(sample or 1) - 1]
    observed: dict[int, int] = {}
    for i in range(first + 1, first + 1 + 2 * values[first], 2):
        v, value = values[i : i + 2]
        at = word_offset(source.data, 0, i)
        if not 0 <= v < domains.size:
            raise source.error(at, f"variable {v} does not exist; there are 0 to {domains.size - 1}")
        if not 0 <= value < domains[v]:
            raise source.error(at, f"variable {v}: value {value} is not in 0..{domains[v] - 1}")
        if observed.setdefault(v, value) != value:
            raise source.error(at, f"variable {v} is observed twice, as {observed[v]} and {value}")
    return observed


def _samples(values: Sequence[int], text: bytes) -> list[int] | None:
    """Return the index in ``values`` at which each sample begins; None if the numbers are no samples.

    The numbers are one sample, or the number of samples and each sample. Where both are possible, the lines decide: a
    line with one number, followed by as many lines with one sample each, are samples.
    """
    if values in ([], [0, 0]):
        return []
    starts, position = [], 1
    while position < len(values) and values[position] >= 0:
        starts.append(position)
        position += 1 + 2 * values[position]
    if position != len(values) or len(starts) != values[0]:
        return [0] if len(values) == 1 + 2 * values[0] else None
    lines = [len(words) for line in text.splitlines() if (words := line.split())]
    if len(values) == 1 + 2 * values[0] and lines != [1, *(1 + 2 * values[start] for start in starts)]:
        return [0]
    return starts


def _by_name(source: SourceFile, problem: Problem) -> dict[int, int]:
    """Read observations by name: the value index of each observed variable, by the variable's index."""
    index = {name: v for v, name in enumerate(problem.variables)}
    observed: dict[int, int] = {}
    next_offset = 0
    for line in source.text().splitlines(keepends=True):
        text, offset = line.strip(), next_offset
        next_offset += len(line.encode())
        if not text or text.startswith(("#", "//")):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise source.error(offset, f"expected 'variable = label', got {text[:40]!a}")
        name, label = match[1] or match[2] or "", match[3] or match[4] or ""
        if name not in index:
            raise source.error(offset, f"variable {name!r} does not exist")
        v = index[name]
        known = _label_words(problem.labels[v], int(problem.domains[v]))
        if label not in known:
            raise source.error(offset, f"variable {name!r}: {label!r} is none of its values {', '.join(known)}")
        value = known.index(label)
        if observed.setdefault(v, value) != value:
            raise source.error(offset, f"variable {name!r} is observed twice, as {known[observed[v]]!r} and {label!r}")
    return observed


def _label_words(labels: Sequence[Label] | None, size: int) -> list[str]:
    """Return the labels of a domain as strings."""
    return [str(label) for label in (range(size) if labels is None else labels)]
