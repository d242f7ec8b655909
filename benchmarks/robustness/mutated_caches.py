"""Read mutated files of the cache: a compiled kernel and the measured rates of this machine.

Each mutation changes a file that the project has written: flipped bits, replaced, deleted, inserted or copied pieces,
a truncated or empty file, the bytes of another file, a folder in its place, or permissions for others. The file is then
read as a run reads it. An outcome is *unchanged* if the file is as it was (its contents must come back), *recovered* if
it is not used and one line at most is logged, and *wrong* otherwise: an error, a second line, or contents of a changed
file. The last lines repeat some mutations of the kernel with the compiler: the kernel must give the right result, its
file must be replaced, and another dispatcher must load it. All files are in a temporary folder.
"""

import logging
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, options
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.storage import cache_folders
from dmcmc.inference.storage.cache_folders import kernel_folder, stored_kernels
from dmcmc.samplers.auto import rates

_MUTATIONS = 10_000  # per file
_COMPILED = 100  # mutations of the kernel that are followed by a compilation
_LONGEST_PIECE = 64  # bytes
_OTHER_BYTES = b"\x93NUMPY\x01\x00" + bytes(100)  # the beginning of a file of another program
Mutation = Callable[[bytes, random.Random], bytes]


def _doubled(x: Any) -> Any:
    """Double a number: the kernel."""
    return 2 * x


class _Lines(logging.Handler):
    """Counts the warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning that is one line."""
        self.count += 1 + record.getMessage().count("\n")


def _piece(data: bytes, draw: random.Random) -> tuple[int, int]:
    """Return the start and stop of a piece of the data."""
    start = draw.randrange(len(data))
    return start, min(len(data), start + draw.randint(1, _LONGEST_PIECE))


def _flip(data: bytes, draw: random.Random) -> bytes:
    """Flip one bit."""
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _replace(data: bytes, draw: random.Random) -> bytes:
    """Replace a piece by random bytes."""
    start, stop = _piece(data, draw)
    return data[:start] + draw.randbytes(stop - start) + data[stop:]


def _delete(data: bytes, draw: random.Random) -> bytes:
    """Delete a piece."""
    start, stop = _piece(data, draw)
    return data[:start] + data[stop:]


def _insert(data: bytes, draw: random.Random) -> bytes:
    """Insert random bytes."""
    start, stop = _piece(data, draw)
    return data[:start] + draw.randbytes(stop - start) + data[start:]


def _copy(data: bytes, draw: random.Random) -> bytes:
    """Copy a piece to another place."""
    (start, stop), at = _piece(data, draw), draw.randrange(len(data))
    return data[:at] + data[start:stop] + data[at + stop - start :]


_CHANGES: dict[str, Mutation] = {
    "bit flipped": _flip,
    "piece replaced": _replace,
    "piece deleted": _delete,
    "piece inserted": _insert,
    "piece copied": _copy,
    "truncated": lambda data, draw: data[: draw.randrange(len(data))],
    "empty": lambda data, draw: b"",
    "zeros": lambda data, draw: data[: (start := draw.randrange(len(data)))] + bytes(len(data) - start),
    "longer": lambda data, draw: data + draw.randbytes(draw.randint(1, _LONGEST_PIECE)),
    "another program's": lambda data, draw: _OTHER_BYTES,
}
_PLACES = ("another file's", "a folder", "for all to write", "missing")


