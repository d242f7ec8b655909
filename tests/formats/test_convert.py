"""``dmcmc convert`` and ``dmcmc graph``: input and output files, and one-line errors."""

import json
from pathlib import Path

import pytest
from support.dcop_examples import FRODO_MEETINGS, PYDCOP_COLOURING, PYDCOP_MEETINGS, PYDCOP_MEETINGS_DIST

from dmcmc.cli.main import main
from dmcmc.config.configuration import Config, read_config
from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.config.problem_section import problem_of
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
        "m.wcsp: wcsp: the format has no agents, and the problem has 2; --drop agents removes them"
    )
    drops = ["--drop=agents", "--drop=labels", "--drop=names"]
    assert "has no names" in fails("convert", "m.xml", "m.wcsp", *drops[:2])
    assert not Path("m.wcsp").exists()
    assert main(["convert", "m.xml", "m.wcsp", *drops]) == 0
    assert formats.load("m.wcsp").variables == ("x0", "x1", "x2", "x3")


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
        (["p.wcsp", "p.txt"], "p.txt: its suffix gives no format; use one of .npz, .xml, .uai"),
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
