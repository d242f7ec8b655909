"""Reference meeting problems on one core: utility and seconds beside a prototype's and toulbar2's VNS.

    DMCMC_INSTANCES=... python benchmarks/meetings.py [--vns SECONDS]

``prototype``: what an annealed Gibbs sampler of 60 lines reached on an idle core of the same kind, and in how many
seconds; ours has to reach that utility in half the time. Seconds of ours are those of the solve, warm, on one thread,
best of three; VNS runs in the same script on the same core, and its seconds are toulbar2's own.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from dmcmc.config.configuration import parse
from dmcmc.formats import native
from dmcmc.inference.execution.backend import Backend
from dmcmc.run.solve import solve

# instance, prototype's utility and seconds, our runs and samples
PAIRS = (
    ("ms_A10_n10_D24", 4020, 0.17, 3, 48),
    ("ms_A10_n25_D24", 24147, 0.56, 2, 150),
    ("ms_A10_n50_D24", 92518, 0.50, 3, 40),
    ("ms_A10_n50_D24", 92526, 2.0, 2, 250),
    ("ms_A10_n10_D96", 18446, 1.0, 2, 40),
    ("ms_A10_n10_D96", 18510, 9.0, 4, 300),
    ("ms_A50_n10_D24", 20708, 0.81, 2, 48),
    ("mu_A10_n10_D24", 204160, 0.16, 2, 48),
    ("mu_A10_n10_D24", 204922, 0.64, 6, 150),
    ("mu_A10_n25_D24", 1156515, 0.57, 2, 150),
    ("mu_A10_n50_D24", 4237072, 0.52, 1, 150),
    ("mu_A10_n50_D24", 4259492, 3.8, 3, 300),
    ("mu_A10_n10_D96", 213533, 0.85, 2, 40),
    ("mu_A10_n10_D96", 215436, 7.2, 6, 200),
)
LONG = (  # the most within ten seconds
    ("ms_A10_n25_D24", 24147), ("ms_A10_n50_D24", 92526), ("ms_A10_n10_D96", 18510), ("ms_A10_n10_D24", 4020),
    ("ms_A50_n10_D24", 20731), ("mu_A10_n25_D24", 1156515), ("mu_A10_n50_D24", 4259492), ("mu_A10_n10_D96", 215436),
    ("mu_A10_n10_D24", 205017),
)  # fmt: skip

VNS = """
import sys, pytoulbar2
from dmcmc import native
problem = native.load(sys.argv[1])
top = sum(int(f.table.max()) for f in problem.factors)
network = pytoulbar2.CFN(ubinit=top + 1, vns=-4, verbose=0)
for i, d in enumerate(problem.domains):
    network.AddVariable(f"x{i}", [f"v{k}" for k in range(d)])
for f in problem.factors:
    network.AddFunction([f"x{v}" for v in f.scope], (int(f.table.max()) - f.table).astype(int).reshape(-1).tolist())
print("TOP", top, flush=True)
network.Solve(timeLimit=int(sys.argv[2]))
"""


def ours(path: Path, runs: int, samples: int, method: str = "annealing") -> tuple[float, float]:
    """Return utility and seconds, the least of three runs."""
    problem = native.load(path)
    local = {"method": method, "runs": runs, "samples": samples, "bound": "none"}
    config = parse({"problem": {"file": "-"}, "local": local, "device": "cpu"})
    best, objective = float("inf"), 0.0
    for _ in range(3):
        start = time.perf_counter()
        result = solve(problem, config)
        best = min(best, time.perf_counter() - start)
        assert result is not None and result.objective is not None
        objective = float(result.objective)
    return objective, best


def vns(path: Path, seconds: int) -> tuple[float, float]:
    """Return toulbar2's best utility by variable neighbourhood search, and when it was found."""
    command = [sys.executable, "-c", VNS, str(path), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10 * seconds + 60)
    top = int(re.search(r"^TOP (\d+)", done.stdout, re.MULTILINE)[1])  # type: ignore[index]
    found = re.findall(r"New solution: (\d+) \(.*?([\d.]+) seconds\)", done.stdout)
    return (top - int(found[-1][0]), float(found[-1][1])) if found else (0.0, float("nan"))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vns", type=int, default=10, help="seconds for toulbar2's VNS on each instance (0: none)")
    arguments = parser.parse_args()
    folder = Path(os.environ["DMCMC_INSTANCES"]) / "meetings"
    of = Backend.of
    Backend.of = classmethod(lambda cls, wish, threads, sharers=1: of(wish, 1, sharers))  # type: ignore[method-assign,assignment]
    ours(folder / "ms_A10_n10_D24_pl0.5_s0.npz", 1, 16)
    print("instance          prototype: utility, s     ours: utility, s    R, S     utility reached, share of its time")
    for name, utility, seconds, runs, samples in PAIRS:
        found, took = ours(folder / f"{name}_pl0.5_s0.npz", runs, samples)
        reached = "yes" if found >= utility else "NO "
        print(
            f"{name:16s} {utility:10d} {seconds:6.2f} {found:15.0f} {took:6.3f}  {runs:3d} {samples:4d}"
            f"      {reached}  {took / seconds:5.2f}",
            flush=True,
        )
    print("\nwithin ten seconds   best listed    ours      s        toulbar2 VNS: utility, found at s")
    for name, utility in LONG:
        path = folder / f"{name}_pl0.5_s0.npz"
        found, took = ours(path, 10, 400 if "n50" not in name else 250)
        other = ""
        if arguments.vns:
            best, at = vns(path, arguments.vns)
            other = f"{best:12.0f} {at:6.1f}"
        mark = ">" if found > utility else ("=" if found == utility else "<")
        print(f"{name:16s} {utility:12d}  {mark} {found:9.0f} {took:6.2f}   {other}", flush=True)


if __name__ == "__main__":
    main()
