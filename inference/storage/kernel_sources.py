"""The state of the sources of all kernels, which names the folder of the kernels compiled from them.

Numba's own cache notices a change in the file of a kernel, but not in a function that the kernel calls from another
file.
"""

import hashlib
import re
from functools import lru_cache
from pathlib import Path

_PACKAGES = (
    "inference",
    "samplers",
    "formats",
    "dmcmc/formats",
)  # packages with kernels, in the source tree and in an installation
DIGEST_DIGITS = 16  # hexadecimal digits of the digest
_DECORATORS = (b"njit", b"cuda.jit", b"cuda_jit")  # a file that contains one of these has kernels


@lru_cache
def sources_digest() -> str:
    """Return a digest of the sources of all kernels."""
    digest = hashlib.sha256()
    for source in kernel_sources(Path(__file__).resolve().parents[2]):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:DIGEST_DIGITS]


def kernel_sources(root: Path) -> list[Path]:
    """Return the files with compiled code and the files that they import, whose constants are compiled in.

    Parameters
    ----------
    root : Path
        The folder that contains ``inference`` and ``samplers``: the source tree or the installed package.

    Returns
    -------
    list of Path
        The files, sorted.
    """
    found: set[Path] = set()
    for name in _PACKAGES:
        for source in (root / name).rglob("*.py"):
            text = source.read_bytes()
            if any(word in text for word in _DECORATORS):
                found.add(source)
                found |= _imported(text.decode(), root)
    return sorted(found)


def _imported(text: str, root: Path) -> set[Path]:
    """Return our files from which a source text imports names or modules."""
    files = set()
    for module, names in re.findall(r"^from dmcmc\.([\w.]+) import (\([^)]*\)|.+)", text, re.MULTILINE):
        folder = root.joinpath(*module.split("."))
        submodules = (folder / name for name in re.findall(r"\w+", names))
        files |= {path for stem in (folder, *submodules) if (path := stem.with_suffix(".py")).is_file()}
    return files
