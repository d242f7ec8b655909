"""Reading pyDCOP's YAML: meaning of the files, owners of variables, and one-line errors."""

from itertools import product
from pathlib import Path

import pytest
from support import instances
from support.dcop_examples import PYDCOP_COLOURING, PYDCOP_HINTS, PYDCOP_MEETINGS, PYDCOP_MEETINGS_DIST

import dmcmc
from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import DmcmcError, FileError


def read(text):
    return formats.parse(text.encode(), "pydcop", "p.yaml")


def error_of(text):
    with pytest.raises(DmcmcError) as caught:
        read(text)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("p.yaml")
    return message.removeprefix("p.yaml")


def entries(problem, name):
    """Return a factor's entries in the problem's sense, with None for forbidden ones."""
    factor = next(f for f in problem.factors if f.name == name)
    values_ = [factor.entry(values) for values in product(*map(range, factor.shape))]
    return [None if e is None else problem.to_own_sense(e) for e in values_]


def best_of(problem):
    result = dmcmc.solve(problem, method="exact")
    assert result.status == "optimal"
    return result


def owners(problem):
    return {name: problem.agents[a] for name, a in zip(problem.variables, problem.owner, strict=True)}


def test_constraints_in_both_forms_and_costs_of_variables():
    problem = read(PYDCOP_COLOURING)
    assert (problem.name, problem.sense) == ("graph coloring", "min")
    assert problem.labels == (("R", "G", "B"),) * 4
    assert entries(problem, "c0") == [1000, 0, 0, 0, 1000, 0, 0, 0, 1000]
    assert entries(problem, "c3") == [7, 0, 2, 0, 7, 2, 2, 0, 7]
    assert entries(problem, "c4") == [3, None, 1]
    assert entries(problem, "v3.cost_function") == [0.5, 0, 0]
    assert best_of(problem).objective == 1


def test_agents_as_many_as_variables_own_one_variable_each():
    assert owners(read(PYDCOP_COLOURING)) == {"v0": "a0", "v1": "a1", "v2": "a2", "v3": "a3"}


def test_bodies_ranges_booleans_and_hints():
    problem = read(PYDCOP_HINTS)
    assert problem.labels == (None, None, None, ("true", "false"))
    assert owners(problem) == {"l1": "room1", "l2": "room2", "m1": "room2", "on": "room1"}
    model = next(f for f in problem.factors if f.name == "model")
    for values in product(range(5), range(5), range(2), range(5)):
        chosen = dict(zip([problem.variables[v] for v in model.scope], values, strict=False))
        total = 0.5 * chosen["l1"] + 0.5 * chosen["l2"] if chosen["on"] == 0 else 0
        if all(chosen[v] < s for v, s in zip(chosen, model.shape, strict=True)):
            at = [chosen[problem.variables[v]] for v in model.scope]
            assert model.entry(at) == (0 if abs(total - chosen["m1"]) < 0.6 else -100)
    assert best_of(problem).objective == 9


def test_a_distribution_next_to_the_file_assigns_the_variables(tmp_path):
    (tmp_path / "meetings.yaml").write_text(PYDCOP_MEETINGS)
    assert owners(formats.load(tmp_path / "meetings.yaml")) == {"v_1_1": "a_1", "v_1_2": "a_1", "v_2_1": "a_2"}
    swapped = PYDCOP_MEETINGS_DIST.replace("a_1: [v_1_1, v_1_2]", "a_1: [v_1_1]").replace("[v_2_1]", "[v_2_1, v_1_2]")
    (tmp_path / "meetings_dist.yaml").write_text(swapped)
    problem = formats.load(tmp_path / "meetings.yaml")
    assert owners(problem) == {"v_1_1": "a_1", "v_1_2": "a_2", "v_2_1": "a_2"}
    (tmp_path / "other.yaml").write_text(PYDCOP_MEETINGS_DIST)
    problem = formats.load(tmp_path / "meetings.yaml", distribution=tmp_path / "other.yaml")
    assert owners(problem) == {"v_1_1": "a_1", "v_1_2": "a_1", "v_2_1": "a_2"}
    result = best_of(problem)
    assert result.objective == 14 and len(result.agents) == 2


