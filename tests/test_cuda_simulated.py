"""Run tests/cuda under Numba's CUDA simulator, in processes of their own: it replaces ``numba.cuda`` on import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# A process each: starting one, and reading its kernels, takes as long as many a file.
PROCESSES = {
    "bounds": ["bounds/test_bounds.py", "bounds/test_branching.py", "bounds/test_lifts.py", "bounds/test_soft.py"],
    "elimination": ["test_batch.py", "test_join.py", "test_matching.py"],
    "messages": [
        *("test_clock.py", "test_combining.py", "test_deadlines.py"),
        *("test_meanwhile.py", "test_messages.py", "test_rows.py"),
    ],
    "chains": ["test_blocks.py", "test_whole_chains.py"],
    "interpreted": ["test_sampling.py", "test_soundness.py"],
}
# Samplers' functions are called inside simulated kernels, with the simulator's arrays: there they are interpreted.
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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_file_of_kernel_tests_runs():
    there = sorted(path.relative_to(HERE / "cuda").as_posix() for path in (HERE / "cuda").rglob("test_*.py"))
    assert sorted(file for files in PROCESSES.values() for file in files) == there
