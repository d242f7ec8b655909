"""The folders of compiled kernels, their contents, and the state of the sources that names them.

The folders for what is kept between runs: compiled kernels and measured rates.

There is one kernel folder per node and version of the kernels' sources, Python and Numba. In the folder that
``DMCMC_CACHE_DIR`` names, there is one per type of processor instead of one per node, so that a container image or a
stored cache serves other machines too.

A folder to which somebody else can write is not used, because kernels are executed
(:mod:`dmcmc.inference.storage.checked_file`). Then, or if the folder cannot be made, a folder of this user below the
system's folder for temporary files takes its place; if that is unusable too, nothing is kept. Either is reported once
per process.

The state of the sources of all kernels, which names the folder of the kernels compiled from them.

Numba's own cache notices a change in the file of a kernel, but not in a function that the kernel calls from another
file.

Describe the contents of the folder for cached files: the number and the size of kernels, and the number of all.
"""

import glob
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from dmcmc.inference.storage.checked_file import folder_problem, open_replacement, parents_problem

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


CACHE_VARIABLE = "DMCMC_CACHE_DIR"
"""Environment variable that names the folder for cached files."""

_LOG = logging.getLogger(__name__)
_FILE_MODE = 0o644  # all users can read a marker file
_FOLDER_MODE = 0o755  # all users can read the folder, only its owner can write to it
KERNELS = "kernels"  # beginning of the names of kernel folders
_MARKER = "warm-"  # beginning of the names of marker files
_FEATURE_DIGITS = 8  # hexadecimal digits of the digest of a processor's features
_KEPT_FOLDERS = 4  # versions of the sources on this machine whose kernels are kept
_SUFFIX = ".kernel"  # of files with a compiled kernel
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}  # names of folders with installed packages
_REPORTED: set[str] = set()  # topics that this process has reported


class CacheFolders(NamedTuple):
    """The folders for cached files.

    Attributes
    ----------
    root : Path or None
        The folder for all cached files; None if no folder can be used.
    kernels : Path or None
        The folder in it for kernels compiled from the current sources.
    problem : str
        Why the preferred folder is not used, and the remedy; empty if it is used.
    """

    root: Path | None
    kernels: Path | None
    problem: str = ""


def kernel_folder() -> Path | None:
    """Return the folder for compiled kernels, which exists; None if no folder can be used."""
    return usable_folders().kernels


def usable_folders() -> CacheFolders:
    """Return the folders for cached files; report once per process if the preferred folder cannot be used."""
    found = find_folders()
    if found.problem:
        report_once("cache folder", found.problem)
    elif found.root is not None and (advice := package_advice(found.root)):
        report_once("cache folder", advice)
    return found


def find_folders() -> CacheFolders:
    """Return the folders for cached files, creating them if necessary."""
    variable, root = preferred_root()
    return _find_folders(variable, root, _temporary_root(), current_name(KERNELS))


def forget_folders() -> None:
    """Forget which folders were found and what was reported, as in a new process.

    Then a folder that has been made usable is used, and one that is still unusable is reported again.
    """
    _find_folders.cache_clear()
    _default_root.cache_clear()
    _REPORTED.clear()


def preferred_problem() -> str | None:
    """Return why the preferred folder for cached files cannot be used; None if it can. It is created if necessary."""
    return _open_folder(preferred_root()[1], current_name(KERNELS))


def preferred_root() -> tuple[str, Path]:
    """Return the environment variable that sets the folder for cached files, and the folder.

    This is ``DMCMC_CACHE_DIR``, or else ``NUMBA_CACHE_DIR``, or else ``$XDG_CACHE_HOME/dmcmc``, or else the platform's
    default; a relative path if the user has no home folder.
    """
    for variable, name in ((CACHE_VARIABLE, ""), ("NUMBA_CACHE_DIR", ""), ("XDG_CACHE_HOME", "dmcmc")):
        if os.environ.get(variable):
            return variable, Path(os.path.abspath(os.environ[variable]), name)
    try:
        return CACHE_VARIABLE, _default_root(os.environ.get("HOME"))
    except RuntimeError:  # there is no home folder
        return CACHE_VARIABLE, Path("~")


@lru_cache
def _default_root(home: str | None) -> Path:
    """Return the platform's folder for cached files of a user, whose home folder the environment names."""
    return user_cache_path("dmcmc", appauthor=False)


@lru_cache
def package_advice(root: Path) -> str:
    """Return a warning if a folder for cached files lies inside installed packages; empty if it does not."""
    if _PACKAGE_FOLDERS.isdisjoint(Path(os.path.realpath(root)).parts):
        return ""
    reason = f"compiled kernels are kept in {root}, inside installed packages, where an update can delete them"
    return f"{reason}; set {CACHE_VARIABLE} to another folder"


