"""Run tests/cuda under Numba's CUDA simulator, in processes of their own: it replaces ``numba.cuda`` on import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# Samplers' functions are called inside simulated kernels, with the simulator's arrays: there they are interpreted.
FILES = {
    "bounds/test_bounds.py": {},
    "bounds/test_branching.py": {},
    "bounds/test_lifts.py": {},
    "test_batch.py": {},
    "test_blocks.py": {},
    "test_clock.py": {},
    "test_deadlines.py": {},
    "test_join.py": {},
    "test_matching.py": {},
    "test_messages.py": {},
    "test_rows.py": {},
    "test_combining.py": {},
    "test_sampling.py": {"NUMBA_DISABLE_JIT": "1"},
    "test_soundness.py": {"NUMBA_DISABLE_JIT": "1"},
    "test_whole_chains.py": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_kernels_under_the_simulator(name):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"} | FILES[name]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(HERE / "cuda" / name),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_file_of_kernel_tests_runs():
    assert {path.relative_to(HERE / "cuda").as_posix() for path in (HERE / "cuda").rglob("test_*.py")} == set(FILES)
