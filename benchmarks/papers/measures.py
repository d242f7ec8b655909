"""Compute what the table of claims shows: every public name here may stand in an expression of ``claims.yaml``.

``e`` is the :class:`~benchmarks.papers.evidence.Evidence`. Ratios are dictionaries from cases to numbers.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import correlation, fmean, median, stdev
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.papers.evidence import Evidence, count, seconds, span
from dmcmc.report.experiment.charts import case_name

Ratios = Mapping[Any, float]

MEETINGS = "dmcmc-table1"
SAME_MACHINE = "dmcmc-table1-again"  # MGM and MGM2 on the CPU, Gibbs and MH on the GPU of one machine
FRODO = "dmcmc-meetings"
SETTINGS = {  # of Table 1 of DMCMC, by file
    f"file ms_{name}_pl0.5_s0.npz": setting
    for name, setting in (
        ("A10_n10_D24", "default"),
        ("A5_n10_D24", "agents 5"),
        ("A50_n10_D24", "agents 50"),
        ("A10_n5_D24", "variables_per_agent 5"),
        ("A10_n50_D24", "variables_per_agent 50"),
        ("A10_n10_D96", "domain_size 96"),
    )
}
FILE_X5 = "file ms_A10_n5_D24_pl0.5_s0.npz"
FIGURE_5 = "dmcmc-figure5"
SAMPLING = "dmcmc-sampling-algorithms"
GRIDS = "gpube-table3-again"  # bucket elimination on the CPU and the GPU of one machine; DPOP is in gpube-table3
TABLES = {"gpube-table1": "Table 1", "gpube-table2": "Table 2", "gpube-table3": "Table 3"}
BE_TABLES = {"gpube-table1": "Table 1", "gpube-table2": "Table 2", GRIDS: "Table 3"}
FIGURE_11 = ("gpube-figure11a", "gpube-figure11b", "gpube-figure11c")
INSTANCES = ("gpube-tables6-10", "gpube-tables6-10-again")
INSTANCE_TABLES = ("Table 6", "Table 7", "Table 8", "Table 9", "Table 10")
NETWORKS = ("mildew", "diabetes", "barley", "munin1", "munin2", "munin3", "munin4", "water")
CP2015 = {"random networks": "random-network", "scale-free networks": "scale-free", "grids": "grid"}
CUBE_INSTANCES = ("54", "29", "404", "503", "42b", "505b", "408b")
FIGURE_4, FIGURE_5_2015 = "cp2015-figure4", "cp2015-figure5"
RANDOM_25 = "generator random-network, nodes 25, density 0.3"
AUTO, EXACT = ("auto, 60 s", "auto, 20 s"), ("exact CPU", "exact GPU")
TOULBAR2 = ("toulbar2, 60 s", "toulbar2, 20 s")
_PATTERNS = {  # of the lines of saved text results, with the numbers that are read
    "block_per_run": r"^ *\d+ +\d+ +\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+) ",
    "h200_instances": r"^\S+ +\d+ ok +\d+ +\S+ +[\d.]+ +([\d.]+) +([\d.]+) +[\d.]+x",
    "marginals_of_cube": r"^(\w+)\.bif +\d+ +[\d,]+" + r" +([\d.]+)" * 3 + r" +\S+ +([\d.]+) +([\d.]+)",
    "minibuckets": r"^\S+ +\S+ +\d+ +\S+ (?:portfolio|pseudo-tree)" + r" +([\d.]+) / \S+ / \S+" * 4 + "$",
    "mixing": r"^(\S+) +(\S+) +1 +1000 +10000 +(\S+) +\S+ +(\S+)",
    "overlapped_transfers": r"^(?:child|split).* ([\d.-]+)%$",
    "path_consistency": r"^\S.* +(\d+) +\S+ +\S+ +(\d+) +\S+ +\S+$",
    "transfer_times": r"^\S+ +(\d+) +[\d.]+ +[\d.]+ +([\d.]+)%",
}


@cache
def saved(name: str) -> list[tuple[str, ...]]:
    """Return the numbers of all lines of ``benchmarks/results/NAME.txt`` that have the form of a result."""
    text = (RESULTS / f"{name}.txt").read_text(encoding="utf-8")
    return [match.groups() for match in re.finditer(_PATTERNS[name], text, re.MULTILINE)]


def only(ratios: Ratios, text: str) -> Ratios:
    """Return the ratios of the cases whose name contains a text."""
    return {case: ratio for case, ratio in ratios.items() if text in case}


def without(ratios: Ratios, text: str) -> Ratios:
    """Return the ratios of the cases whose name does not contain a text."""
    return {case: ratio for case, ratio in ratios.items() if text not in case}


def listed(values: Iterable[object], form: str = "") -> str:
    """Return values as text, separated by commas."""
    return ", ".join(f"{value:{form}}" for value in values)


def inverse(ratios: Ratios) -> Ratios:
    """Return one divided by each ratio."""
    return {case: 1 / ratio for case, ratio in ratios.items()}


def merged(ratios: Iterable[Ratios]) -> Ratios:
    """Return the ratios of several experiments together."""
    return {f"{i} {case}": ratio for i, found in enumerate(ratios) for case, ratio in found.items()}


def percent(ratios: Ratios) -> str:
    """Return by how many per cent the least and the largest ratio exceed one."""
    return span({case: 100 * (ratio - 1) for case, ratio in ratios.items()}) + " %"


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation of numbers that are all different."""
    return correlation([sorted(a).index(x) for x in a], [sorted(b).index(x) for x in b])


