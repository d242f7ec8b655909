"""Child processes import nothing from the working directory, which may belong to somebody else."""

import os
import subprocess
import sys

from dmcmc.inference.runtime.threads import python_command
from dmcmc.results import stored_result


def imports(command, module):
    return subprocess.run([*command, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def test_a_worker_imports_from_the_working_directory_only_if_its_parent_does(tmp_path, monkeypatch):
    (tmp_path / "planted.py").touch()
    monkeypatch.chdir(tmp_path)
    assert not imports(python_command(), "planted")
    monkeypatch.syspath_prepend(os.getcwd())
    assert imports(python_command(), "planted")


def test_the_version_of_mpi_is_not_read_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "mpi4py.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    stored_result._mpi_library()
    assert not (tmp_path / "executed").exists()
