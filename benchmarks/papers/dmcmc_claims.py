"""Claims of DMCMC: Fioretto, Yeoh and Pontelli, CP 2016."""

import re
from itertools import pairwise

from benchmarks.harness import RESULTS
from benchmarks.papers.claim import Claim, Verdict, stated
from benchmarks.papers.evidence import Evidence, count, seconds, span

TABLE = ("DMCMC", "Table 1")
RUNS = "dmcmc-table1"
SAME_MACHINE = "dmcmc-table1-again"  # MGM and MGM2 on the CPU, Gibbs and MH on the GPU of one machine
FIGURE = "dmcmc-figure5"
SAMPLING = "dmcmc-sampling-algorithms"
_LARGE = "runs 100, samples 10000"
_MAPPING_TIMES = RESULTS / "block_per_run.txt"  # the output of benchmarks.papers.block_per_run on a card


def times(evidence: Evidence, experiment: str, case: str, *methods: str) -> str:
    """Return the median times of some methods as text."""
    return ", ".join(f"{name} {seconds(evidence.time(experiment, case, name))}" for name in methods)


def beaten(evidence: Evidence, sampler: str, other: str) -> dict[str, float]:
    """Return the time of a local search divided by that of a sampler on the same machine, for each setting."""
    return evidence.time_ratios(SAME_MACHINE, other, sampler)


def _speed(evidence: Evidence, sampler: str) -> str:
    """Say in how many settings of Table 1 a sampler on a GPU is faster than MGM and MGM2, and by how much at most."""
    mgm, mgm2 = (beaten(evidence, f"{sampler} GPU", name) for name in ("MGM", "MGM2"))
    return (
        f"{sampler} on a GPU is faster than MGM in {count(mgm)} of {len(mgm)} settings (at most {max(mgm.values()):.1f}"
        f" times), than MGM2 in {count(mgm2)} (at most {max(mgm2.values()):.1f} times)"
    )


def _orders(evidence: Evidence, sampler: str, factor: float) -> bool:
    """Return whether a sampler on a GPU is ``factor`` times as fast as MGM and MGM2 in every setting of Table 1."""
    return all(
        ratio >= factor for name in ("MGM", "MGM2") for ratio in beaten(evidence, f"{sampler} GPU", name).values()
    )


def _better(evidence: Evidence, sampler: str, *others: str) -> dict[str, float]:
    """Return the objective of a sampler divided by the best of other methods, for each setting of Table 1."""
    ratios = [evidence.quality_ratios(RUNS, sampler, name) for name in others]
    return {case: min(ratio[case] for ratio in ratios) for case in ratios[0]}


def _error(evidence: Evidence) -> float:
    """Return the largest error of Gibbs, as a share of the optimum, over the runs whose optimum is proven."""
    errors = [0.0]
    for case in evidence.cases(RUNS):
        optimum = {
            run["seed"]: run["objective"]
            for method in ("DPOP", "auto, 60 s", "toulbar2, 60 s")
            for run in evidence.done(RUNS, case, method)
            if run["status"] == "optimal"
        }
        errors += [
            1 - run["objective"] / optimum[run["seed"]]
            for run in evidence.done(RUNS, case, "Gibbs GPU")
            if run["seed"] in optimum
        ]
    return max(errors)


def _figure5(evidence: Evidence, sampler: str, runs: int) -> str:
    """Return the ratio to the optimum of a sampler with R runs, by the number of samples S."""
    ratios = evidence.quality_ratios(FIGURE, f"{sampler} CPU", "DPOP")
    return ", ".join(f"{ratios[f'runs {runs}, samples {s}']:.4f}" for s in (10, 100, 1000, 10_000))


def _mgm2(evidence: Evidence) -> float:
    return evidence.quality_ratios(FIGURE, "MGM2", "DPOP")[_LARGE]


