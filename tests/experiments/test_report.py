"""Reports: means and confidence intervals are correct, and pages show what the results contain."""

import csv
import json
import random
import re
from html.parser import HTMLParser
from math import inf

import pytest
from support.damaged.own_files import damaged, outcome, own_file

import dmcmc
from dmcmc.cli.main import main
from dmcmc.experiments import run_experiment as running
from dmcmc.experiments.job import carry_out
from dmcmc.experiments.journal import COURSE
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.report.experiment.charts import (
    charts_of,
    fitted,
    latex,
    markdown,
    narrow,
    over_measure,
    published_and_measured,
    summary,
)
from dmcmc.report.experiment.report import draw_figures
from dmcmc.report.experiment.single_run import ImproverGains, page_of
from dmcmc.report.experiment.statistics import Cell, Findings, Mean, findings_of, reference_of
from dmcmc.report.pages import DASHED, PLAIN, Chart, Series, colour_of, svg

TEXT = """
title: Small & quick
base: {problem: {generator: random-network, nodes: 6, tightness: 0.0, domain_size: 3}}
grid: {problem.nodes: [6, 8]}
seeds: 2
methods: {mgm: {algorithm: mgm}, dsa: {algorithm: dsa}, dpop: {algorithm: dpop}}
report: {compare: bound, note: Of a test.}
paper: [{case: {problem.nodes: 6}, method: mgm, time: 12, objective: 100}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a finished experiment."""
    place = tmp_path_factory.mktemp("experiment")
    (place / "e.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "carry_out_all", in_this_process)
        assert main(["experiment", str(place / "e.yaml"), "--output", str(place / "out")]) == 0
    return place / "out"


def in_this_process(jobs, workers, limits, done):
    for place, job in enumerate(jobs):
        done(place, carry_out(job))


class Balanced(HTMLParser):
    """Checks that all elements are closed, and collects the links to other files."""

    EMPTY = ("meta", "line", "rect", "circle", "polyline", "polygon", "br")

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    """Return the text of a page after checking that it is well-formed and self-contained."""
    text = page.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == [] and parser.links == [] and "url(" not in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    return text


def test_confidence_intervals_use_students_t():
    assert Mean.of([]) is None and Mean.of([None, 4]) == Mean(4.0, None)
    mean = Mean.of([1, 2, 3, 4])
    assert mean.value == 2.5 and mean.half == pytest.approx(3.182 * (5 / 3) ** 0.5 / 2)
    assert mean.text() == "2.5 ± 2.1" and Mean(12345.6, 0.04).text() == "12345.600 ± 0.040"


@pytest.mark.parametrize(("sense", "bound"), [("max", 10), ("min", 4)])
def test_objectives_are_compared_with_the_best_bound(sense, bound):
    same = {"case": {}, "seed": 0, "outcome": "done", "sense": sense, "objective": 7}
    records = [
        same | {"method": "a", "bound": 10},
        same | {"method": "b", "bound": 4},
        same | {"method": "c", "bound": None},
    ]
    if sense == "max":
        records[1]["bound"] = 12
    else:
        records[0]["bound"] = 3
    assert list(reference_of(records, "bound").values()) == [bound]
    assert list(reference_of(records, "c").values()) == [7]
    assert list(reference_of(records[2:], "bound").values()) == [7]


def test_a_report_shows_the_results_of_the_folder(folder, capfd):
    assert main(["report", str(folder)]) == 0
    assert "report.html: written, with table.md, table.tex, runs.csv, paper.md" in capfd.readouterr().out
    findings = findings_of(folder)
    assert [cell.method for cell in findings.cells] == ["mgm", "dsa", "dpop"] * 2
    for cell in findings.cells:
        assert (cell.runs, cell.done, cell.feasible) == (2, 2, 2)
        assert cell.ratio.value >= 1 and (cell.proven, cell.ratio.value) == (
            (2, 1) if cell.method == "dpop" else (0, cell.ratio.value)
        )
    text = checked(folder / "report.html")
    assert "Small &amp; quick" in text and "Of a test." in text and "12 of 12 runs" in text
    assert text.count("<svg") == len(charts_of(findings)) == 4
    head, rows, groups = summary(findings)
    assert groups == {0, 3} and all(len(row) == len(head) for row in rows)
    assert (folder / "table.md").read_text().count("\n") == 8
    assert (folder / "table.tex").read_text().count("\\\\") == 7 and "mgm & 100 & " not in (
        folder / "table.tex"
    ).read_text()
    assert len((folder / "runs.csv").read_text().splitlines()) == 13
    paper_head, paper_rows = published_and_measured(findings)
    assert paper_head[:5] == ["case", "method", "time (s), paper", "this run", "paper / this run"]
    assert paper_rows[0][2] == "12" and paper_rows[0][5] == "100"


def test_a_report_does_not_depend_on_the_order_of_results(folder, tmp_path):
    for name in ("experiment.json", "runs.jsonl"):
        (tmp_path / name).write_text((folder / name).read_text())
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_text("".join(lines[7:] + lines[:7]))
    for place in (folder, tmp_path):
        assert main(["report", str(place)]) == 0
    for name in ("report.html", "table.md", "table.tex", "runs.csv", "paper.md"):
        assert (folder / name).read_text() == (tmp_path / name).read_text()


def test_figures_are_drawn_if_matplotlib_is_installed(folder, capfd, monkeypatch):
    monkeypatch.setattr("dmcmc.report.experiment.report.find_spec", lambda name: None)
    assert main(["report", str(folder), "--figures", "pdf"]) == 2
    assert "--figures: needs matplotlib; pip install 'dmcmc[plot]'" in capfd.readouterr().err
    monkeypatch.undo()
    assert main(["report", str(folder), "--figures", "bmp"]) == 2
    pytest.importorskip("matplotlib")
    assert main(["report", str(folder), "--figures", "svg"]) == 0
    assert len(list((folder / "figures").glob("*.svg"))) == 4


def test_a_report_lists_failed_runs(folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    lines[0] = {k: lines[0][k] for k in ("key", "case", "method", "seed")} | {
        "outcome": "out of time",
        "error": "<9 s>",
    }
    (tmp_path / "experiment.json").write_text((folder / "experiment.json").read_text())
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:8]))
    assert main(["report", str(tmp_path)]) == 0
    text = checked(tmp_path / "report.html")
    assert "8 of 12 runs" in text and "1 (1 out of time)" in text and "&lt;9 s&gt;" in text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", None, "nothing: no such file or folder; a result (.json) or the folder of an experiment is needed"),
        ("other.json", "[]", "is not the result of a run: it has no status"),
        ("folder", {}, "is not the folder of an experiment: experiment.json is missing"),
        ("folder", {"experiment.json": '{"runs": [], "experiment": {}}'}, "has no results yet"),
        (
            "folder",
            {"experiment.json": '{"runs": ["k"], "experiment": {}}', "runs.jsonl": "7\n"},
            "line 1: is not the result",
        ),
    ],
)
def test_a_wrong_input_of_report_is_one_error_line(tmp_path, capfd, name, content, message):
    place = tmp_path / name
    if isinstance(content, dict):
        place.mkdir()
        for file, text in content.items():
            (place / file).write_text(text)
    elif content is not None:
        place.write_text(content)
    assert main(["report", str(place)]) == 2
    error = capfd.readouterr().err
    assert message in error and error.count("\n") == 1


