"""A separator that no memory holds, combined exactly value by value: the plan, its estimate, the time, the memory.

    python -m benchmarks.elimination.slices [--agents 12] [--values 10] [--memory 1GiB] [--device cpu] [--output FILE]

Every two agents share a factor, so the deepest has a separator over all others: 12 agents of 10 values make one of
10^11 entries, 400 GB of int32. Small ones are compared with whole tables.
"""

import time

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc import Factor, Problem
from dmcmc.inference.runtime.memory import readable, resident_memory

_WHOLE = 1e8  # entries up to which the same is done with whole tables


def main() -> None:
    """Combine one clique of agents."""
    parser = options(__file__, __doc__ or "", device="cpu", memory="1GiB")
    parser.add_argument("--agents", type=int, default=12)
    parser.add_argument("--values", type=int, default=10)
    given = parser.parse_args()
    say = Report(__file__, given)
    problem = clique(given.agents, given.values)
    separator = float(given.values) ** (given.agents - 1)
    clique_of = f"{given.agents} agents of {given.values} values"
    say(f"{clique_of}: a separator of {separator:.3g} entries, {4 * separator:.3g} bytes")
    sections = {"local": {"method": "exact"}, "budget": {"memory": given.memory}, "device": given.device}
    plan = dmcmc.plan(problem, combine={"method": "sliced"}, **sections)
    say(plan.combine)
    before, start = resident_memory(), time.perf_counter()
    found = dmcmc.solve(problem, combine={"method": "sliced"}, **sections)
    took = time.perf_counter() - start
    say(f"{found.status} {found.objective} in {took:.1f} s; {found.msg_count:,} messages, {readable(found.msg_size)}")
    say(f"resident before {readable(before)}, after {readable(resident_memory())}")
    if separator * given.values <= _WHOLE:
        whole = dmcmc.solve(problem, combine={"method": "exact"}, local={"method": "exact"})
        same = (whole.objective, whole.bound, whole.assignment) == (found.objective, found.bound, found.assignment)
        say(f"whole tables: the {'same' if same else 'OTHER'} answer in {whole.time:.1f} s")
    say.keep()


def clique(agents: int, values: int, seed: int = 0) -> Problem:
    """Return a problem in which every two agents share a factor."""
    rng = np.random.default_rng(seed)
    scopes = [(u, v) for u in range(agents) for v in range(u)]
    return Problem(
        variables=tuple(f"x{v}" for v in range(agents)),
        domains=np.full(agents, values),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.arange(agents),
        factors=tuple(Factor.of(s, rng.integers(0, 100, (values, values))) for s in scopes),
    )


if __name__ == "__main__":
    main()
