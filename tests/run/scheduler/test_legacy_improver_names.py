"""Test that results with the improver names of earlier versions are read with the present names."""

import pytest

from dmcmc.anytime.improvers.registry import BUILT_IN
from dmcmc.results.improver_names import BOUND, BRANCH_AND_BOUND, SEMIDEFINITE, TOULBAR2
from dmcmc.results.legacy_names import RENAMED_IMPROVERS, current_improvers, current_result

FORMER = {"eliminate", "filter", "sample", "branch", "search", "combine", "search engine", "gpu search"}
UNCHANGED = (BOUND, SEMIDEFINITE, TOULBAR2, BRANCH_AND_BOUND)


def test_every_former_name_maps_to_the_name_of_an_improver():
    assert set(RENAMED_IMPROVERS) == FORMER
    present = set(BUILT_IN)
    assert set(RENAMED_IMPROVERS.values()) == present - set(UNCHANGED)


@pytest.mark.parametrize("name", [*UNCHANGED, "prune", *RENAMED_IMPROVERS.values()])
def test_present_names_are_not_changed(name):
    assert current_improvers(name) == name


def test_a_former_result_is_read_with_the_present_names():
    old = {
        "status": "feasible",
        "work": [{"kind": "eliminate", "seconds": 1.0, "objective": 0, "bound": 2}],
        "trace": [{"time": 1.0, "by": "sample, bound", "parts": {"branch": 0.75, "bound": 0.25}}, {"by": "prune"}],
    }
    result = current_result(old)
    assert result["work"][0]["improver"] == "exact elimination"
    assert [point["found_by"] for point in result["trace"]] == ["sampling, bound", "prune"]
    assert result["trace"][0]["bound_shares"] == {"branch and bound": 0.75, "bound": 0.25}
    assert old["work"][0]["kind"] == "eliminate"


def test_a_present_result_is_not_changed():
    new = {"format_version": 2, "work": [{"improver": "sampling"}], "trace": [{"found_by": "local search"}]}
    assert current_result(new) == new
