"""Test the scheduler on recorded gains: it tries every improver, and closes nearly as much as the best division."""

import math

import pytest

from benchmarks.scheduler_simulation import best_fixed_division, left_by_fixed_division, load_recordings, replay

RECORDINGS = load_recordings()
SECONDS = (2.0, 5.0, 10.0)


@pytest.mark.parametrize("problem", RECORDINGS)
@pytest.mark.parametrize("seconds", SECONDS)
def test_the_scheduler_closes_more_than_equal_times_and_nearly_as_much_as_the_best_division(problem, seconds):
    recording = RECORDINGS[problem]
    left, spent = replay(recording, seconds)
    assert sum(spent.values()) == pytest.approx(seconds) and all(one > 0 for one in spent.values())
    equal = left_by_fixed_division(recording, seconds, [1 / len(recording)] * len(recording))
    assert left <= equal * 1.01
    assert left <= 1.4 * best_fixed_division(recording, seconds)


def test_on_average_a_twelfth_more_of_the_gap_is_left_than_by_the_best_division():
    losses = [
        math.log(replay(recording, seconds).left / best_fixed_division(recording, seconds))
        for recording in RECORDINGS.values()
        for seconds in SECONDS
    ]
    assert sum(losses) / len(losses) < 1 / 12
