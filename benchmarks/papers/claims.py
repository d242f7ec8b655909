"""Write the tables of docs/papers.md: every claim of the papers, what was measured here, and the verdict.

    python -m benchmarks.papers.claims [--write]

The tables stand in docs/papers.md between comments that name them. The claims are in ``claims.yaml`` in this folder;
numbers and verdicts are computed from the raw runs in ``benchmarks/results/papers/`` and the published numbers in
``configs/papers/published.csv``. ``--write`` replaces the tables, otherwise they are printed.
``tests/experiments/test_papers.py`` checks that the page is up to date.
"""

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from benchmarks.harness import ROOT
from benchmarks.papers import measures as m
from benchmarks.papers.evidence import ONE_CORE, RUNS, Evidence, count, seconds, span

PAGE = ROOT / "docs" / "papers.md"
CLAIMS: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8")
)
_HEAD = ("where", "claim", "published", "here", "gain in table work: one core; all cores")
_SETTINGS = {
    "agents": r"\|A\| =",
    "variables_per_agent": r"\|X\| =",
    "domain_size": r"\|D\| =",
    "local_density": "p =",
    "default": "default",
}
_DCOP_PROBLEMS = {"random": "dcop-random", "scale-free": "dcop-scale-free", "colouring": "dcop-colouring"}
_MACHINE = ("date", "cores", "gpu")
_FUNCTIONS = {f.__name__: f for f in (abs, all, enumerate, float, int, len, list, max, min, set, sorted, sum)}


class Verdict(StrEnum):
    """How a claim stands after the experiments here."""

    HOLDS = "holds"
    SURPASSED = "surpassed"
    IN_PART = "holds in part"
    PAPER = "does not hold, for the paper's reason"
    OURS = "does not hold, for ours"
    NOT_REPEATED = "not repeated"
    NOT_COMPARABLE = "not comparable"


class Judged(NamedTuple):
    """A claim with what was measured and the verdict, as ``claims.yaml`` computes it from the evidence.

    Attributes
    ----------
    cells : list of str
        Place, claim, published number, what was measured here, gains in table work and in whole commands.
    verdict : Verdict
        How the claim stands.
    why, lever : str
        The reason, and what would change the verdict.
    """

    cells: list[str]
    verdict: Verdict
    why: str
    lever: str

    def row(self) -> list[str]:
        """Return the cells of the claim in the table."""
        text = "; ".join([*([self.why] if self.why else []), *([f"lever: {self.lever}"] if self.lever else [])])
        return [*self.cells, f"**{self.verdict}**" + (f": {text}" if text else "")]


def evaluate(expression: str, evidence: Evidence) -> Any:
    """Return the value of an expression of ``claims.yaml``.

    It may use the measures, the verdicts, the evidence ``e`` and some functions of Python, but nothing private: the
    file is data, and can import, read or call nothing else.

    Raises
    ------
    ValueError
        If it names something private, or formats a string by a method.
    """
    tree = ast.parse(expression, mode="eval")
    named = [part.attr for part in ast.walk(tree) if isinstance(part, ast.Attribute)]
    named += [part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and part.id != "_"]
    if refused := [name for name in named if name.startswith(("_", "format"))]:
        raise ValueError(f"claims.yaml: {refused[0]} is not allowed in {expression}")
    measures = {name: value for name, value in vars(m).items() if not isinstance(value, ModuleType)}
    names = measures | {verdict.name.lower(): verdict for verdict in Verdict}
    return eval(compile(tree, "claims.yaml", "eval"), names | {"e": evidence, "__builtins__": _FUNCTIONS})


def judge(claim: Mapping[str, Any], evidence: Evidence) -> Judged:
    """Compute what a claim's expressions say of the evidence."""
    published, here = (evaluate(f"rf'''{claim[part]}'''", evidence) for part in ("published", "here"))
    gains = claim.get("gains")
    columns = (
        m.gain_cells(evidence, gains["experiments"], gains["method"], gains.get("part", "")) if gains else ["–", "–"]
    )
    cells = [claim["where"], claim["claim"], published, " ".join(here.split()), *columns]
    return Judged(cells, evaluate(claim["verdict"], evidence), claim.get("why", ""), claim.get("lever", ""))