def gain(e: Evidence, experiments: Iterable[str], method: str = "BE", quantity: str = "whole") -> Ratios:
    """Return the time on all cores divided by that on the GPU, by experiment and case."""
    return {
        f"{name} {case}": ratio
        for name in experiments
        for case, ratio in e.time_ratios(name, f"{method} CPU", f"{method} GPU", quantity).items()
    }


def one_core_gain(e: Evidence, experiments: Iterable[str], method: str = "BE", quantity: str = "whole") -> Ratios:
    """Return the processor time of one core divided by the GPU's time for the same seeds, by experiment and case."""
    found = {}
    for name in experiments:
        for case in e.cases(name):
            one = e.one_core(name, case, f"{method} CPU", quantity)
            gpu = e.time(name, case, f"{method} GPU", quantity, seeds=one)
            if one and gpu:
                found[f"{name} {case}"] = median(one.values()) / gpu
    return found


def gain_cells(e: Evidence, experiments: Iterable[str], method: str, part: str) -> list[str]:
    """Return the columns of a claim about gains: table work alone and whole command, each by one core and by all."""
    cells = []
    for quantity in ("tables", "whole"):
        found = [only(of(e, experiments, method, quantity), part) for of in (one_core_gain, gain)]
        one, every = (span(ratios) if ratios else "–" for ratios in found)
        cells.append("–" if one == every == "–" else f"{one}; {every}")
    return cells


def correlation_of_gains(e: Evidence, name: str) -> float:
    """Return the correlation of the gains of BE (whole run) and of DPOP (simulated time) over the cases of a table."""
    be, dpop = gain(e, [name]), gain(e, [name], "DPOP", "tables")
    return correlation(*zip(*((be[case], dpop[case]) for case in be if case in dpop), strict=True))


def paper_ratio(e: Evidence, name: str, method: str) -> Ratios:
    """Return the time of a table of GpuBE divided by the one here; DPOP's times are simulated."""
    quantity = "simulated_time" if method.startswith("DPOP") else "time"
    return e.speedups_of_paper(("GpuBE", (BE_TABLES | TABLES)[name]), name, method, quantity)


def printed_gains(e: Evidence) -> list[float]:
    """Return the gains of bucket elimination in all rows of Tables 1 to 3 of GpuBE, repeated rows included."""
    return [
        float(n.value)
        for n in e.numbers
        if n.paper == "GpuBE"
        and n.table.split(",")[0] in TABLES.values()
        and (n.method, n.quantity) == ("BE", "speedup")
    ]


def simulated(e: Evidence, experiments: Iterable[str]) -> Ratios:
    """Return DPOP's simulated time on the CPU divided by the wall-clock time of bucket elimination."""
    found = {}
    for name in experiments:
        for case in e.cases(name):
            dpop, wall = e.time(name, case, "DPOP CPU", "simulated_time"), e.time(name, case, "BE CPU")
            if dpop is not None and wall:
                found[f"{name} {case}"] = dpop / wall
    return found


def times(e: Evidence, experiment: str, case: str, *methods: str) -> str:
    """Return the median times of some methods as text; an instance may be in any of several experiments."""
    names = INSTANCES if experiment == "instances" else (experiment,)
    shown = []
    for method in methods:
        found = next((t for name in names if (t := e.time(name, case, method)) is not None), None)
        shown.append(
            f"{method} {'out of memory' if found is None and e.ended(names, case, method) else seconds(found)}"
        )
    return ", ".join(shown)


