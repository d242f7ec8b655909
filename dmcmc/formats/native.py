"""The native problem file: an ``.npz`` archive of a few flat arrays, no pickle.

==================  ========================================================================================
``text``            uint8, UTF-8 of one JSON object: format, version, sense, name, variables, agents, labels,
                    factors (names; absent if none has one)
``domains``         int64 (n,), domain sizes
``owner``           int64 (n,), agent of each variable
``scope_start``     int64 (m + 1,), factor f has the scope ``scopes[scope_start[f]:scope_start[f + 1]]``
``scopes``          int64, variable indices
``kind``            uint8 (m,), where the table is: 0 ``tables_int32``, 1 ``tables_int64``, 2 ``tables_float64``;
                    3 to 5 likewise for a sparse factor: the utilities of its tuples, and last the default
``tables_*``        utilities (costs are stored negated), one table after another in factor order, C order
``listed``          int64, how many tuples each sparse factor lists (where there are any, and the version is 2)
``tuples``          int32, their value indices, one factor after another, C order
==================  ========================================================================================

Equal problems give equal bytes (with one zlib). :func:`load` also reads the simpler layout of binary benchmark
problems: ``agent`` (n,), ``dom`` (n,), ``edges`` (m, 2), ``tables`` (concatenated), ``meta`` (JSON string, optional).
"""

import contextlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import IO, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.files.archive import BROKEN, Archive
from dmcmc.files.write import writing
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import FileError, ProblemError
from dmcmc.inference.runtime.types import Array

_KINDS = ("int32", "int64", "float64")
_MOST_AXES = 64  # of a dense table


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["dmcmc problem"]
    version: Literal[1, 2]
    sense: Literal["max", "min"]
    name: str
    variables: tuple[str, ...]
    agents: tuple[str, ...]
    labels: tuple[tuple[Label, ...] | None, ...] = ()
    factors: tuple[str, ...] | None = None


def save(problem: Problem, path: str | os.PathLike[str]) -> None:
    """Write a problem, whole or not at all: a killed run leaves no partial file under this name.

    Raises
    ------
    FileError
        If the file cannot be written, or a label is not a string, integer or float.
    """
    text = _text_for(problem, path)
    with writing(path) as stream:
        _write(problem, text, stream)


def packed(problem: Problem, path: str | os.PathLike[str]) -> bytes:
    """Return what :func:`save` writes; the path is for what is said where that cannot be."""
    stream = io.BytesIO()
    _write(problem, _text_for(problem, path), stream)
    return stream.getvalue()


def _text_for(problem: Problem, path: str | os.PathLike[str]) -> bytes:
    try:
        return _text(problem)
    except TypeError as error:
        reason = f"labels must be strings, integers or floats ({error})"
        raise FileError(f"{os.fspath(path)}: cannot be written: {reason}") from None


def _text(problem: Problem) -> bytes:
    """Return names and labels as ASCII JSON, which keeps int and float apart."""
    version = 2 if any(isinstance(factor, SparseFactor) for factor in problem.factors) else 1
    text: dict[str, object] = {"format": "dmcmc problem", "version": version}
    text |= {"sense": problem.sense, "name": problem.name}
    text |= {"variables": problem.variables, "agents": problem.agents}
    if any(labels is not None for labels in problem.labels):
        text["labels"] = problem.labels
    if any(factor.name for factor in problem.factors):
        text["factors"] = [factor.name for factor in problem.factors]
    return json.dumps(text, separators=(",", ":")).encode("ascii")


def _write(problem: Problem, text: bytes, stream: IO[bytes]) -> None:
    factors = problem.factors
    sparse = [f for f in factors if isinstance(f, SparseFactor)]
    tables = [f.utilities if isinstance(f, SparseFactor) else f.table for f in factors]
    arities = np.array([0] + [len(f.scope) for f in factors], dtype=np.int64)
    flat: dict[str, Array] = {
        "text": np.frombuffer(text, dtype=np.uint8),
        "domains": problem.domains,
        "owner": problem.owner,
        "scope_start": np.cumsum(arities),
        "scopes": np.array([v for f in factors for v in f.scope], dtype=np.int64),
        "kind": np.array([_kind(f, t) for f, t in zip(factors, tables, strict=True)], dtype=np.uint8),
    }
    if sparse:
        flat["listed"] = np.array([len(f.tuples) for f in sparse], dtype=np.int64)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in flat.items():
            _write_array(file, name, array.dtype, [array])
        for kind in _KINDS:
            _write_array(file, f"tables_{kind}", np.dtype(kind), [t for t in tables if t.dtype.name == kind])
        if sparse:
            _write_array(file, "tuples", np.dtype(np.int32), [f.tuples for f in sparse])


def _kind(factor: Factor, table: Array) -> int:
    return _KINDS.index(table.dtype.name) + len(_KINDS) * isinstance(factor, SparseFactor)


