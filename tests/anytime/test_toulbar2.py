"""Files have the same optimum here, by enumeration, as in toulbar2."""

import json
import random
import subprocess
import sys
from itertools import product

import pytest

from dmcmc.formats import registry as formats

pytest.importorskip("pytoulbar2")

SEARCH = """
import json, os, sys
from pytoulbar2 import CFN
for name in sys.argv[1:]:
    try:
        network = CFN(verbose=-1)
        network.Read(name)
        found = network.Solve()
        print("optimum", json.dumps(None if found is None else found[1]), flush=True)
    except Exception as error:
        print("optimum", "null" if "ontradiction" in type(error).__name__ else json.dumps(str(error)), flush=True)
os._exit(0)
"""


def optima(paths):
    """Return the optima that toulbar2 finds, None for infeasible; in its own process, which it ends on some errors."""
    done = subprocess.run([sys.executable, "-c", SEARCH, *map(str, paths)], capture_output=True, text=True)
    return [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("optimum ")]


def best(problem, bound=None):
    """Return the best objective of all assignments within a bound."""
    found = []
    for values in product(*map(range, problem.domains.tolist())):
        objective, violation = problem.evaluate(values)
        if not violation and (bound is None or (objective < bound if problem.sense == "min" else objective > bound)):
            found.append(objective)
    return (min if problem.sense == "min" else max)(found) if found else None


def global_function(rng, shape):
    """Return keyword and parameters of a random global cost function."""
    m, cost, metric = max(shape), rng.randint(1, 5), rng.choice(["hard", "lin", "quad"])
    bounds = [(v, low, low + rng.randint(0, 2)) for v in range(m) for low in [rng.randint(0, 2)]][: rng.randint(1, m)]
    listed = " ".join(" ".join(map(str, b)) for b in bounds)
    moves = [(q, v, rng.randint(0, 1), rng.randint(0, 3)) for q in (0, 1) for v in range(m) if rng.random() < 0.9]
    return rng.choice(
        [
            f"salldiff {rng.choice(['var', 'dec'])} {cost}",
            f"walldiff {metric} {cost}",
            f"sgcc dec {cost} {len(bounds)} {listed}",
            f"wgcc {metric} {cost} {len(bounds)} {listed}",
            f"wsum {metric} {cost} {rng.choice(['==', '<', '<=', '>', '>='])} {rng.randint(0, 6)}",
            f"wamong {metric} {cost} 1 {rng.randint(0, m - 1)} 1 2",
            f"samong var {cost} 0 1 1 {rng.randint(0, m - 1)}",
            f"wregular 2 1 0 0 2 0 0 1 1 {len(moves)} {' '.join(' '.join(map(str, e)) for e in moves)}",
            "knapsackp 2 " + " ".join(f"{d} " + " ".join(f"{x} {rng.randint(0, 2)}" for x in range(d)) for d in shape),
        ]
    )


def wcsp(rng):
    """Return a random file with shared, sparse, dense and global cost functions over four variables."""
    shape = [rng.randint(2, 3) for _ in range(4)]
    top = rng.choice([12, 40, 1000])
    constraints = []
    for v, size in enumerate(shape):
        constraints.append(f"1 {v} 0 {size} " + " ".join(f"{x} {rng.randint(0, 15)}" for x in range(size)))
    for _ in range(3):
        scope = rng.sample(range(4), rng.choice([2, 3, 4]))
        tuples = [t for t in product(*(range(shape[v]) for v in scope)) if rng.random() < 0.5]
        listed = " ".join(f"{' '.join(map(str, t))} {rng.randint(0, 15)}" for t in tuples)
        constraints.append(f"{len(scope)} {' '.join(map(str, scope))} {rng.randint(0, 6)} {len(tuples)} {listed}")
    same = [v for v in range(4) if shape[v] == shape[0]]
    if len(same) > 2:
        a, b, c = same[:3]
        constraints.append(f"-2 {a} {b} 0 2 0 1 {rng.randint(1, 9)} 1 1 {rng.randint(1, 9)}")
        constraints.append(f"2 {c} {b} 0 -1")
    constraints.append(f"4 0 1 2 3 -1 {global_function(rng, shape)}")
    return f"p 4 3 {len(constraints)} {top}\n{' '.join(map(str, shape))}\n" + "\n".join(constraints)


