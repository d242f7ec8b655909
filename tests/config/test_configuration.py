"""Configurations: all keys are read, and each error is one line with the place."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dmcmc.config.configuration import Config, parse, problem_of, read_config
from dmcmc.config.settings import Budget, Cooling, Guarantee, Local, bytes_of
from dmcmc.files.document import suggestion
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, ResourceError

FULL = """\
problem: {generator: random, agents: 3, seed: 4}
local:
  method: exact
  runs: 5
  samples: 1e3
  temperature: {start: 1e2, end: 0.5, schedule: linear}
  cells: 1000
combine: {method: exact, mode: dpop}
budget: {memory: 500 MB}
device: cpu
seed: 7
output: results/run.json
"""


def load(*what: Any, **options: Any) -> Config:
    return read_config(*what, **options)[0]


def written(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text)
    return str(path)


def error_of(folder: Path, text: str, *overrides: str) -> str:
    """Return the error that a configuration gives, without the folder's name."""
    with pytest.raises(DmcmcError) as caught:
        load(written(folder, text), overrides)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(written(tmp_path, FULL))
    assert config.problem == {"generator": "random", "agents": 3, "seed": 4}
    assert config.local == Local("exact", 5, 1000, Cooling(100.0, 0.5, "linear"), cells=1000)
    assert (config.combine.method, config.combine.mode) == ("exact", "dpop")
    assert config.budget.memory == 500_000_000
    assert (config.device, config.seed, config.output) == ("cpu", 7, "results/run.json")


def test_missing_keys_have_their_defaults(tmp_path: Path) -> None:
    config = load(written(tmp_path, "problem: {file: a.npz}\nlocal:\n"))
    assert config.local == Local()
    assert (config.local.method, config.local.runs, config.local.samples) == ("auto", 10, 100)
    assert config.budget.memory == "auto"
    assert (config.device, config.seed, config.output) == ("auto", 0, None)