def _grows_in_samples(evidence: Evidence) -> bool:
    """Return whether ten times the samples improve the mean objective of both samplers, for every R and S."""
    found = [
        evidence.objective(FIGURE, f"runs {r}, samples {s}", f"{sampler} CPU")
        for sampler in ("Gibbs", "MH")
        for r in (1, 10, 100)
        for s in (10, 100, 1000, 10_000)
    ]
    known = [value for value in found if value is not None]
    return all(a < b for i, (a, b) in enumerate(pairwise(known)) if i % 4 != 3)


def _same_assignment(evidence: Evidence) -> int:
    """Return the number of seeds for which one run of 100 and of 10,000 Gibbs samples end with one objective."""
    few, many = (
        {run["seed"]: run["objective"] for run in evidence.done(FIGURE, f"runs 1, samples {s}", "Gibbs CPU")}
        for s in (100, 10_000)
    )
    return sum(few[seed] == many[seed] for seed in few)


def _dpop_solved(evidence: Evidence) -> int:
    """Return the number of settings in which DPOP solves all instances."""
    cases = evidence.cases(RUNS)
    return sum(len(evidence.done(RUNS, case, "DPOP")) == len(evidence.runs(RUNS, case, "DPOP")) for case in cases)


def _messages(evidence: Evidence) -> str:
    """Return the numbers of messages of a run with 5, 10, 25 and 50 agents."""
    cases = ("agents 5", "default", "agents 25", "agents 50")
    return ", ".join(f"{evidence.done(RUNS, case, 'Gibbs CPU')[0]['msg_count']}" for case in cases)