class _Target:
    """A file of the cache, and how a run reads it.

    Parameters
    ----------
    path : Path
        The file.
    other : bytes
        The contents of another valid file of the same kind.
    read : callable
        Returns what the file holds, or None if it is not used.
    right : callable
        Whether the result of ``read`` is what the unchanged file holds.
    """

    def __init__(self, path: Path, other: bytes, read: Callable[[], object], right: Callable[[object], bool]) -> None:
        self.path, self.read, self.right = path, read, right
        self._data, self._other = path.read_bytes(), other

    def restore(self) -> None:
        """Write the unchanged file."""
        if self.path.is_dir():
            self.path.rmdir()
        self.path.write_bytes(self._data)
        self.path.chmod(0o644)

    def mutate(self, kind: str, draw: random.Random) -> bool:
        """Apply a mutation; return whether it changes the file."""
        if kind in _CHANGES:
            changed = _CHANGES[kind](self._data, draw)
            self.path.write_bytes(changed)
            return changed != self._data
        if kind == "another file's":
            self.path.write_bytes(self._other)
        elif kind == "for all to write":
            self.path.chmod(0o666)
        else:
            self.path.unlink()
            if kind == "a folder":
                self.path.mkdir()
        return True

    def outcome(self, kind: str, draw: random.Random, lines: _Lines) -> str:
        """Apply a mutation, read the file, and restore it."""
        changed, lines.count = self.mutate(kind, draw), 0
        cache_folders._REPORTED.clear()
        try:
            found = self.read()
        except Exception as error:
            return f"wrong: {type(error).__name__}: {error}"
        finally:
            self.restore()
        if changed and found is None and lines.count <= 1:
            return "recovered"
        return "unchanged" if not changed and self.right(found) and lines.count == 0 else "wrong"


def _kernel_target() -> _Target:
    """Return the file of a compiled kernel."""
    kernel = njit()(_doubled)
    for value in (1, 1.5):
        kernel(value)
    signature = kernel.signatures[0]
    place, _ = kernel._cache._cache_file._place(kernel._cache._index_key(signature, kernel.targetctx.codegen()))
    (other,) = set(stored_kernels(place.parent)) - {place}
    return _Target(
        place,
        other.read_bytes(),
        lambda: njit()(_doubled)._cache.load_overload(signature, kernel.targetctx),
        lambda found: found is not None,
    )


def _rates_target() -> _Target:
    """Return the file of the rates."""
    stored, path = rates.NOMINAL, rates.rates_file()
    assert path is not None
    rates._write(path, stored)
    return _Target(path, path.read_bytes()[::-1], lambda: rates.read_rates(path), lambda found: found == stored)


def _compiled_again(target: _Target, kind: str, draw: random.Random) -> bool:
    """Apply a mutation of the kernel; return whether it is compiled, replaced and loaded."""
    changed = target.mutate(kind, draw)
    first, second = njit()(_doubled), njit()(_doubled)
    right = first(7) == second(7) == 14
    hits = [sum(kernel.stats.cache_hits.values()) for kernel in (first, second)]
    target.restore()
    return right and hits == ([0, 1] if changed else [1, 1])


def main() -> None:
    """Print the number of outcomes by file and mutation."""
    parser = options(__file__, __doc__)
    parser.add_argument("--mutations", type=int, default=_MUTATIONS, metavar="N", help="mutations of each file")
    given = parser.parse_args()
    report, draw, lines = Report(__file__, given), random.Random(0), _Lines()
    logger = logging.getLogger("dmcmc")
    logger.addHandler(lines)
    logger.propagate = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        os.environ.pop("NUMBA_CACHE_DIR", None)
        assert kernel_folder() is not None
        kinds = [*_CHANGES, *_PLACES]
        targets = {"kernel": _kernel_target(), "rates": _rates_target()}
        for name, target in targets.items():
            start, counts = time.perf_counter(), Counter[tuple[str, str]]()
            for number in range(given.mutations):
                kind = kinds[number % len(kinds)]
                counts[kind, target.outcome(kind, draw, lines)] += 1
            seconds = time.perf_counter() - start
            report(f"{name}: {given.mutations} mutations of {target.path.stat().st_size} bytes in {seconds:.0f} s")
            for (kind, outcome), count in sorted(counts.items()):
                report(f"  {kind:18} {outcome:10} {count:6}")
        kinds.remove("a folder")  # cannot be replaced
        right = [_compiled_again(targets["kernel"], kinds[n % len(kinds)], draw) for n in range(_COMPILED)]
        report(f"kernel: compiled, replaced and loaded after {sum(right)} of {len(right)} mutations")
        shutil.rmtree(folder, ignore_errors=True)
    report.keep()


if __name__ == "__main__":
    main()
