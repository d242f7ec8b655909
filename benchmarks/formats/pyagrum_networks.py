"""Read a belief network with dmcmc and with pyAgrum, and compare what they read.

pyAgrum's readers of .bif, .net and .uai keep probabilities in single precision; its reader of XMLBIF keeps doubles. For
a comparison beyond single precision, dmcmc's probabilities are rounded as pyAgrum's. Two differences of meaning are
undone: pyAgrum does not normalise the data of .net files, and in .uai files it takes the first parent as the one that
changes fastest, where the format says slowest.
"""

import io
import math
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmcmc.formats import registry as formats
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden

if TYPE_CHECKING:
    import pyagrum

SINGLE = {".bif", ".net", ".uai"}  # suffixes whose readers in pyAgrum keep single precision
FORMAT = {".bif": "bif", ".bifxml": "xmlbif", ".net": "hugin", ".uai": "uai"}  # dmcmc's name of each format
_DATA = re.compile(rb"\bdata\s*=[^;]*;")  # the numbers of a .net file
_NUMBER = re.compile(rb"(?<![\w.])\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.])")
MEMORY = 1 << 31  # bytes for the tables of a junction tree


class Network(NamedTuple):
    """A network as one of the programs reads it.

    Attributes
    ----------
    names : list of str
        The variables.
    labels : list of list of str
        The values of each variable.
    marginals : list of ndarray
        The probabilities of each variable's values; empty if all assignments are impossible.
    """

    names: list[str]
    labels: list[list[str]]
    marginals: list[np.ndarray]

    def difference(self, other: "Network") -> float:
        """Return the largest difference of a marginal; infinite if names, labels or feasibility differ."""
        if self.labels != other.labels or bool(self.marginals) != bool(other.marginals):
            return math.inf
        pairs = zip(self.marginals, other.marginals, strict=True)
        return max((float(np.abs(a - b).max()) for a, b in pairs), default=0.0)


def ours(path: Path, single: bool) -> Network:
    """Read a network with dmcmc.

    Parameters
    ----------
    path
        The file.
    single
        Whether to round the probabilities to single precision.
    """
    data = path.read_bytes()
    if single and path.suffix == ".net":  # before they are normalised
        data = _DATA.sub(lambda block: _NUMBER.sub(_in_single_precision, block[0]), data)
    problem = formats.parse(data, FORMAT[path.suffix])
    if single and path.suffix != ".net":
        parts = {name: getattr(problem, name) for name in ("variables", "domains", "agents", "owner", "labels")}
        problem = Problem(**parts, factors=tuple(map(_rounded, problem.factors)), sense="max")
    tree = JunctionTree(problem, False, MEMORY)
    found = tree.marginals() if math.isfinite(tree.total()) else {}
    labels = [[str(label) for label in problem.labels[v] or range(n)] for v, n in enumerate(problem.domains)]
    return Network(list(problem.variables), labels, [np.array(list(values.values())) for values in found.values()])


def _in_single_precision(number: re.Match[bytes]) -> bytes:
    """Return the text of a number rounded to single precision."""
    return repr(float(np.float32(number[0]))).encode()


def _rounded(factor: Factor) -> Factor:
    """Return a factor with its probabilities rounded to single precision."""
    utilities = factor.table.astype(float)
    utilities[forbidden(factor.table)] = -np.inf
    with np.errstate(divide="ignore", over="ignore"):
        return Factor.of(factor.scope, np.log(np.exp(utilities).astype(np.float32).astype(float)), name=factor.name)


def theirs(path: Path, normalise: bool = False) -> Network:
    """Read a network with pyAgrum; its messages are not printed.

    Parameters
    ----------
    path
        The file; its suffix gives the format.
    normalise
        Whether to normalise every distribution, as dmcmc does for .net.

    Raises
    ------
    Exception
        If pyAgrum does not read the file.
    """
    import pyagrum

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        network = pyagrum.loadBN(str(path))
    nodes = sorted(network.nodes())
    for node in nodes:
        if path.suffix == ".uai":
            _reverse_parents(network, node)
        if normalise:
            network.cpt(node).fillWith(_normalised(network.cpt(node).toarray()).ravel().tolist())
    inference = pyagrum.LazyPropagation(network)
    inference.makeInference()
    marginals = [np.array(inference.posterior(node).tolist()) for node in nodes]
    feasible = all(np.isfinite(m).all() and m.sum() > 0 for m in marginals)
    labels = [list(network.variable(node).labels()) for node in nodes]
    return Network([network.variable(node).name() for node in nodes], labels, marginals if feasible else [])


def _reverse_parents(network: "pyagrum.BayesNet", node: int) -> None:
    """Reorder the numbers of a table from the first parent fastest to the first parent slowest."""
    table = network.cpt(node)
    child, *parents = (network.variable(name).domainSize() for name in table.names)
    numbers = table.toarray().reshape(*parents, child)
    table.fillWith(numbers.transpose(*reversed(range(len(parents))), len(parents)).ravel().tolist())


def _normalised(table: np.ndarray) -> np.ndarray:
    """Return a table with its distributions, along the last axis, normalised; those of zeros stay as they are."""
    sums = table.sum(axis=-1, keepdims=True)
    normalised: np.ndarray = np.divide(table, sums, out=table.copy(), where=sums > 0)
    return normalised
