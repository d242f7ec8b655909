"""Claims of GPU-(D)BE: Fioretto, Le, Pontelli, Yeoh and Son, CP 2015."""

from benchmarks.harness import RESULTS
from benchmarks.papers.claim import Claim, Verdict, stated
from benchmarks.papers.evidence import Evidence, count, seconds, span

_PATH_CONSISTENCY = RESULTS / "path_consistency.txt"  # the output of benchmarks.papers.path_consistency
FIGURE_4 = "cp2015-figure4"
FIGURE_5 = "cp2015-figure5"
_GENERATORS = {"random networks": "random-network", "scale-free networks": "scale-free", "grids": "grid"}
_PUBLISHED = {"BE": (69.3, 34.9, 125.1), "DPOP": (44.7, 22.3, 124.2)}


def nodes_saved() -> dict[str, float]:
    """Return by which factor soft path consistency reduces the nodes of a search, for each problem that both prove.

    The nodes are read from the saved output of ``benchmarks.papers.path_consistency``.
    """
    lines = [line.split() for line in _PATH_CONSISTENCY.read_text(encoding="utf-8").splitlines()]
    # The last columns are: bound, nodes, seconds; the same after path consistency; best cost.
    proven = [line for line in lines if len(line) > 7 and line[-6].isdigit() and line[-3].isdigit()]
    return {" ".join(line[:-9]): int(line[-6]) / int(line[-3]) for line in proven}


def _consistency(evidence: Evidence) -> str:
    """Say which consistencies there are, and what path consistency gains."""
    saved = nodes_saved()
    return (
        "generalised arc consistency in presolve, soft arc consistency in search, and soft path consistency before it:"
        f" {span(saved)} times fewer nodes on {len(saved)} problems (`benchmarks/results/path_consistency.txt`)"
    )


def gains(evidence: Evidence, method: str, generator: str) -> dict[str, float]:
    """Return the gain of a GPU over two cores on problems of one generator (Fig. 4).

    DPOP's times are simulated, as in the paper.
    """
    quantity = "time" if method == "BE" else "simulated_time"
    ratios = evidence.time_ratios(FIGURE_4, f"{method} CPU", f"{method} GPU", quantity)
    return {case: ratio for case, ratio in ratios.items() if case.startswith(f"generator {generator},")}


def _average(ratios: dict[str, float]) -> float:
    return sum(ratios.values()) / len(ratios)


def _averages(evidence: Evidence, method: str) -> str:
    """Return the average and the least gain on the three topologies."""
    found = {label: gains(evidence, method, generator) for label, generator in _GENERATORS.items()}
    return ", ".join(f"{label} {_average(ratios):.1f} ({min(ratios.values()):.1f})" for label, ratios in found.items())


def _reaches_published(evidence: Evidence, method: str) -> bool:
    """Return whether the average gain is that of the paper or more, on all topologies."""
    found = [_average(gains(evidence, method, generator)) for generator in _GENERATORS.values()]
    return all(ours >= theirs for ours, theirs in zip(found, _PUBLISHED[method], strict=True))


def _all(evidence: Evidence) -> dict[str, float]:
    return {
        f"{method} {case}": ratio
        for method in ("BE", "DPOP")
        for generator in _GENERATORS.values()
        for case, ratio in gains(evidence, method, generator).items()
    }


def _at(evidence: Evidence, case: str) -> str:
    return (
        f"{seconds(evidence.time(FIGURE_4, case, 'BE CPU'))} on 2 cores,"
        f" {seconds(evidence.time(FIGURE_4, case, 'BE GPU'))} on a GPU"
    )


def _solved(evidence: Evidence, case: str) -> bool:
    return all(len(evidence.done(FIGURE_4, case, f"BE {device}")) == 10 for device in ("CPU", "GPU"))


def _gain(evidence: Evidence, case: str) -> float:
    return evidence.time_ratios(FIGURE_5, "BE CPU", "BE GPU")[case]


def _simulated(evidence: Evidence) -> dict[str, float]:
    """Return BE's wall-clock time divided by DPOP's simulated time, for each case of Fig. 4."""
    ratios = {}
    for case in evidence.cases(FIGURE_4):
        wall, simulated = (
            evidence.time(FIGURE_4, case, "BE CPU"),
            evidence.time(FIGURE_4, case, "DPOP CPU", "simulated_time"),
        )
        if wall is not None and simulated:
            ratios[case] = wall / simulated
    return ratios


_RANDOM_25 = "generator random-network, nodes 25, density 0.3"

