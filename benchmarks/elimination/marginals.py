"""Marginals of belief networks: differences from pyAgrum's, and times beside its, one thread each.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.marginals [--only TEXT] [--memory 12GiB] [--output FILE]

FOLDER holds instances/. ``plan`` is what is needed once; ``all`` makes all messages and tables (pyAgrum's has its
planning in it); ``evidence`` does so again with other observations of five variables. pyAgrum (a dependency of this
script alone) takes LazyPropagation for Bayesian networks and ShaferShenoyMRFInference for .uai files. Its networks get
our numbers, since it reads .bif in single precision, and conditional tables whose rows do not add up to one are
normalised, since it leaves out what would have no effect if they did. Seconds are the least of three; ``ratio`` is ours
over pyAgrum's. Observations beside .uai files are left out. Where the largest clique of pyAgrum's own junction tree, in
double precision, is larger than the memory, or pyAgrum runs out of it, that is said in place of its times.
"""

import gzip
import importlib
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, one_core, options, timed
from dmcmc.inference.model.problem import Factor, Label, Problem

TABLE = Columns(
    ("file", "<22"), ("variables", ">9"), ("cells", ">12,"), ("plan s", ">8.3f"), ("all s", ">8.3f"),
    ("pyAgrum", ">8.3f"), ("ratio", ">6.2f"), ("evidence s", ">10.3f"), ("pyAgrum", ">8.3f"), ("ratio", ">6.2f"),
    ("largest difference", ">18.1e"),
)  # fmt: skip
_OBSERVED, _REPEATS, _LARGEST = 5, 3, 5e8
_FOLDERS = ("bayesnet", "uai14_PR", "uai14_MAP")


def observations(problem: Problem, tree: dmcmc.JunctionTree) -> list[dict[str, Label]]:
    """Return two sets of observations that are possible: each is drawn given those before."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(2):
        seen: dict[str, Label] = {}
        for v in rng.permutation(problem.n_variables)[:_OBSERVED].tolist():
            name = problem.variables[v]
            tree.set_evidence(seen)
            row = tree.marginal(name)
            seen[name] = max(row, key=lambda label: row[label] or 0.0)
        found.append(seen)
    return found


class Peer:
    """pyAgrum's inference of a network."""

    def __init__(self, library: Any, file: Path, problem: Problem) -> None:
        library.setNumberOfThreads(1)
        self.bayes = file.suffix == ".bif"
        self.network = library.loadBN(str(file)) if self.bayes else self._random_field(library, problem)
        if self.bayes:
            self._take_numbers(problem)
        self.inference = (library.LazyPropagation if self.bayes else library.ShaferShenoyMRFInference)(self.network)

    @staticmethod
    def _random_field(library: Any, problem: Problem) -> Any:
        """Return a problem as a Markov random field; factors of one scope are one."""
        field = library.MarkovRandomField()
        for name, size in zip(problem.variables, problem.domains.tolist(), strict=True):
            field.add(library.LabelizedVariable(name, name, size))
        together: dict[tuple[int, ...], Any] = {}
        for factor in problem.factors:
            scope = tuple(sorted(factor.scope))
            values = np.exp(factor.table.transpose([factor.scope.index(v) for v in scope]))
            together[scope] = together.get(scope, 1.0) * values
        for scope, values in together.items():
            if scope:
                table = field.addFactor([problem.variables[v] for v in scope])
                into = [scope.index(problem.variables.index(name)) for name in reversed(table.names)]
                table.fillWith(values.transpose(into).ravel().tolist())
        return field

    def _take_numbers(self, problem: Problem) -> None:
        """Write the problem's tables into the network's."""
        for factor in problem.factors:
            names = [problem.variables[v] for v in factor.scope]
            table = self.network.cpt(names[-1])
            into = list(reversed(table.names))  # the last varies fastest
            values = np.exp(factor.table).transpose([names.index(name) for name in into])
            for axis, name in enumerate(into):
                labels = problem.labels[factor.scope[names.index(name)]] or ()
                theirs = self.network.variable(name).labels()
                values = np.take(values, [labels.index(label) for label in theirs], axis)
            table.fillWith(values.ravel().tolist())

    def largest(self, library: Any) -> int:
        """Return the entries of the largest clique that pyAgrum makes."""
        sizes = {node: self.network.variable(node).domainSize() for node in self.network.nodes()}
        tree = library.JunctionTreeGenerator().junctionTree(self.network)
        return max(int(math.prod(sizes[node] for node in tree.clique(clique))) for clique in tree.nodes())

    def ask(self, evidence: Mapping[str, Label]) -> float:
        """Make all posteriors; return the seconds."""
        self.inference.eraseAllEvidence()
        self.inference.setEvidence(dict(evidence))
        start = time.perf_counter()
        self.inference.makeInference()
        for node in self.network.nodes():
            self.inference.posterior(node)
        return time.perf_counter() - start

    def difference(self, ours: Mapping[str, Mapping[Label, Any]]) -> float:
        """Return the largest difference of a probability."""
        worst = 0.0
        for variable, row in ours.items():
            theirs = self.inference.posterior(variable)
            labels = theirs.variable(0).labels()
            for i, value in enumerate(row.values()):
                place = labels.index(str(list(row)[i])) if self.bayes else i
                worst = max(worst, abs(float(theirs[place]) - value))
        return worst


