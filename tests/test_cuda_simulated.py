"""The CUDA kernels under Numba's simulator, which must be chosen before numba is imported: in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def test_the_cuda_tests_pass_under_the_simulator():
    folder = Path(__file__).parent / "cuda"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command,
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        cwd=folder.parent.parent,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