def log_time_t(e: Evidence, experiment: str, slower: str, faster: str) -> tuple[float, int]:
    """Return Student's t of the paired differences of the logarithms of two methods' times, and the number of pairs."""
    differences = []
    for case in e.cases(experiment):
        ours = {run["seed"]: run["time"] for run in e.done(experiment, case, faster)}
        pairs = [(run["time"], ours.get(run["seed"])) for run in e.done(experiment, case, slower)]
        differences += [math.log(a / b) for a, b in pairs if b]
    return fmean(differences) / (stdev(differences) / math.sqrt(len(differences))), len(differences)


# DMCMC


def beaten(e: Evidence, sampler: str, other: str) -> Ratios:
    """Return the time of a local search divided by that of a sampler on the GPU of the same machine."""
    return e.time_ratios(SAME_MACHINE, other, f"{sampler} GPU")


def speed(e: Evidence, sampler: str) -> str:
    """Say in how many settings of Table 1 a sampler on a GPU is faster than MGM and MGM2, and by how much at most."""
    parts = []
    for other in ("MGM", "MGM2"):
        found = beaten(e, sampler, other)
        parts.append(
            f"than {other} in {count(found)} of {len(found)} settings (at most {max(found.values()):.1f} times)"
        )
    return f"{sampler} on a GPU is faster {', '.join(parts)}"


def frodo(e: Evidence, sampler: str, other: str, ours: bool = False) -> Ratios:
    """Return the time of a local search of FRODO2, or of ours, divided by that of our method on the same file."""
    if ours:
        return e.time_ratios(FRODO, other, sampler)
    return e.speedups_between(("FRODO2", "meetings"), other, FRODO, sampler)


def frodo_gpu(e: Evidence, sampler: str, other: str) -> Ratios:
    """Return the time of FRODO2 on a file divided by that of our sampler on a GPU in the setting of the file."""
    found = {}
    for case, setting in SETTINGS.items():
        theirs = e.published(("FRODO2", "meetings"), case, other)
        ours = e.time(SAME_MACHINE, setting, f"{sampler} GPU")
        if theirs and ours:
            found[setting] = theirs / ours
    return found


def simulated_meetings(e: Evidence, paper: bool) -> Ratios:
    """Return MGM's simulated time divided by those of the samplers on a GPU, in Table 1 of DMCMC or here."""

    def value(case: str, method: str) -> float | None:
        quantity = "simulated_time"
        if paper:
            return e.published(("DMCMC", "Table 1"), case, method, quantity)
        return e.time(SAME_MACHINE, case, method, quantity)

    pairs = {(c, s): (value(c, "MGM"), value(c, f"{s} GPU")) for c in e.cases(SAME_MACHINE) for s in ("Gibbs", "MH")}
    return {f"{s} {c}": mgm / ours for (c, s), (mgm, ours) in pairs.items() if mgm and ours}


def messages(e: Evidence) -> str:
    """Return the numbers of messages of a run with 5, 10, 25 and 50 agents."""
    cases = ("agents 5", "default", "agents 25", "agents 50")
    return listed(e.done(MEETINGS, case, "Gibbs CPU")[0]["msg_count"] for case in cases)


def margin(e: Evidence, paper: bool) -> Ratios:
    """Return Gibbs' objective divided by the better one of MGM and MGM2 in Table 1, of the paper or here."""

    def value(case: str, method: str) -> float:
        return (e.published(("DMCMC", "Table 1"), case, method, "objective") if paper else None) or (
            0.0 if paper else e.objective(MEETINGS, case, method) or 0.0
        )

    return {case: value(case, "Gibbs GPU") / max(value(case, "MGM"), value(case, "MGM2")) for case in e.cases(MEETINGS)}


def better(e: Evidence, sampler: str) -> Ratios:
    """Return the objective of a sampler divided by that of the better one of MGM and MGM2, in Table 1 here."""
    ratios = [e.quality_ratios(MEETINGS, sampler, name) for name in ("MGM", "MGM2")]
    return {case: min(ratio[case] for ratio in ratios) for case in ratios[0]}


def gibbs_error(e: Evidence) -> float:
    """Return the largest error of Gibbs, as a share of the optimum, over the runs whose optimum is proven."""
    errors = [0.0]
    for case in e.cases(MEETINGS):
        proofs = [run for m in ("DPOP", "auto, 60 s", "toulbar2, 60 s") for run in e.done(MEETINGS, case, m)]
        optimum = {run["seed"]: run["objective"] for run in proofs if run["status"] == "optimal"}
        found = {run["seed"]: run["objective"] for run in e.done(MEETINGS, case, "Gibbs GPU")}
        errors += [1 - found[seed] / optimum[seed] for seed in found.keys() & optimum]
    return max(errors)


def figure5(e: Evidence, sampler: str, reference: str = "DPOP") -> Ratios:
    """Return a sampler's objective divided by that of another method, for each R and S of Fig. 5."""
    return e.quality_ratios(FIGURE_5, f"{sampler} CPU", reference)