def _mixing(family: str, method: str) -> tuple[str, str]:
    """Return the distinct states of a chain and the effective samples of a row at temperature 1, R = 10 and S = 1,000.

    Both are read from the saved output of ``benchmarks.papers.mixing``.
    """
    text = (RESULTS / "mixing.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{family} +{method} +1 +1000 +10000 +(\S+) +\S+ +(\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1], found[2]


def _mapping_times() -> str:
    """Say how the times of the paper's mapping compare with ours, as ``benchmarks.papers.block_per_run`` saved them."""
    if not _MAPPING_TIMES.exists():
        return "`benchmarks.papers.block_per_run` times both"
    lines = [line.split() for line in _MAPPING_TIMES.read_text(encoding="utf-8").splitlines()]
    ratios = {" ".join(line[:4]): float(line[6]) for line in lines if len(line) == 9 and line[0].isdigit()}
    return f"the paper's takes {span(ratios)} times as long (`benchmarks/results/block_per_run.txt`)"


def _of_gibbs(evidence: Evidence, method: str) -> str:
    return span(evidence.quality_ratios(SAMPLING, method, "Gibbs"), 3)


def _gibbs_times(evidence: Evidence) -> str:
    """Return the shortest and the longest time of Gibbs on the settings of the comparison of sampling algorithms."""
    times = [evidence.time(SAMPLING, case, "Gibbs") or 0.0 for case in evidence.cases(SAMPLING)]
    return f"{seconds(min(times))} to {seconds(max(times))}"


CLAIMS = [
    Claim(
        "Abstract, §1",
        "Good solutions up to two orders of magnitude faster than MGM and MGM2",
        "MH at \\|X\\| = 50: 0.489 s; MGM 180 s",
        lambda e: f"{_speed(e, 'MH')}; default: {times(e, SAME_MACHINE, 'default', 'MGM', 'MGM2', 'MH GPU')}",
        Verdict.FAILS,
        "our MGM and MGM2 are compiled and thousands of times as fast as those of the paper; see the table below",
        lambda e: max(beaten(e, "MH GPU", "MGM2").values()) >= 100,
    ),
    Claim(
        "§6",
        "Gibbs on a GPU is an order of magnitude faster than MGM and MGM2",
        "0.301 s; MGM 11.9 s, MGM2 23.9 s (default)",
        lambda e: f"{_speed(e, 'Gibbs')}; default: {times(e, SAME_MACHINE, 'default', 'MGM', 'MGM2', 'Gibbs GPU')}",
        Verdict.FAILS,
        "most of a sampled run's time is spent on the host",
        lambda e: _orders(e, "Gibbs", 10),
    ),
    Claim(
        "§6",
        "MH on a GPU is at least one, up to two orders of magnitude faster than MGM and MGM2",
        "0.102 s (default)",
        lambda e: f"{_speed(e, 'MH')}",
        Verdict.FAILS,
        "",
        lambda e: _orders(e, "MH", 10),
    ),
    Claim(
        "§7",
        "Good solutions up to one order of magnitude faster than MGM and MGM2",
        "the abstract says two",
        lambda e: (
            "at \\|X\\| = 50: " + times(e, SAME_MACHINE, "variables_per_agent 50", "MGM", "MGM2", "Gibbs GPU", "MH GPU")
        ),
        Verdict.IN_PART,
        "against MGM2 where local problems are large; MGM is faster in all settings",
    ),
    Claim(
        "§6",
        "Gibbs finds better solutions than MGM and MGM2 in all settings",
        "13 of 13 settings",
        lambda e: (
            f"{count(_better(e, 'Gibbs GPU', 'MGM', 'MGM2'))} of 13; the better of both is beaten by a factor of"
            f" {span(_better(e, 'Gibbs GPU', 'MGM', 'MGM2'), 4)}"
        ),
        Verdict.HOLDS,
        "",
        lambda e: count(_better(e, "Gibbs GPU", "MGM", "MGM2")) == 13,
    ),
    Claim(
        "§6",
        "Gibbs on a CPU takes about as long as MGM and MGM2",
        "12.1 s; MGM 11.9 s, MGM2 23.9 s (default)",
        lambda e: (
            f"{times(e, RUNS, 'default', 'Gibbs CPU', 'MGM', 'MGM2')}; over the settings"
            f" {span(e.time_ratios(RUNS, 'Gibbs CPU', 'MGM2'))} times MGM2's time"
        ),
        Verdict.FAILS,
        "",
        lambda e: max(e.time_ratios(RUNS, "Gibbs CPU", "MGM2").values()) < 2,
    ),
    Claim(
        "§6",
        "Qualities of MH are comparable to those of MGM and MGM2",
        "2775, 2663; MGM 2766, MGM2 2783 (default)",
        lambda e: (
            f"MH reaches {span(_better(e, 'MH GPU', 'MGM', 'MGM2'), 3)} of the better of both; only at \\|X\\| = 5"
            " it is above both"
        ),
        Verdict.FAILS,
        "100 samples of the joint proposal from a random start are too few; our MGM and MGM2 find better answers",
        lambda e: min(_better(e, "MH GPU", "MGM", "MGM2").values()) >= 0.98,
    ),
    Claim(
        "§6",
        "GPU versions are up to one order of magnitude faster than CPU versions",
        "Gibbs 40 times (default)",
        lambda e: (
            f"Gibbs {span(e.time_ratios(RUNS, 'Gibbs CPU', 'Gibbs GPU'))} times, MH"
            f" {span(e.time_ratios(RUNS, 'MH CPU', 'MH GPU'))} times 2 cores"
        ),
        Verdict.HOLDS,
        "",
        lambda e: max(e.time_ratios(RUNS, "Gibbs CPU", "Gibbs GPU").values()) >= 10,
    ),
    Claim(
        "§6",
        "... and up to two orders when the local problem grows",
        "MH 115 times at \\|X\\| = 50",
        lambda e: (
            f"MH {e.time_ratios(RUNS, 'MH CPU', 'MH GPU')['variables_per_agent 50']:.0f} times at \\|X\\| = 50; Gibbs"
            f" {e.time_ratios(FIGURE, 'Gibbs CPU', 'Gibbs GPU')[_LARGE]:.0f} and MH"
            f" {e.time_ratios(FIGURE, 'MH CPU', 'MH GPU')[_LARGE]:.0f} times with R = 100 and S = 10,000 (Fig. 5)"
        ),
        Verdict.IN_PART,
        "by R and S, not by the local problem at R = 10 and S = 100",
    ),
    Claim(
        "§1, §6",
        "Gibbs is within 5 % of the optimum where that is known",
        "2.8 % at most (\\|X\\| = 5)",
        lambda e: f"{100 * _error(e):.2f} % at most over all runs with a proven optimum",
        Verdict.HOLDS,
        "",
        lambda e: _error(e) <= 0.05,
    ),
    Claim(
        "§6",
        "DMCMC outperforms DPOP even on small problems",
        "0.098 s; DPOP 6.72 s (\\|X\\| = 5)",
        lambda e: f"Gibbs on a GPU takes 1 / {span(e.time_ratios(RUNS, 'DPOP', 'Gibbs GPU'))} of DPOP's time",
        Verdict.HOLDS,
        "in time; DPOP proves its answer",
        lambda e: min(e.time_ratios(RUNS, "DPOP", "Gibbs GPU").values()) > 1,
    ),
    Claim(
        "Table 1",
        "DPOP solves 4 of the 13 settings within 300 s",
        "4 of 13",
        lambda e: (
            f"{_dpop_solved(e)} of 13, in at most 16 GiB; the default problem takes"
            f" {seconds(e.time(RUNS, 'default', 'DPOP'))}"
        ),
        Verdict.NOT_COMPARABLE,
        "better elimination orders",
    ),
    Claim(
        "Table 1",
        "Times of Gibbs on a GPU",
        "0.098 to 12.7 s",
        lambda e: f"shorter by a factor of {span(e.speedups_of_paper(TABLE, SAME_MACHINE, 'Gibbs GPU'))}",
        Verdict.NOT_COMPARABLE,
        "other cards: a Tesla C2075 of 2011 there, an H100 here",
    ),
    Claim(
        "Table 1",
        "Times of MH on a GPU",
        "0.047 to 0.489 s",
        lambda e: f"shorter by a factor of {span(e.speedups_of_paper(TABLE, SAME_MACHINE, 'MH GPU'))}",
        Verdict.NOT_COMPARABLE,
        "other cards",
    ),
    Claim(
        "Table 1",
        "Times of MGM and MGM2",
        "5.3 to 180 s, 8.7 to 185 s",
        lambda e: (
            f"shorter by factors of {span(e.speedups_of_paper(TABLE, SAME_MACHINE, 'MGM'))} and"
            f" {span(e.speedups_of_paper(TABLE, SAME_MACHINE, 'MGM2'))}"
        ),
        Verdict.NOT_COMPARABLE,
        "FRODO's, on a Java virtual machine, there; compiled here",
    ),
    Claim(
        "Table 1",
        "Qualities",
        "default 2663 to 3338",
        lambda e: ", ".join(
            f"{name} {e.objective(RUNS, 'default', name):.0f}"
            for name in ("MGM", "MGM2", "Gibbs GPU", "MH GPU", "DPOP")
        ),
        Verdict.NOT_COMPARABLE,
        "its instances and its utility function are not public",
    ),
    Claim(
        "§6",
        "Local graphs have ⌊n(n−1)p⌋ edges",
        "n(n−1)p",
        stated("⌊n(n−1)p/2⌋"),
        Verdict.FAILS,
        "at p = 1 it exceeds the complete graph",
    ),
    Claim(
        "Fig. 5",
        "A GPU is more than an order of magnitude faster than a CPU",
        "figure",
        lambda e: (
            f"Gibbs {e.time_ratios(FIGURE, 'Gibbs CPU', 'Gibbs GPU')['runs 1, samples 100']:.1f} times at R = 1,"
            f" {e.time_ratios(FIGURE, 'Gibbs CPU', 'Gibbs GPU')['runs 100, samples 100']:.0f} at R = 100 (S = 100),"
            f" {e.time_ratios(FIGURE, 'Gibbs CPU', 'Gibbs GPU')[_LARGE]:.0f} at R = 100, S = 10,000"
        ),
        Verdict.IN_PART,
        "with enough chains; with one chain there is no gain",
    ),
    Claim(
        "Fig. 5",
        "Quality increases with R",
        "figure",
        lambda e: (
            "Gibbs at S = 100 and R = 1, 10, 100: "
            + ", ".join(
                f"{e.quality_ratios(FIGURE, 'Gibbs CPU', 'DPOP')[f'runs {r}, samples 100']:.4f}" for r in (1, 10, 100)
            )
            + " of the optimum"
        ),
        Verdict.HOLDS,
        "",
        lambda e: (
            e.quality_ratios(FIGURE, "Gibbs CPU", "DPOP")["runs 1, samples 100"]
            < e.quality_ratios(FIGURE, "Gibbs CPU", "DPOP")["runs 10, samples 100"]
            < e.quality_ratios(FIGURE, "Gibbs CPU", "DPOP")["runs 100, samples 100"]
        ),
    ),
    Claim(
        "Fig. 5",
        "Quality increases with S",
        "figure",
        lambda e: (
            f"at R = 1 and S = 10, 100, 1000, 10,000: Gibbs {_figure5(e, 'Gibbs', 1)}, MH {_figure5(e, 'MH', 1)};"
            f" Gibbs ends with one objective at S = 100 and 10,000 for {_same_assignment(e)} of 10 seeds"
        ),
        Verdict.FAILS,
        "true of MH, not of Gibbs: at temperature 1 and utilities up to 1,000 its chains are frozen after some sweeps",
        _grows_in_samples,
    ),
    Claim(
        "Fig. 5",
        "Gibbs is slower than MH",
        "figure",
        lambda e: (
            f"Fig. 5, R = 100, S = 10,000: {seconds(e.time(FIGURE, _LARGE, 'Gibbs GPU'))} against"
            f" {seconds(e.time(FIGURE, _LARGE, 'MH GPU'))} on a GPU; Table 1:"
            f" {count(e.time_ratios(RUNS, 'Gibbs GPU', 'MH GPU'))} of 13 settings"
        ),
        Verdict.IN_PART,
        "Gibbs keeps conditional scores up to date and computes no normalising constant",
    ),
    Claim(
        "Fig. 5",
        "Gibbs finds better solutions than MH",
        "figure",
        lambda e: f"MH reaches {span(e.quality_ratios(FIGURE, 'MH CPU', 'Gibbs CPU'), 3)} of Gibbs' objective",
        Verdict.HOLDS,
        "",
        lambda e: max(e.quality_ratios(FIGURE, "MH CPU", "Gibbs CPU").values()) < 1,
    ),
    Claim(
        "Fig. 5",
        "Gibbs is better than MGM2 for S > 20",
        "figure",
        lambda e: (
            f"MGM2 {_mgm2(e):.4f} of the optimum; Gibbs"
            f" {min(e.quality_ratios(FIGURE, 'Gibbs CPU', 'DPOP').values()):.4f} at least, at R = 1 and S = 10"
        ),
        Verdict.HOLDS,
        "already at S = 10",
        lambda e: min(e.quality_ratios(FIGURE, "Gibbs CPU", "MGM2").values()) > 1,
    ),
    Claim(
        "Fig. 5",
        "MH is comparable to MGM2",
        "figure",
        lambda e: (
            f"MH {span(e.quality_ratios(FIGURE, 'MH CPU', 'MGM2'), 3)} of MGM2's objective; above it in"
            f" {count(e.quality_ratios(FIGURE, 'MH CPU', 'MGM2'))} of 12 settings"
        ),
        Verdict.FAILS,
        "only with R = 100 and S = 10,000",
        lambda e: min(e.quality_ratios(FIGURE, "MH CPU", "MGM2").values()) > 0.98,
    ),
    Claim(
        "§4, Property 1",
        "N = 1/(α·ε) samples contain one of the best α of all assignments with probability 1 − ε",
        "proof by reference",
        lambda e: (
            f"Fig. 5's problem, Gibbs, N = 10,000: a chain visits {_mixing('random', 'gibbs')[0]} distinct states, and"
            f" {_mixing('random', 'gibbs')[1]} samples of a row are effective; MH"
            f" {_mixing('random', 'metropolis-hastings')[0]} and {_mixing('random', 'metropolis-hastings')[1]}; default"
            f" problem of Table 1: Gibbs {_mixing('meeting-scheduling', 'gibbs')[0]} and"
            f" {_mixing('meeting-scheduling', 'gibbs')[1]} (`benchmarks/results/mixing.txt`)"
        ),
        Verdict.IN_PART,
        "it needs draws that behave as if independent; a result says how many do, and where chains are frozen",
    ),
    Claim(
        "§4, Theorem 1",
        "Over agents the probabilities multiply",
        "proof",
        stated("as Property 1"),
        Verdict.IN_PART,
        "under the assumptions of Property 1",
    ),
    Claim(
        "§4, Theorem 2",
        "O(\\|A\\|) messages",
        "2 (\\|A\\| − 1)",
        lambda e: f"{_messages(e)} with 5, 10, 25 and 50 agents",
        Verdict.HOLDS,
        "",
        lambda e: _messages(e) == "8, 18, 48, 98",
    ),
    Claim(
        "§4, Theorem 3",
        "Memory is exponential in the induced width",
        "proof",
        stated("the same; larger separators are sliced or split into mini-buckets"),
        Verdict.HOLDS,
    ),
    Claim(
        "§2",
        "MCMC cannot solve problems with hard constraints",
        "statement",
        stated("chains give a violation a finite penalty; answers are evaluated with the constraints"),
        Verdict.FAILS,
        "as stated; a penalty is enough for feasible answers, without the paper's guarantee",
    ),
    Claim(
        "Fig. 4",
        "A block per run, a group of threads per row, a thread per value",
        "figure",
        lambda e: f"a thread per chain here, several for joint proposals; {_mapping_times()}",
        Verdict.NOT_COMPARABLE if _MAPPING_TIMES.exists() else Verdict.NOT_REPEATED,
        "both mappings on one card" if _MAPPING_TIMES.exists() else "the timings on a card are missing",
    ),
    Claim(
        "§6",
        "Not compared: DUCT",
        "DPOP outperforms it",
        lambda e: (
            f"after 2 s DUCT reaches {_of_gibbs(e, 'DUCT, 2 s')} of Gibbs' objective; Gibbs takes {_gibbs_times(e)}"
        ),
        Verdict.NOT_COMPARABLE,
        "the paper has no numbers",
    ),
    Claim(
        "§6",
        "Distributed Gibbs needs many more iterations than DMCMC with Gibbs",
        "by its own paper",
        lambda e: (
            f"after 2 s it reaches {_of_gibbs(e, 'Distributed Gibbs, 2 s')} of the objective that Gibbs has with R = 10"
            f" and S = 100 in {_gibbs_times(e)}"
        ),
        Verdict.HOLDS,
        "on a CPU",
        lambda e: max(e.quality_ratios(SAMPLING, "Distributed Gibbs, 2 s", "Gibbs").values()) < 1,
    ),
    Claim(
        "§7",
        "Future work: less memory, as in MB-DPOP",
        "–",
        stated("slicing of separators within `budget.memory`, and mini-buckets"),
        Verdict.HOLDS,
        "done here",
    ),
]
