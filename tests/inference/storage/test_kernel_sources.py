"""The folder of compiled kernels depends on their sources, including constants from other files."""

from pathlib import Path

from dmcmc.inference.storage.cache_folders import kernel_sources

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_with_compiled_code_is_a_source():
    kernels = {path for package in ("inference", "samplers") for path in (ROOT / package).rglob("*_kernels.py")}
    assert kernels - {path for path in kernels if "jit" not in path.read_text()} <= set(kernel_sources(ROOT))


def test_files_with_compiled_in_constants_are_sources(tmp_path):
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "descriptors.py").write_text("HEADER = 7\n")
    (tmp_path / "inference" / "limits.py").write_text("MAX_ROWS = 3\n")
    (tmp_path / "inference" / "other.py").write_text("from dmcmc.inference.descriptors import HEADER\n")
    imports = "from dmcmc.inference import descriptors as d\nfrom dmcmc.inference.limits import (\n    MAX_ROWS,\n)\n"
    (tmp_path / "inference" / "fold_kernels.py").write_text(imports + "@njit()\ndef f(): ...\n")
    found = [path.name for path in kernel_sources(tmp_path)]
    assert found == ["descriptors.py", "fold_kernels.py", "limits.py"]
