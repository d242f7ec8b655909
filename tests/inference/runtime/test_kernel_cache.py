"""Compiled kernels are kept under the state of their sources, constants of other files included."""

from pathlib import Path

from dmcmc.inference.runtime.kernel_cache import kernel_sources

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_of_compiled_code_is_a_source():
    kernels = {path for room in ("inference", "samplers") for path in (ROOT / room).rglob("*_kernels.py")}
    assert kernels - {path for path in kernels if "jit" not in path.read_text()} <= set(kernel_sources(ROOT))


def test_a_constant_that_is_compiled_in_changes_the_sources(tmp_path):
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "words.py").write_text("HEADER = 7\n")
    (tmp_path / "inference" / "limits.py").write_text("MOST = 3\n")
    (tmp_path / "inference" / "other.py").write_text("from dmcmc.inference.words import HEADER\n")
    imports = "from dmcmc.inference import words as w\nfrom dmcmc.inference.limits import (\n    MOST,\n)\n"
    (tmp_path / "inference" / "fold_kernels.py").write_text(imports + "@njit()\ndef f(): ...\n")
    found = [path.name for path in kernel_sources(tmp_path)]
    assert found == ["fold_kernels.py", "limits.py", "words.py"]
