"""``dmcmc solve``: the best assignment, the partition function, counts and marginals of any problem file."""

import json
import math
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.instances import REASON, path_of, rows
from support.naive import optimum, utility
from support.problem_strategies import random_problem
from support.ranks import lines
from support.runs import large_problem
from support.toulbar2 import optima

from dmcmc import Factor, Problem
from dmcmc.cli.commands.solve import TASKS, SolveJob
from dmcmc.cli.main import main
from dmcmc.config.configuration import config_of
from dmcmc.config.settings import Settings
from dmcmc.files.document import Document
from dmcmc.formats import registry as formats
from dmcmc.inference.marginals.counting import count_solutions, log_partition
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.questions.sums import sums

MEMORY = 1 << 28
NETWORK = "BAYES 3 2 3 2 3 1 0 2 0 1 3 0 1 2 2 .25 .75 6 .5 .5 0 .125 .375 .5 12" + " .9 .1 .2 .8 1 0 .3 .7 .4 .6 .5 .5"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def solved(capfd):
    """Run ``dmcmc solve --json`` and return the printed data with the exit code."""

    def run(*argv):
        code = main(["solve", "--json", *map(str, argv)])
        out, error = capfd.readouterr()
        assert not lines(error)
        return json.loads(out) | {"code": code}

    return run


def assignments(problem):
    return product(*map(range, problem.domains.tolist()))


def utilities(problem):
    return np.array([utility(problem, values) for values in assignments(problem)], dtype=np.float64)


def log_sum(values):
    top = values.max()
    return top + math.log(math.fsum(np.exp(values - top))) if top > -math.inf else -math.inf


def ring(n, colours):
    """Return a cycle with (k − 1)^n + (−1)^n (k − 1) proper colourings."""
    differ = np.where(np.eye(colours, dtype=bool), -math.inf, 0.0)
    factors = tuple(Factor.of((i, (i + 1) % n), differ) for i in range(n))
    return Problem(tuple(f"x{i}" for i in range(n)), np.full(n, colours), ("a",), np.zeros(n, dtype=int), factors)


@pytest.mark.parametrize("suffix", [".npz", ".xml", ".yaml", ".cfn", ".wcsp", ".uai"])
@pytest.mark.parametrize("seed", [1, 3, 4])
def test_solve_finds_the_optimum_in_any_format(solved, suffix, seed):
    sense = {".wcsp": "min", ".uai": "max"}.get(suffix, ["max", "min"][seed % 2])
    agents = 1 if suffix in (".wcsp", ".uai", ".cfn") else 3
    problem = random_problem(seed, variables=6, agents=agents, factors=7, arity=2, hard=0.15, sense=sense)
    problem = problem if suffix != ".wcsp" else shifted(problem)
    formats.save(problem, f"p{suffix}")
    read = formats.load(f"p{suffix}")
    best = optimum(read)
    found = solved(f"p{suffix}")
    if best == -math.inf:
        assert (found["status"], found["code"], found["objective"]) == ("infeasible", 3, None)
    else:
        assert (found["status"], found["code"]) == ("optimal", 0)
        assert found["objective"] == pytest.approx(read.to_own_sense(best), abs=1e-9)
        assert read.evaluate(found["assignment"]) == (found["objective"], 0)
    count = solved(f"p{suffix}", "--task", "count")
    assert count["value"] == np.isfinite(utilities(read)).sum()
    assert count["code"] == (0 if count["value"] else 3)


def shifted(problem):
    """Return the problem as costs that start at 0: 9 − utility."""
    costs = []
    for f in problem.factors:
        hard = f.table == np.iinfo(f.table.dtype).min
        costs.append(Factor.of(f.scope, np.where(hard, np.inf, 9.0 - f.table), "min"))
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, tuple(costs), sense="min")


def test_solve_finds_the_optimum_of_toulbar2(solved):
    pytest.importorskip("pytoulbar2")
    problem = shifted(random_problem(11, variables=14, agents=1, factors=40, arity=3, domain=4, hard=0.05))
    formats.save(problem, "p.wcsp")
    (reference,) = optima([Path("p.wcsp").read_text()])
    found = solved("p.wcsp")
    assert found["objective"] == (None if reference is None else round(reference))