def judged(evidence: Evidence) -> dict[str, list[Judged]]:
    """Return all claims with their verdicts, by paper."""
    return {paper: [judge(claim, evidence) for claim in claims] for paper, claims in CLAIMS.items()}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the cells are Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def blocks(e: Evidence) -> dict[str, str]:
    """Return all tables of the page by name."""
    found = judged(e)
    head = [*_HEAD, "gain of the whole command: one core; all cores", "verdict"]
    return {
        "verdicts": verdicts(found),
        **{paper: table(head, [claim.row() for claim in claims]) for paper, claims in found.items()},
        "gains": gains(e),
        "frodo": frodo(e),
        "crossings": crossings(e),
        "misprints": misprints(e),
        "costs": costs(e),
        "sampling": sampling(e),
        "mini-buckets": mini_buckets(e),
        "instances": instances(e),
        "grids": grids(e),
        "marginals": marginals(e),
        "again": again(e),
        "machines": machines(),
    }


def verdicts(found: Mapping[str, Sequence[Judged]]) -> str:
    """Return the table of the numbers of claims by paper and verdict."""
    counts = {paper: Counter(claim.verdict for claim in claims) for paper, claims in found.items()}
    counts["all"] = sum(counts.values(), Counter())
    rows = [[paper, *(str(c[verdict]) for verdict in Verdict), str(c.total())] for paper, c in counts.items()]
    return table(["paper", *Verdict, "claims"], rows)


def gains(e: Evidence) -> str:
    """Return the table of the gains of a GPU in bucket elimination, for the cases that one core ran."""
    rows = []
    for name, number in m.BE_TABLES.items():
        for case in e.cases(name):
            key = f"{name} {case}"
            found = [of(e, [name], "BE", q) for q in ("tables", "whole") for of in (m.one_core_gain, m.gain)]
            published = e.published(("GpuBE", number), case, "BE", "speedup")
            if key in found[0]:
                shown = ["–" if published is None else f"{published:g}", *(f"{ratios[key]:.3g}" for ratios in found)]
                rows.append([number, case.replace("_", " "), *shown])
    parts = ("table work, one core", "table work, all cores", "whole command, one core", "whole command, all cores")
    return table(["GpuBE", "case", "published", *parts], rows)


def frodo(e: Evidence) -> str:
    """Return the table of utilities and times on the six files that FRODO2 solved with MGM and MGM2."""
    rows = []
    for case, setting in m.SETTINGS.items():
        theirs = [
            [e.published(("FRODO2", "meetings"), case, name, q) for q in ("objective", "time")]
            for name in ("MGM", "MGM2")
        ]
        ours = [
            [e.objective(m.FRODO, case, name), e.time(m.FRODO, case, name)]
            for name in ("MGM", "MGM2", "Gibbs CPU", "MH CPU", "exact agents")
        ]
        cells = ["–" if value is None else f"{value:,.0f} in {seconds(time)}" for value, time in (*theirs, *ours)]
        ratios = [
            f"{known[case]:.2g}" if case in (known := m.frodo(e, "Gibbs CPU", other, mine)) else "–"
            for mine in (False, True)
            for other in ("MGM", "MGM2")
        ]
        rows.append([_setting(setting), *cells, f"{', '.join(ratios[:2])}", f"{', '.join(ratios[2:])}"])
    ours_head = ("our MGM", "our MGM2", "Gibbs", "MH", "exact agents")
    against = ("time of FRODO2's MGM, MGM2 divided by Gibbs'", "of our MGM, MGM2 divided by Gibbs'")
    return table(["setting", "FRODO2's MGM", "FRODO2's MGM2", *ours_head, *against], rows)


def crossings(e: Evidence) -> str:
    """Return the table of median times of Table 1 of DMCMC, with the local searches that each sampler beats."""
    methods = ("MGM", "MGM2", "Gibbs GPU", "MH GPU")
    rows = []
    for case in e.cases(m.SAME_MACHINE):
        time = {name: e.time(m.SAME_MACHINE, case, name) or 0.0 for name in methods}
        beaten = [
            ", ".join(other for other in methods[:2] if time[sampler] < time[other]) or "none"
            for sampler in methods[2:]
        ]
        rows.append([_setting(case), *(seconds(time[name]) for name in methods), *beaten])
    return table(["setting", *methods, "Gibbs is faster than", "MH is faster than"], rows)


