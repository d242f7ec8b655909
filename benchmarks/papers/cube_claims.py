"""Claims of CUBE: Bistaffa, Bombieri and Farinelli, IEEE Transactions on Cybernetics 2017."""

import re

from benchmarks.harness import RESULTS
from benchmarks.papers.claim import Claim, Verdict, stated
from benchmarks.papers.evidence import Evidence, seconds, span

MARGINALS = "cube-table2-again"
INSTANCES = "cube-table3"
NETWORKS = ("mildew", "diabetes", "barley", "munin1", "munin2", "munin3", "munin4", "water")


_OVERLAP_TIMES = RESULTS / "overlapped_transfers.txt"  # the output of benchmarks.papers.overlapped_transfers on a card
_LEAST_PUBLISHED_GAIN = 50  # per cent by which overlapping transfers with kernels shortens BP in the paper


def _file(network: str) -> str:
    return f"file {network}.bif.gz"


def cliques(evidence: Evidence) -> dict[str, tuple[int, int]]:
    """Return the number of cliques published and found here, by network."""
    found = {}
    for name in NETWORKS:
        published = evidence.published(("CUBE", "Table I"), _file(name), "", "number of jt nodes")
        runs = evidence.done(MARGINALS, _file(name), "BP CPU")
        if published is not None and runs:
            found[name] = int(published), runs[0]["cliques"]
    return found


def cpu_ratios(evidence: Evidence) -> dict[str, float]:
    """Return the published time on one core divided by the one on 6 cores here, for the eight networks."""
    ratios = {}
    for name in NETWORKS:
        published = evidence.published(("CUBE", "Table II"), _file(name), "BP CPU", "time_ms")
        ours = evidence.time(MARGINALS, _file(name), "BP CPU")
        if published is not None and ours:
            ratios[name] = published / 1000 / ours
    return ratios


def overlap_gains() -> list[float]:
    """Return the gains of overlapping transfers with kernels in per cent, of each bucket; empty if not measured."""
    if not _OVERLAP_TIMES.exists():
        return []
    lines = [line.split() for line in _OVERLAP_TIMES.read_text(encoding="utf-8").splitlines()]
    return [float(line[-1].removesuffix("%")) for line in lines if line and line[0] in ("child", "split")]


def _overlap(evidence: Evidence) -> str:
    """Say what overlapping gains, as ``benchmarks.papers.overlapped_transfers`` saved it."""
    gains = overlap_gains()
    if not gains:
        return "`benchmarks.papers.overlapped_transfers` times both; tables that fit stay on the card"
    return (
        f"{min(gains):.0f} to {max(gains):.0f} % for buckets of four times the memory"
        " (`benchmarks/results/overlapped_transfers.txt`); tables that fit stay on the card"
    )


def _overlap_verdict() -> Verdict:
    """Return how the gains of overlapping compare with the published ones."""
    gains = overlap_gains()
    if not gains:
        return Verdict.NOT_REPEATED
    if min(gains) >= _LEAST_PUBLISHED_GAIN:
        return Verdict.HOLDS
    return Verdict.IN_PART if max(gains) >= _LEAST_PUBLISHED_GAIN else Verdict.FAILS


def _gpu_times(evidence: Evidence) -> str:
    """Return the times of the eight networks on a GPU as text."""
    return ", ".join(f"{name} {seconds(evidence.time(MARGINALS, _file(name), 'BP GPU'))}" for name in NETWORKS)


def faster_on_gpu(evidence: Evidence) -> dict[str, list[str]]:
    """Return the networks that take at most the published time on a GPU, without and with its transfers.

    The times here include transfers.
    """
    found: dict[str, list[str]] = {"without": [], "with": []}
    for name in NETWORKS:
        kernels, transfers = (
            evidence.published(("CUBE", "Table II"), _file(name), "BP GPU", quantity)
            for quantity in ("time_ms", "transfers_ms")
        )
        ours = evidence.time(MARGINALS, _file(name), "BP GPU")
        if kernels is not None and transfers is not None and ours is not None:
            if 1000 * ours <= kernels:
                found["without"].append(name)
            if 1000 * ours <= kernels + transfers:
                found["with"].append(name)
    return found


def _against_published(evidence: Evidence) -> str:
    faster = faster_on_gpu(evidence)
    return (
        f"transfers included, at most the published kernel time for {', '.join(faster['without'])}; at most the"
        f" published time with transfers for {', '.join(faster['with'])}"
    )


