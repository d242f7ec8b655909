"""A process that solves again and again keeps nothing from one run to the next, also before garbage is collected."""

import gc

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

import dmcmc
from dmcmc.cli.warm_up_child import tasks
from dmcmc.formats import agent_files
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.results.result import Result
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.plan import Setup

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

LONG = ("on a GPU", ", fixed work", ", mini-buckets")  # the last two are called once, by the problem of meetings
COMPONENTS = {name: work for name, work in tasks().items() if not name.endswith(LONG) or name[:9] == "meetings,"}
CALLS, SOME = 50, 3  # calls of what keeps arrays, and the calls after which the number may not have grown


def kept_arrays():
    """Return the number of arrays of Numba's runtime that have not been freed."""
    gc.collect()
    made = rtsys.get_allocation_stats()
    return made.alloc - made.free + made.mi_alloc - made.mi_free


def keeps_arrays(work):
    """Return whether more and more arrays are kept; caches and results of the last call are full after some calls."""
    rtsys.initialize(cpu_target.target_context)
    _nrt_python.memsys_enable_stats()
    counts = []
    for _ in range(CALLS):
        work()
        counts.append(kept_arrays())
        if len(counts) > SOME and counts[-1] <= counts[-1 - SOME]:
            return False
    return True


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_component_keeps_an_array_for_each_call(name):
    assert not keeps_arrays(lambda: COMPONENTS[name]("cpu"))


def chain(agents=6, domain=4):
    """Return a chain of agents with three variables each, with named factors within agents."""
    rng, builder = np.random.default_rng(1), dmcmc.Problem.build(sense="max")
    for a in range(agents):
        for v in "xyz":
            builder.variable(f"{v}{a}", domain, agent=f"a{a}")
        for pair in ("xy", "yz"):
            builder.factor([f"{v}{a}" for v in pair], rng.integers(0, 20, (domain, domain)), name=f"{pair}{a}")
    for a in range(agents - 1):
        builder.factor((f"x{a}", f"x{a + 1}"), rng.integers(0, 20, (domain, domain)))
    return builder.problem()


@pytest.mark.parametrize("timeout", [None, 0.05])
@pytest.mark.parametrize("private", [False, True])
def test_no_session_keeps_an_array_for_each_change(tmp_path, private, timeout):
    rng, owner = np.random.default_rng(2), ()
    if private:
        agent_files.write(chain(), tmp_path, 1 << 30)
        session, owner = dmcmc.PrivateSession(tmp_path, share_assignment=True), ("a2",)
    else:
        session = dmcmc.Session(chain())

    def change():
        session.set_table(*owner, "xy2", rng.integers(0, 20, (4, 4)))
        assert isinstance(session.solve(timeout), Result)

    assert not keeps_arrays(change)


def crossed_chain(agents=10, variables=60, edges=60, domain=4):
    """Return a chain of variables, whose neighbours belong to different agents, with random edges."""
    rng, builder = np.random.default_rng(4), dmcmc.Problem.build(sense="max")
    for v in range(variables):
        builder.variable(f"v{v}", domain, agent=f"a{v % agents}")
        builder.factor(f"v{v}", rng.integers(0, 10, domain), name=f"own{v}")
    pairs = [(v, v + 1) for v in range(variables - 1)]
    for one, other in pairs + [tuple(rng.permutation(variables)[:2]) for _ in range(edges)]:
        builder.factor((f"v{one}", f"v{other}"), rng.integers(0, 20, (domain, domain)))
    return builder.problem()


RUN_SECONDS = 0.3
RUN_DATA = (Setup, Incumbent, LocalProblem)  # what holds the tables, the plan and the answer of a run


@pytest.mark.parametrize("use", ["solve", "session", "private"])
def test_a_run_is_freed_without_the_garbage_collector(tmp_path, use):
    rng, problem = np.random.default_rng(3), crossed_chain()
    if use == "private":
        agent_files.write(problem, tmp_path, 1 << 30)
    session = dmcmc.PrivateSession(tmp_path) if use == "private" else dmcmc.Session(problem)
    owner = ("a2",) if use == "private" else ()

    def run():
        if use == "solve":
            return dmcmc.solve(problem, timeout=RUN_SECONDS)
        session.set_table(*owner, "own2", rng.integers(0, 10, 4))
        return session.solve(RUN_SECONDS)

    def count():
        return sum(issubclass(type(one), RUN_DATA) for one in gc.get_objects())  # not of weak references

    for _ in range(SOME):
        run()
    gc.collect()
    gc.disable()
    try:
        before = count()
        for _ in range(SOME):
            run()
        assert count() <= before
    finally:
        gc.enable()
