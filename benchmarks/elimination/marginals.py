"""Compute marginals of belief networks, and compare them and their times with pyAgrum's, on one thread each.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.marginals [--only TEXT] [--memory 12GiB] [--output FILE]

FOLDER holds instances/. ``plan`` is the time of the preparation, needed once; ``all`` computes all messages and tables
(pyAgrum's includes its planning); ``evidence`` computes them again with other observations of five variables. pyAgrum
(which only this script needs) uses LazyPropagation for Bayesian networks and ShaferShenoyMRFInference for .uai files.
Its networks get our numbers, because it reads .bif files in single precision. Conditional tables are normalised,
because pyAgrum leaves out tables that have no effect if their rows add up to one. Seconds are the least of three;
``ratio`` is ours over pyAgrum's. Observations next to .uai files are ignored. If the largest clique of pyAgrum's own
junction tree, in double precision, exceeds the memory, or pyAgrum runs out of memory, this is printed instead.
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
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem

TABLE = Columns(
    ("file", "<22"), ("variables", ">9"), ("cells", ">12,"), ("plan s", ">8.3f"), ("all s", ">8.3f"),
    ("pyAgrum", ">8.3f"), ("ratio", ">6.2f"), ("evidence s", ">10.3f"), ("pyAgrum", ">8.3f"), ("ratio", ">6.2f"),
    ("largest difference", ">18.1e"),
)  # fmt: skip
_OBSERVED = 5  # variables
_REPEATS = 3
_MAX_CELLS = 5e8  # networks with more cells are skipped
_FOLDERS = ("bayesnet", "uai14_PR", "uai14_MAP")


def observations(problem: Problem, tree: dmcmc.JunctionTree) -> list[dict[str, Label]]:
    """Return two sets of possible observations: each one is drawn given those before."""
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


class AgrumInference:
    """pyAgrum's inference of a network.

    Attributes
    ----------
    bayes : bool
        Whether the network is Bayesian, not a Markov random field.
    network, inference : object
        pyAgrum's objects.
    """

    def __init__(self, library: Any, file: Path, problem: Problem) -> None:
        library.setNumberOfThreads(1)
        self.bayes = file.suffix == ".bif"
        self.network = library.loadBN(str(file)) if self.bayes else self._random_field(library, problem)
        if self.bayes:
            self._copy_tables(problem)
        self.inference = (library.LazyPropagation if self.bayes else library.ShaferShenoyMRFInference)(self.network)

    @staticmethod
    def _random_field(library: Any, problem: Problem) -> Any:
        """Return a problem as a Markov random field; factors of the same scope are multiplied."""
        field = library.MarkovRandomField()
        for name, size in zip(problem.variables, problem.domains.tolist(), strict=True):
            field.add(library.LabelizedVariable(name, name, size))
        products: dict[tuple[int, ...], Any] = {}
        for factor in problem.factors:
            scope = tuple(sorted(factor.scope))
            values = np.exp(factor.table.transpose([factor.scope.index(v) for v in scope]))
            products[scope] = products.get(scope, 1.0) * values
        for scope, values in products.items():
            if scope:
                table = field.addFactor([problem.variables[v] for v in scope])
                axes = [scope.index(problem.variables.index(name)) for name in reversed(table.names)]
                table.fillWith(values.transpose(axes).ravel().tolist())
        return field

    def _copy_tables(self, problem: Problem) -> None:
        """Write the problem's tables into the network's."""
        for factor in problem.factors:
            names = [problem.variables[v] for v in factor.scope]
            table = self.network.cpt(names[-1])
            order = list(reversed(table.names))  # the last varies fastest
            values = np.exp(factor.table).transpose([names.index(name) for name in order])
            for axis, name in enumerate(order):
                labels = problem.labels[factor.scope[names.index(name)]] or ()
                theirs = self.network.variable(name).labels()
                values = np.take(values, [labels.index(label) for label in theirs], axis)
            table.fillWith(values.ravel().tolist())

    def largest(self, library: Any) -> int:
        """Return the number of entries of the largest clique that pyAgrum makes."""
        sizes = {node: self.network.variable(node).domainSize() for node in self.network.nodes()}
        tree = library.JunctionTreeGenerator().junctionTree(self.network)
        return max(int(math.prod(sizes[node] for node in tree.clique(clique))) for clique in tree.nodes())

    def query(self, evidence: Mapping[str, Label]) -> float:
        """Compute all posteriors; return the seconds."""
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
    """Return a conditional table of its last variable, with rows that add up to one."""
    with np.errstate(divide="ignore"):
        rows = np.exp(factor.table)
        return Factor.of(factor.scope, np.log(rows / rows.sum(axis=-1, keepdims=True)))


def measure_agrum(
    library: Any, file: Path, problem: Problem, seen: list[dict[str, Label]]
) -> tuple[AgrumInference, float, float]:
    """Return pyAgrum's inference, its seconds for everything, and its seconds with other observations."""
    peer = AgrumInference(library, file, problem)
    theirs, changed = min(AgrumInference(library, file, problem).query({}) for _ in range(_REPEATS)), math.inf
    for _ in range(_REPEATS):
        peer.query(seen[0])
        changed = min(changed, peer.query(seen[1]))
    return peer, theirs, changed


