"""Look for faults of a GPU: memory errors under the sanitizer, failed runs, unsound bounds, and runs after a failure.

Parts (all need a GPU):

* ``sanitizer``: NVIDIA's compute-sanitizer over ``tests/cuda``, and memcheck over short runs that reach each component,
  with small node buffers, so that they fill up.
* ``runs``: timed runs of meeting scheduling and random problems; every one has to end in time with an answer.
* ``bounds``: short runs of problems whose optimum is known: objective <= optimum <= bound.
* ``failures``: a kernel that reads a wrong address in the middle of runs; they have to end in time with an answer.

Several runs at a time share the cores and the GPUs evenly.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from benchmarks.harness import Report, options

_LAUNCHER = """
import json, sys
given = json.loads(sys.argv[1])
from dmcmc.inference.bounds.branch_and_bound.cuda import dual_bounder
if given["entries"]:
    dual_bounder.MAX_ENTRIES_PER_BLOCK = given["entries"]
if given["fail_after"] is not None:
    from benchmarks.robustness.gpu import fail_after
    fail_after(given["fail_after"])
from dmcmc.cli.main import main
sys.argv[1:] = given["arguments"]
sys.exit(main())
"""
_TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
_SMALL_ENTRIES = 4  # buffer entries per block, at most: a search of a minute fills them
# Kinds of runs: the arguments of ``dmcmc generate``.
_KINDS = {
    "mu X=25": ["meeting-scheduling", "variables_per_agent=25", "tables=uniform"],
    "mu X=10 D=96": ["meeting-scheduling", "domain_size=96", "tables=uniform"],
    "ms X=50": ["meeting-scheduling", "variables_per_agent=50"],
    "ms A=50": ["meeting-scheduling", "agents=50"],
    "ms X=25 p=1": ["meeting-scheduling", "variables_per_agent=25", "local_density=1.0"],
    "random": ["random", "agents=20", "variables_per_agent=10"],
    "mu X=50": ["meeting-scheduling", "variables_per_agent=50", "tables=uniform"],
    "mu A=50": ["meeting-scheduling", "agents=50", "tables=uniform"],
}
# Short runs that together reach the components of a GPU run, by the settings that choose them.
_COMPONENTS = {
    "triangles and search": ["--set", "local.bound=triangles", "--method", "gibbs"],
    "smoothed": ["--set", "local.bound=triangles", "--method", "annealing"],
    "semidefinite": ["--set", "local.bound=semidefinite", "--method", "gibbs"],
    "mini-buckets": ["--set", "combine.method=mini-bucket", "--set", "combine.z=2", "--method", "gibbs"],
    "block moves": ["--method", "blocks"],
    "joint proposals": ["--method", "metropolis-hastings"],
    "streaming": ["--method", "exact", "--memory", "1GiB"],
}


class _Slot(NamedTuple):
    """A part of the machine: a GPU and some cores."""

    gpu: int
    cores: Sequence[int]


class _Run(NamedTuple):
    """The options, a folder for files, and a function that prints and keeps a line; all parts use them."""

    given: argparse.Namespace
    folder: Path
    line: Callable[[str], None]


class _Ended(NamedTuple):
    """A process that has ended: exit status, seconds, output."""

    status: int
    seconds: float
    output: str


def fail_after(launches: int) -> None:
    """Let the launch with this number be preceded by a kernel that writes to a wrong address."""
    from numba import cuda
    from numba.cuda import dispatcher

    def write(array: Any, position: int) -> None:
        array[position] = 1

    write_anywhere, counted, call = cuda.jit(write), count(), dispatcher.CUDADispatcher.call

    def call_or_fail(self: Any, arguments: Any, configuration: Any) -> Any:
        if self.py_func is not write and next(counted) == launches:
            write_anywhere[1, 1](cuda.device_array(1), 1 << 44)
        return call(self, arguments, configuration)

    dispatcher.CUDADispatcher.call = call_or_fail


def main() -> None:
    """Run the chosen parts."""
    parser = options(__file__, __doc__)
    parser.add_argument("parts", nargs="+", choices=("sanitizer", "runs", "bounds", "failures"))
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each run")
    parser.add_argument("--count", type=int, default=40, help="number of runs, or of problems of known optimum")
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", help="these seeds, for runs of one kind")
    parser.add_argument("--kind", choices=list(_KINDS), help="only this kind of run; default: all in turn")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--per-gpu", type=int, default=1, help="processes at a time per GPU")
    parser.add_argument("--entries", type=int, default=0, help="node buffer entries per block; 0: as usual")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // (given.gpus * given.per_gpu))
    slots = [
        _Slot(number % given.gpus, cores[number * share : (number + 1) * share])
        for number in range(given.gpus * given.per_gpu)
    ]
    report = Report(__file__, given)
    with tempfile.TemporaryDirectory() as folder:
        for part in given.parts:
            parts = {"sanitizer": _sanitizer, "runs": _runs, "bounds": _bounds, "failures": _failures}
            bad = parts[part](_Run(given, Path(folder), report), slots)
            report(f"{part}: {bad} bad")
    report.keep()


def _ended(slot: _Slot, command: Sequence[str], limit: float) -> _Ended:
    """Run a command on a part of the machine."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(slot.gpu), "PYTHONPATH": os.environ.get("PYTHONPATH", ".")}
    pinned = ["taskset", "-c", ",".join(map(str, slot.cores)), *command]
    begun = time.perf_counter()
    try:
        done = subprocess.run(pinned, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        return _Ended(124, time.perf_counter() - begun, str(error.stdout or "")[-2000:])
    return _Ended(done.returncode, time.perf_counter() - begun, done.stdout + done.stderr)


def _on_slots(slots: Sequence[_Slot], tasks: Iterable[Callable[[_Slot], bool]]) -> int:
    """Run tasks, each on a free part of the machine; return how many were bad."""
    free, lock = list(slots), Lock()

    def run(task: Callable[[_Slot], bool]) -> bool:
        with lock:
            slot = free.pop()
        try:
            return task(slot)
        finally:
            with lock:
                free.append(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        return sum(pool.map(run, tasks))


def _command(arguments: list[str], entries: int, fail: int | None, *, before: Sequence[str] = ()) -> list[str]:
    """Return the command that runs dmcmc with small node buffers, or with a failure after some launches."""
    options_of_launcher = {"arguments": arguments, "entries": entries, "fail_after": fail}
    return [*before, sys.executable, "-W", "ignore", "-c", _LAUNCHER, json.dumps(options_of_launcher)]


def _generated(kind: str, seed: int, folder: Path) -> Path:
    """Generate a problem; return its file."""
    file = folder / f"{kind.replace(' ', '_')}_{seed}.npz"
    arguments = ["generate", *_KINDS[kind], "--seed", str(seed), "--output", str(file)]
    subprocess.run([sys.executable, "-m", "dmcmc", *arguments], check=True, capture_output=True)
    return file


def _timed(run: _Run, kind: str, seed: int, fail: int | None, slot: _Slot) -> bool:
    """Run a problem for some seconds on a GPU; return whether the run is bad."""
    given, folder, line = run
    file = _generated(kind, seed, folder)
    result = file.with_suffix(f".{fail}.json")
    arguments = ["solve", str(file), "--device", "cuda", "--timeout", str(given.seconds), "--set", "search=none"]
    ended = _ended(slot, _command([*arguments, "--output", str(result)], given.entries, fail), 3 * given.seconds + 120)
    lines = [text for text in ended.output.splitlines() if "GPU has failed" in text or "error" in text.lower()]
    found = json.loads(result.read_text()) if result.exists() else {}
    has_failed = any("GPU has failed" in text for text in lines)
    late = found.get("time", 1e9) > given.seconds + 1
    bad = ended.status != 0 or not found or late or "Traceback" in ended.output or has_failed != (fail is not None)
    gap = found.get("gap")
    line(
        f"{'BAD' if bad else 'ok':4}{kind:14}{seed:6} status {ended.status} {found.get('status', '-'):9}"
        f" {found.get('time', 0):6.1f} s  gap {'-' if gap is None else f'{gap:.3%}'}"
        f"{f'  after {fail} launches' if fail is not None else ''}  {lines[:1] or ''}"
    )
    if bad:
        line(ended.output[-1500:])
    return bad


def _runs(run: _Run, slots: Sequence[_Slot]) -> int:
    """Run timed runs of all kinds."""
    given = run.given
    kinds = [given.kind] if given.kind else list(_KINDS)
    seeds = given.seeds or [given.first_seed + number for number in range(given.count)]
    cases = [(kinds[number % len(kinds)], seed) for number, seed in enumerate(seeds)]
    return _on_slots(slots, [partial(_timed, run, *case, None) for case in cases])


def _failures(run: _Run, slots: Sequence[_Slot]) -> int:
    """Let a kernel fail after different numbers of launches."""
    cases = [(kind, launches) for kind in ("mu X=25", "ms X=50") for launches in (0, 1, 30, 100, 300)]
    return _on_slots(slots, [partial(_timed, run, kind, 101, launches) for kind, launches in cases])


_SOUND = """
import json, sys
import dmcmc
from dmcmc.inference.bounds.branch_and_bound.cuda import dual_bounder
dual_bounder.MAX_ENTRIES_PER_BLOCK = 1
bad = []
for seed in json.loads(sys.argv[1]):
    seconds, integral = float(sys.argv[2]), seed % 2
    problem = dmcmc.generate(
        "meeting-scheduling", agents=3 + seed % 3, variables_per_agent=6 + seed % 3, domain_size=6 + seed % 4,
        tables="uniform" if integral else "preferences", seed=seed,
    )
    optimum = dmcmc.solve(problem, device="cpu", timeout=60, search="none")
    method = ("gibbs", "metropolis-hastings", "auto")[seed % 3]
    result = dmcmc.solve(
        problem, device="cuda", method=method, bound=("triangles", "dual", "auto")[seed // 3 % 3], timeout=seconds,
        search="none",
    )
    known = optimum.objective if optimum.status == "optimal" else None
    sound = known is None or (result.objective <= known <= result.bound)
    print(json.dumps([seed, sound, known, result.objective, result.bound, result.status]), flush=True)
"""


def _bounds(run: _Run, slots: Sequence[_Slot]) -> int:
    """Compare the bounds of short runs with known optima."""
    given, _, line = run
    seeds = [given.first_seed + number for number in range(given.count)]
    bundles = [seeds[number :: len(slots)] for number in range(len(slots))]

    def check(bundle: list[int], slot: _Slot) -> bool:
        command = [sys.executable, "-W", "ignore", "-c", _SOUND, json.dumps(bundle), str(given.seconds)]
        ended = _ended(slot, command, len(bundle) * (given.seconds + 70) + 60)
        rows = [json.loads(text) for text in ended.output.splitlines() if text.startswith("[")]
        wrong = [row for row in rows if not row[1]]
        known = sum(row[2] is not None for row in rows)
        line(f"{len(rows)} runs, {known} with a known optimum, {len(wrong)} unsound, status {ended.status}; {wrong}")
        if ended.status:
            line(ended.output[-1500:])
        return bool(wrong or ended.status)

    return _on_slots(slots, [partial(check, bundle) for bundle in bundles])


def _sanitizer(run: _Run, slots: Sequence[_Slot]) -> int:
    """Run the sanitizer's tools over the tests of kernels, and memcheck over short runs."""
    given, folder, line = run
    tool = sorted(Path("/usr/local").glob("cuda*/compute-sanitizer/compute-sanitizer"))[-1]
    common = [str(tool), "--error-exitcode", "77", "--print-limit", "20", "--target-processes", "all"]
    # CuPy's kernels are checked only where the initial values that they write count.
    others = [*common, "--kernel-name-exclude", "kernel_substring=cupy"]
    files = sorted(str(file) for file in Path("tests/cuda").rglob("test_*.py"))

    def tests(name: str, file: str, slot: _Slot) -> bool:
        pytest = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file]
        ended = _ended(slot, [*(common if name == "initcheck" else others), "--tool", name, *pytest], given.seconds)
        found = [text for text in ended.output.splitlines() if "ERROR SUMMARY" in text or " passed" in text]
        line(f"{name:10} {file:45} status {ended.status} {ended.seconds:5.0f} s  {found}")
        if ended.status not in (0, 5, 124):
            line(ended.output[-3000:])
        return ended.status not in (0, 5, 124)

    def component(name: str, slot: _Slot) -> bool:
        kind = ["meeting-scheduling", "agents=3", "variables_per_agent=8", "domain_size=12", "tables=uniform"]
        file = folder / f"{name.replace(' ', '_')}.npz"
        generate = [sys.executable, "-m", "dmcmc", "generate", *kind, "--seed", "7", "--output", str(file)]
        subprocess.run(generate, check=True, capture_output=True)
        arguments = ["solve", str(file), "--device", "cuda", "--timeout", "25", "--set", "search=none"]
        checked = _command([*arguments, *_COMPONENTS[name]], 1, None, before=[*others, "--tool", "memcheck"])
        ended = _ended(slot, checked, given.seconds)
        found = [text for text in ended.output.splitlines() if "ERROR SUMMARY" in text or text.startswith("status")]
        line(f"memcheck   {name:45} status {ended.status} {ended.seconds:5.0f} s  {found}")
        if ended.status not in (0, 124):
            line(ended.output[-3000:])
        return ended.status not in (0, 124)

    tasks: list[Callable[[_Slot], bool]] = [partial(component, name) for name in _COMPONENTS]
    tasks += [partial(tests, name, file) for file in files for name in _TOOLS]
    return _on_slots(slots, tasks)


if __name__ == "__main__":
    main()
