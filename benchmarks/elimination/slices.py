"""Combine agents exactly over a separator that does not fit any memory, by slicing: plan, estimate, time and memory.

    python -m benchmarks.elimination.slices [--agents 12] [--values 10] [--memory 1GiB] [--device cpu] [--output FILE]

Every two agents share a factor, so the deepest agent has a separator of all others: 12 agents of 10 values have one of
10^11 entries, 400 GB of int32. Small problems are also solved with unsliced tables.
"""

import time

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc import Factor, Problem
from dmcmc.inference.runtime.memory import format_bytes, resident_memory

_MAX_UNSLICED_ENTRIES = 1e8  # entries up to which the problem is also solved with unsliced tables


def main() -> None:
    """Combine one clique of agents."""
    parser = options(__file__, __doc__ or "", device="cpu", memory="1GiB")
    parser.add_argument("--agents", type=int, default=12)
    parser.add_argument("--values", type=int, default=10)
    given = parser.parse_args()
    report = Report(__file__, given)
    problem = clique(given.agents, given.values)
    separator = float(given.values) ** (given.agents - 1)
    clique_of = f"{given.agents} agents of {given.values} values"
    report(f"{clique_of}: a separator of {separator:.3g} entries, {4 * separator:.3g} bytes")
    sections = {"local": {"method": "exact"}, "budget": {"memory": given.memory}, "device": given.device}
    plan = dmcmc.plan(problem, combine={"method": "sliced"}, **sections)
    report(plan.combine)
    bytes_before, start = resident_memory(), time.perf_counter()
    found = dmcmc.solve(problem, combine={"method": "sliced"}, **sections)
    seconds = time.perf_counter() - start
    messages = f"{found.msg_count:,} messages, {format_bytes(found.msg_size)}"
    report(f"{found.status} {found.objective} in {seconds:.1f} s; {messages}")
    report(f"resident before {format_bytes(bytes_before)}, after {format_bytes(resident_memory())}")
    if separator * given.values <= _MAX_UNSLICED_ENTRIES:
        unsliced = dmcmc.solve(problem, combine={"method": "exact"}, local={"method": "exact"})
        same = (unsliced.objective, unsliced.bound, unsliced.assignment) == (
            found.objective,
            found.bound,
            found.assignment,
        )
        report(f"unsliced tables: {'the same' if same else 'A DIFFERENT'} answer in {unsliced.time:.1f} s")
    report.keep()


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
