"""Write the tables of docs/papers.md: every claim of the papers, and what was measured here.

    python -m benchmarks.papers.claims [--write]

The tables stand in docs/papers.md between comments that name them. They are computed from the raw runs in
``benchmarks/results/papers/`` and the published numbers in ``configs/papers/published.csv``; ``--write`` replaces them,
otherwise they are printed. ``tests/experiments/test_papers.py`` checks that the page is up to date and that no verdict
contradicts the runs.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import ROOT
from benchmarks.papers import cube_claims, dmcmc_claims, gpube_claims, gpudbe_claims
from benchmarks.papers.claim import Claim, Verdict
from benchmarks.papers.evidence import Evidence, count, seconds, span

PAGE = ROOT / "docs" / "papers.md"
PAPERS = {
    "DMCMC": dmcmc_claims.CLAIMS,
    "GpuBE": gpube_claims.CLAIMS,
    "GPU-DBE": gpudbe_claims.CLAIMS,
    "CUBE": cube_claims.CLAIMS,
}
_HEAD = ("where", "claim", "published", "here", "verdict")
_SETTINGS = {
    "agents": r"\|A\| =",
    "variables_per_agent": r"\|X\| =",
    "domain_size": r"\|D\| =",
    "local_density": "p =",
    "default": "default",
}
_GAINS = (
    (gpube_claims.BUCKETS, "bucket CPU", "bucket GPU", "GpuBE, Fig. 10: gain of the GPU on the largest bucket"),
    (gpube_claims.FIVE_VALUES_GPU, "MBE CPU", "MBE GPU", "GpuBE, Fig. 11 with five values: gain of the GPU"),
)
_DCOP_PROBLEMS = {"random": "dcop-random", "scale-free": "dcop-scale-free", "colouring": "dcop-colouring"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the cells are Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def blocks(evidence: Evidence) -> dict[str, str]:
    """Return all tables of the page by name."""
    claims = {name: table(_HEAD, [claim.row(evidence) for claim in found]) for name, found in PAPERS.items()}
    return {
        "verdicts": verdicts(),
        **claims,
        "crossings": crossings(evidence),
        "misprints": misprints(evidence),
        "costs": costs(evidence),
        "sampling": sampling(evidence),
        "mini-buckets": mini_buckets(evidence),
        "grids": grids(evidence),
        "marginals": marginals(evidence),
        "again": again(evidence),
    }


def verdicts() -> str:
    """Return the table of the numbers of claims by paper and verdict."""
    rows = [
        [name, *(str(sum(claim.verdict is verdict for claim in found)) for verdict in Verdict), str(len(found))]
        for name, found in PAPERS.items()
    ]
    totals = [str(sum(int(row[i]) for row in rows)) for i in range(1, len(Verdict) + 2)]
    return table(["paper", *Verdict, "claims"], [*rows, ["all", *totals]])


def crossings(evidence: Evidence) -> str:
    """Return the table of median times of Table 1 of DMCMC, with the local searches that each sampler beats."""
    methods = ("MGM", "MGM2", "Gibbs GPU", "MH GPU")
    rows = []
    for case in evidence.cases(dmcmc_claims.SAME_MACHINE):
        time = {name: evidence.time(dmcmc_claims.SAME_MACHINE, case, name) or 0.0 for name in methods}
        beaten = [
            ", ".join(other for other in ("MGM", "MGM2") if time[sampler] < time[other]) or "none"
            for sampler in ("Gibbs GPU", "MH GPU")
        ]
        rows.append([_setting(case), *(seconds(time[name]) for name in methods), *beaten])
    return table(["setting", *methods, "Gibbs is faster than", "MH is faster than"], rows)


def misprints(evidence: Evidence) -> str:
    """Return the table of the numbers that the papers print wrongly."""
    rows = [
        [n.paper, n.table.replace("|", r"\|"), n.case, n.method or "–", n.quantity, n.printed, n.value or "–", n.note]
        for n in evidence.numbers
        if n.printed != n.value
    ]
    return table(["paper", "table", "case", "method", "quantity", "printed", "read as", "reason"], rows)


def costs(evidence: Evidence) -> str:
    """Return the table of mean costs on the problems of recent DCOP papers."""
    methods = list(dict.fromkeys(m for name in _DCOP_PROBLEMS.values() for m in _methods(evidence, name)))
    rows = [
        [method, *(_cost(evidence.objective(name, "default", method)) for name in _DCOP_PROBLEMS.values())]
        for method in methods
    ]
    return table(["method", *_DCOP_PROBLEMS], rows)


def sampling(evidence: Evidence) -> str:
    """Return the table of mean objectives and median times of sampling algorithms."""
    name = dmcmc_claims.SAMPLING
    methods = list(dict.fromkeys(_methods(evidence, name)))
    rows = []
    for case in evidence.cases(name):
        cells = [(evidence.objective(name, case, m), evidence.time(name, case, m)) for m in methods]
        rows.append([_setting(case), *(f"{_cost(found)} in {seconds(time)}" for found, time in cells)])
    return table(["setting", *methods], rows)


def mini_buckets(evidence: Evidence) -> str:
    """Return the table of GpuBE's bounds at the largest z and those found here, with times."""
    name, sizes, rows = gpube_claims.MINI_BUCKETS, (5, 8, 11), []
    for case in evidence.cases(name):
        file, _, z = case.partition(", z ")
        if z != str(sizes[0]):
            continue
        instance = file.removeprefix("file ").partition(".")[0].replace("_", "-")
        published = [n for n in evidence.numbers if n.case == instance and n.method == "GpuBE(zmax)"]
        theirs = {n.quantity: n.value for n in published}
        cells = []
        for z_here in sizes:
            runs = evidence.runs(name, f"{file}, z {z_here}", "MBE CPU")
            done = [run for run in runs if run["outcome"] == "done"]
            cells.append(f"{done[0]['bound']} in {seconds(done[0]['time'])}" if done else runs[0]["outcome"])
        known = f"{theirs['bound']} in {seconds(float(theirs['time']))}" if "bound" in theirs else "–"
        rows.append([instance, known, *cells])
    return table(["instance", "GpuBE, largest z, on a GPU", *(f"here, z = {z}" for z in sizes)], rows)