def _write_array(file: zipfile.ZipFile, name: str, dtype: np.dtype[np.generic], parts: Iterable[Array]) -> None:
    """Write the parts as one flat little-endian array, without joining them in memory first."""
    parts = list(parts)
    count = sum(part.size for part in parts)
    little = dtype.newbyteorder("<")
    info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # the same bytes on every system
    info.external_attr = 0o644 << 16
    info.file_size = 128 + count * dtype.itemsize  # decides on zip64
    with file.open(info, "w") as member:
        header = {"descr": little.str, "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(member, header)  # type: ignore[no-untyped-call,unused-ignore]
        for part in parts:
            member.write(np.ascontiguousarray(part, dtype=little).reshape(-1).view(np.uint8).data)


def load(path: str | os.PathLike[str]) -> Problem:
    """Read a problem.

    Raises
    ------
    FileError
        If the file is missing, no ``.npz`` archive, damaged, larger than the memory, or an array in it does not fit.
    ProblemError
        If the arrays are sound but not a problem.
    """
    where = Path(path)
    try:
        if where.is_dir():
            raise FileError(f"{where}: is a folder; a problem file (.npz) is needed")
        with open(where, "rb") as stream, zipfile.ZipFile(stream) as file:
            archive = Archive(file, where)
            layout = _load_native if "text" in archive.members else _load_edges
            return layout(archive)
    except FileNotFoundError:
        raise FileError(f"{where}: no such file") from None
    except ProblemError as error:
        raise ProblemError(f"{where}: {' '.join(str(error).split())}") from None
    except MemoryError:
        raise FileError(f"{where}: does not fit the memory") from None
    except OSError as error:
        raise FileError(f"{where}: cannot be read: {error.strerror or error}") from None
    except BROKEN as error:
        raise FileError(f"{where}: not a whole .npz archive: {str(error) or type(error).__name__}") from None


def _load_native(archive: Archive) -> Problem:
    text = _read_text(archive)
    domains, owner, start, scopes = (
        archive.array(name, "<i8") for name in ("domains", "owner", "scope_start", "scopes")
    )
    kind = archive.array("kind", "|u1")
    n, m = len(text.variables), len(kind)
    if len(domains) != n:
        raise archive.fail("domains", f"has {len(domains)} entries for {n} variables")
    if domains.min(initial=1) < 1:
        raise archive.fail("domains", f"has the size {domains.min()}; each is at least 1")
    if len(start) != m + 1 or start[0] != 0 or start[-1] != len(scopes) or (np.diff(start) < 0).any():
        raise archive.fail("scope_start", f"must rise from 0 to {len(scopes)} in {m + 1} entries, one more than 'kind'")
    widest = np.diff(start)[kind < len(_KINDS)].max(initial=0)
    if widest > _MOST_AXES:
        raise archive.fail("scope_start", f"has a factor of {widest} variables; at most {_MOST_AXES}")
    if len(scopes) and (scopes.min() < 0 or scopes.max() >= n):
        raise archive.fail("scopes", f"must hold variables 0..{n - 1}, not {scopes.min()}..{scopes.max()}")
    most = len(_KINDS) * text.version
    if kind.max(initial=0) >= most:
        raise archive.fail("kind", f"must hold 0..{most - 1}, not {kind.max()}")
    names = ("",) * m if text.factors is None else text.factors
    if len(names) != m:
        raise archive.fail("text", f"names {len(names)} factors of {m}")
    sizes, ends, variables = domains.tolist(), start.tolist(), scopes.tolist()
    scope = [tuple(variables[ends[f] : ends[f + 1]]) for f in range(m)]
    shapes = [tuple(sizes[v] for v in s) for s in scope]
    sparse = np.flatnonzero(kind >= len(_KINDS)).tolist()
    listed = dict(zip(sparse, _listed(archive, len(sparse)), strict=True))
    stored = [(listed[f] + 1,) if f in listed else shape for f, shape in enumerate(shapes)]
    tables = _tables(archive, stored, (kind % len(_KINDS)).tolist())
    rows = _rows(archive, [(count, shapes[f]) for f, count in listed.items()])
    tuples = dict(zip(sparse, rows, strict=True))
    factors = tuple(
        SparseFactor(scope[f], shapes[f], tuples[f], tables[f], names[f])
        if f in tuples
        else Factor(scope[f], tables[f], names[f])
        for f in range(m)
    )
    return Problem(text.variables, domains, text.agents, owner, factors, text.labels, text.sense, text.name)


def _read_text(archive: Archive) -> _Text:
    try:
        return msgspec.convert(json.loads(archive.array("text", "|u1").tobytes()), _Text)
    except (ValueError, RecursionError) as error:  # a ValidationError is a ValueError
        raise archive.fail("text", f"is not the header of a problem file: {error}") from None


def _listed(archive: Archive, count: int) -> list[int]:
    """Return how many tuples each sparse factor lists."""
    if not count:
        return []
    listed = archive.array("listed", "<i8")
    if len(listed) != count or listed.min() < 0:
        raise archive.fail("listed", f"must hold {count} whole numbers, one a sparse factor")
    return cast(list[int], listed.tolist())


def _rows(archive: Archive, sizes: list[tuple[int, tuple[int, ...]]]) -> list[NDArray[np.int32]]:
    """Return the tuples of each sparse factor: distinct, in order, inside the domains."""
    if not sizes:
        return []
    flat, used, found = archive.array("tuples", "<i4"), 0, []
    needed = sum(count * len(shape) for count, shape in sizes)
    if flat.size != needed:
        raise archive.fail("tuples", f"has {flat.size} entries; the scopes need {needed}")
    for count, shape in sizes:
        rows = flat[used : used + count * len(shape)].reshape(count, len(shape))
        used += rows.size
        if ((rows < 0) | (rows >= np.array(shape, dtype=np.int64))).any():
            raise archive.fail("tuples", "has a value outside its domain")
        order = np.lexsort(rows.T[::-1]) if shape else np.arange(count)
        if (order != np.arange(count)).any() or (count > 1 and not (rows[1:] != rows[:-1]).any(axis=1).all()):
            raise archive.fail("tuples", "must be in lexicographic order, each only once")
        found.append(rows)
    return found


def _tables(archive: Archive, shapes: list[tuple[int, ...]], kinds: list[int]) -> list[Array]:
    """Return each factor's table as a view into the array of its dtype."""
    counts = [math.prod(shape) for shape in shapes]
    flat = [archive.array(f"tables_{name}", np.dtype(name).newbyteorder("<").str) for name in _KINDS]
    for k, name in enumerate(_KINDS):
        needed = sum(count for count, kind in zip(counts, kinds, strict=True) if kind == k)
        if flat[k].size != needed:
            raise archive.fail(f"tables_{name}", f"has {flat[k].size} entries; the scopes need {needed}")
    if np.isnan(flat[2]).any() or np.isposinf(flat[2]).any():
        raise archive.fail("tables_float64", "contains NaN or +inf; utilities are finite or -inf")
    tables, used = [], [0] * len(_KINDS)
    for shape, count, k in zip(shapes, counts, kinds, strict=True):
        tables.append(flat[k][used[k] : used[k] + count].reshape(shape))
        used[k] += count
    return tables


def _load_edges(archive: Archive) -> Problem:
    """Read the layout of binary benchmark problems: every factor on two variables, all tables in one array."""
    owner, domains, edges = archive.array("agent", "iu"), archive.array("dom", "iu"), archive.array("edges", "iu", 2)
    n = len(domains)
    if domains.min(initial=1) < 1:
        raise archive.fail("dom", f"has the size {domains.min()}; each is at least 1")
    if len(owner) != n:
        raise archive.fail("agent", f"has {len(owner)} entries for {n} variables")
    if n and (owner.min() < 0 or owner.max() >= n):
        raise archive.fail("agent", f"must hold agents 0..{n - 1}, not {owner.min()}..{owner.max()}")
    if edges.shape[1] != 2:
        raise archive.fail("edges", f"has shape {edges.shape}; (m, 2) is needed")
    if edges.size and (edges.min() < 0 or edges.max() >= n):
        raise archive.fail("edges", f"must hold variables 0..{n - 1}, not {edges.min()}..{edges.max()}")
    given, sizes = archive.array("tables", "iuf"), domains.tolist()
    scopes = [(u, v) for u, v in edges.tolist()]
    ends = list(accumulate((sizes[u] * sizes[v] for u, v in scopes), initial=0))
    if given.size != ends[-1]:
        raise archive.fail("tables", f"has {given.size} entries; the edges need {ends[-1]}")
    whole = normalise(given, where="array 'tables'")
    factors = []
    for (u, v), first, last in zip(scopes, ends, ends[1:], strict=False):
        part = whole[first:last].reshape(sizes[u], sizes[v])
        # int32 is as narrow as it gets; a part of a wider array may be narrower alone.
        factors.append(Factor((u, v), part) if whole.dtype == np.int32 else Factor.of((u, v), part))
    variables, agents = tuple(f"x{i}" for i in range(n)), tuple(f"a{i}" for i in range(int(owner.max(initial=-1)) + 1))
    return Problem(variables, domains, agents, owner, tuple(factors), name=_name(archive))


def _name(archive: Archive) -> str:
    """Return the name in ``meta``, or else the file's."""
    if "meta" in archive.members:
        with contextlib.suppress(ValueError, RecursionError):
            meta = json.loads(str(archive.array("meta", "U", 0)))
            if isinstance(meta, dict) and isinstance(meta.get("name"), str):
                return str(meta["name"])
    return archive.path.stem
