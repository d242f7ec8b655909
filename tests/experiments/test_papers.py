"""docs/papers.md follows from the raw runs, and the configurations have the numbers that the papers print."""

import json
import re
from pathlib import PurePosixPath
from statistics import median

import pytest
import yaml
from imports import ROOT

from benchmarks.papers.claims import CLAIMS, PAGE, Verdict, evaluate, judge, judged, rendered
from benchmarks.papers.evidence import Evidence
from benchmarks.papers.measures import BE_TABLES, gain_cells
from dmcmc.report.experiment.charts import case_name

CONFIGS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "configs" / "papers").glob("*.yaml")}
METHODS_OF_PAPER = {"exact GPU": "GpuBE(w*)", "toulbar2, 60 s": "toulbar2"}  # in Tables 6 to 10 of GpuBE
QUANTITIES = ("time", "simulated_time", "objective", "bound")


@pytest.fixture(scope="module")
def evidence():
    return Evidence()


def published_rows(name):
    """Return the numbers of a configuration as (case, method, quantity) and value."""
    found = {}
    for row in CONFIGS[name].get("paper") or []:
        for quantity in QUANTITIES:
            if quantity in row:
                found[case_name(row["case"]), row["method"], quantity] = float(row[quantity])
    return found


def transcribed_rows(evidence, name):
    """Return the numbers of the transcription that belong to a configuration, in the same form."""
    found = {}
    for number in evidence.numbers:
        milliseconds = number.quantity == "time_ms"
        quantity = "time" if milliseconds else number.quantity
        if number.experiment == name and quantity in QUANTITIES and re.fullmatch(r"[\d.]+", number.value):
            value = float(number.value) / (1000 if milliseconds else 1)
            found[number.case, number.method, quantity] = value
    return found


def test_the_tables_of_the_page_follow_from_the_runs(evidence):
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page, evidence) == page, "run python -m benchmarks.papers.claims --write"


def test_text_outside_the_tables_has_no_measurements():
    text = re.sub(r"<!-- table: .*?<!-- end of table -->", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.findall(r"\d[\d.,]* (?:ms|µs|times|%)|\d\.\d+ s\b", text) == []


def test_every_paper_has_claims_and_every_claim_a_row(evidence):
    rows = [claim.row() for claims in judged(evidence).values() for claim in claims]
    assert len(rows) >= 100
    assert [row for row in rows if not all(row)] == []


def test_a_claim_that_does_not_hold_has_a_reason_and_a_lever(evidence):
    claims = [claim for found in judged(evidence).values() for claim in found]
    failed = [claim for claim in claims if claim.verdict in (Verdict.PAPER, Verdict.OURS)]
    assert failed
    assert [claim.cells[1] for claim in failed if not (claim.why and claim.lever)] == []


@pytest.mark.parametrize(
    "text", ["Up to 345 times faster than the sequential version", "The GPU is faster than the CPU except in two cases"]
)
def test_a_verdict_follows_from_the_runs(text, evidence, tmp_path):
    claim = next(claim for claims in CLAIMS.values() for claim in claims if claim["claim"] == text)
    for name in BE_TABLES:
        slowed = [
            {**run, **{key: 1000 * run[key] for key in ("time", "simulated_time")}}
            if run["method"] == "BE GPU"
            else run
            for run in evidence.records(name)
            if run["outcome"] == "done"
        ]
        (tmp_path / name).mkdir()
        (tmp_path / name / "runs.jsonl").write_text("\n".join(map(json.dumps, slowed)), encoding="utf-8")
    assert judge(claim, evidence).verdict is Verdict.HOLDS
    assert judge(claim, Evidence(folder=tmp_path)).verdict is Verdict.OURS


def test_gains_of_table_work_and_of_whole_commands_are_ratios_of_their_times(evidence):
    cells = gain_cells(evidence, ["gpube-table1"], "BE", "nodes 20")
    runs = [evidence.done("gpube-table1", "nodes 20", f"BE {device}") for device in ("CPU", "GPU")]
    for cell, quantity in zip(cells, ("simulated_time", "time"), strict=True):
        slow, fast = (median(run[quantity] for run in found) for found in runs)
        assert float(cell.split("; ")[1]) == pytest.approx(slow / fast, rel=0.06)


@pytest.mark.parametrize("name", ["dmcmc-table1", "gpube-table1", "gpube-table2", "gpube-table3", "cube-table2"])
def test_a_configuration_has_exactly_the_numbers_of_its_table(name, evidence):
    transcribed = transcribed_rows(evidence, name)
    if name == "cube-table2":  # another program's times
        transcribed = {at: value for at, value in transcribed.items() if at[1] != "SVR GPU"}
    assert published_rows(name) == pytest.approx(transcribed)


def test_satellites_have_the_numbers_of_cube(evidence):
    transcribed = transcribed_rows(evidence, "cube-table3")
    assert published_rows("cube-table3") == pytest.approx({at: transcribed[at] for at in published_rows("cube-table3")})


def test_instances_have_the_numbers_of_gpube(evidence):
    transcribed = {
        (number.case, number.method, number.quantity): float(number.value)
        for number in evidence.numbers
        if number.paper == "GpuBE" and re.fullmatch(r"[\d.]+", number.value)
    }
    for (case, method, quantity), value in published_rows("gpube-tables6-10").items():
        instance = PurePosixPath(case.removeprefix("file ")).name.partition(".")[0].replace("_", "-")
        assert transcribed[instance, METHODS_OF_PAPER[method], quantity] == value, (case, method, quantity)


def test_numbers_that_are_read_otherwise_than_printed_say_why(evidence):
    corrected = [number for number in evidence.numbers if number.printed != number.value]
    assert len(corrected) >= 4
    assert [number for number in corrected if not number.note] == []


def test_every_configuration_of_a_paper_is_described():
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    listed = {name for name in CONFIGS if f"`{name}.yaml`" in text}
    prefix = {f"{name[:-1]}a" for name in CONFIGS if name[-1] in "bc" and f"`{name[:-1]}a.yaml`" in text}
    assert [n for n in CONFIGS if n not in listed and f"{n[:-1]}a" not in prefix] == []


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "open('x')", "e.__class__", "'{0}'.format(e)", "f'{e._one_core}'", "json.loads('1')"],
)
def test_an_expression_of_the_claims_reaches_nothing_private(expression, evidence):
    assert evaluate("max(1, 2)", evidence) == 2
    with pytest.raises((ValueError, NameError)):
        evaluate(expression, evidence)
