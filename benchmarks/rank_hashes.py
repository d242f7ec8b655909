"""One table: the hash of the answer on each number of ranks, combined either way, of one file and of a file an agent.

    python -m benchmarks.rank_hashes [--ranks 1 2 3 4 8 16] [--cores 1 2] [--launcher 'mpirun --bind-to none']

Small problems of :mod:`benchmarks.ranks`, exact and sampled. ``--cores`` is how many cores all ranks of a run have
together: so ranks differ in their threads.
"""

import argparse
import os
import subprocess
import sys

PROBLEMS = ("small", "small-gibbs", "cpu-gibbs")
_LIMIT = 300  # seconds of one number of ranks


def main() -> None:
    """Run each number of ranks, and print the table, and whether all hashes of a problem are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 8, 16])
    parser.add_argument("--cores", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--problems", nargs="+", default=PROBLEMS[:2])
    parser.add_argument("--launcher", default="mpiexec", help="one word, with its options")
    given = parser.parse_args()
    hashes: dict[str, set[str]] = {}
    print(f"{'ranks':>5} {'cores':>5}  {'problem':11} {'combine, input':14} {'seconds':>8}  hash")
    for ranks, cores in [(ranks, cores) for ranks in given.ranks for cores in given.cores]:
        for line in _lines(given.launcher.split(), ranks, cores, given.problems):
            words = line.split()
            name, how, seconds, found = words[0], " ".join(words[1:3]), words[6], words[-1]
            hashes.setdefault(name, set()).add(found)
            print(f"{ranks:5} {cores:5}  {name:11} {how:14} {seconds:>8}  {found}", flush=True)
    for name, answers in hashes.items():
        print(f"{name}: {'the same on all' if len(answers) == 1 else f'{len(answers)} DIFFERENT ANSWERS'}")


def _lines(launcher: list[str], ranks: int, cores: int, problems: list[str]) -> list[str]:
    """Return what a number of ranks prints."""
    kinds = ["--mode", "dpop", "shared", "--input", "file", "parts"]
    command = [*launcher, "-n", str(ranks), sys.executable, "-m", "benchmarks.ranks", *problems, *kinds]
    these = set(sorted(os.sched_getaffinity(0))[:cores])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT, preexec_fn=lambda: os.sched_setaffinity(0, these)
        )
    except subprocess.TimeoutExpired:
        print(f"{ranks:5} {cores:5}  not through in {_LIMIT} s", flush=True)
        return []
    if done.returncode:
        print(f"{ranks:5} {cores:5}  failed: {done.stderr.strip()[-300:]}", flush=True)
    return [line for line in done.stdout.splitlines() if " ranks " in line]


if __name__ == "__main__":
    main()
