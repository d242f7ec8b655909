"""Describe the contents of the folder for cached files: the number and the size of kernels, and the number of all."""

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from dmcmc.inference.storage.cache_folders import (
    KERNELS,
    CacheFolders,
    all_versions,
    find_folders,
    package_advice,
    report_unsaved,
    sources_digest,
    stored_kernels,
)
from dmcmc.inference.storage.checked_file import open_replacement

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
