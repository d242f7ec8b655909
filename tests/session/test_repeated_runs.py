"""A process that solves again and again keeps no array of Numba's runtime from one run to the next."""

import gc

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

import dmcmc
from dmcmc.cli.warm_up_child import tasks
from dmcmc.formats import agent_files
from dmcmc.results.result import Result

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
