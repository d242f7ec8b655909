"""Batched descents make the same steps as single ones without padding, for any array library."""

import numpy as np
import pytest
from support.semidefinite.naive_batch import NaiveArrays, descents

from dmcmc.inference.bounds.semidefinite.batched_steps import BatchShape
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import BIAS_CORRECTION, INVERSE_TEMPERATURE, STEP_SIZE
from dmcmc.inference.bounds.semidefinite.descent import TRIAL_STEPS, step_parameters
from dmcmc.inference.bounds.semidefinite.descent_batch import DescentBatch, batch_shape
from dmcmc.inference.bounds.semidefinite.numpy_arrays import NumpyArrays


def limited_steps(count):
    return lambda made: min(7, count - made)


def run_single(descent, target, steps_to_make):
    """Make the steps of one descent on the CPU."""
    batch = DescentBatch([descent], [target], NumpyArrays(descent.matrix))
    batch.run(steps_to_make)
    return float(batch.steps.least_excess[0])


def excess_at(single, target):
    """Return the excess of a target at a descent's current point, in units."""
    return run_single(single, target, lambda made: 0)


@pytest.mark.parametrize("hard", [0.0, 0.05])  # few enough that no pair is entirely forbidden
def test_a_batch_makes_the_steps_of_single_descents(hard):
    (singles, targets), (batched_ones, _) = descents(hard), descents(hard)
    for count in (1, 1, 12):
        for single, target in zip(singles, targets, strict=True):
            run_single(single, target, limited_steps(count))
        best = DescentBatch(batched_ones, targets, NaiveArrays()).run(limited_steps(count))
        for single, batched, target, point in zip(singles, batched_ones, targets, best, strict=True):
            assert batched.steps == single.steps
            for a, b in zip(single.point, batched.point, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
            if single.steps == 1:  # in later steps, Adam amplifies rounding errors of small gradients
                for a, b in zip(
                    (*single.first_moment, *single.second_moment),
                    (*batched.first_moment, *batched.second_moment),
                    strict=True,
                ):
                    assert np.allclose(a, b, atol=1e-5)
            assert excess_at(batched, target) == pytest.approx(excess_at(single, target), rel=0.01)
            batched.point = point
            assert excess_at(batched, target) <= excess_at(single, target) + 0.01 * abs(excess_at(single, target))
            batched.point = single.point.copy()
            batched.first_moment, batched.second_moment = single.first_moment.copy(), single.second_moment.copy()


def test_trials_are_recorded_after_the_same_steps():
    (singles, targets), (batched_ones, _) = descents(), descents()
    for single, target in zip(singles, targets, strict=True):
        run_single(single, target, lambda made: min(1, TRIAL_STEPS + 3 - made))
    DescentBatch(batched_ones, targets, NaiveArrays()).run(lambda made: TRIAL_STEPS + 3 - made)
    for single, batched in zip(singles, batched_ones, strict=True):
        assert len(batched.trial) == len(single.trial) == 2
        assert batched.trial == pytest.approx(single.trial, rel=0.02)


def test_padding_for_larger_agents_changes_nothing():
    (all_descents, targets), (others, _) = descents(), descents()
    DescentBatch(all_descents, targets, NaiveArrays()).run(limited_steps(6))
    DescentBatch(others[1:2], targets[1:2], NaiveArrays()).run(limited_steps(6))
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(all_descents[1].point, others[1].point, strict=True))


def test_array_sizes_fit_the_largest_agent():
    all_descents, _ = descents()
    shape = batch_shape(all_descents, 5)
    assert isinstance(shape, BatchShape) and shape.agents == 3 and shape.h == 5 and shape.r % 8 == 0
    assert shape.n >= max(x.matrix.variable_of.size for x in all_descents) and shape.bytes > 12 * 3 * shape.n**2


def test_step_sizes_and_temperatures_decrease():
    parameters = np.array([step_parameters(s) for s in (0, 10, 100, 1000)])
    assert (np.diff(parameters[:, INVERSE_TEMPERATURE]) > 0).all() and (np.diff(parameters[1:, STEP_SIZE]) < 0).all()
    assert (parameters[:, 1] < parameters[:, 0]).all() and (np.diff(parameters[:, BIAS_CORRECTION]) < 0).all()
