"""The compiled kernels of a descent step on the CPU equal the NumPy reference, pass by pass and at the end."""

import numpy as np
import pytest
from support.semidefinite.naive_certificates import certified_node_bound, node_of
from support.semidefinite.naive_nodes import NaiveNodes
from support.semidefinite.row_searches import relaxations, tasks_of

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, CpuArrays
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import certificates
from dmcmc.inference.bounds.semidefinite.node_steps import BRANCH_SCHEDULE


def batch_of(arrays, hard=0.0):
    """Return a batch of nodes of two agents of different sizes; one node has a fixed variable and a removed value."""
    buffers = AgentBuffers([task.term for task in tasks_of(relaxations(hard)[0])][:2], arrays, 2)
    agents = np.array([0, 1, 1])
    allowed = (np.arange(buffers.shape.d) < buffers.sizes[:, :, None])[agents]
    allowed[2, 0, 1:] = allowed[2, 1, 2:] = False
    return RowNodeBatch(buffers, NodeStarts(agents, np.array([0, 1, 0]), allowed, agents))


@pytest.mark.parametrize("hard", [0.0, 0.03])
def test_each_pass_of_a_step_equals_the_numpy_reference(hard):
    parameters = np.array([BRANCH_SCHEDULE.at(step) for step in range(3)], dtype=np.float32)
    expected, found = batch_of(NaiveNodes(), hard).steps, batch_of(CpuArrays(), hard).steps
    for name, naive_pass, compiled in zip(
        expected.passes(parameters)._fields, expected.passes(parameters), found.passes(parameters), strict=True
    ):
        naive_pass(1)
        compiled(1)
        for field, one, other in zip(expected.workspace._fields, expected.workspace, found.workspace, strict=True):
            assert np.allclose(one.astype(np.float32), other, rtol=5e-3, atol=5e-3), (name, field)


def test_nodes_end_where_the_reference_ends_and_certificates_equal_single_ones():
    ends = []
    for arrays in (NaiveNodes(), CpuArrays()):
        batch = batch_of(arrays)
        batch.run(BRANCH_SCHEDULE._replace(steps=4))
        bounds = certificates(batch).bounds.tolist()
        for b, agent in enumerate(batch.starts.agents.tolist()):
            assert bounds[b] == certified_node_bound(batch.buffers.terms[agent], node_of(batch, b), batch.point(b))
        ends.append(bounds)
    assert np.allclose(*ends, rtol=5e-3)


def test_a_pair_without_an_allowed_entry_makes_its_node_infeasible():
    batch = batch_of(CpuArrays())
    d, (u, v) = batch.shape.d, np.flatnonzero(batch.exists[1])[:2]
    batch.buffers.pairs[1, u * d : (u + 1) * d, v * d : (v + 1) * d] = -(1 << 29)
    batch.buffers.pairs[1, v * d : (v + 1) * d, u * d : (u + 1) * d] = -(1 << 29)
    assert certificates(batch).bounds[1] == MINUS_INFINITY