def pyagrum_times() -> dict[str, tuple[float, float]]:
    """Return the seconds of dmcmc and of pyAgrum for all marginals on one core, by network.

    Both are read from the saved output of ``benchmarks.elimination.marginals``.
    """
    text = (RESULTS / "marginals_of_cube.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^(\w+)\.bif +\d+ +[\d,]+ +[\d.]+ +([\d.]+) +([\d.]+)", text, re.MULTILINE)
    return {name: (float(ours), float(theirs)) for name, ours, theirs in rows if name in NETWORKS}


def _pyagrum(evidence: Evidence) -> str:
    times = pyagrum_times()
    return "; ".join(
        f"{name} {seconds(times[name][0])} and {seconds(times[name][1])}" for name in NETWORKS if name in times
    )


def gains(evidence: Evidence) -> dict[str, float]:
    """Return the time on 6 cores divided by the one on a GPU, by network."""
    ratios = evidence.time_ratios(MARGINALS, "BP CPU", "BP GPU")
    return {name: ratios[_file(name)] for name in NETWORKS}


def average_tables(evidence: Evidence) -> dict[str, float]:
    """Return the average number of entries of a clique's table, by network."""
    runs = {name: evidence.done(MARGINALS, _file(name), "BP GPU")[0] for name in NETWORKS}
    return {name: run["cells"] / run["cliques"] for name, run in runs.items()}


def _gains_by_size(evidence: Evidence) -> str:
    gain, size = gains(evidence), average_tables(evidence)
    return ", ".join(f"{name} {gain[name]:.1f} ({size[name]:,.0f})" for name in sorted(size, key=size.__getitem__))


def _relative(evidence: Evidence) -> dict[str, float]:
    """Return by how many per cent the paper's gain exceeds that of Zheng and Mengshoel, by network."""
    found = {}
    for name in NETWORKS:
        ours, theirs = (
            evidence.published(("CUBE", "Table II"), _file(name), method, "speedup") for method in ("BP", "SVR")
        )
        if ours is not None and theirs:
            found[name] = 100 * (ours / theirs - 1)
    return found


def _instance(evidence: Evidence, name: str) -> str:
    gpu, cpu = (evidence.time(INSTANCES, f"file {name}.wcsp", f"exact {device}") for device in ("GPU", "CPU"))
    on_cpu = "out of memory with dense tables in 64 GiB" if cpu is None else seconds(cpu)
    return f"{name} {seconds(gpu)} on a GPU, {on_cpu} on 2 cores"


def _fitting(evidence: Evidence) -> int:
    """Return how many of the instances held are eliminated exactly on a GPU."""
    return sum(bool(evidence.done(INSTANCES, case, "exact GPU")) for case in evidence.cases(INSTANCES))