def normalised(factor: Factor) -> Factor:
    """Return a conditional table, its last variable's, whose rows add up to one."""
    with np.errstate(divide="ignore"):
        rows = np.exp(factor.table)
        return Factor.of(factor.scope, np.log(rows / rows.sum(axis=-1, keepdims=True)))


def beside(library: Any, file: Path, problem: Problem, seen: list[dict[str, Label]]) -> tuple[Peer, float, float]:
    """Return pyAgrum's inference, and its seconds for everything, and with other observations."""
    peer = Peer(library, file, problem)
    theirs, changed = min(Peer(library, file, problem).ask({}) for _ in range(_REPEATS)), math.inf
    for _ in range(_REPEATS):
        peer.ask(seen[0])
        changed = min(changed, peer.ask(seen[1]))
    return peer, theirs, changed


def measure(report: Report, library: Any, file: Path, memory: float) -> None:
    """Measure one network."""
    problem = dmcmc.load(file)
    if file.suffix == ".bif":
        problem = replace(problem, factors=tuple(map(normalised, problem.factors)))
    (tree, plan) = timed(lambda: dmcmc.JunctionTree(problem), 1, 0)
    if tree.cells > _LARGEST:
        report(f"{file.name:<22} left out: {tree.cells:,} cells")
        return
    first, second = observations(problem, tree)

    def anew(seen: Mapping[str, Label], before: Mapping[str, Label]) -> float:
        tree.set_evidence(before)
        tree.propagate()
        start = time.perf_counter()
        tree.set_evidence(seen)
        tree.propagate()
        return time.perf_counter() - start

    def whole() -> float:
        fresh = dmcmc.JunctionTree(problem)
        start = time.perf_counter()
        fresh.propagate()
        return time.perf_counter() - start

    own, again = min(whole() for _ in range(_REPEATS)), min(anew(second, first) for _ in range(_REPEATS))
    tree.set_evidence(second)
    row: list[Any] = [file.name, problem.n_variables, tree.cells, plan.least, own, None, None, again]
    if library is None:
        report(TABLE.line(*row))
        return
    largest = Peer(library, file, problem).largest(library)
    try:
        if 8 * largest > memory:
            raise MemoryError
        peer, theirs, changed = beside(library, file, problem, [first, second])
    except Exception as error:
        if not isinstance(error, MemoryError) and "bad_alloc" not in str(error):
            raise
        report(f"{TABLE.line(*row).rstrip()}  pyAgrum: too large, a clique of {largest:,} entries")
        return
    row[5:] = [theirs, own / theirs, again, changed, again / changed, peer.difference(tree.marginals())]
    report(TABLE.line(*row))


def main() -> None:
    given = options(__file__, __doc__, memory="12GiB", only=True).parse_args()
    try:
        library = importlib.import_module("pyagrum")
    except ImportError:
        library = None
    report = Report(__file__, given, pyAgrum=getattr(library, "__version__", "is not installed"))
    report(TABLE.head)
    with one_core():
        for folder in _FOLDERS:
            for file in sorted((instances("instances") / folder).iterdir()):
                if file.name.endswith((".bif.gz", ".uai")) and given.only in file.name:
                    with tempfile.TemporaryDirectory() as place:  # where no observations lie beside it
                        plain = Path(place, file.name.removesuffix(".gz"))
                        whole = file.read_bytes()
                        plain.write_bytes(gzip.decompress(whole) if file.suffix == ".gz" else whole)
                        measure(report, library, plain, given.memory)
    report.keep()


if __name__ == "__main__":
    main()