CLAIMS = [
    Claim(
        "§5",
        "Average (least) gains of GPU-BE over BE",
        "69.3 (16.1), 34.9 (9.5), 125.1 (42.6)",
        lambda e: f"{_averages(e, 'BE')} times 2 cores",
        Verdict.FAILS,
        "as a gain of the GPU; BE in FRODO took minutes where 2 cores take milliseconds here",
        lambda e: _reaches_published(e, "BE"),
    ),
    Claim(
        "§5",
        "Average (least) gains of GPU-DBE over DPOP",
        "44.7 (14.7), 22.3 (8.2), 124.2 (38.8)",
        lambda e: f"{_averages(e, 'DPOP')} times 2 cores",
        Verdict.FAILS,
        "",
        lambda e: _reaches_published(e, "DPOP"),
    ),
    Claim(
        "§5",
        "GPU-based algorithms are consistently faster",
        "in all cases",
        lambda e: f"in {count(_all(e))} of {len(_all(e))} cases",
        Verdict.FAILS,
        "small tables gain nothing",
        lambda e: count(_all(e)) == len(_all(e)),
    ),
    Claim(
        "§5",
        "Half of all tuples of a constraint are forbidden",
        "p_2 = 0.5",
        lambda e: f"so generated, {e.infeasible(FIGURE_4)} runs of Fig. 4 are of problems without a solution",
        Verdict.NOT_COMPARABLE,
        "elimination does the same work with and without a solution",
    ),
    Claim(
        "Fig. 4 (a)",
        "Random networks: out of time at 25 variables on a GPU, at 20 on a CPU",
        "300 s",
        lambda e: f"25 variables: {_at(e, _RANDOM_25)}",
        Verdict.FAILS,
        "better orders",
        lambda e: not _solved(e, _RANDOM_25),
    ),
    Claim(
        "Fig. 4 (b)",
        "Scale-free networks: up to 50 variables on a GPU, 40 on a CPU",
        "300 s",
        lambda e: f"50 variables: {_at(e, 'generator scale-free, nodes 50')}",
        Verdict.FAILS,
        "both solve 50",
        lambda e: not _solved(e, "generator scale-free, nodes 50"),
    ),
    Claim(
        "Fig. 4 (c)",
        "Grids: up to 100 variables on a GPU; none of 36 on a CPU",
        "300 s",
        lambda e: f"36: {_at(e, 'generator grid, rows 6')}; 100: {_at(e, 'generator grid, rows 10')}",
        Verdict.FAILS,
        "both solve 100",
        lambda e: not _solved(e, "generator grid, rows 10"),
    ),
    Claim(
        "§5",
        "GPU-based algorithms scale better",
        "Fig. 4",
        lambda e: (
            f"random networks {gains(e, 'BE', 'random-network')[_RANDOM_25]:.1f} times at n = 25; grids"
            f" {gains(e, 'BE', 'grid')['generator grid, rows 10']:.1f} times at n = 100"
        ),
        Verdict.HOLDS,
        "by a small factor at these sizes",
        lambda e: gains(e, "BE", "grid")["generator grid, rows 10"] > gains(e, "BE", "grid")["generator grid, rows 3"],
    ),
    Claim(
        "§5",
        "Scalability increases with structure: random, scale-free, grids",
        "25, 50, 100 variables",
        lambda e: (
            f"time on a GPU at those sizes {seconds(e.time(FIGURE_4, _RANDOM_25, 'BE GPU'))},"
            f" {seconds(e.time(FIGURE_4, 'generator scale-free, nodes 50', 'BE GPU'))},"
            f" {seconds(e.time(FIGURE_4, 'generator grid, rows 10', 'BE GPU'))}"
        ),
        Verdict.IN_PART,
        "scale-free networks are the easiest here, grids of 100 variables about as hard as random networks of 25",
    ),
    Claim(
        "§5",
        "Simulated times of DCOP algorithms are shorter than wall-clock times of COP algorithms",
        "in all cases",
        lambda e: f"in {count(_simulated(e))} of {len(_simulated(e))} cases",
        Verdict.FAILS,
        "agents plan by themselves",
        lambda e: count(_simulated(e)) == len(_simulated(e)),
    ),
    Claim(
        "Fig. 5 (a)",
        "Better gains at smaller densities",
        "figure",
        lambda e: ", ".join(f"density {p} {_gain(e, f'density {p}'):.2f}" for p in (0.3, 0.6, 0.9)) + " times",
        Verdict.FAILS,
        "the denser, the larger the tables and the gain",
        lambda e: _gain(e, "density 0.3") > _gain(e, "density 0.9"),
    ),
    Claim(
        "Fig. 5 (b)",
        "Greater gains with larger domains",
        "figure",
        lambda e: (
            f"5 values {_gain(e, 'density 0.3'):.2f}, 15 {_gain(e, 'domain_size 15'):.2f}, 25"
            f" {_gain(e, 'domain_size 25'):.2f} times"
        ),
        Verdict.IN_PART,
        "not at ten variables; with 50 values on grids (GpuBE, Table 3)",
    ),
    Claim(
        "§5",
        "Differences are significant",
        "p < 1.638 · 10⁻¹²",
        stated("means with 95 % confidence intervals are on each page"),
        Verdict.NOT_COMPARABLE,
    ),
    Claim(
        "§6",
        "Future work: path consistency and other consistencies on a GPU",
        "–",
        _consistency,
        Verdict.IN_PART,
        "soft path consistency on the CPU; its bound by dual ascent over triplets (`local.bound: triangles`) on a GPU",
    ),
]
