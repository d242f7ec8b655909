"""The benchmark set: problems fixed by generator, parameters, seed and hash, with what is known of their optima.

The set is the file ``benchmark.csv`` in this folder, one problem a line. ``best`` is the best known objective and
``bound`` a proven bound, both in the problem's own sense; the best value is optimal if they are equal. ``random`` is
the mean objective of random assignments that break no hard constraint of any single factor, which scales qualities.
"""

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import product
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal

import msgspec

from dmcmc.algorithms import registry as algorithms
from dmcmc.algorithms.contract import checked
from dmcmc.config.configuration import config_of
from dmcmc.experiments.journal import Record
from dmcmc.experiments.peers import PEERS
from dmcmc.experiments.plan import PLAN, Experiment, PlannedRun, RunLimits, read_plan, with_keys
from dmcmc.files.document import Document, suggestion, value_of
from dmcmc.files.write import replace_file
from dmcmc.generators import registry as generators
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.results.version import __version__

SET = Path(__file__).with_name("benchmark.csv")
SIZES = ("small", "medium", "large", "huge")  # about 15, 50, 200 and 1,000 variables
SECONDS = 12.0  # time limit of a run: 120 problems take at most 24 minutes of one process
_LONGEST_SECONDS = 3600.0  # until the process of a run is ended that does not obey its time limit
_ROUNDING = 1e-6  # of bounds that are floats
_HASH_DIGITS = 16  # hexadecimal


class BenchmarkProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the set.

    Attributes
    ----------
    name, size, generator, parameters : str
        Name of the problem, one of :data:`SIZES`, name of the generator, and parameters as ``key=value``, with spaces
        between them.
    seed : int
        Seed of the generator.
    hash : str
        :func:`problem_hash` of the problem; empty if it is not known yet.
    sense : str
        ``max`` or ``min``.
    variables : int
        Number of variables.
    random : float
        Mean objective of random assignments.
    best, bound : int, float or None
        Best known objective, and best proven bound; None if unknown.
    date, version : str
        When these two were improved last, and by which version of dmcmc.
    """

    name: str
    size: Literal["small", "medium", "large", "huge"]
    generator: str
    parameters: str
    seed: int
    hash: str = ""
    sense: Literal["", "max", "min"] = ""
    variables: int = 0
    random: float = 0.0
    best: Number | None = None
    bound: Number | None = None
    date: str = ""
    version: str = ""

    @property
    def proven(self) -> bool:
        """Whether the best known objective is proven optimal."""
        return self.best is not None and self.best == self.bound

    def section(self) -> dict[str, Any]:
        """Return the section ``problem`` of a configuration."""
        pairs = (text.partition("=") for text in self.parameters.split())
        return {"generator": self.generator, **{k: value_of(v, self.name) for k, _, v in pairs}, "seed": self.seed}

    def generate(self) -> Problem:
        """Return the problem.

        Raises
        ------
        ConfigError
            If it has another hash than the set says.
        """
        section = self.section()
        problem = generators.generate(section.pop("generator"), section)
        if self.hash and problem_hash(problem) != self.hash:
            raise ConfigError(f"{self.name}: the generator makes another problem than that of the set (hash differs)")
        return problem

    def quality(self, objective: Number | None) -> float:
        """Return 1 for an objective equal to the bound, 0 for that of random assignments, a worse one, or None."""
        known = self.best if self.bound is None else self.bound
        if objective is None or known is None:
            return 0.0
        scale = abs(known - self.random) or 1.0
        return max(0.0, 1.0 - abs(known - objective) / scale) if objective != known else 1.0


def problem_hash(problem: Problem) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256 hash of sense, domains, owners, scopes and tables."""
    digest = hashlib.sha256(problem.sense.encode())
    for numbers in (problem.domains, problem.owner):
        digest.update(numbers.astype("<i8").tobytes())
    for factor in problem.factors:
        table = factor.table
        digest.update(f"{factor.scope}{table.dtype.name}".encode())
        digest.update(table.astype(table.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:_HASH_DIGITS]


def _random_objective(problem: Problem) -> float:
    """Return the sum of the mean allowed entry of each factor, in the problem's own sense."""
    allowed = (factor.table[~forbidden(factor.table)] for factor in problem.factors)
    return round(float(problem.to_own_sense(sum(float(entries.mean()) for entries in allowed if entries.size))), 3)


def read_set(path: Path = SET) -> list[BenchmarkProblem]:
    """Read the problems of a set.

    Raises
    ------
    FileError
        If the file cannot be read or a line is damaged; names the line.
    """
    problems = list[BenchmarkProblem]()
    try:
        for line in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
            given = {key: value for key, value in line.items() if value and key != "proven"}
            problems.append(msgspec.convert(given, BenchmarkProblem, strict=False))
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or f"line {len(problems) + 2}: is no benchmark problem: {error}"
        raise FileError(f"{path}: {reason}") from None
    return problems


def write_set(problems: Iterable[BenchmarkProblem], path: Path = SET) -> None:
    """Write the problems of a set."""
    stream = io.StringIO()
    names = [*BenchmarkProblem.__struct_fields__[:-2], "proven", "date", "version"]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for problem in problems:
        writer.writerow(msgspec.structs.asdict(problem) | {"proven": "yes" if problem.proven else "no"})
    replace_file(path, [stream.getvalue()])


def method_of(
    name: str,
    settings: Sequence[str] = (),
    *,
    solver: bool = False,
    seconds: float = SECONDS,
    cycles: int | None = None,
) -> dict[str, Any]:
    """Return the keys of a method, as an experiment file has them.

    Parameters
    ----------
    name
        Name of an algorithm (``dmcmc``, too) or of another solver.
    settings
        Further settings as ``key=value``, such as ``algorithm.parameters.variant=B``.
    solver
        Whether it is another solver.
    seconds
        Time limit of a run.
    cycles
        Number of cycles; None for the algorithm's default.

    Raises
    ------
    ConfigError
        If the name, a parameter or a setting is wrong.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"--timeout: expected a number > 0, got {seconds!r}")
    if solver:
        if name not in PEERS:
            raise ConfigError(f"--solver: unknown solver '{name}'; {suggestion(name, PEERS, 'solvers')}")
        if settings or cycles:
            raise ConfigError("--solver: takes neither --set nor --cycles")
        return {"peer": name, "seconds": seconds}
    keys: dict[str, Any] = {"algorithm.name": name, "budget.time": seconds, "device": "cpu"}
    algorithm = None if name == algorithms.OWN else algorithms.get(name)
    if cycles and not hasattr(algorithm, "cycles"):
        raise ConfigError(f"--cycles: {name} has none; use --timeout")
    if count := cycles or getattr(algorithm, "cycles", 0):
        keys["algorithm.cycles"] = count
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: expected KEY=VALUE, such as algorithm.parameters.variant=B")
        keys[key] = value_of(value, f"--set {key}")
    given = config_of(Document("", with_keys({"problem": {"generator": "grid"}}, keys, "--set")))
    if algorithm is not None:
        checked(algorithm, given.algorithm_settings.parameters, "algorithm.parameters")
    return keys


def planned(
    problems: Sequence[BenchmarkProblem], methods: dict[str, dict[str, Any]], folder: Path, seeds: int = 1
) -> tuple[Experiment, list[PlannedRun]]:
    """Return an experiment and its runs by seed, problem and method; it continues the one in a folder, if there is one.

    Parameters
    ----------
    problems
        The problems.
    methods
        Keys of :func:`method_of` by name of the method.
    folder
        The folder of the results; it may have results of other methods and of other problems of the set.
    seeds
        Number of runs per problem and method.

    Raises
    ------
    ConfigError
        If a problem has another hash than the set says.
    """
    try:
        earlier = read_plan(folder / PLAN).experiment.get("methods") or {}
    except FileNotFoundError:
        earlier = {}
    for problem in problems:
        problem.generate()
    limits, runs = RunLimits(time=_LONGEST_SECONDS), []  # the methods' own limits end a run before
    for seed, problem, (method, given) in product(range(seeds), problems, methods.items()):
        keys = {key: value for key, value in given.items() if key not in ("peer", "seconds")}
        data = with_keys({"problem": problem.section()}, keys | {"seed": seed}, "--set")
        case = {"problem": problem.name}
        runs.append(PlannedRun(case, method, seed, data, given.get("peer"), given.get("seconds")))
    return Experiment(title="Benchmark", base={}, methods=earlier | methods, limits=limits), runs


def updated(problems: Sequence[BenchmarkProblem], records: Iterable[Record]) -> list[BenchmarkProblem]:
    """Return the problems with better objectives and bounds of some runs, and with what a new problem lacks.

    Raises
    ------
    DmcmcError
        If a run contradicts a proven bound, or says that there is no solution where one is known.
    """
    rows = {problem.name: problem if problem.hash else _described(problem) for problem in problems}
    for record in records:
        row = rows.get(record["case"].get("problem", ""))
        if row is not None and record["outcome"] == "done":
            rows[row.name] = _improved(row, record)
    return list(rows.values())


def _described(row: BenchmarkProblem) -> BenchmarkProblem:
    """Return a new problem of a set with its hash, sense, size and random objective."""
    problem = row.generate()
    facts = {"hash": problem_hash(problem), "sense": problem.sense, "variables": problem.n_variables}
    return msgspec.structs.replace(row, **facts, random=_random_objective(problem))


def _improved(row: BenchmarkProblem, record: Record) -> BenchmarkProblem:
    """Return a problem with the objective and the bound of a run where they are better."""
    sign, where = (1 if row.sense == "max" else -1), f"{row.name}: {record['method']}, seed {record['seed']}"
    best, bound = record["objective"], record["bound"]
    if isinstance(bound, float):  # all problems of the set have whole utilities
        bound = floor(bound + _ROUNDING) if sign > 0 else ceil(bound - _ROUNDING)
    if record["status"] == "infeasible" and row.best is not None:
        raise DmcmcError(f"{where}: says that there is no solution, but one of objective {row.best} is known")
    if best is None or (row.best is not None and sign * best <= sign * row.best):
        best = row.best
    if bound is None or (row.bound is not None and sign * bound >= sign * row.bound):
        bound = row.bound
    if best is not None and bound is not None and sign * best > sign * bound:
        raise DmcmcError(f"{where}: an objective of {best} contradicts a proven bound of {bound}")
    if (best, bound) == (row.best, row.bound):
        return row
    today = datetime.now(UTC).date().isoformat()
    return msgspec.structs.replace(row, best=best, bound=bound, date=today, version=__version__)


def selected(
    problems: Sequence[BenchmarkProblem], sizes: Sequence[str], names: Sequence[str]
) -> list[BenchmarkProblem]:
    """Return the problems of some sizes and with some words in their names; all if neither is given.

    Raises
    ------
    ConfigError
        If a size is unknown, or no problem is left.
    """
    for size in sizes:
        if size not in SIZES:
            raise ConfigError(f"--size: unknown size '{size}'; {suggestion(size, SIZES, 'sizes')}")
    chosen = [p for p in problems if p.size in (sizes or SIZES) and (not names or any(n in p.name for n in names))]
    if not chosen:
        raise ConfigError("--problem: no problem of the set has such a name")
    return chosen


def label_of(name: str, settings: Sequence[str]) -> str:
    """Return the name of a method in results: that of the algorithm, with its settings.

    >>> label_of("dsa", ["algorithm.parameters.variant=B"])
    'dsa (variant=B)'
    """
    pairs = (text.partition("=") for text in settings)
    changed = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
    return f"{name} ({changed})" if changed else name
