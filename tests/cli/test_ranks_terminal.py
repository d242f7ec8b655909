"""Output of ranks is plain, also if the launcher gives each rank a pseudo-terminal, as Open MPI does."""

import json
import os
import pty
import subprocess
import sys

import pytest

ESCAPE = b"\x1b"
HIGHLIGHTING = "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"
RANK_0 = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}


def printed(*command, **environment):
    """Return the output of a command on a pseudo-terminal."""
    master, slave = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != HIGHLIGHTING}  # main sets it here
    env = inherited | {"TERM": "xterm"} | environment
    done = subprocess.Popen(
        [sys.executable, *command], stdout=slave, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env
    )
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(master)
    _, stderr = done.communicate(timeout=600)
    assert done.returncode == 0, stderr
    return text


@pytest.fixture
def colorama(tmp_path):
    """A stand-in for colorama, first on the path, that also resets the terminal when the process ends."""
    (tmp_path / "colorama.py").write_text(
        "import atexit, sys\n"
        "__version__ = '0.4.6'\n"
        "class Codes:\n"
        "    def __getattr__(self, name): return ''\n"
        "Fore = Style = Codes()\n"
        "def init(): atexit.register(sys.__stdout__.write, '\\x1b[0m')\n"
        "def reinit(): pass\n"
        "def deinit(): pass\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize("environment", [{}, RANK_0])
def test_json_output_is_valid_although_colorama_resets_the_terminal(environment, colorama):
    coloured = "from numba.core.errors import termcolor; termcolor().errmsg('as Numba does when types do not match')"
    command = f"from dmcmc.cli.main import main; main(['samplers', '--json']); {coloured}"
    assert ESCAPE in printed("-c", coloured, PYTHONPATH=colorama, **environment)
    assert json.loads(printed("-c", command, PYTHONPATH=colorama, **environment))


@pytest.mark.parametrize("environment", [{}, RANK_0])
def test_json_output_on_a_terminal_is_valid(environment):
    assert json.loads(printed("-m", "dmcmc", "samplers", "--json", **environment))


def test_only_a_user_terminal_has_colours():
    assert ESCAPE not in printed("-m", "dmcmc", "samplers", **RANK_0)
    assert ESCAPE in printed("-m", "dmcmc", "samplers")


def test_the_terminal_of_a_rank_is_dumb():
    """Libraries that write control codes when they are imported, such as readline, then write nothing."""
    code = "import os; from dmcmc.cli.main import main; main(['samplers', '--json']); print(os.environ['TERM'])"
    assert printed("-c", code, **RANK_0).split()[-1] == b"dumb"
