"""Networks nested in constraints: compared with their definition and with toulbar2."""

from itertools import product

import numpy as np
import pytest

from dmcmc.formats import registry as formats
from dmcmc.formats.global_functions.builder import NestedNetwork, nested_constraint
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import FileError, Unavailable

SHAPE, LOW, HIGH = (2, 3, 2), 3, 7
FIRST, SECOND = np.array([[1, 0, 0], [4, 0, 3]]), np.array([[7, 1], [0, 0], [1, 9]])


def listed(table):
    return " ".join(f"{i} {j} {cost}" for (i, j), cost in np.ndenumerate(table))


def wcsp(bounds="3 7 0 0", fixed=()):
    inner = f"q 3 3 2 9 2 3 2 2 0 1 0 6 {listed(FIRST)} 2 1 2 0 6 {listed(SECOND)}"
    unary = "".join(f"1 {v} 50 1 {x} 0\n" for v, x in enumerate(fixed))
    return f"p 3 3 {1 + len(fixed)} 50\n2 3 2\n{unary}3 0 1 2 -1 wcsp {bounds} {inner}\n"


def cfn(inner="<9.00", options="duplicatehard: 0 strongduality: 0", domains="2 b: 3"):
    tables = [" ".join(map(str, table.ravel())) for table in (FIRST, SECOND)]
    functions = f"f: {{scope: [a b] costs: [{tables[0]}]}} g: {{scope: [b c] costs: [{tables[1]}]}}"
    network = f"{{problem: {{name: q mustbe: {inner}}} variables: {{a: {domains} c: 2}} functions: {{{functions}}}\n}}"
    params = f"{{\ncfn:\n{network}\nlb: 3 ub: 7 {options}}}"
    function = f"k: {{scope: [x y z] type: cfnconstraint params: {params}\n}}"
    return f"{{problem: {{name: p mustbe: <50.0}} variables: {{x: 2 y: 3 z: 2}} functions: {{{function}}}}}"


def test_costs_outside_the_bounds_are_forbidden_in_both_formats():
    for text, kind in ((wcsp(), "wcsp"), (cfn(), "cfn")):
        problem = formats.parse(text.encode(), kind)
        for x, y, z in product(*map(range, SHAPE)):
            assert problem.evaluate((x, y, z)).violation == (not LOW <= FIRST[x, y] + SECOND[y, z] < HIGH)


def test_feasibility_agrees_with_toulbar2(tmp_path):
    pytoulbar2, path = pytest.importorskip("pytoulbar2"), tmp_path / "p.wcsp"
    for values in product(*map(range, SHAPE)):
        path.write_text(wcsp(fixed=values))
        network = pytoulbar2.CFN()
        try:
            network.Read(str(path))
            solved = network.Solve()
        except Exception as error:  # toulbar2 raises this if propagation alone finds a contradiction
            assert "ontradiction" in str(error)
            solved = None
        assert formats.parse(path.read_bytes(), "wcsp").evaluate(values).violation == (solved is None)


def test_the_bound_of_the_network_itself_holds_too():
    texts = ((wcsp().replace("q 3 3 2 9", "q 3 3 2 5"), "wcsp"), (cfn("<5.00"), "cfn"))
    for text, kind in texts:
        problem = formats.parse(text.encode(), kind)
        for x, y, z in product(*map(range, SHAPE)):
            assert problem.evaluate((x, y, z)).violation == (not LOW <= FIRST[x, y] + SECOND[y, z] < 5)


@pytest.mark.parametrize("constant", [None, -2, 3, 9, 100])
@pytest.mark.parametrize("lowest", [-9, 0, 3])
def test_networks_may_have_negative_costs_and_constants(constant, lowest):
    tables = (FIRST - 5, SECOND - 4)
    text = cfn("<9.00")
    for old, new in zip((FIRST, SECOND), tables, strict=True):
        text = text.replace(f"[{' '.join(map(str, old.ravel()))}]", f"[{' '.join(map(str, new.ravel()))}]")
    text = text.replace("lb: 3 ub: 7", f"lb: {lowest} ub: {lowest + 6}")
    if constant is not None:
        text = text.replace("functions: {f:", f"functions: {{e: {{scope: [] costs: [{constant}]}} f:")
    problem = formats.parse(text.encode(), "cfn")
    for x, y, z in product(*map(range, SHAPE)):
        total = tables[0][x, y] + tables[1][y, z] + (constant or 0)
        assert problem.evaluate((x, y, z)).violation == (not lowest <= total < min(lowest + 6, 9))


def test_a_forbidden_constant_forbids_everything():
    factors = (Factor.of((), np.array(-np.inf)), Factor.of((0,), [1, 1000]), Factor.of((1,), [1, 2000]))
    found = nested_constraint(NestedNetwork([2, 2], factors, 1, -5000, 10), [0, 1], [2, 2], "k")
    assert found.forbidden_entries() == max(1, found.table.size)


def test_wide_networks_become_automata_of_the_cost_so_far():
    rng, n = np.random.default_rng(1), 14
    factors = [Factor.of((v, v + 1), -rng.integers(0, 9, (2, 2))) for v in range(n - 1)]
    nested = NestedNetwork([2] * n, (*factors, Factor.of((), np.array(-2))), 1, 40, 60)
    found = nested_constraint(nested, range(n), [2] * n, "k")
    for values in rng.integers(0, 2, (50, n)):
        cost = 2 - sum(int(f.table[tuple(values[list(f.scope)])]) for f in factors)
        assert (found.entry(values.tolist()) is None) == (not 40 <= cost < 60)


@pytest.mark.parametrize(
    ("text", "kind", "error", "message"),
    [
        (wcsp("3 7 0 1"), "wcsp", Unavailable, "strong duality"),
        (wcsp("3 7 4 0"), "wcsp", Unavailable, "'wcsp' with the option 4 for duplicates of hard constraints is not"),
        (cfn(options="duplicatehard: 0 strongduality: 1"), "cfn", Unavailable, "such a strongduality"),
        (cfn(">9.00"), "cfn", Unavailable, "network that is maximised"),
        (cfn(domains="3 b: 3"), "cfn", FileError, r"6 costs for 9 tuples"),
        (wcsp("7 7 0 0"), "wcsp", FileError, "the bounds 7 and 7 allow no cost"),
        (cfn().replace("ub: 7", "ub: -1"), "cfn", FileError, "lb is not below ub"),
        (wcsp().replace("q 3 3 2 9 2 3 2", "q 3 3 2 9 2 3 3"), "wcsp", FileError, r"network has domains \[2, 3, 3\]"),
    ],
)
def test_unsupported_or_invalid_networks_are_refused(text, kind, error, message):
    with pytest.raises(error, match=message):
        formats.parse(text.encode(), kind)