def test_a_configuration_is_immutable(tmp_path: Path) -> None:
    config = load(written(tmp_path, FULL))
    with pytest.raises(AttributeError):
        config.seed = 8  # type: ignore[misc]
    assert parse(msgspec.to_builtins(config)) == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "local: {sampels: 5}",
            "run.yaml:2: local.sampels: unknown key; did you mean 'samples'? (known: method, runs,",
        ),
        ("lokal: {}", "run.yaml:2: lokal: unknown key; did you mean 'local'?"),
        ("local:\n  runs: ten", "run.yaml:3: local.runs: expected a whole number >= 1 (and < 2^31), got 'ten'"),
        ("local: {runs: 0}", "run.yaml:2: local.runs: expected a whole number >= 1"),
        ("local: {runs: 2.0}", "run.yaml:2: local.runs: expected a whole number >= 1"),
        ("local: {runs: true}", "run.yaml:2: local.runs: expected a whole number >= 1 (and < 2^31), got true"),
        ("local: {runs: 1e10}", "run.yaml:2: local.runs: expected a whole number >= 1"),
        ("local: {samples: null}", "run.yaml:2: local.samples: expected a whole number >= 1 (and < 2^31), got null"),
        ("local: [1]", "run.yaml:2: local: expected a section with the keys method, runs,"),
        ("local: {temperature: .nan}", "run.yaml:2: local.temperature: expected auto, a number > 0 or {start"),
        ("local: {temperature: .inf}", "run.yaml:2: local.temperature: expected auto"),
        ("local: {temperature: 1e-40}", "run.yaml:2: local.temperature: expected auto"),
        ("local: {temperature: 0}", "run.yaml:2: local.temperature: expected auto"),
        ("local: {temperature: hot}", "run.yaml:2: local.temperature: expected auto"),
        ("local: {temperature: {start: 2}}", "run.yaml:2: local.temperature.end: is missing"),
        ("local: {temperature: {start: -2, end: 1}}", "run.yaml:2: local.temperature.start: expected a number > 0"),
        ("local: {temperature: {start: 2, end: 1, schedule: x}}", "local.temperature.schedule: expected geometric or"),
        (
            "local: {guarantee: {alpha: 1, epsilon: 0.1}}",
            "run.yaml:2: local.guarantee.alpha: expected a number between",
        ),
        ("local: {guarantee: 5}", "run.yaml:2: local.guarantee: expected {alpha: ..., epsilon: ...}, got 5"),
        (
            "local: {samples: 9, guarantee: {alpha: 0.1, epsilon: 0.1}}",
            "run.yaml:2: local.samples: is computed from local.guarantee",
        ),
        ("local: {guarantee: {alpha: 1e-9, epsilon: 1e-9}}", "run.yaml:2: local.guarantee: needs 1.000e+18 samples"),
        ("local: {method: gibs}", "run.yaml:2: local.method: "),
        ("budget: {memory: 8 giraffes}", "run.yaml:2: budget.memory: expected auto, a size such as 8GiB"),
        ("local: {bound: triangle}", "run.yaml:2: local.bound: unknown bound provider 'triangle'; did you mean"),
        ("budget: {memory: 0}", "run.yaml:2: budget.memory: expected auto, a size such as 8GiB"),
        ("device: tpu", "run.yaml:2: device: expected auto, cpu or cuda, got 'tpu'"),
        ("seed: -1", "run.yaml:2: seed: expected a whole number >= 0 (and < 2^63), got -1"),
        ("output: 5", "run.yaml:2: output: expected a file path, got 5"),
        ("seed: 1\nseed: 2", "run.yaml:3: seed: is given twice (first in line 2)"),
        ("seed: [1", "run.yaml:3: not valid YAML: "),
        ("seed: !!python/name:os.system x", "run.yaml:2: not valid YAML"),
        ("? [a, b]\n: 1", "run.yaml:2: a key must be a word"),
        ("seed: 2001-99-99", "run.yaml:2: seed: expected a whole number >= 0 (and < 2^63), got '2001-99-99'"),
        ("seed: !!int ''", "run.yaml:2: '' is not a valid value"),
        ("seed: !!bool 3", "run.yaml:2: '3' is not a valid value"),
        ("seed: !!binary ''", "run.yaml:2: not valid YAML here: the tag"),
        ("seed: " + "9" * 5000, "run.yaml:2: '999999"),
        ("seed: &a [*a]", "run.yaml:2: too many or too deeply nested values"),
        ("seed: " + "[" * 5000, "run.yaml:2: too many or too deeply nested values"),
    ],
)
def test_bad_keys_and_values_are_named_with_their_line(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error_of(tmp_path, f"problem: {{generator: random}}\n{text}\n")


def test_the_error_for_an_unknown_sampler_names_the_known_ones(tmp_path: Path) -> None:
    message = error_of(tmp_path, "problem: {generator: random}\nlocal: {method: gibs}\n")
    assert "gibs" in message
    assert "gibbs" in message and "metropolis-hastings" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "run.yaml: problem: is missing"),
        ("42", "run.yaml:1: expected sections such as 'problem:', got 42"),
        ("problem: x.npz", "run.yaml:1: problem: expected {file: PATH} or {generator: NAME, ...}, got 'x.npz'"),
        ("problem: {}", "run.yaml:1: problem: expected 'file', 'generator' or 'directory', got none of them"),
        ("problem: {file: a.npz, generator: random}", "'file', 'generator' or 'directory', got file and generator"),
        ("problem: {directory: parts, agents: 3}", "problem.agents: unknown key; the only key of a folder"),
        ("problem: {directory: parts, share_assignment: 1}", "share_assignment: expected true or false, got 1"),
        ("problem: {file: 3}", "run.yaml:1: problem.file: expected a file path, got 3"),
        ("problem: {file: a.npz,\n  depth: 3}", "run.yaml:2: problem.depth: unknown key; keys of a problem file:"),
        ("problem: {generator: random, agents: [3]}", "problem.agents: expected a word or a number, got [3]"),
        ("\x00", "run.yaml: not valid YAML"),
        ("a: 1\n---\nb: 1", "run.yaml:2: not valid YAML"),
    ],
)  # fmt: skip
def test_a_wrong_problem_section_is_an_error(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error_of(tmp_path, text)


@pytest.mark.parametrize("cells", ["auto", "0", "7_000"])
def test_cells_are_a_number_or_automatic(tmp_path: Path, cells: str) -> None:
    config = load(written(tmp_path, f"problem: {{generator: random}}\nlocal: {{cells: {cells}}}\n"))
    assert config.local.cells == ("auto" if cells == "auto" else int(cells))


@pytest.mark.parametrize("cells", ["-1", "many", "1.5"])
def test_other_values_of_cells_are_errors(tmp_path: Path, cells: str) -> None:
    expected = "local.cells: expected auto or a whole number >= 0"
    assert expected in error_of(tmp_path, f"problem: {{generator: random}}\nlocal: {{cells: {cells}}}\n")


def test_errors_name_the_option_that_set_a_key(tmp_path: Path) -> None:
    path = written(tmp_path, "problem: {generator: random}\n")
    assert load(path, options={"budget.time": 3, "budget.gap": 0.5}).budget == Budget(time=3.0, gap=0.5)
    with pytest.raises(ConfigError, match=r"^--timeout: expected seconds > 0, got 0$"):
        load(path, options={"budget.time": 0})


def test_aliases_are_read_unless_they_expand_to_very_many_values(tmp_path: Path) -> None:
    config = load(written(tmp_path, "problem: {generator: random, agents: &n 3, variables_per_agent: *n}"))
    assert config.problem["variables_per_agent"] == 3
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "too many or too deeply nested values" in error_of(tmp_path, bomb)
    assert "larger than" in error_of(tmp_path, "#" * 2_000_000)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothere\.yaml: no such file"):
        load(tmp_path / "nothere.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_overrides_replace_keys_and_create_sections(tmp_path: Path) -> None:
    path = written(tmp_path, "problem: {generator: random}\nseed: 1\n")
    config = load(path, ["local.runs=3", "local.temperature={start: 9, end: 1}", "budget.memory=1KiB"], {"seed": 5})
    assert (config.local.runs, config.local.temperature, config.budget.memory) == (3, Cooling(9, 1), 1024)
    assert config.seed == 5


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("local.runs=ten", "--set local.runs: expected a whole number >= 1 (and < 2^31), got 'ten'"),
        ("local.sampels=1", "--set local.sampels: unknown key; did you mean 'samples'?"),
        (
            "local.temperature={start: 1, end: x}",
            "--set local.temperature.end: expected a number > 0 (from 1e-30 to 1e30), got 'x'",
        ),
        ("local.runs", "--set local.runs: expected KEY=VALUE"),
        ("local..runs=1", "--set local..runs=1: expected KEY=VALUE"),
        ("local.runs=[1", "--set local.runs: not valid YAML"),
        ("seed.x=1", "seed: expected a whole number >= 0 (and < 2^63), got {'x': 1}"),
    ],
)
def test_errors_name_the_override(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in error_of(tmp_path, "problem: {generator: random}\nseed: 1\n", override)


def test_errors_name_an_option_of_the_same_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--seed: expected a whole number"):
        load(written(tmp_path, "problem: {generator: random}\n"), (), {"seed": "x"})


def test_a_guarantee_sets_the_samples(tmp_path: Path) -> None:
    text = "problem: {generator: random}\nlocal: {runs: 7, guarantee: {alpha: 0.01, epsilon: 0.05}}\n"
    local = load(written(tmp_path, text)).local
    assert local.guarantee is not None
    assert local.guarantee.samples == 2000
    assert local.samples == 286  # 7 * 286 = 2002 >= 2000 > 7 * 285
    assert parse({"problem": {"file": "a"}, "local": msgspec.to_builtins(local)}).local == local


@pytest.mark.parametrize(("alpha", "epsilon", "samples"), [(0.1, 0.1, 100), (0.3, 0.3, 12), (0.01, 0.05, 2000)])
def test_property_1_counts_samples_exactly(alpha: float, epsilon: float, samples: int) -> None:
    assert Guarantee(alpha, epsilon).samples == samples


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 * 2**30), ("1.5kb", 1500), ("2 TiB", 2**41), ("12", 12), ("3B", 3), ("1 GB", 10**9)]
)
def test_sizes_are_read_in_their_units(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1 PiB", "1e3MB", "nan", "0x10"])
def test_other_sizes_are_errors(text: str) -> None:
    with pytest.raises(ValueError):
        bytes_of(text)


def test_a_problem_file_is_relative_to_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path = written(tmp_path, "problem: {file: sub/p.npz}\n")
    assert load(path).problem["file"] == str(tmp_path / "sub" / "p.npz")
    assert load(path, ["problem.file=q.npz"]).problem["file"] == "q.npz"


def test_a_generated_problem_has_its_own_seed() -> None:
    def problem(**keys: object) -> list[list[int]]:
        config = parse({"problem": {"generator": "random", "agents": 2, **keys}, "seed": len(keys)})
        return [f.table.tolist() for f in problem_of(config.problem).factors]

    assert problem() == problem(seed=0)
    assert problem() != problem(seed=1)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  agents: 2\n  domain_size: -3", "run.yaml:4: problem.domain_size: "),
        ("  agents: 2\n  domane_size: 3", "run.yaml:4: problem.domane_size: "),
        ("  agents: x", "run.yaml:3: problem.agents: "),
        ("  seed: 1\n  local_density: .nan", "run.yaml:4: problem.local_density: "),
    ],
)
def test_a_generators_error_names_the_line(tmp_path: Path, lines: str, expected: str) -> None:
    config, document = read_config(written(tmp_path, f"problem:\n  generator: random\n{lines}\n"))
    with pytest.raises(ConfigError) as caught:
        problem_of(config.problem, document)
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(expected)


