"""Measure the time to read large files, and compare it with toulbar2's reader, each in a new process.

    python -m benchmarks.formats.reading [--megabytes 100] [--domain 10] [--repeat 3] [--folder FOLDER]

A .wcsp and a .uai file of random tables over two and three variables are written to a folder (a temporary one by
default), and read by dmcmc and by pytoulbar2 in turn. Only the reading is timed; the best of the repeats is shown. With
two values per variable, a file of the same size has many more, smaller tables.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Columns, Report, options

TABLE = Columns(
    ("file", "<12"), ("MB", ">6.1f"), ("factors", ">9"), ("dmcmc [s]", ">11.2f"), ("toulbar2 [s]", ">13.2f"),
    ("ratio", ">6.2f"),
)  # fmt: skip
OURS = """
import sys, time
from dmcmc.formats import registry as formats
formats.parse(b"p 1 2 1 9 2 1 0 0 1 0 4", "wcsp"), formats.parse(b"MARKOV 1 2 1 1 0 2 .5 .5", "uai")
start = time.perf_counter()
problem = formats.load(sys.argv[1])
print(time.perf_counter() - start, len(problem.factors))
"""
THEIRS = """
import os, sys, time
from pytoulbar2 import CFN
network = CFN(verbose=-1)
network.NoPreprocessing()
start = time.perf_counter()
network.Read(sys.argv[1])
print(time.perf_counter() - start, network.GetNbConstrs(), flush=True)
os._exit(0)
"""


def write_wcsp(path: Path, megabytes: float, size: int, rng: np.random.Generator) -> None:
    """Write tables over pairs and triples of 2,000 variables."""
    n = 2000
    blocks = list(_wcsp_blocks(megabytes, n, size, rng))
    with open(path, "w") as stream:
        print("random", n, size, len(blocks), 10**9, file=stream)
        print(*[size] * n, file=stream)
        stream.writelines(blocks)


def _wcsp_blocks(megabytes: float, n: int, size: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield random tables until they have the given size."""
    remaining = megabytes * 1e6
    while remaining > 0:
        arity = int(rng.choice([2, 3]))
        scope = rng.choice(n, arity, replace=False)
        cells = np.indices((size,) * arity).reshape(arity, -1).T.tolist()
        costs = rng.integers(0, 100_000, len(cells)).tolist()
        head = f"{arity} {' '.join(map(str, scope))} 0 {len(cells)}\n"
        block = head + "".join(f"{' '.join(map(str, c))} {u}\n" for c, u in zip(cells, costs, strict=True))
        remaining -= len(block)
        yield block


def write_uai(path: Path, megabytes: float, size: int, rng: np.random.Generator) -> None:
    """Write tables of potentials with 6 or 17 digits over pairs and triples of 2,000 variables."""
    n = 2000
    scopes, tables, remaining = [], [], megabytes * 1e6
    while remaining > 0:
        arity = int(rng.choice([2, 3]))
        scopes.append(f"{arity} {' '.join(map(str, rng.choice(n, arity, replace=False)))}\n")
        form = "%.6g" if rng.random() < 0.5 else "%.17g"
        tables.append(f"{size**arity}\n" + "\n".join(form % p for p in rng.random(size**arity)) + "\n")
        remaining -= len(scopes[-1]) + len(tables[-1])
    with open(path, "w") as stream:
        print("MARKOV", n, " ".join([str(size)] * n), len(scopes), sep="\n", file=stream)
        stream.writelines(scopes)
        stream.writelines(tables)


def seconds(script: str, path: Path) -> tuple[float, str]:
    """Run a reader in a new process; return its seconds and the number of tables."""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    time, found = done.stdout.split()[-2:]
    return float(time), found


def main() -> None:
    """Print a line per file: the size, both times and their ratio."""
    parser = options(__file__, __doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--domain", type=int, default=10, help="values per variable")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    report = Report(__file__, given)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        report(TABLE.head)
        for name, write in (("large.wcsp", write_wcsp), ("large.uai", write_uai)):
            path = folder / name
            if not path.exists():
                write(path, given.megabytes, given.domain, np.random.default_rng(0))
            pairs = [(seconds(OURS, path), seconds(THEIRS, path)) for _ in range(given.repeat)]
            ours, theirs = (min(pair[i][0] for pair in pairs) for i in (0, 1))
            report(TABLE.line(name, path.stat().st_size / 1e6, pairs[0][0][1], ours, theirs, ours / theirs))
    report.keep()


if __name__ == "__main__":
    main()