def test_the_explanation_of_a_network_has_its_probability(solved):
    Path("n.uai").write_text(NETWORK)
    Path("e").write_text("1 1 2")
    read = formats.load("n.uai")
    every = utilities(read).reshape(2, 3, 2)
    for arguments, left in (((), every), (("--evidence", "e"), every[:, 2])):
        found = solved("n.uai", *arguments)
        assert found["objective"] == pytest.approx(left.max())
        assert found["value"] == pytest.approx(math.exp(left.max()))
        assert found["log10"] == pytest.approx(left.max() / math.log(10))
        assert found["status"] == "optimal"
        pr = solved("n.uai", "--task", "pr", *arguments)
        assert (pr["status"], pr["z"]) == ("exact", None)
        assert pr["value"] == pytest.approx(np.exp(left).sum())
        assert pr["ln"] == pytest.approx(math.log(pr["value"]))
        assert pr["log10"] == pytest.approx(math.log10(pr["value"]))
        assert solved("n.uai", "--task", "count", *arguments)["value"] == np.isfinite(left).sum()
    assert found["assignment"]["x1"] == 2


def test_a_bif_network_sums_to_one(solved):
    Path("n.bif").write_text(
        "network n { } variable a { type discrete [ 2 ] { yes, no }; } variable b { type discrete [ 2 ] { on, off }; }"
        "probability ( a ) { table 0.2, 0.8; } probability ( b | a ) { (yes) 0.5, 0.5; (no) 0.9, 0.1; }"
    )
    assert solved("n.bif", "--task", "pr")["value"] == pytest.approx(1)
    found = solved("n.bif")
    assert found["value"] == pytest.approx(0.72)
    assert found["assignment"] == {"a": "no", "b": "on"}
    Path("seen").write_text("# by names\nb = off\n")
    found = solved("n.bif", "--evidence", "seen")
    assert found["value"] == pytest.approx(0.1)
    assert found["assignment"] == {"a": "yes", "b": "off"}
    assert solved("n.bif", "--task", "pr", "--evidence", "seen")["value"] == pytest.approx(0.18)


def test_impossible_evidence_is_proven_infeasible(solved):
    Path("n.uai").write_text("MARKOV 1 2 1 1 0 2 0 1")
    Path("n.uai.evid").write_text("1 0 0")
    assert (solved("n.uai")["status"], solved("n.uai")["value"]) == ("infeasible", None)
    for task in ("pr", "count"):
        found = solved("n.uai", "--task", task)
        assert (found["status"], found["value"], found["ln"], found["code"]) == ("infeasible", 0, None, 3)


@pytest.mark.parametrize("seed", range(80))
def test_sums_and_counts_equal_brute_force_and_mini_buckets_bound_them(seed):
    sense = "min" if seed % 3 else "max"
    problem = random_problem(seed, variables=6, hard=0.3, floats=seed % 2 == 0, sense=sense)
    every = utilities(problem)
    exact = log_partition(problem, MEMORY).ln
    assert exact == pytest.approx(log_sum(every), rel=1e-12, abs=1e-12)
    assert count_solutions(problem, MEMORY).count == np.isfinite(every).sum()
    for z in (None, 2, 3):
        bound = log_partition(problem, MEMORY, mini_buckets=True, z=z)
        assert bound.ln >= log_sum(every) or bound.z is None
        assert bound.z is not None or bound.ln == pytest.approx(exact, rel=1e-12, abs=1e-12)


def test_counts_of_any_size_are_exact():
    for n, colours in ((7, 3), (150, 5), (400, 9)):
        found = count_solutions(ring(n, colours), MEMORY)
        assert found.count == (colours - 1) ** n + (-1) ** n * (colours - 1)
    assert count_solutions(ring(5, 2), MEMORY).count == 0  # an odd cycle has no 2-colouring
    assert count_solutions(ring(301, 2), MEMORY).count == 0
    free = Problem(("a", "b"), np.array([10**9, 10**12]), ("a",), np.array([0, 0]), ())
    assert count_solutions(free, MEMORY).count == 10**21