def test_the_output_of_pydcop_is_read_unchanged():
    assert owners(read(PYDCOP_MEETINGS + PYDCOP_MEETINGS_DIST)) == {"v_1_1": "a_1", "v_1_2": "a_1", "v_2_1": "a_2"}


def test_variables_without_owner_are_distributed_evenly_and_groups_stay_together():
    chain = "name: c\nobjective: min\ndomains: {d: {values: [0, 1]}}\nvariables:\n"
    chain += "".join(f"  v{i}: {{domain: d}}\n" for i in range(6)) + "constraints:\n"
    chain += "".join(f"  c{i}: {{type: intention, function: v{i} * v{i + 1}}}\n" for i in range(5))
    assert read(chain).agents == ("all",)
    assert read(chain + "agents: [a, b]").owner.tolist() == [0, 0, 0, 1, 1, 1]
    together = "agents: [a, b]\ndistribution_hints: {must_host: {b: [c0]}, host_with: {v5: [c0, v4]}}"
    assert read(chain + together).owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert read(chain + together.replace("v5: [c0, v4]", "v0: [c0, v4]")).owner.tolist() == [1, 1, 0, 0, 1, 0]


EXTERNAL = """
name: blinds
objective: min
domains: {level: {values: [0..3]}, sun: {values: [weak, strong]}, flag: {values: [true, false]}}
variables: {x: {domain: level}, y: {domain: level}}
external_variables:
  sky: {domain: sun, initial_value: strong}
  home: {domain: flag, initial_value: False}
constraints:
  a: {type: intention, function: "(x ^ y) + (10 if sky == 'strong' and not home else 0)"}
  b: {type: intention, function: 3 if home else 4}
  c: {type: extensional, variables: [x, sky], default: 7, values: {1: 0 strong | 1 weak, 2: 1 strong}}
  d: {type: extensional, variables: [sky, home], values: {1: strong true | weak true | weak false, 6: strong false}}
distribution_hints: {must_host: {}}
"""


def test_external_variables_keep_their_initial_value():
    problem = read(EXTERNAL)
    assert problem.variables == ("x", "y")
    assert entries(problem, "a") == [(x ^ y) + 10 for x in range(4) for y in range(4)]
    assert (entries(problem, "b"), entries(problem, "c"), entries(problem, "d")) == ([4], [1, 2, 7, 7], [6])
    problem = read(EXTERNAL.replace("value: strong", "value: weak").replace("value: False", "value: true"))
    assert entries(problem, "a") == [x ^ y for x in range(4) for y in range(4)]
    assert (entries(problem, "b"), entries(problem, "c"), entries(problem, "d")) == ([3], [7, 1, 7, 7], [1])
    assert "not every assignment has a value" in error_of(EXTERNAL.replace("strong true | ", ""))


def test_a_file_with_an_external_variable_is_solved():
    path = Path(instances.FOLDER) / "realworld" / "formats" / "external-variable.yaml"
    if not path.exists():
        pytest.skip(instances.REASON)
    result = best_of(formats.load(path))
    assert (result.assignment, result.objective) == ({"radiator": 2}, 3)