def misprints(e: Evidence) -> str:
    """Return the table of the numbers that the papers print wrongly."""
    rows = [
        [n.paper, n.table.replace("|", r"\|"), n.case, n.method or "–", n.quantity, n.printed, n.value or "–", n.note]
        for n in e.numbers
        if n.printed != n.value
    ]
    return table(["paper", "table", "case", "method", "quantity", "printed", "read as", "reason"], rows)


def costs(e: Evidence) -> str:
    """Return the table of mean costs on the problems of recent DCOP papers."""
    methods = dict.fromkeys(name for problem in _DCOP_PROBLEMS.values() for name in _methods(e, problem))
    rows = [
        [name, *(_cost(e.objective(problem, "default", name)) for problem in _DCOP_PROBLEMS.values())]
        for name in methods
    ]
    return table(["method", *_DCOP_PROBLEMS], rows)


def sampling(e: Evidence) -> str:
    """Return the table of mean objectives and median times of sampling algorithms."""
    methods, name = list(dict.fromkeys(_methods(e, m.SAMPLING))), m.SAMPLING
    rows = [
        [_setting(c), *(f"{_cost(e.objective(name, c, x))} in {seconds(e.time(name, c, x))}" for x in methods)]
        for c in e.cases(name)
    ]
    return table(["setting", *methods], rows)


def mini_buckets(e: Evidence) -> str:
    """Return the table of GpuBE's bounds at the largest z and those found here, with times."""
    name, sizes, rows = "gpube-tables6-10-mini-buckets", (5, 8, 11), []
    for file in dict.fromkeys(case.partition(", z ")[0] for case in e.cases(name)):
        instance, cells = m.instance_name(file), []
        theirs = {n.quantity: n.value for n in e.numbers if n.case == instance and n.method == "GpuBE(zmax)"}
        for z in sizes:
            run = e.runs(name, f"{file}, z {z}", "MBE CPU")[0]
            cells.append(f"{run['bound']} in {seconds(run['time'])}" if run["outcome"] == "done" else run["outcome"])
        known = f"{theirs['bound']} in {seconds(float(theirs['time']))}" if "bound" in theirs else "–"
        rows.append([instance, known, *cells])
    return table(["instance", "GpuBE, largest z, on a GPU", *(f"here, z = {z}" for z in sizes)], rows)


def instances(e: Evidence) -> str:
    """Return the table of how many instances of GpuBE's Tables 6 to 10 are held, run and proven."""
    rows = []
    for number in m.INSTANCE_TABLES:
        solvers = (m.EXACT, m.AUTO, (*m.EXACT, *m.AUTO), m.TOULBAR2)
        proven = [str(len(m.proven_instances(e, methods, number))) for methods in solvers]
        rows.append([number, *map(str, m.obtainable(e, number)), *proven])
    rows.append(["all", *(str(sum(int(row[i]) for row in rows)) for i in range(1, len(rows[0])))])
    proofs = ("proven by dense tables", "by `auto`", "by one of both", "by toulbar2")
    return table(["table", "instances", "held and run", "a held graph, other colours", *proofs], rows)


def grids(e: Evidence) -> str:
    """Return the table of published and measured times of bucket elimination on grids."""
    rows, memory = [], "out of memory in 12 GiB"
    for case in e.cases(m.GRIDS):
        published = e.published(("GpuBE", "Table 3"), case, "BE GPU")
        times = [e.time(m.GRIDS, case, f"BE {device}") for device in ("GPU", "CPU")]
        rows.append([_grid(case), seconds(published), *(seconds(time) if time else memory for time in times)])
    return table(["grid", "published, GPU", "here, GPU", "here, 6 cores"], rows)


def marginals(e: Evidence) -> str:
    """Return the table of published and measured times of all marginals, and those of pyAgrum."""
    cpu, kernels, copies = m.cube(e, "BP CPU"), m.cube(e, "BP GPU"), m.cube(e, "BP GPU", "transfers_ms")
    here, one_core = [m.marginals(e, f"BP {device}") for device in ("CPU", "GPU")], dict[str, list[float]]()
    for name, *values in m.saved("marginals_of_cube"):
        plan, ours, theirs, ours_again, theirs_again = map(float, values)
        one_core[name] = [plan + ours, theirs, ours_again, theirs_again]
    rows = [
        [
            *(name, f"{cpu[name]:,.0f} ms", f"{kernels[name]:.0f} + {copies[name]:.0f} ms"),
            *(seconds(times[name]) for times in here),
            *(map(seconds, one_core[name]) if name in one_core else ["–"] * 4),
        ]
        for name in m.NETWORKS
    ]
    head = ["network", "published, CPU", "published, GPU: work + transfers", "here, 6 cores", "here, GPU"]
    pairs = [f"{who}, 1 core, {what} planning" for what in ("with", "without") for who in ("here", "pyAgrum")]
    return table([*head, *pairs], rows)


