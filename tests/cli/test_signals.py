"""SIGINT and SIGTERM at any point of a command: soon the best result so far or one line, and never a traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.ranks import MPIRUN, lines, needs_mpirun
from support.runs import hard_problem, write_configuration

from dmcmc.anytime.solve_private import solve_directory
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.formats import agent_files
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.samplers.local_search.local_search import Ascent, UncompiledAscent

STUCK = str(Path(__file__).with_name("stuck.py"))
SOON = 200  # seconds, for busy machines; a stuck process never ends by itself
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run that improves its answer for a long time."""
    return write_configuration(
        tmp_path_factory.mktemp("run"),
        hard_problem(),
        local={"method": "gibbs", "runs": 1, "samples": 5},
        budget={"time": 600},
    )


@pytest.fixture(scope="module")
def untimed(tmp_path_factory):
    """The same run without a time budget."""
    return write_configuration(tmp_path_factory.mktemp("untimed"), hard_problem(), local={"method": "gibbs", "runs": 1})


class StuckProcess:
    """A command line that is stuck at a certain point."""

    def __init__(self, point, config, ranks=0, **environment):
        here = Path(config).parent
        self.output, self.pid_file = here / f"{point}-{ranks}.json", here / f"{point}-{ranks}.pid"
        for file in (self.output, self.pid_file):
            file.unlink(missing_ok=True)
        launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
        command = [*launcher, sys.executable, STUCK, point, "run", config, "--json", "--output", str(self.output)]
        command += ["--timeout", environment.pop("LIMIT")] if "LIMIT" in environment else []
        environment = os.environ | {"STUCK": str(self.pid_file)} | environment
        environment.pop("DMCMC_DEBUG", None)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        end = time.monotonic() + 1500
        while not (self.pid_file.exists() and self.pid_file.read_text()):
            assert time.monotonic() < end and self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)

    def after(self, *signals, pid=None):
        """Send signals and return exit code, standard output and lines of standard error."""
        for number in signals:
            os.kill(pid or self.process.pid, number)
            time.sleep(0.5)
        out, err = self.process.communicate(timeout=SOON)
        assert "Traceback" not in err
        return self.process.returncode, out, lines(err)

    @property
    def stuck(self):
        """The id of the process that is stuck."""
        return int(self.pid_file.read_text())


@pytest.mark.parametrize(
    ("point", "number", "more"),
    [
        ("reading", signal.SIGTERM, ""),
        ("compiling", signal.SIGINT, ": there is no result yet"),
        ("dividing", signal.SIGTERM, ": there is no result yet"),
    ],
)
def test_a_signal_before_the_first_result_prints_one_line(config, untimed, point, number, more):
    stuck = StuckProcess(point, untimed if point == "dividing" else config)
    assert stuck.after(number) == (128 + number, "", [f"dmcmc: {WORDS[number]}{more}"])
    assert not stuck.output.exists()


@pytest.mark.parametrize(
    ("point", "number"), [("dividing", signal.SIGINT), ("sampling", signal.SIGINT), ("improving", signal.SIGTERM)]
)
def test_a_signal_prints_and_writes_the_best_result(config, untimed, point, number):
    stuck = StuckProcess(point, untimed if point == "sampling" else config)
    code, out, error_lines = stuck.after(number)
    assert (code, error_lines) == (0, [])
    result = json.loads(out)
    assert result["status"] == "timeout" and result["assignment"] and result["objective"] is not None
    assert result["bound"] >= result["objective"]
    assert result["note"] == WORDS[number]
    assert json.loads(stuck.output.read_text()) == result


@needs_mpirun
@pytest.mark.parametrize("ranks", [0, 4])  # of four, two wait for the stuck one and are ended
def test_work_that_exceeds_the_time_limit_is_not_waited_for(config, ranks):
    code, out, error_lines = StuckProcess("sampling", config, ranks, LIMIT="1").after()
    result = json.loads(out)
    assert (code, error_lines) == (0, []) and result["status"] == "timeout" and result["assignment"]
    assert 1 < result["time"] < 1 + SOON


def test_a_second_signal_ends_the_process_immediately(config):
    stuck = StuckProcess("improving", config, PATIENCE="1000")
    assert stuck.after(signal.SIGTERM, signal.SIGINT) == (128 + signal.SIGINT, "", [])
    assert not stuck.output.exists()


@needs_mpirun
@pytest.mark.parametrize("alone", [False, True])
def test_all_ranks_end_after_a_signal_to_all_or_to_a_stuck_one(config, alone):
    stuck = StuckProcess("improving", config, ranks=2)
    code, out, error_lines = stuck.after(signal.SIGTERM, pid=stuck.stuck if alone else None)
    assert (code, error_lines) == (0, [])
    result = json.loads(out)
    assert result["assignment"] and json.loads(stuck.output.read_text()) == result


