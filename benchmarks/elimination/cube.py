"""Reproduce Table III of CUBE: the time to prove SPOT5 instances, with sparse and dense tables, and the paper's times.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.cube [--memory 16GiB] [--limit 300] [--gpu-memory 60GiB]

FOLDER holds instances/ with spot5/. ``solve`` is ``dmcmc solve FILE --timeout LIMIT``, which ends when it has a proof;
``dense`` is ``--method exact`` with dense tables, if those fit. Seconds are those of the solve; each is a separate
process, whose start-up, compilation and reading are not counted. The paper's times are those of one NVIDIA Tesla K40,
transfers and preprocessing included, and of its sequential version. Instances that are not in FOLDER are skipped. 408b
is made from spot5_from_uai/408.wcsp without the constraints over three variables: 200 variables, width 24, as in the
paper.
"""

import os
import tempfile
from pathlib import Path

from benchmarks.harness import Columns, Report, instances, options
from benchmarks.solving.solve_instances import run
from dmcmc.config.settings import bytes_of
from dmcmc.inference.runtime.device import gpu_problem

PAPER = {  # seconds: CUDA-BE, sequential BE
    "54": (3.01, 965.66), "29": (5.36, 2656.72), "404": (12.40, 7584.12), "503": (17.46, 6347.98),
    "42b": (58.42, 31637.91), "505b": (77.17, 53710.41), "408b": (120.79, 76456.15),
}  # fmt: skip
TABLE = Columns(
    ("instance", "<10"), ("device", "<8"), ("memory GiB", ">10.0f"), ("solve", "<10"), ("objective", ">10"),
    ("bound", ">10"), ("s", ">8.2f"), ("dense", "<10"), ("s", ">8.2f"), ("paper GPU", ">9.2f"), ("CPU", ">9.2f"),
    ("", "s"),
)  # fmt: skip


def file_of(name: str, target_folder: str) -> Path | None:
    """Return the file of an instance, or None; an instance of binary constraints may be derived from the full one."""
    folder = instances("instances")
    path, full_path = folder / "spot5" / f"{name}.wcsp", folder / "spot5_from_uai" / f"{name[:-1]}.wcsp"
    if path.exists() or not name.endswith("b") or not full_path.exists():
        return path if path.exists() else None
    words = full_path.read_text().split()
    n, count = int(words[1]), int(words[3])
    at, constraints = 5 + n, list[str]()
    for _ in range(count):
        arity = int(words[at])
        end = at + 3 + arity + int(words[at + 2 + arity]) * (arity + 1)
        constraints += [" ".join(words[at:end])] if arity < 3 else []
        at = end
    head = [" ".join((name, *words[1:3], str(len(constraints)), words[4])), " ".join(words[5 : 5 + n])]
    target = Path(target_folder, f"{name}.wcsp")
    target.write_text("\n".join((*head, *constraints, "")))
    return target


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", only=True)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--gpu-memory", type=bytes_of, default=bytes_of("60GiB"), help="budget.memory on a GPU")
    given = parser.parse_args()
    given.device = "auto"
    used_cores = set(sorted(os.sched_getaffinity(0))[: given.cores])
    report = Report(__file__, given, cores_used=len(used_cores))
    report(TABLE.head)
    temporary = tempfile.TemporaryDirectory()
    for name, (paper_gpu, paper_cpu) in PAPER.items():
        path = file_of(name, temporary.name) if given.only in name else None
        if path is None:
            continue
        for device in ("cpu", "cuda") if gpu_problem() is None else ("cpu",):
            memory = given.memory if device == "cpu" else given.gpu_memory
            extra_options = ["--device", device, "--set", f"budget.memory={int(memory)}"]
            found = run(
                path, "--timeout", str(given.limit), *extra_options, limit=2 * given.limit + 120, cores=used_cores
            )
            dense = run(path, "--method", "exact", *extra_options, limit=4 * given.limit, cores=used_cores)
            row = [found.get(key) for key in ("status", "objective", "bound", "time")]
            row = [str(cell) if isinstance(cell, int) else cell for cell in row]
            errors = " ".join(one["error"][:80] for one in (found, dense) if "error" in one)
            row.append("too large" if "budget.memory" in dense.get("error", "") else dense.get("status", "none"))
            row.append(dense.get("time"))
            report(TABLE.line(name, device, memory / 2**30, *row, paper_gpu, paper_cpu, errors))
    report.keep()


if __name__ == "__main__":
    main()