def grows_in_samples(e: Evidence) -> bool:
    """Return whether ten times the samples improve the mean objective of both samplers, for every R and S."""
    found = [figure5(e, sampler) for sampler in ("Gibbs", "MH")]
    return all(
        a < b
        for ratios in found
        for r in (1, 10, 100)
        for a, b in pairwise(ratios[f"runs {r}, samples {s}"] for s in (10, 100, 1000, 10_000))
    )


def same_assignment(e: Evidence) -> int:
    """Return the number of seeds for which one run of 100 and of 10,000 Gibbs samples end with one objective."""
    few, many = (
        {run["seed"]: run["objective"] for run in e.done(FIGURE_5, f"runs 1, samples {s}", "Gibbs CPU")}
        for s in (100, 10_000)
    )
    return sum(few[seed] == many[seed] for seed in few)


def solved(e: Evidence, experiment: str, method: str) -> int:
    """Return the number of cases of which a method solves all instances."""
    return sum(
        len(e.done(experiment, case, method)) == len(e.runs(experiment, case, method)) for case in e.cases(experiment)
    )


def mixing(family: str, method: str) -> tuple[str, str]:
    """Return the distinct states of a chain and the effective samples of a row at temperature 1, R = 10, S = 1,000."""
    return next((states, effective) for f, m, states, effective in saved("mixing") if (f, m) == (family, method))


# GpuBE, GPU-DBE and CUBE


def needed(e: Evidence, experiment: str, case: str, method: str) -> int:
    """Return the bytes that an elimination needs, from a run that did not have them."""
    errors = [run.get("error", "") for run in e.runs(experiment, case, method)]
    return next(int(m[1].replace(",", "")) for error in errors if (m := re.search(r"needs ([\d,]+) bytes", error)))


def longest(e: Evidence, experiment: str, method: str) -> float:
    """Return the longest median time of a method over the cases."""
    return max((e.time(experiment, case, method) or 0.0 for case in e.cases(experiment)), default=0.0)


def same_card() -> Ratios:
    """Return the time of GpuBE divided by ours on one H200, without orders and pseudo-trees."""
    return {str(i): float(theirs) / float(ours) for i, (ours, theirs) in enumerate(saved("h200_instances"))}


def overlap_gains() -> list[float]:
    """Return the gains of overlapping transfers with kernels in per cent, of each bucket."""
    return [float(share) for (share,) in saved("overlapped_transfers")]


def by_topology(e: Evidence, method: str) -> dict[str, list[float]]:
    """Return the gains of Fig. 4 of GPU-DBE in table work (simulated time for DPOP), by topology."""
    found = gain(e, [FIGURE_4], method, "tables")
    return {label: list(only(found, f"generator {name}").values()) for label, name in CP2015.items()}


def averages(e: Evidence, method: str) -> str:
    """Return the average and the least gain on the three topologies."""
    return listed(f"{label} {fmean(found):.1f} ({min(found):.1f})" for label, found in by_topology(e, method).items())


def reaches_published(e: Evidence, method: str, published: Sequence[float]) -> bool:
    """Return whether the average gain is that of the paper or more, on all topologies."""
    return all(fmean(ours) >= theirs for ours, theirs in zip(by_topology(e, method).values(), published, strict=True))


def t_test(e: Evidence, method: str) -> str:
    """Return Student's t of a method's times on the CPU and the GPU in Fig. 4 of GPU-DBE, as text."""
    t, pairs = log_time_t(e, FIGURE_4, f"{method} CPU", f"{method} GPU")
    return f"{method} t = {t:.1f} with {pairs} pairs"


def falling_bounds(e: Evidence) -> tuple[int, int]:
    """Return how many of the paper's instances have a bound that falls as z grows, and the number of instances."""
    bounds: dict[tuple[str, str], list[float]] = {}
    for number in e.numbers:
        if number.table in INSTANCE_TABLES and number.quantity == "bound":
            bounds.setdefault((number.table, number.case), []).append(float(number.value))
    return sum(any(a > b for a, b in pairwise(row)) for row in bounds.values()), len(bounds)


def matched_bounds() -> tuple[int, int, int]:
    """Return in how many cases moment matching gives a higher, the same, and a lower lower bound."""
    pairs = [(float(r[i]), float(r[i + 2])) for r in saved("minibuckets") for i in (0, 1)]
    higher, lower = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return higher, len(pairs) - higher - lower, lower


