"""Let toulbar2 read and solve files, each in its own process; a script of ``mutated_cost_networks``.

It reads a JSON list of ``{"text": ..., "samples": [[value, ...], ...]}`` from standard input, and prints one JSON
object per file: ``shape``, ``optimum``, ``costs`` (of the sampled assignments, None if forbidden) and ``error``. The
argument is the path under which the files are written; its suffix gives the format.

    python -m benchmarks.formats.toulbar2_reader PATH
"""

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MAX_SECONDS = 10  # for one file or assignment
READ_SIZE = 1 << 16  # bytes


def in_new_process(work: Callable[[], Any]) -> dict[str, Any]:
    """Return ``{"result": ...}``, or ``{"error": ...}`` if the process fails, is ended, or takes too long."""
    sys.stdout.flush()
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            answer: dict[str, Any] = {"result": work()}
        except BaseException as error:  # toulbar2's exceptions are not exported
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        os.write(send, json.dumps(answer).encode())
        os._exit(0)
    os.close(send)
    data = b""
    while select.select([receive], [], [], MAX_SECONDS)[0]:
        part = os.read(receive, READ_SIZE)
        if not part:
            break
        data += part
    else:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    os.close(receive)
    status = os.waitpid(child, 0)[1]
    return dict(json.loads(data)) if data else {"error": f"the process ended with status {status}"}


def main() -> None:  # long: toulbar2 and the path are shared by the inner functions
    """Read and solve all files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.formats.toulbar2_reader",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", help="the path under which the files are written")
    path = parser.parse_args().path
    sys.modules["mpi4py"] = None  # type: ignore[assignment]  # toulbar2 would start MPI
    import pytoulbar2

    def network() -> Any:
        read = pytoulbar2.CFN(verbose=-1)
        read.Option.cfn, read.Option.uai = path.endswith(".cfn"), int(path.endswith(".uai"))
        read.Read(path)
        return read

    def objective(read: Any) -> float | None:
        try:
            solved = read.Solve()
        except Exception as error:
            if "ontradiction" not in str(error):
                raise
            return None
        if solved is None:
            return None
        if path.endswith(".uai"):
            return float(read.Option.markov_log - solved[1] / read.Option.NormFactor)
        return float(solved[1])

    def solve(values: list[int] | None) -> tuple[list[int], float | None]:
        """Return the domain sizes and the optimum, of one assignment if it is given."""
        try:
            read = network()
        except Exception as error:
            if "ontradiction" not in str(error):
                raise
            return [], None  # infeasible already by propagation
        shape = [read.GetDomainInitSize(v) for v in range(read.GetNbVars())]
        for v, value in enumerate(values or []):
            try:
                for other in range(shape[v]):
                    if other != value:
                        read.CFN.wcsp.remove(v, read.CFN.wcsp.toValue(v, other))
            except Exception as error:
                if "ontradiction" not in str(error):
                    raise
                return shape, None
        return shape, objective(read)

    for job in json.load(sys.stdin):
        with open(path, "w") as stream:
            stream.write(job["text"])
        answer = in_new_process(lambda: solve(None))
        shape, optimum = answer.get("result", ([], None))
        costs, error = [], answer.get("error", "")
        for values in job["samples"] if not error else []:
            sampled = in_new_process(lambda values=values: solve(values))  # type: ignore[misc]
            costs.append(sampled.get("result", (None, None))[1])
            error = error or sampled.get("error", "")
            shape = shape or sampled.get("result", ([], None))[0]
        print(json.dumps({"shape": shape, "optimum": optimum, "costs": costs, "error": error}), flush=True)


if __name__ == "__main__":
    main()