def test_sums_of_independent_components_multiply():
    a, b = ring(60, 4), ring(50, 4)
    together = Problem(
        (*a.variables, *(f"y{i}" for i in range(51))),
        np.full(111, 4),
        ("a",),
        np.zeros(111, dtype=int),
        (*a.factors, *(f.renamed([v + 60 for v in f.scope], "") for f in b.factors)),
    )
    one, two = count_solutions(a, MEMORY).count, count_solutions(b, MEMORY).count
    assert count_solutions(together, MEMORY).count == 4 * one * two
    assert log_partition(together, MEMORY).ln == pytest.approx(math.log(4 * one * two))


def test_large_factors_are_counted_and_summed_as_chains():
    n = 22
    allowed = np.eye(n, dtype=int)  # exactly one variable is 1
    one = tabulate(range(n), [2] * n, allowed, np.arange(n), -math.inf)
    problem = Problem(tuple(f"x{i}" for i in range(n)), np.full(n, 2), ("a",), np.zeros(n, dtype=int), (one,))
    assert type(one) is not Factor
    assert count_solutions(problem, 1 << 20).count == n
    assert log_partition(problem, 1 << 20).ln == pytest.approx(log_sum(np.arange(n, dtype=float)))


def test_numbers_too_large_for_a_float_keep_their_logarithms(solved):
    n = 200
    Path("n.uai").write_text(f"MARKOV {n} {'2 ' * n} {n} " + " ".join(f"1 {i}" for i in range(n)) + " 2 1e9 0" * n)
    found, pr = solved("n.uai"), solved("n.uai", "--task", "pr")
    assert found["value"] is None and found["log10"] == pytest.approx(1800)
    assert pr["value"] is None and pr["log10"] == pytest.approx(1800)
    assert main(["solve", "n.uai"]) == 0


@pytest.mark.parametrize("arguments", [["--z", "4"], ["--method", "mini-bucket"], ["--z", "3", "--method=mini-bucket"]])
@pytest.mark.parametrize("agents", [1, 3])
def test_mini_buckets_bound_the_optimum_for_one_and_several_agents(solved, arguments, agents):
    for seed in range(4):
        problem = shifted(random_problem(seed + 20, variables=9, agents=1, factors=25, arity=3, domain=3, hard=0.02))
        if not problem.n_variables:
            continue
        formats.save(problem, "p.wcsp")
        best = -optimum(problem)
        more = ["--agents", str(min(agents, problem.n_variables))] if agents > 1 else []
        found = solved("p.wcsp", *arguments, *more)
        assert found["bound"] is None or found["bound"] <= best
        assert found["objective"] is None or found["objective"] >= best
        if found["objective"] is not None:
            assert problem.evaluate(found["assignment"]) == (found["objective"], 0)


def test_z_bounds_a_partition_function(solved):
    formats.save(ring(12, 3), "p.npz")
    exact, bound = solved("p.npz", "--task", "pr"), solved("p.npz", "--task", "pr", "--z", "1")
    assert (exact["status"], bound["status"], bound["z"]) == ("exact", "bound", 1)
    assert exact["value"] == pytest.approx(2**12 + 2)
    assert bound["ln"] > exact["ln"]


def test_marginals_are_by_variable_and_label(solved):
    Path("p.wcsp").write_text("p 2 3 2 100\n3 2\n1 0 0 2\n1 2\n2 100\n2 0 1 0 1\n1 0 5\n")
    probable, best = solved("p.wcsp", "--task", "mar"), solved("p.wcsp", "--task", "max-marginals")
    weights = [2.0, math.exp(-2) * (math.exp(-5) + 1), 0.0]
    assert list(probable["marginals"]["x0"].values()) == pytest.approx([w / sum(weights) for w in weights])
    assert probable["ln"] == pytest.approx(math.log(sum(weights)))
    assert best["marginals"] == {"x0": {"0": 0, "1": 2, "2": None}, "x1": {"0": 0, "1": 0}}
    assert (best["objective"], best["status"]) == (0, "exact")
    assert solved("p.wcsp", "--max-marginals")["max_marginals"] == best["marginals"]
    assert solved("p.wcsp")["max_marginals"] is None