def grids(evidence: Evidence) -> str:
    """Return the table of published and measured times of bucket elimination on grids."""
    rows = []
    for case in evidence.cases(gpube_claims.GRIDS):
        published = evidence.published(("GpuBE", "Table 3"), case, "BE GPU")
        gpu, cpu = (evidence.time(gpube_claims.GRIDS, case, f"BE {device}") for device in ("GPU", "CPU"))
        memory = "out of memory in 12 GiB"
        rows.append([_grid(case), seconds(published), seconds(gpu) if gpu else memory, seconds(cpu) if cpu else memory])
    return table(["grid", "published, GPU", "here, GPU", "here, 6 cores"], rows)


def marginals(evidence: Evidence) -> str:
    """Return the table of published and measured times of all marginals."""
    known, rows = cube_claims.pyagrum_times(), []
    for name in cube_claims.NETWORKS:
        published = {
            quantity: evidence.published(("CUBE", "Table II"), f"file {name}.bif.gz", method, quantity) or 0.0
            for method, quantity in (("BP CPU", "time_ms"), ("BP GPU", "transfers_ms"))
        }
        kernels = evidence.published(("CUBE", "Table II"), f"file {name}.bif.gz", "BP GPU", "time_ms")
        here = [
            seconds(evidence.time(cube_claims.MARGINALS, f"file {name}.bif.gz", f"BP {device}"))
            for device in ("CPU", "GPU")
        ]
        one_core = [seconds(time) for time in known[name]] if name in known else ["–", "–"]
        on_gpu = f"{kernels:.0f} + {published['transfers_ms']:.0f} ms"
        rows.append([name, f"{published['time_ms']:,.0f} ms", on_gpu, *here, *one_core])
    head = ["network", "published, CPU", "published, GPU: work + transfers", "here, 6 cores", "here, GPU"]
    return table([*head, "here, 1 core", "pyAgrum, 1 core"], rows)


def again(evidence: Evidence) -> str:
    """Return the table of what the runs on one GPU show; see :mod:`benchmarks.papers.gpu_runs`."""
    rows = []
    for sampler in ("Gibbs", "MH"):
        for other, wanted in (("MGM2", 10), ("MGM", 7)):
            ratios = evidence.time_ratios(dmcmc_claims.SAME_MACHINE, other, f"{sampler} GPU")
            shown = f"{count(ratios)} of {len(ratios)}"
            rows.append(
                [f"DMCMC, Table 1: settings in which {sampler} is faster than {other}", f"{wanted} of 13", shown]
            )
    ratios = evidence.speedups_of_paper(("GpuBE", "Table 3"), gpube_claims.GRIDS, "BE GPU")
    what = "GpuBE, Table 3: cases in which the GPU takes at most the published time"
    rows.append([what, "from 50 variables on", f"{count(ratios)} of {len(ratios)}"])
    faster, networks = cube_claims.faster_on_gpu(evidence), len(cube_claims.NETWORKS)
    for compared, text in (("without", "without transfers"), ("with", "with transfers")):
        what = f"CUBE, Table II: networks that take at most the published time {text}"
        rows.append([what, f"{networks} of {networks}", f"{len(faster[compared])} of {networks}"])
    for name, slow, fast, text in _GAINS:
        rows.append([text, "–", f"{span(evidence.time_ratios(name, slow, fast))} times 6 cores"])
    return table(["what", "wanted", "on one H100"], rows)


def _grid(case: str) -> str:
    """Return a grid of Table 3 in words; the table's own grids have four rows."""
    given = {key: int(value) for key, value in (part.split() for part in case.split(", "))}
    values = f", {given['domain_size']} values" if "domain_size" in given else ""
    return f"{given.get('rows', 4)} × {given['columns']}{values}"


def _setting(case: str) -> str:
    """Return a setting of Table 1 in the paper's terms."""
    key, _, value = case.partition(" ")
    return f"{_SETTINGS[key]} {value}".strip()


def _methods(evidence: Evidence, experiment: str) -> Iterator[str]:
    return (run["method"] for run in evidence.records(experiment))


def _cost(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def contradictions(evidence: Evidence, claims: Sequence[Claim]) -> list[str]:
    """Return the claims whose verdict does not follow from the runs."""
    expected = {Verdict.HOLDS: True, Verdict.FAILS: False}
    return [
        claim.text
        for claim in claims
        if claim.confirms is not None and expected.get(claim.verdict) is not claim.confirms(evidence)
    ]


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
    given, evidence = parser.parse_args(), Evidence()
    for claims in PAPERS.values():
        for text in contradictions(evidence, claims):
            print(f"contradicted by the runs: {text}")
    if given.write:
        page.write_text(rendered(page.read_text(encoding="utf-8"), evidence), encoding="utf-8")
    else:
        print("\n\n".join(blocks(evidence).values()))


if __name__ == "__main__":
    main()