def test_figures_of_a_missing_folder_are_one_error_line(tmp_path, capfd):
    assert main(["report", str(tmp_path / "missing"), "--figures", "png"]) == 2
    assert capfd.readouterr().err.endswith(
        "missing: no such file or folder; a result (.json) or the folder of an experiment is needed\n"
    )


def test_figures_show_dollar_signs_as_text(tmp_path):
    pytest.importorskip("matplotlib")
    chart = Chart("a $x^{ b$", "$\\frac$", "y", [Series("$_$", [(1, 2, 2, 2), (2, 3, 3, 3)])])
    (file,) = draw_figures([chart], tmp_path, "svg")
    assert file.exists()


HOSTILE = ["a|b", "a\nb", "<script>alert(1)</script>", "$x^{2}_1$ \\ ~ & % #", "[c](d) `e` *f*", "\x1b[31mred", "{a}"]


def test_markdown_cells_are_text_on_one_line():
    text = markdown(["case", *HOSTILE], [["x", *HOSTILE], ["y", *HOSTILE]])
    assert text.count("\n") == 4 and "<" not in text and "\x1b" not in text
    for line in text.splitlines():
        assert len(re.findall(r"(?<!\\)\|", line)) == len(HOSTILE) + 2
    assert r"\[c\](d) \`e\` \*f\*" in text and "a b" in text