def test_a_sum_over_many_variables_becomes_one_factor_per_term():
    text = "name: s\nobjective: max\ndomains: {d: {values: [0..9]}}\nvariables:\n"
    text += "".join(f"  v{i}: {{domain: d}}\n" for i in range(12))
    total = " + ".join(f"v{i} * v{i + 1}" for i in range(11))
    problem = read(text + f"constraints:\n  c: {{type: intention, function: {total} - 5}}\n")
    assert max(len(f.scope) for f in problem.factors) == 2
    assert problem.evaluate([2] * 12).objective == 4 * 11 - 5
    product_of_all = " * ".join(f"v{i}" for i in range(12))
    message = error_of(text + f"constraints:\n  c: {{type: intention, function: {product_of_all}}}\n")
    assert "a table of 1e+12 entries" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("objective: min", "objective: most", ":2: objective: expected min or max, got 'most'"),
        ("objective: min", "objectiv: min", "unknown section; did you mean 'objective'"),
        ("values: [R, G, B]", "values: []", "expected 'values' with a list"),
        ("values: [R, G, B]", "values: [R, [G], B]", "a value must be a word or a number"),
        ("values: [R, G, B]", "values: [R, G, R]", "a value occurs twice"),
        ("values: [R, G, B]", "values: [0..99999999]", "at most 4,194,304 values"),
        ("values: [R, G, B]", "values: [9..0]", "expected a range such as 0..9"),
        ("v0: {domain: colors}", "v0: {domain: colours}", "did you mean 'colors'"),
        ("v0: {domain: colors}", "v0: colors", ":10: variables.v0: expected 'domain' with the name of a domain"),
        ("v3 == 'R'", "v2 == 'R'", "the cost of a variable must depend on that variable only (v3)"),
        (
            "type: intention, function: 1000 if v0 == v1",
            "type: intention, function: 1000 if v0 == w",
            "w is not a variable",
        ),
        ("type: intention", "type: intension", "expected intention or extensional, got 'intension'"),
        ("type: intention, ", "type: intention, source: f.py, ", "functions in other files are not available"),
        ("1000 if v0 == v1 else 0", "v0.lower()", "the expression calls v0.lower()"),
        ("1000 if v0 == v1 else 0", "'1000 if'", "the expression is not valid"),
        ("1000 if v0 == v1 else 0", "[1]", "expected an expression, got [1]"),
        ("1000 if v0 == v1 else 0", "1e999 if v0 == v1 else -1e999", "contains -inf"),
        ("1000 if v0 == v1 else 0", "9 ** 9 ** 9 if v0 == v1 else 0", "more than 4096 bits"),
        ("variables: [v2, v3]", "variables: [v2, v4]", "v4 is not a variable"),
        ("variables: [v2, v3]", "variables: [v2, v2]", "a variable occurs twice"),
        ("variables: [v2, v3]", "variables: []", "expected a list of variables"),
        ("0: R G | G R", "0: R G | G", "the assignment 'G' has 1 values for 2 variables"),
        ("0: R G | G R", "0: R G | G X", "'X' is not in the domain of its variable"),
        ("0: R G | G R", "x: R G | G R", "constraints.c3.values.x: a cost must be a number"),
        ("0: R G | G R", ".nan: R G | G R", "a cost must be a number"),
        ("    default: 2\n", "", "constraints.c3: not every assignment has a value and there is no 'default'"),
        ("    default: 2\n", "    defualt: 2\n", "unknown key; did you mean 'default'"),
        ("agents: [a0, a1, a2, a3]", "agents: [a0, a0]", "an agent occurs twice"),
        ("agents: [a0, a1, a2, a3]", "agents: 7", "expected names, got 7"),
        ("agents: [a0, a1, a2, a3]", "distribution: {a0: [v9]}", "'v9' is neither a variable nor a constraint"),
        ("agents: [a0, a1, a2, a3]", "agents: [a]\ndistribution: {b: [v0]}", "distribution.b: is not an agent"),
        ("agents: [a0, a1, a2, a3]", "distribution: {a: [v0], b: [v0]}", "v0 is also hosted by another agent"),
        (
            "agents: [a0, a1, a2, a3]",
            "external_variables: {e: {domain: colors}}",
            "external_variables.e: expected 'initial_value', the value that the external variable keeps",
        ),
        (
            "agents: [a0, a1, a2, a3]",
            "external_variables: {e: {domain: colors, initial_value: X}}",
            "external_variables.e.initial_value: 'X' is not in the domain 'colors'",
        ),
        ("agents: [a0, a1, a2, a3]", "external_variables: {e: {domain: colour}}", "did you mean 'colors'"),
        (
            "agents: [a0, a1, a2, a3]",
            "external_variables: {v0: {domain: colors, initial_value: R}}",
            "external_variables.v0: v0 is a variable, too",
        ),
        ("values: [R, G, B]", "values: null", "domains.colors.values: expected 'values' with a list such as [R, G]"),
        ("values: [R, G, B]", "values:", "or [0..9], got null"),
        ("values: {3: R, .inf: G, 1: B}", "values:", "constraints.c4.values: expected costs with their assignments"),
        ("0: R G | G R | B G", "0:", "constraints.c3.values.0: expected assignments such as R G | G R, got null"),
        ("0: R G | G R | B G", "0: [R, G]", "expected assignments such as R G | G R, got ['R', 'G']"),
        ("0: R G | G R | B G", "7: R G | G R | B G", "constraints.c3.values.7: is given twice (first in line 23)"),
        ("  c1: {type", "  c0: {type", "constraints.c0: is given twice (first in line 16)"),
        ("values: [R, G, B]", "values: [R, G, B]\n    values: [R]", "domains.colors.values: is given twice"),
        ("name: graph coloring", "name: [", "not valid YAML"),
        ("name: graph coloring", "name: !!int ''", ":1: '' is not a valid value"),
        ("name: graph coloring", "name: !!bool 3", ":1: '3' is not a valid value"),
        ("name: graph coloring", "name: !!float '-'", ":1: '-' is not a valid value"),
        ("name: graph coloring", "name: !!binary a", ":1: not valid YAML here: the tag"),
        ("values: [R, G, B]", "values: [R, !!set {G}, B]", "not valid YAML here: the tag"),
        ("name: graph coloring", "name: !!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_errors_name_the_line_and_the_key(old, new, message):
    assert message in error_of(PYDCOP_COLOURING.replace(old, new, 1))


def test_aliases_depth_and_size_are_bounded():
    bomb = "a0: &a0 [1, 2]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    assert "too many or too deeply nested" in error_of(bomb)
    assert "too many or too deeply nested" in error_of("[" * 100_000)
    assert "too many or too deeply nested" in error_of("a: &a [*a]")
    assert "not valid YAML" in error_of("a: \x00")
    assert "expected sections" in error_of("7")


def test_files_that_pydcop_writes_with_anchors_are_read():
    text = PYDCOP_COLOURING.replace("values: [R, G, B]", "values: &v [R, G, B]\n  more: {values: *v}")
    assert read(text).labels[0] == ("R", "G", "B")


def test_a_damaged_distribution_file_is_named(tmp_path):
    (tmp_path / "p.yaml").write_text(PYDCOP_MEETINGS)
    (tmp_path / "p_dist.yaml").write_text("distribution:\n  a_3: [v_1_1]\n")
    with pytest.raises(FileError, match=r"p_dist.yaml:2: distribution.a_3: is not an agent"):
        formats.load(tmp_path / "p.yaml")
    (tmp_path / "p_dist.yaml").write_text("cost: 1\n")
    with pytest.raises(FileError, match=r"p_dist.yaml: expected 'distribution'"):
        formats.load(tmp_path / "p.yaml")
    with pytest.raises(FileError, match=r"nowhere.yaml: no such file"):
        formats.load(tmp_path / "p.yaml", distribution=tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("row", instances.rows({"yaml", "yml"}) or [None])
def test_real_instances(row):
    if row is None:
        pytest.skip(instances.REASON)
    problem = formats.load(instances.path_of(row))
    assert problem.n_variables == int(row["n_vars"])
    assert problem.domains.max() == int(row["max_domain"])
    costs = sum(f.name.endswith(".cost_function") for f in problem.factors)
    assert len(problem.factors) - costs == int(row["n_constraints"])
    assert max(len(f.scope) for f in problem.factors) == int(row["max_arity"])
    if row["n_vars"] == "4":  # the others take some seconds; their optima are 32 and 66.2
        assert best_of(problem).objective == float(row["optimum"])
