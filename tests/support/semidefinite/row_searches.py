"""Semidefinite relaxations of small dense agents, and searches with semidefinite bounds over NumPy arrays."""

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.bounder import NodeSchedules, SemidefiniteRunner
from dmcmc.inference.bounds.semidefinite.node_steps import BRANCH_SCHEDULE, ROOT_SCHEDULE
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_nodes import NaiveNodes

SHORT = NodeSchedules(ROOT_SCHEDULE._replace(steps=8), BRANCH_SCHEDULE._replace(steps=3))  # the reference is slow


def agents(hard=0.0, floats=False):
    """Return agents of different sizes."""
    return [
        dense_agent(1, hidden=5, max_domain=6, hard=hard, floats=floats),
        dense_agent(2, hidden=3, max_domain=5, interface=2, hard=hard, floats=floats),
        dense_agent(3, hidden=4, max_domain=5, interface=0, hard=hard, floats=floats),
    ]


def relaxation_of(local, steps=5):
    """Return a relaxation that has made some shared steps."""
    relaxation = SemidefiniteRelaxation(DualState(local, triangles=False))
    relaxation.improve(steps=steps)
    return relaxation


def relaxations(hard=0.0, floats=False, steps=5):
    """Return relaxations that have made some shared steps, and the exact row values of their agents."""
    locals_ = agents(hard, floats)
    return [relaxation_of(local, steps) for local in locals_], [naive.row_values(local).ravel() for local in locals_]


def tasks_of(found, rows=None, cutoffs=None):
    """Return the tasks of relaxations; those that are proven infeasible have none."""
    tasks = [relaxation.prepare(rows, cutoffs) for relaxation in found]
    return [task for task in tasks if task is not None]


def start_searches(tasks, capacity=200, max_nodes=9, schedules=SHORT, memory_limit=None, arrays=None):
    """Create the searches of relaxations, which share a runner; return the runner."""
    terms = [task.term for task in tasks]
    runner = SemidefiniteRunner(terms, arrays or NaiveNodes(), capacity, max_nodes, schedules=schedules)
    for task, bounder in zip(tasks, runner.bounders, strict=True):
        task.relaxation.per_row.search = BoundarySearch(task.relaxation.state, bounder, memory_limit=memory_limit)
    return runner


def decoded(relaxation):
    """Return the rows' bounds as utilities."""
    return np.array([relaxation.state.layout.scale.decode(int(bound)) for bound in relaxation.state.bounds])