def test_marginals_of_an_infeasible_problem(capfd):
    Path("p.wcsp").write_text("p 1 2 1 10\n2\n1 0 10 0\n")
    assert main(["solve", "p.wcsp", "--task", "mar"]) == 3
    assert "infeasible (proven" in capfd.readouterr().out


def test_costs_count_as_negative_logarithms(solved):
    Path("p.wcsp").write_text("p 1 3 1 100\n3\n1 0 0 2\n1 2\n2 100\n")
    assert solved("p.wcsp", "--task", "pr")["value"] == pytest.approx(1 + math.exp(-2))


def test_a_sampler_is_selected_by_name_with_a_seed(solved):
    formats.save(ring(9, 3), "p.npz")
    found = solved("p.npz", "--method", "gibbs", "--seed", "5", "--set", "local.runs=2")
    assert found["agents"][0]["method"] == "gibbs"
    assert (found["provenance"]["seed"], found["provenance"]["config"]["local"]["runs"]) == (5, 2)
    assert found["objective"] == 0


def test_results_are_printed_as_tables_and_written_as_json(capfd):
    Path("n.uai").write_text(NETWORK)
    assert main(["solve", "n.uai", "--output", "r/mpe.json"]) == 0
    shown = capfd.readouterr().out
    assert "optimal (proven)" in shown and re.search(r"product +0\.1875 ", shown) and ", x2 = " in shown
    assert json.loads(Path("r/mpe.json").read_text())["value"] == pytest.approx(0.1875)
    words = {"pr": "ln Z", "count": "solutions        10", "mar": "junction tree", "max-marginals": "objective"}
    for task, word in words.items():
        assert main(["solve", "n.uai", "--task", task, "--output", f"{task}.json"]) == 0
        assert word in capfd.readouterr().out
        assert json.loads(Path(f"{task}.json").read_text())["task"] == task


def test_counts_of_many_digits_are_written_completely():
    n = 16000
    problem = Problem(tuple(f"x{i}" for i in range(n)), np.full(n, 2), ("a",), np.zeros(n, dtype=int), ())
    text = sums(problem, Settings(), "count").to_json()
    assert len(text) > n * math.log10(2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere.uai"], "nowhere.uai: no such file"),
        (["n.uai", "--task", "mar", "--max-marginals"], "--max-marginals: is for --task mpe, not for --task mar"),
        (["n.uai", "--task", "sum"], "--task: expected one of mpe, pr, count, mar, max-marginals, conflict, got 'sum'"),
        (["n.uai", "--method", "gibs"], "--method: unknown sampler 'gibs'; did you mean 'gibbs'?"),
        (["n.uai", "--method", "gibbs", "--task", "pr"], "--method: --task pr takes auto, exact, mini-bucket"),
        (["n.uai", "--task", "count", "--z", "3"], "--z: is for mini-buckets, not for --task count"),
        (["n.uai", "--method", "exact", "--z", "3"], "--z: is for mini-buckets, not for --method exact"),
        (["n.uai", "--method", "gibbs", "--z", "3"], "--z: is for problems with several agents with --method gibbs"),
        (["n.uai", "--z", "0"], "--z: expected auto or a whole number >= 1, got 0"),
        (["n.uai", "--z", "1"], "the whole problem: z = 1 is too small"),
        (["n.uai", "--z", "1", "--task", "pr"], "--z: z = 1 is too small"),
        (["n.uai", "--set", "local.rums=3"], "--set local.rums: unknown key"),
        (["n.uai", "--set", "budget.memory=9", "--task", "pr"], "the problem's own tables take"),
        (["n.uai", "--set", "budget.memory=9", "--task", "count"], "the problem's own tables take"),
        (["n.uai", "--output", "."], "--output: .: cannot be written"),
        (["run.yaml"], "run.yaml: is a configuration, not a problem file; use 'dmcmc run run.yaml'"),
        (["n.uai", "--agents", "9"], "--agents: expected 1 to 3"),
    ],
)
def test_a_wrong_call_of_solve_is_one_line_of_error(argv, message, capfd):
    Path("n.uai").write_text(NETWORK)
    Path("run.yaml").write_text("problem: {file: n.uai}")
    assert main(["solve", *argv]) == 2
    out, error = capfd.readouterr()
    assert out == "" and error.count("\n") == 1
    assert error.removeprefix("dmcmc: error: ").startswith(message)


