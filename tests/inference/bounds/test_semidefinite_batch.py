"""Descents side by side make the steps that each of them makes alone, in whatever array library."""

import numpy as np
import pytest
from support.semidefinite.naive_batch import NaiveArrays, descents

from dmcmc.inference.bounds.semidefinite.batched_steps import Shape
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import EVEN, SLOPE, STEP
from dmcmc.inference.bounds.semidefinite.descent import TRIAL, schedule
from dmcmc.inference.bounds.semidefinite.descent_batch import Batch, shape_of


def steps(count):
    return lambda made: min(7, count - made)


def at(one, target):
    """What is left of a target where a descent is, in units."""
    return one._look(one._make_room(target))[0]


@pytest.mark.parametrize("hard", [0.0, 0.05])  # no pair is forbidden as a whole: what is left of its entries is noise
def test_a_batch_makes_the_step_that_descents_make_alone(hard):
    (alone, targets), (together, _) = descents(hard), descents(hard)
    for count in (1, 1, 12):
        for one, target in zip(alone, targets, strict=True):
            one.run(target, lambda made, count=count: made < count)
        best = Batch(together, targets, NaiveArrays()).run(steps(count))
        for one, other, target, point in zip(alone, together, targets, best, strict=True):
            assert other.steps == one.steps
            for a, b in zip(one.point, other.point, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
            if one.steps == 1:  # later what is next to nothing in a slope counts as much as what is large
                for a, b in zip((*one.means, *one.squares), (*other.means, *other.squares), strict=True):
                    assert np.allclose(a, b, atol=1e-5)
            assert at(other, target) == pytest.approx(at(one, target), rel=0.01)
            other.point = point
            assert at(other, target) <= at(one, target) + 0.01 * abs(at(one, target))
            other.point = one.point.copy()
            other.means, other.squares = one.means.copy(), one.squares.copy()


def test_what_is_left_of_targets_is_told_after_the_same_steps():
    (alone, targets), (together, _) = descents(), descents()
    for one, target in zip(alone, targets, strict=True):
        one.run(target, lambda made: made < TRIAL + 3)
    Batch(together, targets, NaiveArrays()).run(lambda made: TRIAL + 3 - made)
    for one, other in zip(alone, together, strict=True):
        assert len(other.trial) == len(one.trial) == 2
        assert other.trial == pytest.approx(one.trial, rel=0.02)


def test_agents_of_other_sizes_change_nothing():
    (found, targets), (one, _) = descents(), descents()
    Batch(found, targets, NaiveArrays()).run(steps(6))
    Batch(one[1:2], targets[1:2], NaiveArrays()).run(steps(6))
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(found[1].point, one[1].point, strict=True))


def test_sizes_hold_the_largest_agent():
    found, _ = descents()
    shape = shape_of(found, 5)
    assert isinstance(shape, Shape) and shape.agents == 3 and shape.h == 5 and shape.r % 8 == 0
    assert shape.n >= max(x.network.owner.size for x in found) and shape.bytes > 12 * 3 * shape.n**2


def test_later_steps_are_shorter_and_colder():
    words = np.array([schedule(s) for s in (0, 10, 100, 1000)])
    assert (np.diff(words[:, SLOPE]) > 0).all() and (np.diff(words[1:, STEP]) < 0).all()
    assert (words[:, 1] < words[:, 0]).all() and (np.diff(words[:, EVEN]) < 0).all()