@needs_mpirun
@pytest.mark.parametrize("why", ["signal", "late"])
def test_ranks_save_the_values_of_their_agents_and_a_later_run_starts_from_them(tmp_path, monkeypatch, why):
    sections = {"local": {"method": "gibbs", "runs": 1, "samples": 5}, "checkpoint": str(tmp_path / "kept")}
    agent_files.write(hard_problem(), tmp_path / "parts", 1 << 30)
    config = Path(write_configuration(tmp_path, hard_problem(), budget={"time": 600}, **sections))
    config.write_text(config.read_text().replace("file: problem.npz", "directory: parts"))
    stuck = StuckProcess("improving", str(config), 2, **({"LIMIT": "5"} if why == "late" else {}))
    code, out, error_lines = stuck.after(*([signal.SIGTERM] if why == "signal" else []))
    result = json.loads(out)
    assert (code, error_lines) == (0, []) and json.loads(stuck.output.read_text()) == result
    assert (result["status"], result["assignment"]) == ("timeout", None) and result["bound"] >= result["objective"]
    files = [json.loads(file.read_text()) for file in sorted(stuck.output.with_suffix(".agents").iterdir())]
    assert [file["agent"] for file in files] == ["a0", "a1"]
    values = {name: value for file in files for name, value in file["assignment"].items()}
    assert hard_problem().evaluate(values).objective == result["objective"]

    def late(*arguments):
        raise OutOfTime("too late")

    monkeypatch.setattr("dmcmc.solving.rank_tables.first_tables", late)
    for ascent in (Ascent, UncompiledAscent):
        monkeypatch.setattr(ascent, "climb", lambda self, values: np.zeros(28, dtype=np.int64))
    config = settings_of(Document("", sections | {"budget": {"time": 60}}))
    again = solve_directory(tmp_path / "parts", config, share_assignment=True)
    assert again.objective == result["objective"] > again.trace[0].objective and again.assignment == values


@needs_mpirun
def test_ranks_without_a_result_print_one_line_together(untimed):
    assert StuckProcess("dividing", untimed, ranks=2).after(signal.SIGINT)[2] == [
        "dmcmc: interrupted: there is no result yet"
    ]


DELIVER_SLOWLY = """
import json, sys, time
from dmcmc.cli.signals import SIGNALS

def deliver(result):
    text = json.dumps(result)
    sys.stdout.write(text[:9])
    sys.stdout.flush()
    print("half", file=sys.stderr, flush=True)
    time.sleep(float(sys.argv[1]))
    sys.stdout.write(text[9:])
    sys.stdout.flush()
    return 0

SIGNALS.listen()
SIGNALS.begin(deliver)
code = SIGNALS.deliver(list(range(100)))
SIGNALS.leave(code)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("seconds", "signals"), [(2.5, [signal.SIGTERM]), (1.5, [signal.SIGTERM, signal.SIGTERM, signal.SIGINT])]
)
def test_a_result_that_is_being_printed_is_printed_completely(seconds, signals):
    command = [sys.executable, "-c", DELIVER_SLOWLY, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "half\n"
    for number in signals:
        process.send_signal(number)
        time.sleep(0.4)
    out, err = process.communicate(timeout=SOON)
    assert (json.loads(out), err) == (list(range(100)), "")
    assert process.returncode in (0, *(128 + number for number in signals[1:]))


READ_SLOWLY = """
import os, signal, threading, time
from dmcmc.cli.signals import SIGNALS

SIGNALS.listen()
SIGNALS.begin(print).best = lambda: time.sleep(600)  # there is no result in time
start = threading.Thread.start

def start_slowly(thread):
    start(thread)
    time.sleep(0.4)

threading.Thread.start = start_slowly
print("ready", flush=True)
for _ in range(2):
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
"""


def test_a_duplicate_that_is_read_late_is_no_second_signal():
    """On a busy machine the thread that reads the signals may wait long between two of them."""
    process = subprocess.Popen([sys.executable, "-c", READ_SLOWLY], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    begun = time.perf_counter()
    assert process.wait(SOON) == 128 + signal.SIGTERM
    assert time.perf_counter() - begun >= 1.5  # a second signal would end the process at once
    process.stdout.close()


FAILING_DELIVERY = """
from dmcmc.cli.signals import SIGNALS
from dmcmc.inference.runtime.errors import FileError

def fail(result):
    raise FileError("standard output cannot be written: it is full")

SIGNALS.listen()
SIGNALS.begin(fail)
print(SIGNALS.deliver("a result"), SIGNALS.deliver("a result"), SIGNALS.finish())
"""


def test_an_error_in_the_delivery_ends_all_waiting_and_is_reported():
    done = subprocess.run([sys.executable, "-c", FAILING_DELIVERY], capture_output=True, text=True, timeout=SOON)
    assert done.stdout == "2 2 2\n"
    assert done.stderr == "dmcmc: error: standard output cannot be written: it is full\n"


PREPARED = """
import os, signal, sys, time
from dmcmc.cli.signals import SIGNALS

calls = []

def best():
    calls.append(len(calls) + 1)
    return calls[-1]

SIGNALS.listen()
SIGNALS.begin(lambda result: print(result) or 0).best = best
os.kill(os.getpid(), signal.SIGCONT)  # Open MPI announces by it that it will end its processes
while not calls:
    time.sleep(0.001)
time.sleep(float(sys.argv[1]))
SIGNALS.finish()
"""


@pytest.mark.parametrize(("seconds", "delivered"), [(0.05, 1), (1.2, 2)])
def test_a_recently_prepared_result_is_delivered_unchanged(seconds, delivered):
    environment = os.environ | {"OMPI_COMM_WORLD_RANK": "0"}
    command = [sys.executable, "-c", PREPARED, str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON, check=True)
    assert done.stdout == f"{delivered}\n"


def test_a_rank_prints_to_the_output_of_its_launcher(tmp_path):
    launcher, rank = tmp_path / "mpirun", tmp_path / "rank.py"
    launcher.symlink_to("/bin/sh")
    rank.write_text(
        "import os\n"
        "from dmcmc.mpi.compute_node import print_as_launcher\n"
        "print_as_launcher(os.getpid())\n"
        "os.write(1, b'an answer')\n"
        "os.write(2, b'a line')\n"
    )
    command = f"(exec '{sys.executable}' '{rank}' > '{tmp_path}/lost' 2>&1); :"
    shown = subprocess.run([launcher, "-c", command], capture_output=True, text=True, check=True)
    assert (shown.stdout, shown.stderr) == ("an answer", "a line")
    assert (tmp_path / "lost").read_text() == ""
