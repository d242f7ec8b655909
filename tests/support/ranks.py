"""Starting Python on ranks."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_BESIDE = Path(sys.executable).with_name("mpirun")
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun")
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
_TESTS = str(Path(__file__).resolve().parents[1])
_LIMIT = 1500  # seconds, against hanging: the first of all has to compile the kernels, on any machine

_IN_TURN = """
import json, sys
from dmcmc.cli.main import main

*others, last = json.loads(sys.argv[1])
assert [main(argv) for argv in others] == [int(sys.argv[2])] * len(others)
sys.argv[1:] = last
sys.exit(main())
"""


def start(ranks, *argv, limit=_LIMIT, **environment):
    """Run Python on a number of ranks, which find what tests share; 0 is without a launcher."""
    launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
    more = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    clean = {k: v for k, v in os.environ.items() if k != "DMCMC_DEBUG"}
    return subprocess.run(
        [*launcher, sys.executable, *argv],
        capture_output=True,
        text=True,
        timeout=limit,
        env=clean | {"PYTHONPATH": _TESTS} | (more if ranks else {}) | environment,
    )


def in_turn(ranks, *commands, code=0, before=""):
    """Run several command lines in one launch, the last as the process's own; each is to return the same code.

    Parameters
    ----------
    before
        What to execute first.
    """
    done = start(ranks, "-c", f"{before}\n{_IN_TURN}", json.dumps(commands), str(code))
    assert done.returncode == code, done.stderr
    return done


def documents(text):
    """The documents in JSON that a text consists of."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def lines(stderr):
    """Our own lines; launchers add theirs, and a run of more than some seconds says what it does."""
    ours = [line for line in stderr.splitlines() if line.startswith("dmcmc: ")]
    return [line for line in ours if not re.match(r"dmcmc: \d+ s: ", line)]
