"""Read the query files of the UAI competitions: the number of query variables, then their indices."""

import os

from dmcmc.files.text import open_source
from dmcmc.formats.common.scan import scan_integers, word_offset
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError


def read_query(path: str | os.PathLike[str], problem: Problem) -> tuple[str, ...]:
    """Return the names of the variables that a query file lists, in its order.

    Parameters
    ----------
    path
        The file, ``FILE.query`` for a network ``FILE`` in the competitions.
    problem
        The problem; the file's indices count its variables from 0.

    Raises
    ------
    FileError
        If the file is malformed; the message names the line.
    """
    source = open_source(path)
    if source is None:
        raise FileError(f"{path}: is a native archive, not a query file")
    numbers, unconverted = scan_integers(source.data)
    for _, first, last in unconverted[:1].tolist():
        raise source.error(first, f"{source.data[first:last][:40].decode('latin-1')!a} is not a whole number")
    values = numbers.tolist()
    if not values or values[0] != len(values) - 1:
        what = f"{values[0]} variables after their number" if values else "the number of query variables"
        raise source.error(0, f"expected {what}; there are {max(0, len(values) - 1)}")
    for position, v in enumerate(values[1:], 1):
        at = word_offset(source.data, 0, position)
        if not 0 <= v < problem.n_variables:
            raise source.error(at, f"variable {v} does not exist; there are 0 to {problem.n_variables - 1}")
        if v in values[1:position]:
            raise source.error(at, f"variable {v} occurs twice")
    return tuple(problem.variables[v] for v in values[1:])
