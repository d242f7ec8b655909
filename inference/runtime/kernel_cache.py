"""Where compiled kernels are kept between runs: one folder a node and a state of the kernels' sources.

Numba's own cache notices a change in the file of a kernel, but not one in a function that the kernel calls from
another file, and its index races on shared file systems. A folder named after both settles both.
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

_KEEP = 4  # older folders of this node are deleted
_PACKAGES = ("inference", "samplers", "formats", "dmcmc/formats")  # where kernels live, installed and in the sources
_COMPILED = (b"njit", b"cuda.jit", b"cuda_jit")


def cache_root() -> Path:
    """Return the folder for this user's cached files, where the platform has them; XDG_CACHE_HOME goes before that."""
    return _cache_root(os.environ.get("XDG_CACHE_HOME"))


@lru_cache
def _cache_root(base: str | None) -> Path:
    return Path(base) / "dmcmc" if base else user_cache_path("dmcmc", appauthor=False)


def kernel_cache() -> Path:
    """Return our folder for the kernels as they are now."""
    return _kernel_cache(cache_root(), _sources()[0])


@lru_cache
def _kernel_cache(root: Path, sources: str) -> Path:
    return root / f"kernels-{platform.node() or 'node'}-{sources}"


def kernel_folder() -> Path | None:
    """Return the folder that kernels go to: the user's ``NUMBA_CACHE_DIR``, or ours; None if neither can be had."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    return Path(own) if own else _made(kernel_cache())


def warm_marker(what: str) -> Path | None:
    """Return the file that says, if it exists, that the kernels for something have been compiled; None for no place.

    It stands beside the kernels and is named after all that makes Numba compile them again.
    """
    folder = kernel_folder()
    return None if folder is None else _marker(folder, what, _sources())


@lru_cache
def _marker(folder: Path, what: str, sources: tuple[str, int]) -> Path:
    """Return a marker in a folder."""
    from numba import __version__

    text = f"{what} {sources} {Path(__file__).resolve()} {sys.version} {__version__} {platform.node()}"
    return folder / f"warm-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@lru_cache
def _sources() -> tuple[str, int]:
    """Return a digest of the kernels' sources, and when the last one was written (nanoseconds)."""
    digest, changed = hashlib.sha256(), 0
    for source in kernel_sources(Path(__file__).resolve().parents[2]):
        digest.update(source.name.encode() + source.read_bytes())
        changed = max(changed, source.stat().st_mtime_ns)
    return digest.hexdigest()[:16], changed


def kernel_sources(root: Path) -> list[Path]:
    """Return the files that compiled code comes from, and those that they import: their constants are compiled in.

    Parameters
    ----------
    root
        The folder with ``inference`` and ``samplers``: that of the sources, or the installed package.
    """
    found: set[Path] = set()
    for name in _PACKAGES:
        for source in (root / name).rglob("*.py"):
            text = source.read_bytes()
            if any(word in text for word in _COMPILED):
                found.add(source)
                found |= _imported(text.decode(), root)
    return sorted(found)


def _imported(text: str, root: Path) -> set[Path]:
    """Return our files that a text imports names from, or as modules."""
    files = set()
    for module, names in re.findall(r"^from dmcmc\.([\w.]+) import (\([^)]*\)|.+)", text, re.MULTILINE):
        folder = root.joinpath(*module.split("."))
        beside = (folder / name for name in re.findall(r"\w+", names))
        files |= {path for stem in (folder, *beside) if (path := stem.with_suffix(".py")).is_file()}
    return files


@lru_cache
def _made(folder: Path) -> Path | None:
    """Return a folder that is there, made if need be; None where that is not possible."""
    try:
        new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if new:
        with suppress(OSError):  # another process may be deleting them
            _prune(folder)
    return folder


def _prune(newest: Path) -> None:
    """Delete all but the newest folders of this node."""
    prefix = newest.name.rsplit("-", 1)[0]
    folders = sorted(newest.parent.glob(f"{prefix}-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in folders[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
