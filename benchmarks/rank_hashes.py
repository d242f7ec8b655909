"""Compare the answers on different numbers of ranks by their hashes, for all inputs and both ways to combine tables.

    python -m benchmarks.rank_hashes [--ranks 1 2 3 4 8 16] [--cores 1 2 uneven] [--launcher 'mpirun --bind-to none']

Solves the small problems of :mod:`benchmarks.ranks`, exact and sampled. ``--cores`` is the number of cores that all
ranks of a run share, so that the number of threads per rank varies. With ``uneven``, all cores are used, and the ranks
of one run have different numbers of threads.
"""

import argparse
import os
import subprocess
import sys

PROBLEMS = ("small", "small-gibbs", "buckets", "buckets-gibbs", "few-gibbs")
_VARIANTS = tuple(f"{mode} {source}" for mode in ("dpop", "shared") for source in ("file", "scattered", "parts"))
_LIMIT_SECONDS = 600  # seconds: time limit of all problems on one number of ranks


def main() -> None:
    """Run each number of ranks, print the table, and report for each problem whether all hashes are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 8, 16])
    parser.add_argument("--cores", nargs="+", default=["1", "uneven"], help="numbers of cores, or uneven")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    parser.add_argument("--launcher", default="mpiexec", help="the MPI launcher with its options, as one argument")
    given = parser.parse_args()
    answers: dict[str, set[str]] = {}
    head = f"{'ranks':>5} {'cores':>6}  {'problem':13}" + "".join(f"{variant:>17}" for variant in _VARIANTS)
    print(f"{head}   hash (seconds per variant)")
    for ranks, cores in [(ranks, cores) for ranks in given.ranks for cores in given.cores]:
        by_problem: dict[str, dict[str, tuple[str, str]]] = {}
        for words in map(str.split, _lines(given.launcher.split(), ranks, cores, given.problems)):
            by_problem.setdefault(words[0], {})[" ".join(words[1:3])] = words[6], words[-1]
        for name, by_variant in by_problem.items():
            hashes = {by_variant[variant][1] for variant in by_variant}
            answers.setdefault(name, set()).update(hashes)
            times = "".join(
                f"{by_variant[variant][0] if variant in by_variant else 'missing':>17}" for variant in _VARIANTS
            )
            print(f"{ranks:5} {cores:>6}  {name:13}{times}   {' '.join(sorted(hashes))}", flush=True)
    for name, hashes in answers.items():
        print(f"{name}: {'equal on all' if len(hashes) == 1 else f'{len(hashes)} DIFFERENT HASHES'}")


def _lines(launcher: list[str], ranks: int, cores: str, problems: list[str]) -> list[str]:
    """Return the lines that ``benchmarks.ranks`` prints on a number of ranks."""
    options = ["--mode", "dpop", "shared", "--input", "file", "scattered", "parts", "--calls", "1"]
    command = [*launcher, "-n", str(ranks), sys.executable, "-m", "benchmarks.ranks", *problems, *options]
    all_cores = sorted(os.sched_getaffinity(0))
    used_cores = all_cores if cores == "uneven" else all_cores[: int(cores)]
    command += ["--uneven"] if cores == "uneven" else []
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            preexec_fn=lambda: os.sched_setaffinity(0, used_cores),
        )
    except subprocess.TimeoutExpired:
        print(f"{ranks:5} {cores:>6}  stopped after {_LIMIT_SECONDS} s", flush=True)
        return []
    if done.returncode:
        print(f"{ranks:5} {cores:>6}  failed: {done.stderr.strip()[-300:]}", flush=True)
    return [line for line in done.stdout.splitlines() if " ranks " in line]


if __name__ == "__main__":
    main()