def again(e: Evidence) -> str:
    """Return the table of what the runs on one GPU show; see :mod:`benchmarks.papers.gpu_runs`."""
    rows = []
    for sampler in ("Gibbs", "MH"):
        for other, wanted in (("MGM2", 10), ("MGM", 7)):
            ratios = m.beaten(e, sampler, other)
            what = f"DMCMC, Table 1: settings in which {sampler} is faster than our compiled {other}"
            rows.append([what, f"{wanted} of 13", f"{count(ratios)} of {len(ratios)}"])
    ratios = e.speedups_of_paper(("GpuBE", "Table 3"), m.GRIDS, "BE GPU")
    what = "GpuBE, Table 3: cases in which the GPU takes at most the published time"
    rows.append([what, "from 50 variables on", f"{count(ratios)} of {len(ratios)}"])
    for transfers, text in ((False, "without transfers"), (True, "with transfers")):
        what = f"CUBE, Table II: networks that take at most the published time {text}"
        rows.append([what, "8 of 8", f"{len(m.faster_than_published(e, transfers))} of {len(m.NETWORKS)}"])
    for name, method, text in (
        ("gpube-figure10-again", "bucket", "GpuBE, Fig. 10: gain of the GPU on the largest bucket, by whole calls"),
        ("gpube-figure11-five-values-again", "MBE", "GpuBE, Fig. 11 with five values: gain of the GPU"),
    ):
        rows.append([text, "–", f"{span(e.time_ratios(name, f'{method} CPU', f'{method} GPU'))} times 6 cores"])
    return table(["what", "wanted", "on one H100"], rows)


def machines() -> str:
    """Return the table of the dates and machines of all runs."""
    rows = []
    for file in sorted(RUNS.glob("*/experiment.json")):
        machine = json.loads(file.read_text(encoding="utf-8"))["machine"]
        rows.append([f"`{file.parent.name}`", *(str(machine.get(part, "–")) for part in _MACHINE)])
    date = re.search(r"^# date (\S+)", ONE_CORE.read_text(encoding="utf-8"), re.MULTILINE)
    rows.append(["`one_core.txt`", date[1] if date else "–", "1, in processor time", "–"])
    return table(["runs", "date", "cores", "GPU"], rows)


def _grid(case: str) -> str:
    """Return a grid of Table 3 in words; the table's own grids have four rows."""
    given = {key: int(value) for key, value in (part.split() for part in case.split(", "))}
    values = f", {given['domain_size']} values" if "domain_size" in given else ""
    return f"{given.get('rows', 4)} × {given['columns']}{values}"


def _setting(case: str) -> str:
    """Return a setting of Table 1 in the paper's terms."""
    key, _, value = case.partition(" ")
    return f"{_SETTINGS[key]} {value}".strip()


def _methods(e: Evidence, experiment: str) -> Iterator[str]:
    return (run["method"] for run in e.records(experiment))


def _cost(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def rendered(text: str, evidence: Evidence) -> str:
    """Return a page with its tables replaced by computed ones."""
    for name, content in blocks(evidence).items():
        begin, end = f"<!-- table: {name} -->", "<!-- end of table -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{begin} is missing")
        replacement = f"{begin}\n\n{content}\n\n{end}"
        text = pattern.sub(lambda _, new=replacement: new, text)  # type: ignore[misc]
    return text


def main(page: Path = PAGE) -> None:
    """Write or print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.claims",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/papers.md")
    evidence = Evidence()
    if parser.parse_args().write:
        page.write_text(rendered(page.read_text(encoding="utf-8"), evidence), encoding="utf-8")
    else:
        print("\n\n".join(blocks(evidence).values()))


if __name__ == "__main__":
    main()
