"""The benchmark set: fixed problems, runs that continue, one page, and best known values that only improve."""

import json
from collections import Counter

import msgspec
import pytest

import dmcmc
from dmcmc.algorithms import registry
from dmcmc.algorithms.contract import Algorithm
from dmcmc.cli.main import main
from dmcmc.experiments import run_experiment as running
from dmcmc.experiments.benchmark import (
    BenchmarkProblem,
    label_of,
    method_of,
    problem_hash,
    read_set,
    updated,
    write_set,
)
from dmcmc.experiments.job import carry_out, warm_up
from dmcmc.experiments.journal import COURSE, read_records
from dmcmc.experiments.peers import PEERS
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError
from dmcmc.report.experiment.benchmark_page import BenchmarkRun, runs_of, summary

SET = read_set()


@pytest.fixture
def here(monkeypatch):
    """Carry out runs in this process."""

    def work(jobs, workers, limits, done):
        for place, job in enumerate(jobs):
            done(place, carry_out(job))

    monkeypatch.setattr(running, "carry_out_all", work)


def test_the_set_has_120_different_problems_in_four_sizes_and_most_optima_are_proven():
    assert Counter(problem.size for problem in SET) == {"small": 30, "medium": 30, "large": 30, "huge": 30}
    assert len({problem.name for problem in SET}) == len({problem.hash for problem in SET}) == 120
    assert sum(problem.proven for problem in SET) >= 90
    means = {"small": (10, 20), "medium": (40, 60), "large": (180, 220), "huge": (900, 1100)}
    assert all(means[p.size][0] <= p.variables <= means[p.size][1] for p in SET)


@pytest.mark.parametrize("problem", [p for p in SET if p.name.endswith("-1")], ids=lambda p: p.name)
def test_generators_make_the_problems_of_the_set(problem):
    made = problem.generate()
    assert (made.sense, made.n_variables) == (problem.sense, problem.variables)
    assert problem_hash(made) == problem.hash


@pytest.mark.parametrize("problem", [p for p in SET if p.size == "small"][::3], ids=lambda p: p.name)
def test_another_solver_finds_the_proven_optimum(problem):
    pytest.importorskip("pytoulbar2")
    answer, made = PEERS["toulbar2"].solve(problem.generate(), 60.0, 0), problem.generate()
    assert made.evaluate(answer.values).objective == answer.bound == problem.best == problem.bound


def test_the_hash_depends_on_every_part_of_a_problem():
    problem = SET[0].generate()
    others = [
        dmcmc.generate("random-network", nodes=15, domain_size=5, density=0.25, tightness=0, seed=9),
        msgspec.structs.replace(SET[0], parameters=SET[0].parameters + " agents=5", hash="").generate(),
    ]
    assert problem_hash(problem) == problem_hash(SET[0].generate()) not in map(problem_hash, others)


def test_a_problem_that_differs_from_the_set_is_one_line_of_error(tmp_path, capfd):
    write_set([msgspec.structs.replace(SET[0], seed=77)], tmp_path / "set.csv")
    run = [
        "benchmark",
        "run",
        "--algorithm",
        "mgm",
        "--file",
        str(tmp_path / "set.csv"),
        "--output",
        str(tmp_path / "o"),
    ]
    assert main(run) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and "random-sparse-small-1: the generator makes another problem" in error