CLAIMS = [
    Claim(
        "Abstract",
        "Gains of up to 466 % over Zheng and Mengshoel's GPU approach, 56 % at least",
        "Water: runtimes comparable",
        lambda e: (
            f"the paper's Table II has {min(_relative(e).values()):.0f} % (Water) to {max(_relative(e).values()):.0f}"
            " %; their code is not run here"
        ),
        Verdict.NOT_REPEATED,
    ),
    Claim(
        "Abstract, Table III",
        "Up to 696.02 times the sequential version",
        "321 to 696 times one core",
        lambda e: f"{span(e.time_ratios(INSTANCES, 'exact CPU', 'exact GPU'))} times 2 cores (54, 404, 503)",
        Verdict.FAILS,
        "as a gain of the GPU; 2 cores take milliseconds where its sequential version took hours",
        lambda e: max(e.time_ratios(INSTANCES, "exact CPU", "exact GPU").values()) > 100,
    ),
    Claim(
        "Table I",
        "Cliques of the eight networks",
        "29, 337, 36, 162, 854, 904, 877, 21",
        lambda e: ", ".join(str(ours) for _, ours in cliques(e).values()),
        Verdict.HOLDS,
        "within 3 %",
        lambda e: len(cliques(e)) == 8 and all(abs(a - b) <= max(1, 0.03 * a) for a, b in cliques(e).values()),
    ),
    Claim(
        "Table II",
        "All marginals on one core",
        "117, 219, 1057, 6584, 54, 109, 315, 123 ms",
        lambda e: (
            ", ".join(seconds(e.time(MARGINALS, _file(name), "BP CPU")) for name in NETWORKS)
            + f" on 6 cores: shorter by a factor of {span(cpu_ratios(e))}"
        ),
        Verdict.NOT_COMPARABLE,
        "other processors; times without building the junction tree, in both",
    ),
    Claim(
        "Table II",
        "All marginals on a GPU",
        "3, 14, 35, 193, 14, 19, 31, 12 ms without, 15, 71, 145, 1657, 30, 58, 76, 27 ms with transfers",
        _gpu_times,
        Verdict.NOT_COMPARABLE,
        "a Tesla K40 there, an H100 here; times here include transfers",
    ),
    Claim(
        "Table II",
        "The same, against the published times",
        "as above",
        _against_published,
        Verdict.NOT_COMPARABLE,
        "munin2 has about a thousand small cliques, for which launches take longer than work",
    ),
    Claim(
        "Table II",
        "Not compared: pyAgrum",
        "–",
        lambda e: f"{_pyagrum(e)}, dmcmc and pyAgrum 3.3.1 on one core (`benchmarks/results/marginals_of_cube.txt`)",
        Verdict.NOT_COMPARABLE,
        "pyAgrum's time includes its planning",
    ),
    Claim(
        "§VI-A",
        "Gains of the GPU increase with the average table size",
        "3.85 (Munin2) to 39 times (Mildew)",
        lambda e: f"{_gains_by_size(e)} times 6 cores (entries of an average table)",
        Verdict.IN_PART,
        "networks of tables below ten thousand entries gain nothing or little; beyond that the gain varies",
    ),
    Claim(
        "Table III",
        "54, 404 and 503 on a GPU",
        "3.01, 12.40, 17.46 s",
        lambda e: "; ".join(_instance(e, name) for name in ("54", "404", "503")),
        Verdict.NOT_COMPARABLE,
        "other cards, better orders",
    ),
    Claim(
        "Table III",
        "42b on a GPU",
        "58.42 s",
        lambda e: (
            f"{_instance(e, '42b')}; with function filtering 1.8 s and 1.6 MiB of tables on 2 cores"
            " (`benchmarks/results/incomplete.txt`)"
        ),
        Verdict.NOT_COMPARABLE,
        "as above",
    ),
    Claim(
        "Table III",
        "408b on a GPU",
        "120.79 s",
        stated(
            "51 s on two cores of a loaded machine, 23 s of processor time, with function filtering"
            " (`benchmarks/results/cube.txt`)"
        ),
        Verdict.NOT_COMPARABLE,
        "made of 408; processor time is not the paper's wall-clock time",
    ),
    Claim(
        "Table III",
        "29 and 505b on a GPU",
        "5.36, 77.17 s",
        stated("not held"),
        Verdict.NOT_REPEATED,
    ),
    Claim(
        "Table III",
        "Gains of two orders of magnitude at least, increasing with the instance",
        "321 to 696 times",
        lambda e: f"{span(e.time_ratios(INSTANCES, 'exact CPU', 'exact GPU'))} times",
        Verdict.FAILS,
        "",
        lambda e: min(e.time_ratios(INSTANCES, "exact CPU", "exact GPU").values()) > 100,
    ),
    Claim(
        "§VI-B",
        "3.21 times as fast as GpuBE on the first four instances",
        "GpuBE 10.3 to 41.1 s",
        stated("its authors print 0.027 to 3.3 s for GpuBE on the same instances (GpuBE, Table 10)"),
        Verdict.NOT_COMPARABLE,
        "the two papers differ by a factor of 100 and more on GpuBE's times",
    ),
    Claim(
        "§VI-B",
        "Five of seven instances need tables larger than the GPU's memory",
        "up to 60 GB",
        lambda e: (
            f"{_fitting(e)} of 4 fit an H200 as dense tables; 42b needs 27 GiB, or 1.6 MiB with function filtering"
            " (`benchmarks/results/incomplete.txt`)"
        ),
        Verdict.FAILS,
        "better orders and function filtering",
        lambda e: e.time(INSTANCES, "file 42b.wcsp", "exact GPU") is None,
    ),
    Claim(
        "§V",
        "Overlapping transfers with kernels gains 50 % (BP) and 75 % (WCSPs)",
        "averages",
        _overlap,
        _overlap_verdict(),
        "of single buckets, not of whole runs" if overlap_gains() else "",
    ),
    Claim(
        "§V",
        "Tables larger than the GPU's memory are processed in pieces",
        "five of seven instances",
        stated(
            "a bucket of four times the usable memory equals the one in one piece"
            " (`benchmarks/results/h200_streaming.txt`)"
        ),
        Verdict.HOLDS,
    ),
    Claim(
        "§IV",
        "Incomplete tables save memory where constraints forbid",
        "–",
        stated("42b: 105,265 rows of 7.2 · 10⁹ dense entries (`benchmarks/results/incomplete.txt`)"),
        Verdict.HOLDS,
    ),
]