def current_name(kind: str) -> str:
    """Return the name of what is kept of a kind, such as ``kernels``, for this machine and the current versions."""
    return f"{_node_prefix(kind)}{sources_digest()}-{_compiler_versions()}"


@lru_cache
def _compiler_versions() -> str:
    """Return the versions of Python and Numba, in a form for names of files."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}-numba{metadata.version('numba')}"


def all_versions(root: Path, kind: str) -> list[Path]:
    """Return what a folder keeps of a kind for this machine, for all versions of the sources, Python and Numba."""
    return list(root.glob(f"{glob.escape(_node_prefix(kind))}{'[0-9a-f]' * DIGEST_DIGITS}*"))


def _node_prefix(kind: str) -> str:
    """Return the beginning of the names of what is kept of a kind for this machine."""
    return f"{kind}-{_machine()}-"


def _machine() -> str:
    """Return the name of this machine in the names of cached files: its node, or its type of processor.

    The type of processor is used in the folder that ``DMCMC_CACHE_DIR`` names.
    """
    if os.environ.get(CACHE_VARIABLE):
        return _processor(os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    return platform.node() or "node"


@lru_cache
def _processor(name: str | None, features: str | None) -> str:
    """Return the type of processor that kernels are compiled for: its name and a digest of its features.

    Parameters
    ----------
    name, features : str or None
        Those that are given to Numba; None for those of this machine.
    """
    from llvmlite import binding  # imported late: it is needed for this folder only

    name = name or binding.get_host_cpu_name()
    text = features if features is not None else binding.get_host_cpu_features().flatten()
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:_FEATURE_DIGITS]}"


def kernel_file(folder: Path, name: str, digest: str) -> Path:
    """Return the file of a compiled kernel, given its name and a digest of all that it depends on."""
    return folder / f"{name}-{digest}{_SUFFIX}"


def stored_kernels(folder: Path, name: str = "") -> list[Path]:
    """Return the files of the compiled kernels in a folder, or of one kernel."""
    return list(folder.glob(f"{name}-*{_SUFFIX}" if name else f"*{_SUFFIX}"))


def compiled_marker(what: str) -> Path | None:
    """Return the marker file whose existence says that certain kernels are compiled; None if there is no kernel folder.

    It lies in the kernel folder. Its name depends on everything that makes Numba compile the kernels again.
    """
    folder = kernel_folder()
    return None if folder is None else _marker(folder, what, sources_digest(), _machine())


def put_marker(marker: Path) -> None:
    """Create a marker file; without it, the next run compiles the same kernels again."""
    try:
        marker.touch(mode=_FILE_MODE)
    except OSError as error:
        report_unsaved(str(marker.parent), error.strerror or str(error))


def delete_markers(folder: Path) -> None:
    """Delete all marker files of a kernel folder, because kernels are missing; what follows compiles ahead again."""
    for marker in folder.glob(f"{_MARKER}*"):
        with suppress(OSError):
            marker.unlink()


@lru_cache
def _marker(folder: Path, what: str, sources: str, machine: str) -> Path:
    """Return the path of a marker file."""
    from numba import __version__

    text = f"{what} {sources} {sys.version} {__version__} {machine}"
    return folder / f"{_MARKER}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, all writable by this user only; do nothing if it exists.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")


def report_unsaved(folder: str, reason: str) -> None:
    """Report that a file cannot be stored in the folder for cached files."""
    variable, _ = preferred_root()
    remedy = f"free some space, or set {variable} to another folder that only you can write to"
    report_once("unsaved", f"compiled kernels cannot be stored in {folder} ({reason}); {remedy}")


def report_once(topic: str, text: str) -> None:
    """Log a warning about cached files, at most once per process and topic."""
    if topic not in _REPORTED:
        _REPORTED.add(topic)
        _LOG.warning("dmcmc: %s", text)


@lru_cache
def _find_folders(variable: str, root: Path, temporary: Path | None, name: str) -> CacheFolders:
    """Return the folders for cached files.

    Parameters
    ----------
    variable : str
        The environment variable that sets the preferred folder, for the message.
    root : Path
        The preferred folder for all cached files.
    temporary : Path or None
        The folder that is used if ``root`` cannot be used.
    name : str
        The name of the kernel folder.
    """
    problem = _open_folder(root, name)
    if problem is None:
        return CacheFolders(root, root / name)
    remedy = f"set {variable} to a folder that only you can write to"
    if temporary is None or _open_folder(temporary, name) is not None:
        consequence = "no compiled kernels are kept, so every process compiles its own"
        return CacheFolders(None, None, f"{consequence}: {problem}; {remedy}")
    return CacheFolders(temporary, temporary / name, f"compiled kernels are kept in {temporary}: {problem}; {remedy}")


def _open_folder(root: Path, name: str) -> str | None:
    """Create a kernel folder, if necessary; return why it cannot be used, or None if it can."""
    if not root.is_absolute():
        return "there is no home folder"
    folder = root / name
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        is_new = existing != folder
        if is_new:  # nothing is created in a folder of somebody else
            problem = parents_problem(existing / name)
            if problem is not None:
                return problem
            make_folder(folder)
        problem = folder_problem(folder)
        if problem is None and not os.access(folder, os.R_OK | os.X_OK):
            problem = f"{folder} cannot be read"
    except (OSError, ValueError) as error:
        return f"{root} cannot be used ({getattr(error, 'strerror', None) or error})"
    if problem is None and is_new:
        with suppress(OSError):  # another process may delete the same folders
            _prune(folder)
    return problem


def _temporary_root() -> Path | None:
    """Return this user's folder below the system's folder for temporary files; None if there is none."""
    try:
        return Path(tempfile.gettempdir(), f"dmcmc-{os.getuid() if hasattr(os, 'getuid') else 'cache'}")
    except OSError:
        return None


def _prune(newest: Path) -> None:
    """Delete all but the newest kernel folders of this machine."""
    folders = sorted(all_versions(newest.parent, KERNELS), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in folders[_KEPT_FOLDERS:]:
        shutil.rmtree(old, ignore_errors=True)


_TOTAL_FILE = "number-of-kernels"  # name of the file with the number of kernels after the last complete warm-up
_MODE = 0o644  # all users can read the file, only its owner can write to it


class StoredKernels(NamedTuple):
    """The compiled kernels in some folders.

    Attributes
    ----------
    number : int
        Number of files.
    size : int
        Their size in bytes.
    """

    number: int
    size: int

    def __str__(self) -> str:
        """Return the number and the size as text.

        >>> str(StoredKernels(3, 1 << 20))
        '3 (1.0 MiB)'
        """
        return f"{self.number} ({self.size / 2**20:.1f} MiB)"


def describe_cache() -> dict[str, str]:
    """Return the folder for cached files and its contents for people, as ``dmcmc info`` shows them.

    Returns
    -------
    dict
        ``cache``: the folder, whether it can be written to, and what is wrong with it; ``kernels``: the compiled
        kernels of the current versions; ``outdated kernels``: those of other versions, if there are any.
    """
    found = find_folders()
    if found.root is None or found.kernels is None:
        return {"cache": f"none: {found.problem}", "kernels": "0"}
    current = count_kernels([found.kernels])
    others = count_kernels(folder for folder in all_versions(found.root, KERNELS) if folder != found.kernels)
    total = total_kernels(found.root)
    count = f"{current.number} of about {total}" if current.number < total else str(current.number)
    versions = f"dmcmc {_version('dmcmc')} (sources {sources_digest()}) and Numba {_version('numba')}"
    rows = {"cache": _folder_text(found), "kernels": f"{count} ({current.size / 2**20:.1f} MiB) for {versions}"}
    return rows | ({"outdated kernels": str(others)} if others.number else {})


def count_kernels(folders: Iterable[Path]) -> StoredKernels:
    """Return the number and the size of the compiled kernels in some folders."""
    sizes = list[int]()
    for folder in folders:
        for path in stored_kernels(folder):
            with suppress(OSError):  # another process may delete old kernels
                sizes.append(path.stat().st_size)
    return StoredKernels(len(sizes), sum(sizes))


def total_kernels(root: Path) -> int:
    """Return how many kernels there were after the last complete warm-up, of any version; 0 if that is not known."""
    with suppress(OSError, ValueError):
        return int((root / _TOTAL_FILE).read_text(encoding="ascii"))
    return 0


def store_total(found: CacheFolders) -> None:
    """Store the number of kernels after a complete warm-up."""
    if found.root is None or found.kernels is None:
        return
    try:
        with open_replacement(found.root / _TOTAL_FILE, synced=False, mode=_MODE) as stream:
            stream.write(str(len(stored_kernels(found.kernels))).encode())
    except OSError as error:
        report_unsaved(str(found.root), error.strerror or str(error))


def _folder_text(found: CacheFolders) -> str:
    """Return the folder for cached files, and what is wrong with it."""
    assert found.root is not None and found.kernels is not None
    writable = os.access(found.root, os.W_OK) and os.access(found.kernels, os.W_OK)
    text = f"{found.root} ({'writable' if writable else 'read-only: new kernels are not stored'})"
    problem = found.problem or package_advice(found.root)
    return f"{text}; {problem}" if problem else text


def _version(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
