"""The location of compiled kernels between runs: one folder per node and state of the kernels' sources.

Numba's own cache notices a change in the file of a kernel, but not in a function that the kernel calls from another
file. Its index also has race conditions on shared file systems. A folder that is named after the node and the sources
avoids both problems.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

_MAX_FOLDERS = 4  # number of folders of this node that are kept; older ones are deleted
_PACKAGES = (
    "inference",
    "samplers",
    "formats",
    "dmcmc/formats",
)  # packages with kernels, in the source tree and in an installation
_DECORATORS = (b"njit", b"cuda.jit", b"cuda_jit")  # a file that contains one of these has kernels


def cache_root() -> Path:
    """Return the folder for this user's cached files: ``$XDG_CACHE_HOME/dmcmc``, or the platform's default."""
    return _cache_root(os.environ.get("XDG_CACHE_HOME"))


@lru_cache
def _cache_root(base: str | None) -> Path:
    """Return the folder for cached files, given the value of XDG_CACHE_HOME."""
    return Path(base) / "dmcmc" if base else user_cache_path("dmcmc", appauthor=False)


def kernel_cache() -> Path:
    """Return the folder for kernels compiled from the current sources."""
    return _kernel_cache(cache_root(), _sources()[0])


@lru_cache
def _kernel_cache(root: Path, sources: str) -> Path:
    """Return the kernel folder of this node, given the digest of the sources."""
    return root / f"kernels-{platform.node() or 'node'}-{sources}"


def kernel_folder() -> Path | None:
    """Return the folder for compiled kernels: ``NUMBA_CACHE_DIR`` or ``kernel_cache``; None if it cannot exist."""
    user_folder = os.environ.get("NUMBA_CACHE_DIR")
    return Path(user_folder) if user_folder else _existing_folder(kernel_cache())


def compiled_marker(what: str) -> Path | None:
    """Return the marker file whose existence says that certain kernels are compiled; None if there is no kernel folder.

    It lies in the kernel folder. Its name depends on everything that makes Numba compile the kernels again.
    """
    folder = kernel_folder()
    return None if folder is None else _marker(folder, what, _sources())


@lru_cache
def _marker(folder: Path, what: str, sources: tuple[str, int]) -> Path:
    """Return the path of a marker file."""
    from numba import __version__

    text = f"{what} {sources} {Path(__file__).resolve()} {sys.version} {__version__} {platform.node()}"
    return folder / f"warm-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@lru_cache
def _sources() -> tuple[str, int]:
    """Return a digest of the kernels' sources, and the time of their last change (nanoseconds since the epoch)."""
    digest, changed = hashlib.sha256(), 0
    for source in kernel_sources(Path(__file__).resolve().parents[2]):
        digest.update(source.name.encode() + source.read_bytes())
        changed = max(changed, source.stat().st_mtime_ns)
    return digest.hexdigest()[:16], changed


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


@lru_cache
def _existing_folder(folder: Path) -> Path | None:
    """Return a folder that exists, creating it if necessary; None if that is not possible."""
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if is_new:
        with suppress(OSError):  # another process may delete the same folders
            _prune(folder)
    return folder


def _prune(newest: Path) -> None:
    """Delete all but the newest kernel folders of this node."""
    prefix = newest.name.rsplit("-", 1)[0]
    folders = sorted(newest.parent.glob(f"{prefix}-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in folders[_MAX_FOLDERS:]:
        shutil.rmtree(old, ignore_errors=True)
