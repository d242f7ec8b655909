"""Lifts of small dense agents, and turns of their rows' own squares over NumPy's arrays."""

import math

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import OwnTurn
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, Turn
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_nodes import NaiveCases


def agents(hard=0.0, floats=False):
    """Agents of unlike sizes."""
    return [
        dense_agent(1, hidden=5, most=6, hard=hard, floats=floats),
        dense_agent(2, hidden=3, most=5, interface=2, hard=hard, floats=floats),
        dense_agent(3, hidden=4, most=5, interface=0, hard=hard, floats=floats),
    ]


def lifts(hard=0.0, floats=False, steps=5):
    """Lifts of agents that have made some steps together, and what their rows are worth."""
    locals_ = agents(hard, floats)
    found = [Lift(DualState(local, triangles=False)) for local in locals_]
    for lift in found:
        lift._ascends = False
        lift.improve(steps=steps)
    return found, [naive.row_values(local).ravel() for local in locals_]


def turns_of(found, rows=None, limits=None):
    opened = [(lift, lift.open(rows, limits)) for lift in found if not lift.exhausted]
    return [Turn(*one) for one in opened if one[1] is not None]  # others are proven infeasible


def ground_of(turns, slots=200):
    """What the agents of turns share, laid out."""
    ground = Ground([turn.opened.descent for turn in turns], NaiveCases(), slots)
    for number, turn in enumerate(turns):
        turn.lift.own.ground, turn.lift.own.agent = ground, number
    return ground


def own_of(found, most=9, left=lambda: math.inf, slots=200, rows=None):
    """A turn of lifts, on a ground that is new or theirs already."""
    turns = turns_of(found, rows)
    return OwnTurn(turns, turns[0].lift.own.ground or ground_of(turns, slots), most, left)


def decoded(lift):
    return np.array([lift.state.layout.scale.decode(int(bound)) for bound in lift.state.bounds])


def some(monkeypatch, count):
    """Let a turn end after some batches, without a look at the clock."""
    made, carry_out = [], OwnTurn._carry_out

    def counted(self, items):
        made.append(items)
        carry_out(self, items)

    monkeypatch.setattr(OwnTurn, "_carry_out", counted)
    return lambda: math.inf if len(made) < count else 0.0
