"""Ranks whose clocks, memory and caches differ make the same collective calls, and end with right answers."""

import pytest
from support.ranks import needs_mpirun, start

pytest.importorskip("mpi4py")


@needs_mpirun
@pytest.mark.parametrize(("ranks", "first_seed", "runs"), [(2, 0, 6), (3, 300, 10), (4, 600, 8)])
def test_ranks_stay_in_step_although_their_clocks_and_memory_differ(ranks, first_seed, runs):
    done = start(ranks, "-m", "support.perturbed_ranks", str(first_seed), str(runs), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{runs} runs on {ranks} ranks" in done.stdout
