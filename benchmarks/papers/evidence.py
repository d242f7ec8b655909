"""Read what the papers published and what was measured here, for the table of claims.

``configs/papers/published.csv`` has one row per published number: the number as printed, and its value where the paper
has a misprint, with the reason. ``benchmarks/results/papers/`` has one folder per experiment with one line of JSON per
run, and ``benchmarks/results/one_core.txt`` what one core takes for some of them. Times are medians over the runs that
finished, in seconds; objectives are means.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks.harness import RESULTS, ROOT
from dmcmc.report.experiment.charts import case_name

PUBLISHED = ROOT / "configs" / "papers" / "published.csv"
RUNS = RESULTS / "papers"
ONE_CORE = RESULTS / "one_core.txt"  # the output of benchmarks.papers.one_core


class PublishedNumber(NamedTuple):
    """A number of a paper.

    Attributes
    ----------
    paper, table : str
        Where it stands.
    experiment : str
        Name of the configuration that repeats it; empty if none does.
    case, method, quantity : str
        The case as :func:`dmcmc.report.experiment.charts.case_name` names it, the method, and what is measured:
        ``time`` (seconds), ``time_ms``, ``simulated_time``, ``objective``, ``bound``, ``speedup``, or a size.
    printed, value : str
        The number as printed, and the number that is meant. They differ only where the paper has a misprint.
    note : str
        Why they differ.
    """

    paper: str
    table: str
    experiment: str
    case: str
    method: str
    quantity: str
    printed: str
    value: str
    note: str


@dataclass(frozen=True)
class Evidence:
    """All published numbers and all runs.

    Attributes
    ----------
    folder : Path
        Folder with one folder per experiment.
    published_file : Path
        The transcription of the papers' numbers.
    """

    folder: Path = RUNS
    published_file: Path = PUBLISHED

    @cached_property
    def numbers(self) -> list[PublishedNumber]:
        """All published numbers, in the order of the file."""
        with self.published_file.open(encoding="utf-8", newline="") as file:
            return [PublishedNumber(**row) for row in csv.DictReader(file)]

    @cached_property
    def _values(self) -> dict[tuple[str, ...], str]:
        return {(n.paper, n.table.split(",")[0], n.case, n.method, n.quantity): n.value for n in self.numbers}

    def published(self, table: tuple[str, str], case: str, method: str, quantity: str = "time") -> float | None:
        """Return a published number, or None if the paper has none (out of time or memory).

        Parameters
        ----------
        table : (str, str)
            Paper and table, such as ``("GpuBE", "Table 1")``.
        case, method, quantity : str
            See :class:`PublishedNumber`.
        """
        value = self._values.get((*table, case, method, quantity), "")
        return float(value) if value.replace(".", "", 1).isdigit() else None

    @cached_property
    def _records(self) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
        records: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        for file in sorted(self.folder.glob("*/runs.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                key = (file.parent.name, case_name(record["case"]), record["method"])
                records.setdefault(key, []).append(record)
        return records

    def cases(self, experiment: str) -> list[str]:
        """Return the names of the cases of an experiment, in the order of the runs."""
        return list(dict.fromkeys(case for name, case, _ in self._records if name == experiment))

    def records(self, experiment: str) -> list[Mapping[str, Any]]:
        """Return the records of all runs of an experiment."""
        return [record for (name, _, _), found in self._records.items() if name == experiment for record in found]

    def runs(self, experiment: str, case: str, method: str) -> list[Mapping[str, Any]]:
        """Return the records of all runs of one case and method, also of failed ones."""
        return self._records.get((experiment, case, method), [])

    def done(self, experiment: str, case: str, method: str) -> list[Mapping[str, Any]]:
        """Return the records of the runs that finished."""
        return [run for run in self.runs(experiment, case, method) if run["outcome"] == "done"]

    def infeasible(self, experiment: str, part_of_case: str = "") -> str:
        """Return how many finished runs prove that their problem has no solution, as "number of all".

        Parameters
        ----------
        experiment : str
            The experiment.
        part_of_case : str
            Only cases whose name contains this text count.
        """
        done = [
            run
            for run in self.records(experiment)
            if run["outcome"] == "done" and part_of_case in case_name(run["case"])
        ]
        return f"{sum(run['status'] == 'infeasible' for run in done)} of {len(done)}"

    def proven(self, experiment: str, method: str) -> int:
        """Return the number of runs of a method that proved their answer optimal."""
        return sum(run["method"] == method and run.get("status") == "optimal" for run in self.records(experiment))

    def proven_by_method(self, experiment: str) -> str:
        """Return for each method of an experiment how many of its runs proved their answer optimal."""
        runs = Counter(run["method"] for run in self.records(experiment))
        counts = [f"{method} {self.proven(experiment, method)} of {number}" for method, number in runs.items()]
        return "proven by " + ", ".join(counts)

    def time(
        self, experiment: str, case: str, method: str, quantity: str = "time", seeds: Collection[int] | None = None
    ) -> float | None:
        """Return the median of a quantity over the finished runs; None if none has it.

        Parameters
        ----------
        experiment, case, method : str
            The runs.
        quantity : str
            A field of the records, ``tables`` (the table work alone: the simulated time, or marginals without
            planning) or ``whole`` (the whole command, with planning).
        seeds : collection of int, optional
            Only runs of these seeds count.
        """
        runs = [run for run in self.done(experiment, case, method) if seeds is None or run["seed"] in seeds]
        values = [value for run in runs if (value := _quantity(run, quantity)) is not None]
        return median(values) if values else None

    def ended(self, experiments: Collection[str], case: str, method: str) -> bool:
        """Return whether a run ended without an answer in one of some experiments."""
        return any(run["outcome"] != "done" for name in experiments for run in self.runs(name, case, method))

    @cached_property
    def _one_core(self) -> dict[tuple[str, str, str], dict[int, dict[str, float]]]:
        found: dict[tuple[str, str, str], dict[int, dict[str, float]]] = {}
        pattern = r"^(\S+) +(\S+ CPU) +(\d+) +([\d.]+) +([\d.]+) (.+)$"
        for name, method, seed, whole, tables, case in re.findall(pattern, ONE_CORE.read_text("utf-8"), re.MULTILINE):
            seconds_of = {"whole": float(whole), "tables": float(tables)}
            found.setdefault((name, case, method), {})[int(seed)] = seconds_of
        return found

    def one_core(self, experiment: str, case: str, method: str, quantity: str) -> dict[int, float]:
        """Return the processor seconds of one core by seed; ``quantity`` is ``tables`` or ``whole``."""
        known = self._one_core.get((experiment.removesuffix("-again"), case, method), {})
        return {seed: times[quantity] for seed, times in known.items()}

    def objective(self, experiment: str, case: str, method: str) -> float | None:
        """Return the mean objective of the finished runs; None if none has one."""
        values = [run["objective"] for run in self.done(experiment, case, method) if run["objective"] is not None]
        return fmean(values) if values else None

    def time_ratios(self, experiment: str, slower: str, faster: str, quantity: str = "time") -> dict[str, float]:
        """Return the time of one method divided by that of another, for each case in which both finished."""
        return dict(
            self._ratios(experiment, slower, faster, lambda name, case, method: self.time(name, case, method, quantity))
        )

    def quality_ratios(self, experiment: str, method: str, reference: str) -> dict[str, float]:
        """Return the mean objective of one method divided by that of another, for each case in which both have one."""
        return dict(self._ratios(experiment, method, reference, self.objective))

    def _ratios(
        self, experiment: str, first: str, second: str, value_of: Callable[[str, str, str], float | None]
    ) -> Iterator[tuple[str, float]]:
        for case in self.cases(experiment):
            a, b = value_of(experiment, case, first), value_of(experiment, case, second)
            if a is not None and b:
                yield case, a / b

    def speedups_of_paper(
        self, table: tuple[str, str], experiment: str, method: str, quantity: str = "time"
    ) -> dict[str, float]:
        """Return the published time divided by the one measured here, for each case that has both."""
        return self.speedups_between(table, method, experiment, method, quantity)

    def speedups_between(
        self, table: tuple[str, str], theirs: str, experiment: str, ours: str, quantity: str = "time"
    ) -> dict[str, float]:
        """Return the published time of one method divided by the time of another here, for each case that has both."""
        ratios = {}
        for case in self.cases(experiment):
            published, here = self.published(table, case, theirs, quantity), self.time(experiment, case, ours, quantity)
            if published is not None and here:
                ratios[case] = published / here
        return ratios


def _quantity(run: Mapping[str, Any], quantity: str) -> float | None:
    """Return a quantity of a run as :meth:`Evidence.time` names it; None if the run has none."""
    if quantity == "tables":
        value = run.get("simulated_time", run.get("time"))
    elif quantity == "whole":
        value = run["time"] + run.get("planning", 0.0) if run.keys() & {"simulated_time", "planning"} else None
    else:
        value = run.get(quantity)
    return None if value is None else float(value)


def seconds(value: float | None) -> str:
    """Return a time as text with three significant digits, in ms below a second; a dash if there is none."""
    if value is None:
        return "–"
    return f"{_significant(1000 * value)} ms" if value < 0.9995 else f"{_significant(value)} s"


def _significant(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits, without an exponent.

    >>> _significant(1234.5), _significant(5.407), _significant(0.0123)
    ('1,234', '5.41', '0.0123')
    """
    if value >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.6f}"


def span(ratios: Mapping[Any, float], digits: int = 2) -> str:
    """Return the least and the largest of some ratios as text, or their only value."""
    least, most = (_significant(of(ratios.values()), digits) for of in (min, max))
    return least if least == most else f"{least} to {most}"


def count(ratios: Mapping[str, float], threshold: float = 1.0) -> int:
    """Return how many ratios are above a threshold."""
    return sum(ratio > threshold for ratio in ratios.values())
