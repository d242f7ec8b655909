"""Benchmark scripts, started from the root of the project: ``python -m benchmarks.elimination.orders --help``.

``harness`` holds the code that all scripts share. The scripts may also import ``support``, the helpers of the tests
(naive reference implementations and checks).
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
