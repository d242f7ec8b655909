"""Elimination orders that are read from a file, and the order in the result of a run."""

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.runtime.errors import FileError


def ring():
    rng = np.random.default_rng(2)
    factors = [Factor.of((i, (i + 1) % 6), rng.integers(-9, 9, (3, 3))) for i in range(6)]
    return Problem(tuple("abcdef"), [3] * 6, ("me",), [0] * 6, tuple(factors))


def test_a_run_with_the_order_of_an_earlier_result_repeats_it(tmp_path):
    problem, file = ring(), tmp_path / "order.txt"
    first = dmcmc.solve(problem)
    file.write_text("\n".join("cafbed") + "\n\n")
    given = dmcmc.solve(problem, order=str(file))
    assert given.provenance["plan"]["orders"] == {"me": list("cafbed")}
    assert (given.objective, given.status) == (first.objective, "optimal")
    file.write_text("\n".join(first.provenance["plan"]["orders"]["me"]))
    again = dmcmc.solve(problem, order=str(file))
    assert (again.assignment, again.agents[0].cells) == (first.assignment, first.agents[0].cells)


@pytest.mark.parametrize(
    ("text", "reason"), [("a\nb\na\n", "line 3: variable 'a' occurs twice"), ("a\nb", "is missing")]
)
def test_an_order_names_every_variable_once(tmp_path, text, reason):
    file = tmp_path / "order.txt"
    file.write_text(text)
    with pytest.raises(FileError, match=reason):
        dmcmc.solve(ring(), order=str(file))