def test_runs_continue_and_become_a_page_and_better_values(tmp_path, here, capfd):
    file, folder = tmp_path / "set.csv", tmp_path / "runs"
    chosen = [p for p in SET if p.name in ("grid-small-1", "sensors-small-1")]
    write_set([msgspec.structs.replace(p, best=None, bound=None) for p in chosen], file)
    common = ["--file", str(file), "--output", str(folder)]
    assert main(["benchmark", "run", "--algorithm", "dsa", "--cycles", "9", *common]) == 0
    assert "2 runs, 2 of them new" in capfd.readouterr().out
    both = ["--algorithm", "dsa", "--algorithm", "dmcmc", "--cycles", "9"]
    assert main(["benchmark", "run", *both, *common]) == 2  # dmcmc has no cycles
    assert main(["benchmark", "run", "--algorithm", "dmcmc", *common]) == 0
    assert main(["benchmark", "run", "--algorithm", "dsa", "--cycles", "9", *common]) == 0
    assert "2 runs, 0 of them new" in capfd.readouterr().out
    records = read_records(folder / "runs.jsonl")
    courses = [record["course"] for record in records if record["method"] == "dsa"]
    assert [course[-1][COURSE.index("cycle")] for course in courses] == [9, 9]
    assert main(["benchmark", "update", str(folder), "--file", str(file)]) == 0
    assert [(p.best, p.bound) for p in read_set(file)] == [(p.best, p.bound) for p in chosen]
    assert main(["benchmark", "page", str(folder), "--file", str(file), "--output", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Quality over messages" in page and "Problems within a distance of the bound" in page
    head, rows = summary(runs_of(read_set(file), records))
    assert [row[0] for row in rows] == ["dmcmc", "dsa"] and rows[0][head.index("proven")] == "2"
    assert (tmp_path / "page.tex").read_text().count("&") == 3 * (len(head) - 1)


def test_other_settings_under_one_name_need_another_folder(tmp_path, here, capfd):
    run = ["benchmark", "run", "--algorithm", "mgm", "--problem", "grid-small", "--output", str(tmp_path)]
    assert main([*run, "--cycles", "3"]) == 0
    assert main([*run, "--cycles", "4"]) == 2
    assert "another experiment" in capfd.readouterr().err


ROW = BenchmarkProblem(
    name="p", size="small", generator="grid", parameters="rows=2", seed=0, hash="0", sense="min", random=100.0
)


def record(**fields):
    known = {"case": {"problem": "p"}, "method": "m", "seed": 0, "outcome": "done", "status": "feasible"}
    return {**known, "objective": None, "bound": None, "key": "k", **fields}


def test_values_and_bounds_only_improve():
    rows = updated([ROW], [record(objective=50, bound=20.5), record(objective=60, bound=10)])
    assert (rows[0].best, rows[0].bound, rows[0].proven) == (50, 21, False)  # costs are whole numbers
    rows = updated(rows, [record(outcome="failed"), record(objective=21)])
    assert (rows[0].best, rows[0].bound, rows[0].proven) == (21, 21, True)
    for wrong in (record(objective=20), record(bound=22), record(status="infeasible")):
        with pytest.raises(DmcmcError, match=r"^p: m, seed 0: "):
            updated(rows, [wrong])


@pytest.mark.parametrize(("sense", "bound", "random"), [("min", 20, 100.0), ("max", 100, 20.0), ("min", 0, 50.0)])
def test_the_quality_is_1_at_the_bound_and_0_at_random_assignments_and_worse_ones(sense, bound, random):
    row = msgspec.structs.replace(ROW, sense=sense, bound=bound, random=random)
    worse = random + (10 if sense == "min" else -10)
    assert [row.quality(o) for o in (bound, (bound + random) / 2, random, worse, None)] == [1, 0.5, 0, 0, 0]


def test_the_course_of_a_run_gives_the_effort_until_it_is_close():
    row = msgspec.structs.replace(ROW, bound=0)
    at = {name: place for place, name in enumerate(COURSE)}
    points = [[0] * len(COURSE) for _ in range(3)]
    for cycle, best in enumerate((None, 50, 0)):
        points[cycle][at["cycle"]], points[cycle][at["messages"]] = cycle, 10 * cycle
        points[cycle][at["now"]] = points[cycle][at["best"]] = best
    run = BenchmarkRun(row, record(objective=0, time=1.0, course=points))
    assert run.course("messages") == [(10, 0.5), (20, 1)] and run.course("ncccs") == []
    assert run.effort("messages") == 20 and run.effort("ncccs") is None
    assert BenchmarkRun(row, record(time=2.0, trace=[[0.5, 50, None]])).course("time") == [(0.5, 0.5)]


@pytest.mark.parametrize(
    ("name", "solver", "settings", "cycles", "message"),
    [
        ("dsaa", False, [], None, "unknown algorithm 'dsaa'"),
        ("toulbar3", True, [], None, "did you mean 'toulbar2'"),
        ("dsa", False, ["algorithm.parameters.variant=Q"], None, "expected one of A, B, C, D, E"),
        ("dsa", False, ["algorithm.parameters.colour=1"], None, "unknown parameter of dsa"),
        ("dsa", False, ["variant"], None, "expected KEY=VALUE"),
        ("toulbar2", True, [], 5, "takes neither"),
    ],
)
def test_a_wrong_method_is_refused(name, solver, settings, cycles, message):
    with pytest.raises(ConfigError, match=message):
        method_of(name, settings, solver=solver, cycles=cycles)


def test_a_method_has_the_cycles_of_its_algorithm_and_settings_in_its_name():
    assert method_of("dsa")["algorithm.cycles"] == registry.get("dsa").cycles
    assert "algorithm.cycles" not in method_of("dpop")
    assert label_of("dsa", ["algorithm.parameters.variant=B", "seed=3"]) == "dsa (variant=B, seed=3)"


def test_a_plug_in_is_not_run_before_its_clock_starts():
    calls = []

    def steps(network, rng, given):
        calls.append(network.problem.n_variables)
        yield network.start(rng)

    registry.register(Algorithm("counts its runs", "an example", steps))
    warm_up({"data": {"problem": {"generator": "grid"}, "algorithm": "counts its runs"}, "task": None}, set())
    assert calls == []


def test_the_list_has_all_problems_of_a_size_as_json(capfd):
    assert main(["benchmark", "list", "--size", "medium", "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)) == 30


def test_a_damaged_set_is_one_line_that_names_the_line(tmp_path):
    write_set(SET[:3], tmp_path / "set.csv")
    assert read_set(tmp_path / "set.csv") == SET[:3]
    text = (tmp_path / "set.csv").read_text().replace("random-dense-small-1,small", "random-dense-small-1,tiny")
    (tmp_path / "set.csv").write_text(text)
    with pytest.raises(FileError, match=r"set\.csv: line 4: is no benchmark problem: .*tiny"):
        read_set(tmp_path / "set.csv")