def test_the_error_for_an_unknown_generator_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"^problem\.generator: .*'rndom'.*meeting-scheduling"):
        problem_of({"generator": "rndom"})


def test_a_problem_of_10_to_the_15_variables_is_an_error_before_it_is_generated() -> None:
    with pytest.raises(ResourceError, match=r"^problem\."):
        problem_of({"generator": "meeting-scheduling", "agents": 10**9, "variables_per_agent": 10**6})


def test_a_missing_problem_file_is_named(tmp_path: Path) -> None:
    config, document = read_config(written(tmp_path, "seed: 3\nproblem: {file: no.npz}"))
    with pytest.raises(DmcmcError, match=r"run\.yaml:2: problem\.file: .*no\.npz: no such file"):
        problem_of(config.problem, document)


def test_a_configuration_can_be_built_in_python() -> None:
    config = Config(problem={"generator": "random"}, local=Local(guarantee=Guarantee(0.1, 0.1)))
    assert config.local.samples == 10


def test_files_are_relative_to_the_folder_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    text = "problem: {file: p.yaml, evidence: e, distribution: d.yaml}\n"
    (folder / "run.yaml").write_text(text)
    found = load("runs/run.yaml").problem
    assert found == {"file": "runs/p.yaml", "evidence": "runs/e", "distribution": "runs/d.yaml"}
    assert load("runs/run.yaml", ["problem.distribution=other.yaml"]).problem["distribution"] == "other.yaml"


def test_the_known_names_are_suggested():
    assert suggestion("rde", ["red", "blue"], "colours") == "did you mean 'red'? (colours: red, blue)"
    assert suggestion("x", ["red", "blue"], "colours") == "colours: red, blue"
    assert suggestion("x", [], "colours") == "there are no colours"
