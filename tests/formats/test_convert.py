"""``dmcmc convert`` and ``dmcmc graph``: input and output files, and one-line errors."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from support.dcop_examples import FRODO_MEETINGS, PYDCOP_COLOURING, PYDCOP_MEETINGS, PYDCOP_MEETINGS_DIST

from dmcmc import Factor, Problem
from dmcmc.cli.main import main
from dmcmc.config.configuration import FILE_OPTIONS, Config, problem_of, read_config
from dmcmc.formats import registry as formats

WCSP = "p 6 2 5 100\n2 2 2 2 2 2\n" + "".join(f"2 {i} {i + 1} 0 1\n1 1 {i + 3}\n" for i in range(5))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.wcsp").write_text(WCSP)
    Path("m.xml").write_text(FRODO_MEETINGS)
    Path("c.yaml").write_text(PYDCOP_COLOURING)
    return tmp_path


@pytest.fixture
def fails(capfd):
    """Run a command line that must be refused, and return the line that it prints."""

    def line(*argv):
        assert main(argv) == 2
        out, error = capfd.readouterr()
        assert out == "" and error.count("\n") == 1
        return error.removeprefix("dmcmc: error: ").rstrip()

    return line


def test_a_file_is_converted_from_format_to_format(folder, capfd):
    for source, target in (("m.xml", "a.yaml.gz"), ("a.yaml.gz", "b.npz"), ("b.npz", "c.xml"), ("c.xml", "d.xml.xz")):
        assert main(["convert", source, target]) == 0
        assert capfd.readouterr().out == (
            f"{target}: 2 agents, 4 variables, 3 values each, 6 factors over at most 2 variables,"
            " 12 forbidden entries, sense min\n"
        )
    first, last = formats.load("m.xml"), formats.load("d.xml.xz")
    assert (first.variables, first.agents, first.owner.tolist()) == (last.variables, last.agents, last.owner.tolist())
    for values in ([0, 1, 0, 1], [0, 1, 0, 0], [2, 1, 2, 0]):
        assert first.evaluate(values) == last.evaluate(values)


def test_losses_are_errors_unless_dropped(folder, fails, capfd):
    assert fails("convert", "m.xml", "m.wcsp") == (
        "m.wcsp: wcsp: the format has no agents (the problem has 2), no value labels and no names of variables;"
        " --drop agents,labels,names, or --drop all, leaves that out"
    )
    drops = ["--drop=agents", "--drop=labels", "--drop=names"]
    assert "has no names" in fails("convert", "m.xml", "m.wcsp", *drops[:2])
    assert not Path("m.wcsp").exists()
    assert main(["convert", "m.xml", "m.wcsp", *drops]) == 0
    assert formats.load("m.wcsp").variables == ("x0", "x1", "x2", "x3")


def test_features_to_drop_may_be_listed_with_commas(folder, fails):
    assert "the format has no names of variables; --drop names leaves that out" in fails(
        "convert", "m.xml", "m.wcsp", "--drop", "agents,labels"
    )
    assert "--drop cost: expected one of" in fails("convert", "m.xml", "m.wcsp", "--drop=agents,cost")
    assert main(["convert", "m.xml", "m.wcsp", "--drop=agents, names", "--drop=labels"]) == 0


def test_all_drops_only_what_the_format_cannot_express(folder, capfd):
    assert main(["convert", "m.xml", "m.wcsp", "--drop", "all"]) == 0
    assert capfd.readouterr().out.endswith(", sense min; dropped: agents, labels, names\n")
    assert main(["convert", "c.yaml", "c.cfn", "--drop", "all"]) == 0
    assert capfd.readouterr().out.endswith(", sense min; dropped: agents\n")
    kept = formats.load("c.cfn")
    assert (kept.variables, kept.labels[0]) == (("v0", "v1", "v2", "v3"), ("R", "G", "B"))
    assert main(["convert", "m.xml", "n.xml", "--drop", "all"]) == 0
    assert capfd.readouterr().out.endswith(", sense min\n")
    assert formats.load("n.xml").agents == ("ann", "bob")


@pytest.mark.parametrize(
    ("target", "lost", "besides"),
    [
        ("p.wcsp", "agents,labels,names,sense", "; besides, factor 'a': cost 0.5; whole numbers from 0 are needed"),
        ("p.uai", "agents,labels,names", ""),
        ("p.cfn", "agents,names,labels", ""),
        ("p.xml", "labels,names", ""),
    ],
)
def test_everything_that_a_format_cannot_express_is_listed_at_once(folder, target, lost, besides, fails):
    labels = (("on", 'o"ff'), (0, 1))
    factors = (Factor.of((0, 1), [[1, 2], [3, -0.5]], name="a"), Factor.of((0,), [-0.5, 2], name="b"))
    problem = Problem(("x y", "z"), [2, 2], ("a", "b"), [0, 1], factors, labels=labels)
    formats.save(problem, "p.npz")
    message = fails("convert", "p.npz", target)
    assert f"; --drop {lost}, or --drop all, leaves that out{besides}" in message
    if not besides:
        assert main(["convert", "p.npz", target, "--drop", lost]) == 0


def wcsp_costs(path):
    """Return the costs of all assignments of a .wcsp file, which has no negative number."""
    assert "-" not in Path(path).read_text()
    problem = formats.load(path)
    found = [problem.evaluate(list(v)) for v in product(*map(range, problem.domains.tolist()))]
    return [None if e.violation else e.objective for e in found]


def test_negative_costs_are_shifted_into_the_constant(folder, fails, capfd):
    tables = [[[-3, 4], [0, float("inf")]], [5, 9]]
    factors = [Factor.of((0, 1), tables[0], "min"), Factor.of((1,), tables[1], "min"), Factor.of((), 2, "min")]
    problem = Problem(("x0", "x1"), [2, 2], ("all",), [0, 0], tuple(factors), sense="min")
    formats.save(problem, "p.npz")
    assert main(["convert", "p.npz", "p.wcsp"]) == 0
    assert wcsp_costs("p.wcsp") == [4, 15, 7, None]
    formats.save(replace(problem, factors=tuple(factors[:1])), "q.npz")
    capfd.readouterr()
    message = fails("convert", "p.npz", "p.uai", "--drop=names")
    assert "no minimisation" in message
    message = fails("convert", "q.npz", "q.wcsp")
    assert "the format has no negative constant such as -3 (factor 'c0': cost -3; whole numbers from 0 are" in message
    assert message.endswith("--drop constant leaves that out")
    assert main(["convert", "q.npz", "q.wcsp", "--drop", "constant"]) == 0
    assert wcsp_costs("q.wcsp") == [0, 7, 3, None]
    assert main(["convert", "q.npz", "q.cfn", "--drop", "constant,all"]) == 0
    assert formats.load("q.cfn").evaluate([0, 0]).objective == -3


def test_a_maximisation_is_shifted_too(folder, capfd):
    problem = Problem(("x0",), [3], ("all",), [0], (Factor.of((0,), [7, 2, -4]), Factor.of((), -9)))
    formats.save(problem, "p.npz")
    assert main(["convert", "p.npz", "p.wcsp", "--drop", "all"]) == 0
    assert capfd.readouterr().out.endswith("; dropped: sense\n")
    assert wcsp_costs("p.wcsp") == [2, 7, 13]


def test_variables_may_be_distributed_to_agents(folder, capfd):
    assert main(["convert", "p.wcsp", "p.xml", "--agents", "3", "--split", "grow"]) == 0
    assert formats.load("p.xml").n_agents == 3


def test_formats_are_forced_by_option(folder):
    Path("m.xml").rename("m")
    assert main(["convert", "m", "n", "--format", "xcsp", "--to", "pydcop"]) == 0
    assert formats.load("n").agents == ("ann", "bob")


def test_a_distribution_may_be_given(folder):
    Path("d.yaml").write_text(PYDCOP_MEETINGS)
    Path("who.yaml").write_text(PYDCOP_MEETINGS_DIST.replace("[v_2_1]", "[]").replace("[v_1_1,", "[v_2_1, v_1_1,"))
    assert main(["convert", "d.yaml", "d.npz", "--distribution", "who.yaml"]) == 0
    assert formats.load("d.npz").owner.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["p.wcsp", "p.txt"], "p.txt: its suffix gives no format; use one of .npz, .xmlbif, .bifxml, .xml, .uai"),
        (["p.wcsp", "p.bif"], "p.bif: bif files can be read but not written in this version"),
        (["nowhere.wcsp", "p.xml"], "nowhere.wcsp: no such file"),
        (["p.wcsp", "p.wcsp/p.xml"], "p.wcsp/p.xml: cannot be written"),
        (["p.wcsp", "p.xml", "--to=foo"], "format 'foo' is not known"),
        (["p.wcsp", "p.xml", "--drop=costs"], "--drop costs: expected one of agents, digits, labels, names, sense"),
        (["p.wcsp", "p.xml", "--agents=7"], "--agents: expected 1 to 6 (the number of variables), got 7"),
        (["p.wcsp", "p.xml", "--agents=x"], "--agents: expected a whole number, got 'x'"),
        (["p.wcsp", "p.xml", "--split=tree"], "--split: needs problem.agents, the number of agents"),
        (
            ["p.wcsp", "p.xml", "--agents=2", "--split=x"],
            "--split: expected one of tree, grow, blocks, got 'x'",
        ),
        (["p.wcsp", "p.xml", "--evidence=e"], "p.wcsp: a wcsp file takes no evidence"),
    ],
)
def test_failed_conversions_are_reported_in_one_line(folder, fails, argv, message):
    assert fails("convert", *argv).startswith(message)
    assert not Path("p.xml").exists()


def test_graph_shows_agents_widths_and_tables(folder, capfd):
    assert main(["graph", "p.wcsp", "--agents", "3"]) == 0
    output = capfd.readouterr().out
    assert "5 edges, connected components: 1, largest degree 2" in output and "width 1" in output
    assert main(["graph", "p.wcsp", "--agents", "3", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["variables"], data["edges"], data["width"], data["links"]) == (6, 5, 1, 2)
    assert [agent["variables"] for agent in data["agents"]] == [2, 2, 2]
    assert sum(agent["parent"] is None for agent in data["agents"]) == 1
    assert all(agent["message"] == 2 for agent in data["agents"] if agent["parent"] is not None)


def test_graph_takes_configurations_too(folder, capfd):
    Path("run.yaml").write_text("problem: {file: c.yaml}")
    assert main(["graph", "run.yaml", "--json"]) == 0
    assert [agent["name"] for agent in json.loads(capfd.readouterr().out)["agents"]] == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize(("name", "begins"), [("g.png", b"\x89PNG"), ("g.svg", b"<?xml"), ("g.dot", b"graph problem")])
def test_graph_draws(folder, capfd, name, begins):
    if name != "g.dot":
        pytest.importorskip("matplotlib")
    assert main(["graph", "c.yaml", "--output", name]) == 0
    assert Path(name).read_bytes().startswith(begins)


def test_a_picture_needs_a_known_name(folder, fails):
    assert fails("graph", "c.yaml", "--output", "g.bmp").startswith(
        "g.bmp: unknown kind of picture; use a name that ends in .dot, .png"
    )


def test_a_configuration_gives_agents_to_a_file(folder):
    Path("run.yaml").write_text("problem: {file: p.wcsp, agents: 2, split: blocks}")
    assert problem_of(read_config("run.yaml")[0].problem).owner.tolist() == [0, 0, 0, 1, 1, 1]
    config, document = read_config("run.yaml", options={"problem.agents": 3})
    assert isinstance(config, Config) and problem_of(config.problem, document).n_agents == 3


def test_run_takes_the_options_of_files(folder, capfd):
    Path("run.yaml").write_text("problem: {file: p.wcsp}")
    assert main(["run", "run.yaml", "--agents", "2", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["objective"], len(result["agents"])) == (0, 2)
    assert set(FILE_OPTIONS) == {"format", "agents", "split", "distribution", "evidence"}
