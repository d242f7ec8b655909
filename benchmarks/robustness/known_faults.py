"""Run every input of a folder of known faults, and print one table with the outcome that is right and the one found.

    python -m benchmarks.robustness.known_faults FOLDER [--only TEXT] [--output FILE.txt]

FOLDER holds small files and scripts that have failed once; its README says how. Each case is one process in a copy of
the folder. A case is right if its output has the expected text, its exit status is the expected one, no traceback is
printed where none is expected, and it keeps the limits of seconds and of memory. The seconds are those of the whole
process, imports included; the memory is the largest resident one.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Columns, Report, options
from benchmarks.solving.budget_runs import launcher

BUDGET = ("--memory", "1GiB")
BUDGET_MIB = 1.3 * 1024 + 300e6 / 2**20  # of the processes with a memory budget of 1 GiB
START_SECONDS = 10.0  # of the process, besides its time limit
TABLE = Columns(
    ("input", "<44"), ("verdict", "<7"), ("exit", ">4"), ("seconds", ">7.1f"), ("MiB", ">5.0f"), ("found", "<60")
)


class Case(NamedTuple):
    """An input and its right outcome.

    Attributes
    ----------
    command : str
        Arguments: a script of the folder with its arguments, or those of the ``dmcmc`` command.
    expected : str
        Regular expression that the output has to match somewhere.
    seconds : float
        Time limit, to which ``START_SECONDS`` are added.
    status : int
        Expected exit status.
    ranks : int
        Number of MPI ranks.
    """

    command: str
    expected: str
    seconds: float = 5.0
    status: int = 0
    ranks: int = 1


PROVEN = r"optimal \(proven\)[\s\S]*objective +{} "
ICS = "solve ics_{}.yaml --timeout 5"
CASES = (
    Case("solve lunch15_4p_12m.yaml --timeout 5 --memory 1GiB", PROVEN.format(166)),
    Case("solve lunch15_6p_24m.yaml --timeout 10 --memory 1GiB", PROVEN.format(313), 10),
    Case("solve lunch10_8p_16m.yaml --timeout 10 --memory 1GiB", PROVEN.format(227), 10),
    Case("solve alternatives_week.yaml --alternatives 2 --timeout 10", r"\b2\b.*(alternative|best)|optimal", 10),
    Case("solve alternatives_series.yaml --alternatives 3 --distance 2 --timeout 10", r"optimal|\b3\b", 10),
    Case("large_cliques.py", r"ResourceError the junction tree[\s\S]*alternatives ok\nmax_marginals ok", 30),
    Case("memory_growth.py", r"100 \d+ MiB", 80),
    Case("solve many_values.wcsp.xz --memory 1GiB", "exceeds the memory limit", 5, 2),
    Case("expected_constraint.py", "Problem: variables 2"),
    Case("set_domain_constraint.py", "AllDifferentConstraint", 20),
    Case("private_int64.py", r"one file optimal 4611686018427387912[\s\S]*private +optimal 4611686018427387912", 10),
    Case("slow_infeasible.py", r"infeasible 0[\s\S]*infeasible 0", 5),
    Case("run scenario.yaml", "events.3: add_factor: name: expected a name, got false", 5, 2),
    Case("float_parameters.py", r"ProblemError.*", 5, 1),
    Case("large_times.py cumulative 1e7", "cumulative 10000000 (optimal|timeout) 9", 5),
    Case("large_times.py no_overlap 1e7", "no_overlap 10000000 (infeasible|timeout)", 5),
    Case("large_times.py breaks 1e7", "breaks 10000000 (optimal|timeout) 18", 5),
    Case("comm_leak.py", r"2550 optimal", 300, ranks=2),
    Case("mcp_duplicate.py", "more than once|twice|listed", 5),
    Case("solve dst_gap.yaml --timeout 5", "02:00 does not exist on 2027-03-28", 5, 2),
    Case("solve dst_fold.yaml --timeout 5", PROVEN.format(0)),
    Case("solve dst2.yaml --timeout 5", PROVEN.format(0)),
    Case("solve year_one.yaml --timeout 5", "expected a year from 1970", 5, 2),
    Case("solve ics_custom_tz_without_vtz.yaml --timeout 5", "is not a valid iCalendar", 5, 2),
    *(
        Case(ICS.format(name), PROVEN.format(1))
        for name in ("vfreebusy", "display_tz_unknown", "declined", "ms_free_opaque", "one_bad_event", "no_dtstart")
    ),
    *(Case(ICS.format(name), PROVEN.format(1)) for name in ("two_calendars", "utf16")),
    Case("solve javabayes.bif --task mar", "status +exact"),
    Case("solve cn_gbk.bif", "is not UTF-8", 5, 2),
    Case("solve fit.yaml --task max-marginals --query New --timeout 10", "status +exact", 10),
)


def command_of(case: Case) -> list[str]:
    """Return the command line of a case."""
    words = case.command.split()
    command = [sys.executable, *(words if words[0].endswith(".py") else ["-m", "dmcmc", *words])]
    return command if case.ranks == 1 else [launcher(), "-n", str(case.ranks), *command]


def carry_out(case: Case, folder: Path) -> tuple[object, ...]:
    """Run a case, and return its line of the table."""
    most = case.seconds + START_SECONDS
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    start, output = time.perf_counter(), folder / "output.txt"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command_of(case), stdout=stream, stderr=stream, cwd=folder, env=environment, start_new_session=True
        )
        peak, late = 0.0, False
        while not late:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                process.returncode, peak = os.waitstatus_to_exitcode(status), used.ru_maxrss / 1024
                break
            late = time.perf_counter() - start > 3 * most
            time.sleep(0.01)
        else:
            os.killpg(process.pid, 9)
            process.wait()
    seconds, text = time.perf_counter() - start, output.read_text(errors="replace")
    unforeseen = "Traceback" in text and case.status != 1
    fits = seconds <= most and (BUDGET[1] not in case.command or peak <= BUDGET_MIB)
    found = re.search(case.expected, text)
    right = found is not None and process.returncode == case.status and fits and not unforeseen
    lines = [line for line in text.strip().splitlines() if not line.startswith("dmcmc: warning")] or ["no output"]
    shown = lines[-1] if case.status or found is None else (found[0].splitlines() or lines)[0]
    return case.command, "right" if right else "WRONG", process.returncode, seconds, peak, " ".join(shown.split())[:110]


def main() -> None:
    """Run the cases and print the table."""
    parser = options(__file__, __doc__ or "", only=True)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    report, wrong = Report(__file__, given), 0
    report(TABLE.head)
    chosen = [case for case in CASES if given.only in case.command]
    with tempfile.TemporaryDirectory() as copy:
        folder = Path(shutil.copytree(given.folder, Path(copy) / "faults"))
        for script in folder.glob("*.py"):  # a module that has moved since the script was written
            script.write_text(script.read_text().replace("dmcmc.assistant.calendar_tools", "dmcmc.calendars.assistant"))
        for case in chosen:
            line = carry_out(case, folder)
            wrong += line[1] != "right"
            report(TABLE.line(*line))
    report(f"{len(chosen)} cases, {wrong} wrong")
    report.keep()


if __name__ == "__main__":
    main()