def measure(report: Report, library: Any, file: Path, memory: float) -> None:
    """Measure one network."""
    problem = dmcmc.load(file)
    if file.suffix == ".bif":
        problem = replace(problem, factors=tuple(map(normalised, problem.factors)))
    (tree, plan) = timed(lambda: dmcmc.JunctionTree(problem), 1, 0)
    if tree.cells > _MAX_CELLS:
        report(f"{file.name:<22} skipped: {tree.cells:,} cells")
        return
    first, second = observations(problem, tree)

    def update(seen: Mapping[str, Label], before: Mapping[str, Label]) -> float:
        tree.set_evidence(before)
        tree.propagate()
        start = time.perf_counter()
        tree.set_evidence(seen)
        tree.propagate()
        return time.perf_counter() - start

    def propagate_all() -> float:
        fresh = dmcmc.JunctionTree(problem)
        start = time.perf_counter()
        fresh.propagate()
        return time.perf_counter() - start

    all_seconds = min(propagate_all() for _ in range(_REPEATS))
    evidence_seconds = min(update(second, first) for _ in range(_REPEATS))
    tree.set_evidence(second)
    row: list[Any] = [file.name, problem.n_variables, tree.cells, plan.least, all_seconds, None, None, evidence_seconds]
    if library is None:
        report(TABLE.line(*row))
        return
    largest = AgrumInference(library, file, problem).largest(library)
    try:
        if 8 * largest > memory:
            raise MemoryError
        peer, agrum_seconds, agrum_evidence_seconds = measure_agrum(library, file, problem, [first, second])
    except Exception as error:
        if not isinstance(error, MemoryError) and "bad_alloc" not in str(error):
            raise
        report(f"{TABLE.line(*row).rstrip()}  pyAgrum: too large (a clique of {largest:,} entries)")
        return
    row[5:] = [
        agrum_seconds,
        all_seconds / agrum_seconds,
        evidence_seconds,
        agrum_evidence_seconds,
        evidence_seconds / agrum_evidence_seconds,
        peer.difference(tree.marginals()),
    ]
    report(TABLE.line(*row))


def main() -> None:
    """Print and write the table."""
    given = options(__file__, __doc__, memory="12GiB", only=True).parse_args()
    try:
        library = importlib.import_module("pyagrum")
    except ImportError:
        library = None
    report = Report(__file__, given, pyAgrum=getattr(library, "__version__", "not installed"))
    report(TABLE.head)
    with one_core():
        for folder in _FOLDERS:
            for file in sorted((instances("instances") / folder).iterdir()):
                if file.name.endswith((".bif.gz", ".uai")) and given.only in file.name:
                    with tempfile.TemporaryDirectory() as temporary:  # a folder without observation files
                        copy = Path(temporary, file.name.removesuffix(".gz"))
                        content = file.read_bytes()
                        copy.write_bytes(gzip.decompress(content) if file.suffix == ".gz" else content)
                        measure(report, library, copy, given.memory)
    report.keep()


if __name__ == "__main__":
    main()
