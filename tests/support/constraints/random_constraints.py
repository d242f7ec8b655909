"""Random small problems with one global constraint or several, from Problem.build()."""

from itertools import product

from dmcmc import Problem

KINDS = ("at_most", "at_least", "count", "all_different", "no_overlap", "no_overlap_places", "cumulative")
KINDS += ("breaks", "precedence", "element", "regular", "count_variable")


def random_problem(rng, kinds, variables=4, values=4, agents=1, soft=None):
    """Return a problem with a constraint of each kind over random variables, and a random table per variable.

    ``soft`` says whether the constraints have costs; None decides at random for each.
    """
    build = Problem.build(sense=str(rng.choice(["max", "min"])))
    names = []
    for i in range(variables):
        size = int(rng.integers(2, values + 1))
        first = int(rng.integers(0, 3))
        labels = [first + k for k in range(size)] if rng.integers(2) else size
        names.append(build.variable(f"x{i}", labels, agent=f"agent{i % agents}"))
        build.factor(names[-1], rng.integers(-5, 6, size).tolist())
    for kind in kinds:
        cost = int(rng.integers(1, 5)) if (rng.integers(3) == 0 if soft is None else soft) else None
        add_constraint(build, rng, kind, names, cost)
    return build.problem()


def add_constraint(build, rng, kind, names, cost):
    """Add a random constraint of one kind over some of the variables."""
    some = [str(name) for name in rng.permutation(names)[: int(rng.integers(min(3, len(names)), len(names) + 1))]]
    few = [int(x) for x in rng.choice(5, int(rng.integers(1, 3)), replace=False)]
    durations = [int(d) for d in rng.integers(1, 4, len(some))]
    half = len(some) // 2
    if kind == "at_most":
        build.at_most(int(rng.integers(0, 3)), some, few, cost)
    elif kind == "at_least":
        build.at_least(int(rng.integers(0, 3)), some, few, cost)
    elif kind == "count":
        low = int(rng.integers(0, 3))
        build.count(some, few, (low, low + int(rng.integers(0, 2))), cost)
    elif kind == "count_variable":
        build.count(some[:-1], few, some[-1], cost)
    elif kind == "all_different":
        build.all_different(some, few[:1] if rng.integers(3) == 0 else (), cost)
    elif kind == "no_overlap":
        build.no_overlap(some, int(rng.integers(1, 3)) if rng.integers(2) else durations, cost=cost)
    elif kind == "no_overlap_places":
        build.no_overlap(some[:half], durations[:half], some[half : 2 * half], cost)
    elif kind == "cumulative":
        demands = [int(d) for d in rng.integers(0, 3, len(some))]
        build.cumulative(some, durations, demands, int(rng.integers(1, 4)), cost)
    elif kind == "breaks":
        build.breaks(some, durations, int(rng.integers(0, 2)), cost)
    elif kind == "precedence":
        build.precedence(some[0], some[1], int(rng.integers(-1, 3)), cost)
    elif kind == "element":
        build.element(some[0], [some[1 + i % (len(some) - 2)] for i in range(5)], some[-1], cost)
    else:
        build.regular(some, random_automaton(rng))


def random_automaton(rng):
    """Return an automaton of three states that forbids some transitions and prices others."""
    from dmcmc.inference.constraints.count import Automaton

    transitions = {
        (state, label): (int(rng.integers(3)), int(rng.integers(-2, 3)))
        for state, label in product(range(3), range(8))
        if rng.random() < 0.8
    }
    return Automaton(0, transitions, {0: 0, 1: 1})


def best_objective(problem):
    """Return the best objective of all assignments without violations, by enumeration; None if there is none."""
    best = None
    for values in product(*map(range, problem.domains.tolist())):
        evaluation = problem.evaluate(values)
        if evaluation.violation:
            continue
        gain = evaluation.objective if problem.sense == "max" else -evaluation.objective
        best = gain if best is None else max(best, gain)
    return best if best is None or problem.sense == "max" else -best