def test_latex_cells_have_no_active_characters():
    text = latex(["case", *HOSTILE], [["[x", *HOSTILE], ["*y", *HOSTILE]])
    body = text.splitlines()[2:-2]
    for line in body:
        if line.startswith("\\") and line.endswith("rule"):
            continue
        assert line.endswith(" \\\\") and not line.startswith(("[", "*"))
        plain = re.sub(r"\\(?:[{}$&%_#]|text\w+\{\})", "", line.removesuffix(" \\\\"))
        assert plain.count("&") == len(HOSTILE) and not re.search(
            r"[$^_~#%\\]", plain.replace("{[}", "").replace("{*}", "")
        )


def test_cells_of_csv_are_no_formulas_and_numbers_stay_numbers(folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    for line, error in zip(lines, ["=cmd|' /C calc'!A0", "@sum(1)", "+1+1", "-a", "\t=1", "-5"], strict=False):
        line |= {"outcome": "failed", "error": error}
    for line in lines[6:]:
        line["objective"] = -7.5
    (tmp_path / "experiment.json").write_text((folder / "experiment.json").read_text())
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path)]) == 0
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [row["error"] for row in rows if row["outcome"] == "failed"] == [
        "'=cmd|' /C calc'!A0", "'@sum(1)", "'+1+1", "'-a", "'\t=1", "-5",
    ]  # fmt: skip
    assert {row["objective"] for row in rows if row["outcome"] == "done"} == {"-7.5"}


def test_large_objectives_have_a_report(folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line |= {"objective": 10**301 + number, "bound": 1.05e301, "gap": 1e300}
    (tmp_path / "experiment.json").write_text((folder / "experiment.json").read_text())
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path)]) == 0
    assert "1e+301" in checked(tmp_path / "report.html")


@pytest.mark.parametrize("kind", ["journal", "plan", "result"])
def test_damaged_files_are_reported_in_one_line_or_read(tmp_path, kind):
    file, rng = own_file(kind, tmp_path), random.Random(5)
    assert outcome(file) == "read"
    for _ in range(200):
        file.path.write_bytes(damaged(file, rng))
        assert outcome(file) in ("read", "refused")


def test_a_single_result_has_a_page(tmp_path):
    text = "problem: {generator: meeting-scheduling, agents: 3, variables_per_agent: 3, domain_size: 5}\n"
    (tmp_path / "run.yaml").write_text(text)
    assert main(["run", str(tmp_path / "run.yaml"), "--output", str(tmp_path / "one.json")]) == 0
    assert main(["report", str(tmp_path / "one.json")]) == 0
    page = checked(tmp_path / "one.html")
    result = json.loads((tmp_path / "one.json").read_text())
    assert "Objective and bound over time" in page and "Pseudo-tree of the agents" in page
    assert str(result["objective"]) in page and page.count('class="held"') == len(
        {(name.split(".")[0], slot) for name, slot in result["assignment"].items()}
    )


def point(time, objective, bound, found_by, shares=None):
    return {"time": time, "objective": objective, "bound": bound, "found_by": found_by, "bound_shares": shares or {}}


WORK_FIELDS = ("improver", "seconds", "objective_gain", "bound_gain")
WORK = [("local search", 2.0, 10, 0), ("bound", 3.0, 0, 60), ("semidefinite", 5.0, 0, 30), ("sampling", 1.0, 0, 0)]
RESULT = {
    "format_version": 2,
    "status": "timeout",
    "sense": "max",
    "objective": 110,
    "bound": 210,
    "time": 16.0,
    "agents": [],
    "provenance": {},
    "work": [dict(zip(WORK_FIELDS, row, strict=True)) for row in WORK],
    "trace": [
        point(0.0, 100, None, "local search"),
        point(1.0, 100, 300, "bound"),
        point(2.0, 110, 300, "local search"),
        point(4.0, 110, 260, "bound, semidefinite", {"bound": 0.75, "semidefinite": 0.25}),
        point(8.0, 110, 210, "bound, semidefinite", {"semidefinite": 0.6, "bound": 0.4}),
        point(16.0, 110, 209, "bound, branch and bound"),
    ],
}


