"""All agents' surveys in little memory are those of each, whatever the ranks that counted them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.samplers.auto.survey import Survey, Surveys

PLAIN = Survey(0, 3, 1, 4, 0, 2, 8.0, 1.0, 0.0, 0.0, 0.0, 0, 64, 16.0, 2.0, 2, 0, 0.0, "", ((0,),))


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 9)), max_size=8), st.integers(1, 3))
def test_surveys_of_ranks_are_put_together(made, ranks):
    works = [PLAIN._replace(agent=a, hidden=kind, weight=weight) for a, (kind, weight) in enumerate(made)]
    shares = [range(rank, len(works), ranks) for rank in range(ranks)]
    found = Surveys.merged(len(works), [(share, Surveys.of([works[a] for a in share])) for share in shares])
    assert list(found) == works and found[:] == works and len(found) == len(works)
    assert found.kinds.kinds == list(dict.fromkeys(work._replace(agent=0, weight=0.0) for work in works))
    assert found.weights.dtype == np.float64


def test_what_is_left_is_said_by_places():
    assert PLAIN.left_over((7, 9)) == ((7,),)