def transfer_shares() -> Mapping[int, list[float]]:
    """Return the share of transfers in a run of mini-buckets on a GPU in per cent, for each topology, by z."""
    shares: dict[int, list[float]] = {}
    for z, share in saved("transfer_times"):
        shares.setdefault(int(z), []).append(float(share))
    return shares


def instance_name(case: str) -> str:
    """Return the name that GpuBE's Tables 6 to 10 have for the instance of a case."""
    name = case.removeprefix("file ").partition(".")[0].replace("_", "-")
    return {"oconnell": "connell"}.get(name, name)


def instance_cases(e: Evidence) -> dict[str, tuple[str, str]]:
    """Return the experiment and the case of each instance of Tables 6 to 10 that was run, by its name there."""
    known = {n.case for n in e.numbers if n.table in INSTANCE_TABLES}
    found = {instance_name(case): (name, case) for name in INSTANCES for case in e.cases(name)}
    return {name: place for name, place in found.items() if name in known}


def obtainable(e: Evidence, table: str) -> tuple[int, int, int]:
    """Return the instances of a table, those held as files, and those that are a held graph with other colours."""
    names = {n.case for n in e.numbers if n.table == table}
    places = [place for name, place in instance_cases(e).items() if name in names]
    run = [
        record for experiment, case in places for record in e.records(experiment) if case_name(record["case"]) == case
    ]
    files = {record["case"]["problem.file"] for record in run}
    made = sum("/coloring_made/" in file for file in files)
    return len(names), len(places) - made, made


def proven_instances(e: Evidence, methods: Sequence[str], table: str = "") -> list[str]:
    """Return the instances of Tables 6 to 10 that one of some methods proved optimal."""
    return [
        name
        for name, (experiment, case) in instance_cases(e).items()
        if any(run["status"] == "optimal" for m in methods for run in e.done(experiment, case, m))
        and (not table or any(n.table == table and n.case == name for n in e.numbers))
    ]


def equal_optima(e: Evidence) -> tuple[int, int]:
    """Return how many proven optima of instances of Tables 6 to 10 equal the printed ones, and how many are printed."""
    printed = {n.case: n.value for n in e.numbers if n.table in INSTANCE_TABLES and n.quantity == "objective"}
    pairs = [
        (run["objective"], float(printed[name]))
        for name, (experiment, case) in instance_cases(e).items()
        for method in (*EXACT, *AUTO)
        for run in e.done(experiment, case, method)
        if run["status"] == "optimal" and printed.get(name)
    ]
    return sum(ours == theirs for ours, theirs in pairs), len(pairs)


def network(name: str) -> str:
    """Return the case of a Bayesian network of CUBE's Table II."""
    return f"file {name}.bif.gz"


def cube(e: Evidence, method: str, quantity: str = "time_ms", table: str = "Table II") -> dict[str, float]:
    """Return the published numbers of the eight networks."""
    found = {name: e.published(("CUBE", table), network(name), method, quantity) for name in NETWORKS}
    return {name: value for name, value in found.items() if value is not None}


def marginals(e: Evidence, method: str, quantity: str = "tables") -> dict[str, float]:
    """Return the seconds of all marginals of the eight networks here."""
    found = {name: e.time("cube-table2-again", network(name), method, quantity) for name in NETWORKS}
    return {name: value for name, value in found.items() if value is not None}


def cliques(e: Evidence) -> dict[str, tuple[int, int]]:
    """Return the number of cliques published and found here, by network."""
    published = cube(e, "", "number of jt nodes", "Table I")
    runs = {name: e.done("cube-table2-again", network(name), "BP CPU") for name in published}
    return {name: (int(published[name]), found[0]["cliques"]) for name, found in runs.items() if found}


def table_sizes(e: Evidence) -> dict[str, float]:
    """Return the average number of entries of a clique's table, by network."""
    runs = {name: e.done("cube-table2-again", network(name), "BP GPU")[0] for name in NETWORKS}
    return {name: run["cells"] / run["cliques"] for name, run in runs.items()}


def marginal_gains(e: Evidence) -> dict[str, float]:
    """Return the time of all marginals on 6 cores divided by the one on a GPU, by network."""
    cpu, gpu = marginals(e, "BP CPU"), marginals(e, "BP GPU")
    return {name: cpu[name] / gpu[name] for name in NETWORKS}


def faster_than_published(e: Evidence, transfers: bool) -> list[str]:
    """Return the networks that take at most the published time on a GPU, here with transfers, there with or without."""
    here, kernels, copies = marginals(e, "BP GPU"), cube(e, "BP GPU"), cube(e, "BP GPU", "transfers_ms")
    return [name for name in NETWORKS if 1000 * here[name] <= kernels[name] + transfers * copies[name]]