def test_the_chart_shows_the_share_of_each_improver():
    gains = ImproverGains(RESULT)
    colours = [gains.colours[improver] for improver in ("local search", "bound", "semidefinite")]
    assert len({*colours}) == 3 and all(0 <= colour < 8 for colour in colours)
    search, bound, semidefinite = colours
    segments = [(s.x, s.low, s.high, s.colour) for s in gains.segments(RESULT["trace"], "bound", 0.1)]
    assert segments == [
        (4.0, 270, 300, bound),
        (4.0, 260, 270, semidefinite),
        (8.0, 230, 260, semidefinite),
        (8.0, 210, 230, bound),
        (16.0, 209, 210, PLAIN),  # the share of each of the two is not known
    ]
    assert [tuple(s.__dict__.values()) for s in gains.segments(RESULT["trace"], "objective", 0.1)] == [
        (2.0, 100, 110, search)
    ]
    page = page_of(RESULT, "r")
    drawn = re.findall(r'<line [^>]*stroke="([^"]*)" stroke-width="5"', page)
    assert drawn == [colour_of(c) for c in (search, bound, semidefinite, semidefinite, bound, PLAIN)]
    for text in ("bound: 3 s, 60 %", "semidefinite: 5 s, 30 %", "local search: 2 s, 10 %", "sampling: 1 s, 0 %"):
        assert text in page
    assert "<td>bound</td><td>3.000</td><td>0</td><td>60</td><td>60 %</td><td>20</td>" in page
    assert page.count(f"fill:{colour_of(semidefinite)}") == 2  # its seconds, and its share of the gains
    assert "time limit reached" in page and "summed over threads and ranks" in page


@pytest.mark.parametrize("version", [None, 1, 3])
def test_a_result_of_another_format_version_is_one_error_line(tmp_path, capsys, version):
    result = {name: value for name, value in RESULT.items() if name != "format_version"}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result if version is None else {"format_version": version, **result}))
    assert main(["report", str(path)]) == 2
    reason = f"format_version {version or 1} is not read by this version: run it again"
    assert capsys.readouterr().err == f"dmcmc: error: {path}: is not the result of a run: {reason}\n"


def test_a_result_without_improvers_has_a_chart_without_segments():
    result = {**RESULT, "work": [], "trace": [point(0.1, 5, 9, ""), point(1.0, 6, 8, "")]}
    page = page_of(result, "r")
    assert "gains of the improvers" not in page and page.count(colour_of(DASHED)) > 2


def test_a_result_of_any_problem_has_a_page(tmp_path):
    problem = dmcmc.generate("random", agents=1, variables_per_agent=1, domain_size=2)
    dmcmc.solve(problem, algorithm="mgm", output=str(tmp_path / "r.json"))
    assert main(["report", str(tmp_path / "r.json"), "--output", str(tmp_path / "there.html")]) == 0
    assert "status" in checked(tmp_path / "there.html")


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[], [0.0], [3.0], [-1.0, 1e300], [1e-9, 1e9], [5.0, 5.0], [float("inf"), 1.0]])
def test_all_points_of_a_chart_are_inside_its_area(values, log):
    points = [(x, x, x, x) for x in values]
    drawn = svg(Chart("t", "x", "y", [Series("s", points)], log, log))
    for pair in re.findall(r"(-?[\d.]+|nan|inf),(-?[\d.]+|nan|inf)", "".join(re.findall(r'points="([^"]*)"', drawn))):
        assert 0 <= float(pair[0]) <= 460 and 0 <= float(pair[1]) <= 270


def wide_line(values, half):
    return Series("wide", [(x, y, y - half, y + half) for x, y in enumerate(values)])


