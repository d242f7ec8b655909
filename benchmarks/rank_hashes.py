"""One table: the hash of the answer on each number of ranks, combined either way, of one file and of a file an agent.

    python -m benchmarks.rank_hashes [--ranks 1 2 3 4 8 16] [--cores 1 2 uneven] [--launcher 'mpirun --bind-to none']

Small problems of :mod:`benchmarks.ranks`, exact and sampled. ``--cores`` is how many cores all ranks of a run have
together, so that ranks differ in their threads from run to run; ``uneven``: all cores, and ranks of one run differ.
"""

import argparse
import os
import subprocess
import sys

PROBLEMS = ("small", "small-gibbs", "buckets", "buckets-gibbs", "few-gibbs")
_HOWS = tuple(f"{mode} {source}" for mode in ("dpop", "shared") for source in ("file", "dealt", "parts"))
_LIMIT = 600  # seconds of one number of ranks


def main() -> None:
    """Run each number of ranks, and print the table, and whether all hashes of a problem are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 8, 16])
    parser.add_argument("--cores", nargs="+", default=["1", "uneven"], help="numbers, or uneven")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    parser.add_argument("--launcher", default="mpiexec", help="one word, with its options")
    given = parser.parse_args()
    answers: dict[str, set[str]] = {}
    head = f"{'ranks':>5} {'cores':>6}  {'problem':13}" + "".join(f"{how:>13}" for how in _HOWS)
    print(f"{head}   hash (seconds by each way)")
    for ranks, cores in [(ranks, cores) for ranks in given.ranks for cores in given.cores]:
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for words in map(str.split, _lines(given.launcher.split(), ranks, cores, given.problems)):
            found.setdefault(words[0], {})[" ".join(words[1:3])] = words[6], words[-1]
        for name, of in found.items():
            hashes = {of[how][1] for how in of}
            answers.setdefault(name, set()).update(hashes)
            times = "".join(f"{of[how][0] if how in of else 'missing':>13}" for how in _HOWS)
            print(f"{ranks:5} {cores:>6}  {name:13}{times}   {' '.join(sorted(hashes))}", flush=True)
    for name, hashes in answers.items():
        print(f"{name}: {'the same on all' if len(hashes) == 1 else f'{len(hashes)} DIFFERENT ANSWERS'}")


def _lines(launcher: list[str], ranks: int, cores: str, problems: list[str]) -> list[str]:
    """Return what a number of ranks prints."""
    kinds = ["--mode", "dpop", "shared", "--input", "file", "dealt", "parts", "--calls", "1"]
    command = [*launcher, "-n", str(ranks), sys.executable, "-m", "benchmarks.ranks", *problems, *kinds]
    every = sorted(os.sched_getaffinity(0))
    these = every if cores == "uneven" else every[: int(cores)]
    command += ["--uneven"] if cores == "uneven" else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT, preexec_fn=lambda: os.sched_setaffinity(0, these)
        )
    except subprocess.TimeoutExpired:
        print(f"{ranks:5} {cores:>6}  not through in {_LIMIT} s", flush=True)
        return []
    if done.returncode:
        print(f"{ranks:5} {cores:>6}  failed: {done.stderr.strip()[-300:]}", flush=True)
    return [line for line in done.stdout.splitlines() if " ranks " in line]


if __name__ == "__main__":
    main()