def test_wcsp_files(tmp_path):
    rng, paths, expected = random.Random(3), [], []
    for number in range(40):
        text = wcsp(rng)
        paths.append(tmp_path / f"{number}.wcsp")
        paths[-1].write_text(text)
        # toulbar2 takes top as a bound on the whole cost as well.
        expected.append(best(formats.load(paths[-1]), bound=int(text.split()[4])))
    assert optima(paths) == expected
    assert None in expected and len(set(expected)) > 10


def hard_functions(rng):
    """Return a random file with a hard all-different and a knapsack with conflicts, in any order of the scope."""
    unary = [
        f"1 {v} 0 {size} " + " ".join(f"{x} {rng.randint(0, 9)}" for x in range(size)) for v, size in enumerate(SHAPE)
    ]
    scope = rng.sample(range(4), 4)
    places = [(v, rng.randint(0, 1)) for v in rng.sample(range(4), 4)]  # groups with a variable in common crash it
    groups = rng.choice([[places[:2], places[2:]], [places[:3]], []])
    conflicts = " ".join(f"{len(g)} " + " ".join(f"{v} {x}" for v, x in g) for g in groups)
    weights = " ".join(f"1 1 {rng.randint(1, 4)}" for _ in scope)  # it forgets variables without weight
    several = rng.sample(range(3, 7), 3)
    listed = [
        *unary,
        f"4 {' '.join(map(str, scope))} -1 knapsackc {rng.randint(2, 7)} {weights} {len(groups)} {conflicts}",
        f"3 {' '.join(map(str, several))} -1 salldiffkp hard 100",
    ]
    return f"p 7 3 {len(listed)} 100\n{' '.join(map(str, SHAPE))}\n" + "\n".join(listed)


SHAPE = [2, 2, 2, 2, 3, 3, 3]


def test_hard_functions_in_wcsp_files(tmp_path):
    rng, paths = random.Random(5), []
    for number in range(20):
        paths.append(tmp_path / f"{number}.wcsp")
        paths[-1].write_text(hard_functions(rng))
    expected = [best(formats.load(path), bound=100) for path in paths]
    assert optima(paths) == expected
    assert len(set(expected)) > 5


PROBLEM = "{problem: {name: t, mustbe: %s} variables: {a: [x y z] b: 2 c: 3 d: 3} functions: {%s}}"
DENSE = "f: {scope: [a b] costs: [1.259 -2 3 4.5 .75 6]} g: {scope: [b] defaultcost: 1.1 costs: [1 -0.333]}"
SPARSE = "f: {scope: [d a c] defaultcost: 0.5 costs: [0 x 1 -1.25, 2 1 0 7.0]} g: {scope: [a] costs: [0.1 2.0 1.5]}"
CARDINALITY = """f: {scope: [a b c d] type: sgcc
 params: {metric: wdec cost: 1.0 bounds: [[0 1 1 0.5 0.2] [1 0 1 0.2 0.9]]}}
 g: {scope: [a] costs: [0.7 0.0 0.1]} h: {scope: [b] costs: [0.6 0.0]}"""
AUTOMATON = """f: {scope: [a c d] type: wregular params: {nb_states: 2 starts: [[0 0.0]] ends: [[0 0.5] [1 0.0]]
 transitions: [[0 0 1 0.5] [0 1 0 0.2] [1 1 0 1.0] [1 2 1 0.1] [0 2 1 0.3] [1 0 0 0.4]]}}"""


@pytest.mark.parametrize("bound", ["<20.00", ">-9.0", "<5"])
@pytest.mark.parametrize("functions", [DENSE, SPARSE])
def test_cfn_files(tmp_path, bound, functions):
    path = tmp_path / "p.cfn"
    path.write_text(PROBLEM % (bound, functions))
    (found,) = optima([path])
    assert found == pytest.approx(best(formats.load(path)))


@pytest.mark.parametrize("functions", [CARDINALITY, AUTOMATON])
def test_global_functions_in_cfn_files(tmp_path, functions):
    path = tmp_path / "p.cfn"
    path.write_text(PROBLEM % ("<20.00", functions))
    (found,) = optima([path])
    assert found == pytest.approx(best(formats.load(path)))
