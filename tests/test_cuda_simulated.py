"""Run tests/cuda under Numba's CUDA simulator in separate processes, because it replaces ``numba.cuda`` on import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# One process per group: starting a process and compiling its kernels takes as long as many test files.
PROCESSES = {
    "bounds": [
        "bounds/test_bounds.py",
        "bounds/test_branching.py",
        "bounds/test_semidefinite.py",
        "bounds/test_smoothed.py",
    ],
    "elimination": ["test_batch.py", "test_join.py", "test_moment_matching.py"],
    "messages": [
        *("test_clock.py", "test_combining.py", "test_deadlines.py"),
        *("test_overlapped_work.py", "test_messages.py", "test_rows.py"),
    ],
    "chains": ["test_whole_problem_chains.py"],
    "interpreted": [
        *("test_block_per_run.py", "test_blocks.py", "test_failures.py"),
        *("test_sampling.py", "test_soundness.py"),
    ],
}
# In simulated kernels the samplers' functions receive the simulator's arrays, so they must be interpreted.
SETTINGS = {"interpreted": {"NUMBA_DISABLE_JIT": "1"}}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_kernels_under_the_simulator(name):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"} | SETTINGS.get(name, {})
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(str(HERE / "cuda" / file) for file in PROCESSES[name]),
    ]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert completed.returncode == 0, completed.stdout[-5000:] + completed.stderr[-2000:]


def test_every_file_of_kernel_tests_is_in_a_group():
    existing = sorted(path.relative_to(HERE / "cuda").as_posix() for path in (HERE / "cuda").rglob("test_*.py"))
    assert sorted(file for files in PROCESSES.values() for file in files) == existing
