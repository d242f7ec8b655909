"""Scripts that measure, started from the root of the project: `python -m benchmarks.elimination.orders --help`.

`harness` has what they share. What tests share (naive twins, checks) is theirs too, as `support`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