def test_bands_of_few_runs_fit_the_range_of_the_means_and_their_limits():
    (line,) = fitted([wide_line([0.90, 0.95, 0.98], 6.0)], (-inf, 1.0))
    assert [y for _, y, _, _ in line.points] == [0.90, 0.95, 0.98]
    assert all(0.87 < low <= y <= high <= 1.0 for _, y, low, high in line.points)
    (line,) = fitted([wide_line([0.01, 1.0], 30.0)], is_log=True)
    assert all(0 < low <= y <= high < 10 for _, y, low, high in line.points)
    narrow = wide_line([0.2, 0.8], 0.01)
    assert fitted([narrow])[0].points == narrow.points


def findings_with(records, **experiment):
    """Return findings of records that have a case, a method, and perhaps an outcome."""
    whole = [
        {"seed": 0, "outcome": "done", "status": "feasible", "objective": 5, "bound": 6, "sense": "max", "time": 1.0}
        | record
        for record in records
    ]
    cells = [Cell.of([record], reference_of(whole, "bound")) for record in whole]
    return Findings(experiment, {}, whole, cells, len(whole))


def test_headings_say_what_was_measured_and_cases_have_names():
    base = {"problem": {"generator": "grid", "domain_size": 5}}
    cases = [{}, {"problem.domain_size": 9}, {"problem.file": "$FOLDER/spot5/54.wcsp"}]
    records = [{"case": case, "method": "a"} for case in cases]
    head, rows, _ = summary(findings_with(records, base=base))
    assert [row[0] for row in rows] == ["default (domain size 5)", "domain size 9", "54"]
    assert head[2:4] == ["utility", "utility / best bound"] and "time of a run (s)" in head
    head, *_ = summary(findings_with(records, methods={"a": {"task": "mar"}}))
    assert "ln Z" in head and "time of messages and tables (s)" in head


def test_a_method_without_an_answer_is_shown_as_such_in_tables_and_charts():
    failed = {"outcome": "out of memory", "error": "too large", "objective": None, "time": None}
    records = [
        {"case": {"problem.agents": agents}, "method": method, **(failed if method == "dpop" else {})}
        for agents in (2, 4)
        for method in ("mgm", "dpop")
    ]
    findings = findings_with(records)
    _, rows, _ = summary(findings)
    assert [row[2] for row in rows] == ["5", "!no answer"] * 2
    assert {entry.name for chart in charts_of(findings) for entry in chart.legend} == {"dpop: no answer"}


def test_any_measure_is_drawn_over_any_other_one(folder, tmp_path, capfd):
    findings = findings_of(folder)
    (chart, _) = over_measure(findings, "messages", "best")
    assert (chart.x, chart.y) == ("messages", "best objective so far") and len(chart.series) == 2  # dpop has no course
    for line in chart.series:
        runs = [r for r in findings.records if r["method"] == line.name and r["case"] == findings.cases[0]]
        assert line.points[-1][1] == pytest.approx(sum(r["objective"] for r in runs) / len(runs))
        assert line.points[-1][0] == pytest.approx(max(r["course"][-1][COURSE.index("messages")] for r in runs))
    with pytest.raises(ConfigError, match="did you mean 'messages'"):
        over_measure(findings, "mesages", "best")


def test_the_page_of_an_algorithms_run_has_the_cost_of_each_cycle(tmp_path):
    result = dmcmc.solve(dmcmc.generate("grid", rows=4, tightness=0, seed=2), algorithm={"name": "dsa", "cycles": 20})
    result.write(tmp_path / "run.json")
    assert main(["report", str(tmp_path / "run.json")]) == 0
    assert "Objective over cycles" in checked(tmp_path / "run.html")
    assert main(["report", str(tmp_path / "run.json"), "--x", "bytes", "--y", "messages"]) == 0
    assert "Messages over bytes sent" in checked(tmp_path / "run.html")


def test_latex_tables_have_few_columns_and_none_without_numbers(folder):
    head, rows = narrow(*summary(findings_of(folder))[:2])
    assert len(head) <= 7 and all(any(row[i] != "–" for row in rows) for i in range(2, len(head)))
