"""Semidefinite relaxations of small dense agents, and per-row bounds over NumPy arrays."""

import math

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import PerRowBounding
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.relaxation import ActiveRelaxation, SemidefiniteRelaxation
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_nodes import NaiveNodes


def agents(hard=0.0, floats=False):
    """Return agents of different sizes."""
    return [
        dense_agent(1, hidden=5, max_domain=6, hard=hard, floats=floats),
        dense_agent(2, hidden=3, max_domain=5, interface=2, hard=hard, floats=floats),
        dense_agent(3, hidden=4, max_domain=5, interface=0, hard=hard, floats=floats),
    ]


def relaxations(hard=0.0, floats=False, steps=5):
    """Return relaxations that have made some shared steps, and the exact row values of their agents."""
    locals_ = agents(hard, floats)
    found = [SemidefiniteRelaxation(DualState(local, triangles=False)) for local in locals_]
    for relaxation in found:
        relaxation._ascent_helps = False
        relaxation.improve(steps=steps)
    return found, [naive.row_values(local).ravel() for local in locals_]


def active_of(found, rows=None, cutoffs=None):
    """Return the relaxations that have a task; the others are proven infeasible."""
    tasks = [(relaxation, relaxation.prepare(rows, cutoffs)) for relaxation in found if not relaxation.exhausted]
    return [ActiveRelaxation(*one) for one in tasks if one[1] is not None]


def buffers_of(relaxations, capacity=200):
    """Return shared buffers for the agents of some relaxations."""
    buffers = AgentBuffers([active.task.descent for active in relaxations], NaiveNodes(), capacity)
    for number, active in enumerate(relaxations):
        active.relaxation.per_row.buffers, active.relaxation.per_row.agent = buffers, number
    return buffers


def per_row_bounding(found, max_nodes=9, seconds_left=lambda: math.inf, capacity=200, rows=None):
    """Return the per-row bounding of some relaxations, with new buffers or the ones that they have."""
    relaxations = active_of(found, rows)
    buffers = relaxations[0].relaxation.per_row.buffers or buffers_of(relaxations, capacity)
    return PerRowBounding(relaxations, buffers, max_nodes, seconds_left)


def decoded(relaxation):
    """Return the rows' bounds as utilities."""
    return np.array([relaxation.state.layout.scale.decode(int(bound)) for bound in relaxation.state.bounds])


def stop_after(monkeypatch, count):
    """Return a ``seconds_left`` that ends a per-row bounding after a number of batches, independent of the clock."""
    made, process_batch = [], PerRowBounding._process_batch

    def counted(self, items):
        made.append(items)
        process_batch(self, items)

    monkeypatch.setattr(PerRowBounding, "_process_batch", counted)
    return lambda: math.inf if len(made) < count else 0.0