@pytest.mark.skipif(not rows({"uai"}), reason=REASON)
def test_partition_functions_of_real_networks_have_six_digits():
    for row in rows({"uai", "bif.gz"}):
        known = row["pr_log10_list"] or row["pr_log10_ours"]
        if known and row["file"] != "DBN_12.uai":  # some seconds
            found = sums(formats.load(path_of(row)), Settings(), "pr")
            assert found.log10 == pytest.approx(float(known), rel=1.5e-6, abs=1e-6)


@pytest.mark.skipif(not rows({"wcsp"}), reason=REASON)
@pytest.mark.parametrize("row", [r for r in rows({"wcsp", "uai", "bif.gz", "cfn", "xml", "yaml"}) if r["file"] in
    ("54.wcsp", "GEOM30a_4.wcsp", "0.wcsp", "oconnell.wcsp", "Segmentation_12.uai", "pigs.bif.gz", "salldiff1.cfn",
     "rep_0_x_10.xml", "graph_coloring_20.yaml")], ids=lambda row: row["file"])  # fmt: skip
def test_real_instances_are_solved_to_their_optimum(solved, row):
    found = solved(path_of(row))
    assert found["status"] == "optimal"
    assert found["objective"] == pytest.approx(float(row["optimum"]), abs=6e-4)


def test_other_ranks_do_not_receive_a_problem_that_is_scattered_or_solved_by_rank_0_alone():
    ranks, config = SimpleNamespace(rank=0, size=4, local_size=4), config_of(Document("", {"problem": {"file": "-"}}))

    def sent(problem, task="mpe"):
        return SolveJob(config, problem, task, False, False).for_other_ranks(ranks).problem

    several, large, single = random_problem(1, 6, 3, 3, 8), large_problem(), large_problem(agents=1)
    assert sent(several) is several
    assert [sent(several, task) for task in TASKS[1:]] == [None] * 5
    assert sent(large) is None and sent(single) is single


def test_a_query_file_chooses_the_variables_of_marginals(solved):
    Path("n.uai").write_text("MARKOV 3 2 2 2 1 3 0 1 2 8 1 2 3 4 5 6 7 8")
    every = solved("n.uai", "--task", "mar")["marginals"]
    Path("n.uai.query").write_text("2 2 0\n")
    for task in ("mar", "max-marginals"):
        assert list(solved("n.uai", "--task", task, "--query", "n.uai.query")["marginals"]) == ["x2", "x0"]
    assert solved("n.uai", "--task", "mar", "--query", "n.uai.query")["marginals"] == {
        v: every[v] for v in ("x2", "x0")
    }


@pytest.mark.parametrize(
    ("query", "task", "message"),
    [
        ("1 0", "mpe", "--query: is for --task mar and max-marginals; marginal MAP is not available in this version"),
        ("", "mar", "q: line 1: expected the number of query variables; there are 0"),
        ("2 0", "mar", "q: line 1: expected 2 variables after their number; there are 1"),
        ("1\n3", "mar", "q: line 2: variable 3 does not exist; there are 0 to 2"),
        ("2 1 1", "mar", "q: line 1: variable 1 occurs twice"),
        ("1 x", "mar", "q: line 1: 'x' is not a whole number"),
    ],
)
def test_errors_in_a_query_are_one_line(tmp_path, monkeypatch, capfd, query, task, message):
    monkeypatch.chdir(tmp_path)
    Path("n.uai").write_text("MARKOV 3 2 2 2 1 3 0 1 2 8 1 2 3 4 5 6 7 8")
    Path("q").write_text(query)
    assert main(["solve", "n.uai", "--task", task, "--query", "q"]) == 2
    assert capfd.readouterr().err == f"dmcmc: error: {message}\n"
