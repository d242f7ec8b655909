"""The native problem file.

Read and write the native problem file: an ``.npz`` archive of a few flat arrays, without pickle.

==================  ========================================================================================
``text``            uint8, UTF-8 of one JSON object: format, version, sense, name, variables, agents, labels,
                    factors (names; absent if no factor has a name), levels and level_of (absent without levels)
``domains``         int64 (n,), domain sizes
``owner``           int64 (n,), agent of each variable
``scope_start``     int64 (m + 1,), factor f has the scope ``scopes[scope_start[f]:scope_start[f + 1]]``
``scopes``          int64, variable indices
``kind``            uint8 (m,), array that holds the table: 0 ``tables_int32``, 1 ``tables_int64``,
                    2 ``tables_float64``; 3 to 5 likewise for a sparse factor, whose entries are the utilities
                    of its tuples followed by the default; 6 for a global constraint or an automaton, whose
                    record is in ``text`` (``constraints``; only in files of version 3, which have some)
``tables_*``        utilities (costs are stored negated), the tables concatenated in factor order, C order
``listed``          int64, number of tuples of each sparse factor (only in files of version 2, which have some)
``tuples``          int32, value indices of these tuples, concatenated in factor order, C order
``parameters_*``    int64 and float64, the parameters of global constraints and automata
                    (:mod:`dmcmc.formats.native`)
==================  ========================================================================================

Equal problems give identical bytes (with the same zlib). :func:`load` also reads the simpler layout of binary benchmark
problems: ``agent`` (n,), ``dom`` (n,), ``edges`` (m, 2), ``tables`` (concatenated), ``meta`` (JSON string, optional).

Global constraints and automata in the native problem file: records of a JSON object, and two arrays of numbers.

A record has the class (``kind``), the cost per unit of violation (null for a hard constraint) and the parameters. An
array among the parameters is written as ``{"array": [type, first, shape]}``: it is a part of the flat array
``parameters_int64`` (type ``i``) or ``parameters_float64`` (type ``f``).
"""

import contextlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Archive, open_archive
from dmcmc.files.write import open_packed_atomically
from dmcmc.formats.common.factor_entries import claim_structures
from dmcmc.inference.constraints import registry
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, Layer, SumBounds
from dmcmc.inference.model.factor import Factor, Level
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ConfigError, FileError, OutOfMemory, ProblemError
from dmcmc.inference.runtime.types import Array

_AUTOMATON = "automaton"  # the class of automata in files
_TYPES = {"i": np.dtype(np.int64), "f": np.dtype(np.float64)}
ARRAYS = {"i": "parameters_int64", "f": "parameters_float64"}
"""Names of the flat arrays by type."""


class ConstraintRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A global constraint or automaton in the header of a file.

    Attributes
    ----------
    kind : str
        Name of the class, or ``automaton``.
    cost : int, float or None
        Cost per unit of violation; None for a hard constraint and for an automaton.
    parameters : dict
        Parameters by name; arrays as references.
    """

    kind: str
    cost: int | float | None
    parameters: dict[str, Any]


class ParameterWriter:
    """Collects the arrays of all records.

    Attributes
    ----------
    arrays : dict of str to list of ndarray
        The arrays by type, in the order in which they are written.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, list[Array]] = {"i": [], "f": []}
        self._used = {"i": 0, "f": 0}

    def record(self, factor: Factor) -> dict[str, Any]:
        """Return the record of a global constraint or an automaton as a JSON object."""
        if isinstance(factor, GlobalConstraint):
            return {"kind": factor.kind, "cost": factor.cost, "parameters": self._plain(factor.parameters())}
        assert isinstance(factor, AutomatonFactor)
        bounds = factor.sum_bounds
        parameters = {
            "following": [layer.following for layer in factor.layers],
            "utility": [layer.utility for layer in factor.layers],
            "sum_bounds": None if bounds is None else [list(bounds.weights), bounds.low, bounds.high],
        }
        return {"kind": _AUTOMATON, "cost": None, "parameters": self._plain(parameters)}

    def _plain(self, value: Any) -> Any:
        """Return parameters with references in place of arrays."""
        if isinstance(value, Mapping):
            return {name: self._plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(part) for part in value]
        if not isinstance(value, np.ndarray):
            return value.item() if isinstance(value, np.generic) else value
        kind = "f" if value.dtype.kind == "f" else "i"
        lowest = np.iinfo(value.dtype).min if value.dtype == np.int32 else None
        wide = value.astype(_TYPES[kind])
        if lowest is not None:
            wide[value == lowest] = np.iinfo(np.int64).min  # −∞
        first = self._used[kind]
        self._used[kind] += wide.size
        self.arrays[kind].append(wide)
        return {"array": [kind, first, list(value.shape)]}


def read_constraints(
    archive: Archive,
    records: Sequence[ConstraintRecord],
    places: Sequence[tuple[tuple[int, ...], tuple[int, ...], str]],
) -> list[Factor]:
    """Return the factors of records, given the scope, the shape and the name of each.

    Raises
    ------
    FileError
        If a record is damaged, or its class is unknown.
    """
    if not records:
        return []
    flat = {kind: archive.array(name, _TYPES[kind].newbyteorder("<").str) for kind, name in ARRAYS.items()}
    found: list[Factor] = []
    for record, (scope, shape, name) in zip(records, places, strict=True):
        try:
            given = {key: _resolved(value, flat) for key, value in record.parameters.items()}
            if record.kind == _AUTOMATON:
                found.append(_automaton(scope, shape, given, name))
            else:
                kind = registry.get(record.kind)
                found.append(kind.from_parameters(scope, shape, record.cost, name, given))
        except (ConfigError, ProblemError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise archive.fail("text", f"has a damaged constraint {name or record.kind!r}: {error}") from None
    return found


def _resolved(value: Any, flat: Mapping[str, Array]) -> Any:
    """Return parameters with arrays in place of references."""
    if isinstance(value, list):
        return [_resolved(part, flat) for part in value]
    if not isinstance(value, dict):
        return value
    kind, first, shape = value["array"]
    size = math.prod(shape)
    if min((first, *shape), default=0) < 0 or first + size > flat[kind].size:
        raise ValueError("an array lies outside the file")
    return flat[kind][first : first + size].reshape(shape)


def _automaton(scope: tuple[int, ...], shape: tuple[int, ...], given: Mapping[str, Any], name: str) -> AutomatonFactor:
    """Return the automaton of a record; raise ValueError if it is inconsistent."""
    layers = [
        Layer(np.ascontiguousarray(following, dtype=np.int32), normalise(utility))
        for following, utility in zip(given["following"], given["utility"], strict=True)
    ]
    states = [1, *(layer.following.shape[0] for layer in layers[1:]), 1]
    if not layers or [layer.following.shape for layer in layers] != list(zip(states[:-1], shape, strict=True)):
        raise ValueError("an automaton does not fit its scope")
    for layer, following_states in zip(layers, states[1:], strict=True):
        if layer.utility.shape != layer.following.shape:
            raise ValueError("an automaton has a step without a utility")
        if layer.following.min() < 0 or layer.following.max() >= following_states:
            raise ValueError("an automaton has a step to a state that does not exist")
    bounds = given["sum_bounds"]
    sum_bounds = None if bounds is None else SumBounds(tuple(bounds[0]), bounds[1], bounds[2])
    return AutomatonFactor(scope, layers, name, sum_bounds)


_DTYPES = ("int32", "int64", "float64")
_RECORDED = 2 * len(_DTYPES)  # code of a global constraint or an automaton
_MAX_DENSE_AXES = 64  # NumPy's limit for the axes of a dense table


class _NativeHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object in the array ``text``.

    Attributes
    ----------
    format, version : str, int
        Name of the file format, and 3 if there are global constraints or automata, 2 if there are sparse factors,
        else 1.
    sense : {"max", "min"}
        Whether the objective is maximised or minimised; tables hold utilities in both cases.
    name : str
        Name of the problem.
    variables, agents : tuple of str
        Names.
    labels : tuple
        For each variable its labels, or None for 0, 1, ...; empty if no variable has labels.
    factors : tuple of str or None
        Names of the factors; None if no factor has one.
    constraints : tuple of ConstraintRecord
        The global constraints and automata, in the order of the factors.
    levels : tuple of Level
        The levels of the objective; absent without levels.
    level_of : tuple of int
        The level of each factor; absent without levels.
    """

    format: Literal["dmcmc problem"]
    version: Literal[1, 2, 3]
    sense: Literal["max", "min"]
    name: str
    variables: tuple[str, ...]
    agents: tuple[str, ...]
    labels: tuple[tuple[Label, ...] | None, ...] = ()
    factors: tuple[str, ...] | None = None
    constraints: tuple[ConstraintRecord, ...] = ()
    levels: tuple[Level, ...] = ()
    level_of: tuple[int, ...] = ()


def save(problem: Problem, path: str | os.PathLike[str]) -> None:
    """Write a problem atomically: a killed run leaves no partial file under this name.

    Raises
    ------
    FileError
        If the file cannot be written, or a label is not a string, integer or float.
    """
    text = _checked_header(problem, path)
    with open_packed_atomically(path) as stream:
        _write(problem, text, stream)


def native_bytes(problem: Problem, path: str | os.PathLike[str]) -> bytes:
    """Return the bytes that :func:`save` writes; ``path`` only names the file in error messages."""
    stream = io.BytesIO()
    _write(problem, _checked_header(problem, path), stream)
    return stream.getvalue()


def _checked_header(problem: Problem, path: str | os.PathLike[str]) -> bytes:
    """Return the JSON header of a problem, or raise a ``FileError`` that names the file."""
    try:
        return _header_json(problem)
    except TypeError as error:
        reason = f"labels must be strings, integers or floats ({error})"
        raise FileError(f"{os.fspath(path)}: cannot be written: {reason}") from None


def _header_json(problem: Problem) -> bytes:
    """Return names and labels as ASCII JSON, which distinguishes int from float."""
    version = 2 if any(isinstance(factor, SparseFactor) for factor in problem.factors) else 1
    recorded = [factor for factor in problem.factors if _is_recorded(factor)]
    version = 3 if recorded else version
    text: dict[str, object] = {"format": "dmcmc problem", "version": version}
    text |= {"sense": problem.sense, "name": problem.name}
    text |= {"variables": problem.variables, "agents": problem.agents}
    if any(labels is not None for labels in problem.labels):
        text["labels"] = problem.labels
    if any(factor.name for factor in problem.factors):
        text["factors"] = [factor.name for factor in problem.factors]
    if recorded:
        writer = ParameterWriter()
        text["constraints"] = [writer.record(factor) for factor in recorded]
    if problem.levels:
        text |= {"levels": problem.levels, "level_of": problem.level_of}
    return json.dumps(text, separators=(",", ":")).encode("ascii")


def _is_recorded(factor: Factor) -> bool:
    """Return whether a factor is written as a record in the header: a global constraint or an automaton."""
    return not factor.is_tabular or isinstance(factor, AutomatonFactor)


def _write(problem: Problem, text: bytes, stream: IO[bytes]) -> None:
    """Write the archive of a problem to a stream; ``text`` is the JSON header."""
    factors = problem.factors
    sparse = [f for f in factors if isinstance(f, SparseFactor)]
    tables = [_stored(f) for f in factors]
    arities = np.array([0] + [len(f.scope) for f in factors], dtype=np.int64)
    flat: dict[str, Array] = {
        "text": np.frombuffer(text, dtype=np.uint8),
        "domains": problem.domains,
        "owner": problem.owner,
        "scope_start": np.cumsum(arities),
        "scopes": np.array([v for f in factors for v in f.scope], dtype=np.int64),
        "kind": np.array([_kind_code(f, t) for f, t in zip(factors, tables, strict=True)], dtype=np.uint8),
    }
    if sparse:
        flat["listed"] = np.array([len(f.tuples) for f in sparse], dtype=np.int64)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in flat.items():
            _write_array(file, name, array.dtype, [array])
        for kind in _DTYPES:
            _write_array(file, f"tables_{kind}", np.dtype(kind), [t for t in tables if t.dtype.name == kind])
        if sparse:
            _write_array(file, "tuples", np.dtype(np.int32), [f.tuples for f in sparse])
        if any(map(_is_recorded, factors)):
            writer = ParameterWriter()
            for factor in filter(_is_recorded, factors):
                writer.record(factor)
            _write_array(file, ARRAYS["i"], np.dtype(np.int64), writer.arrays["i"])
            _write_array(file, ARRAYS["f"], np.dtype(np.float64), writer.arrays["f"])


def _stored(factor: Factor) -> Array:
    """Return the numbers of a factor in the arrays of tables; none for one that is written as a record."""
    if _is_recorded(factor):
        return np.zeros(0, dtype=np.int32)
    return factor.utilities if isinstance(factor, SparseFactor) else factor.table


def _kind_code(factor: Factor, table: Array) -> int:
    """Return the code in ``kind`` for the array that holds a factor's table."""
    if _is_recorded(factor):
        return _RECORDED
    return _DTYPES.index(table.dtype.name) + len(_DTYPES) * isinstance(factor, SparseFactor)


def _write_array(file: zipfile.ZipFile, name: str, dtype: np.dtype[np.generic], arrays: Iterable[Array]) -> None:
    """Write several arrays as one flat little-endian array, without joining them in memory first."""
    arrays = list(arrays)
    count = sum(array.size for array in arrays)
    little = dtype.newbyteorder("<")
    info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # the same bytes on every system
    info.external_attr = 0o644 << 16
    info.file_size = 128 + count * dtype.itemsize  # header of 128 bytes; zipfile decides by the size about zip64
    with file.open(info, "w") as member:
        header = {"descr": little.str, "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(member, header)  # type: ignore[no-untyped-call,unused-ignore]
        for array in arrays:
            member.write(np.ascontiguousarray(array, dtype=little).reshape(-1).view(np.uint8).data)


def load(path: str | os.PathLike[str]) -> Problem:
    """Read a problem.

    Raises
    ------
    FileError
        If the file is missing, is not an ``.npz`` archive, is damaged, exceeds the memory, or has an array of the wrong
        shape or type.
    ProblemError
        If the arrays are valid but do not form a problem.
    """
    file_path = Path(path)
    try:
        if file_path.is_dir():
            raise FileError(f"{file_path}: is a folder; a problem file (.npz) is needed")
        with open_archive(file_path) as archive:
            layout = _load_native if "text" in archive.members else _load_edges
            return layout(archive)
    except FileNotFoundError:
        raise FileError(f"{file_path}: no such file") from None
    except ProblemError as error:
        raise ProblemError(f"{file_path}: {' '.join(str(error).split())}") from None
    except OutOfMemory as error:
        raise FileError(f"{file_path}: {error}") from None


def _load_native(archive: Archive) -> Problem:
    """Read the native layout."""
    text = _read_text(archive)
    domains, owner, start, scopes = (
        archive.array(name, "<i8") for name in ("domains", "owner", "scope_start", "scopes")
    )
    kind = archive.array("kind", "|u1")
    n, m = len(text.variables), len(kind)
    claim_structures(n, m)
    if len(domains) != n:
        raise archive.fail("domains", f"has {len(domains)} entries for {n} variables")
    if domains.min(initial=1) < 1:
        raise archive.fail("domains", f"has the size {domains.min()}; each must be at least 1")
    if len(start) != m + 1 or start[0] != 0 or start[-1] != len(scopes) or (np.diff(start) < 0).any():
        raise archive.fail("scope_start", f"must rise from 0 to {len(scopes)} in {m + 1} entries, one more than 'kind'")
    widest = np.diff(start)[kind < len(_DTYPES)].max(initial=0)
    if widest > _MAX_DENSE_AXES:
        raise archive.fail("scope_start", f"has a factor of {widest} variables; at most {_MAX_DENSE_AXES}")
    if len(scopes) and (scopes.min() < 0 or scopes.max() >= n):
        raise archive.fail("scopes", f"must hold variables 0..{n - 1}, not {scopes.min()}..{scopes.max()}")
    kind_limit = _RECORDED + 1 if text.version == 3 else len(_DTYPES) * text.version
    if kind.max(initial=0) >= kind_limit:
        raise archive.fail("kind", f"must hold 0..{kind_limit - 1}, not {kind.max()}")
    names = ("",) * m if text.factors is None else text.factors
    if len(names) != m:
        raise archive.fail("text", f"names {len(names)} of {m} factors")
    sizes, ends, variables = domains.tolist(), start.tolist(), scopes.tolist()
    scope = [tuple(variables[ends[f] : ends[f + 1]]) for f in range(m)]
    shapes = [tuple(sizes[v] for v in s) for s in scope]
    recorded = np.flatnonzero(kind == _RECORDED).tolist()
    if len(recorded) != len(text.constraints):
        raise archive.fail("text", f"has {len(text.constraints)} of {len(recorded)} constraints")
    sparse = np.flatnonzero((kind >= len(_DTYPES)) & (kind < _RECORDED)).tolist()
    listed = dict(zip(sparse, _tuple_counts(archive, len(sparse)), strict=True))
    places = [(scope[f], shapes[f], names[f]) for f in recorded]
    constraints = dict(zip(recorded, read_constraints(archive, text.constraints, places), strict=True))
    stored = [(listed[f] + 1,) if f in listed else shape for f, shape in enumerate(shapes)]
    stored = [(0,) if f in constraints else shape for f, shape in enumerate(stored)]
    tables = _tables(archive, stored, (kind % len(_DTYPES)).tolist())
    tuple_rows = _tuple_arrays(archive, [(count, shapes[f]) for f, count in listed.items()])
    tuples = dict(zip(sparse, tuple_rows, strict=True))
    factors = tuple(
        constraints.get(f)
        or (
            SparseFactor(scope[f], shapes[f], tuples[f], tables[f], names[f])
            if f in tuples
            else Factor(scope[f], tables[f], names[f])
        )
        for f in range(m)
    )
    if text.levels and (len(text.level_of) != m or not set(text.level_of) <= set(range(len(text.levels)))):
        raise archive.fail("text", f"needs a level below {len(text.levels)} for each of {m} factors")
    return Problem(
        text.variables, domains, text.agents, owner, factors, text.labels, text.sense, text.name,
        levels=text.levels, level_of=text.level_of,
    )  # fmt: skip


def _read_text(archive: Archive) -> _NativeHeader:
    """Read and validate the JSON header."""
    try:
        return msgspec.convert(json.loads(archive.array("text", "|u1").tobytes()), _NativeHeader)
    except (ValueError, RecursionError) as error:  # a ValidationError is a ValueError
        raise archive.fail("text", f"is not the header of a problem file: {error}") from None


def _tuple_counts(archive: Archive, count: int) -> list[int]:
    """Return the number of tuples of each sparse factor."""
    if not count:
        return []
    listed = archive.array("listed", "<i8")
    if len(listed) != count or listed.min() < 0:
        raise archive.fail("listed", f"must hold {count} whole numbers, one per sparse factor")
    return cast(list[int], listed.tolist())


def _tuple_arrays(archive: Archive, sizes: list[tuple[int, tuple[int, ...]]]) -> list[NDArray[np.int32]]:
    """Return the tuples of each sparse factor, after a check that they are distinct, sorted and inside the domains.

    Parameters
    ----------
    archive
        The file.
    sizes
        Number of tuples and shape of each sparse factor.
    """
    if not sizes:
        return []
    flat, entries_read, arrays = archive.array("tuples", "<i4"), 0, []
    needed = sum(count * len(shape) for count, shape in sizes)
    if flat.size != needed:
        raise archive.fail("tuples", f"has {flat.size} entries; the scopes need {needed}")
    for count, shape in sizes:
        rows = flat[entries_read : entries_read + count * len(shape)].reshape(count, len(shape))
        entries_read += rows.size
        if ((rows < 0) | (rows >= np.array(shape, dtype=np.int64))).any():
            raise archive.fail("tuples", "has a value outside its domain")
        order = np.lexsort(rows.T[::-1]) if shape else np.arange(count)
        if (order != np.arange(count)).any() or (count > 1 and not (rows[1:] != rows[:-1]).any(axis=1).all()):
            raise archive.fail("tuples", "must be in lexicographic order, each only once")
        arrays.append(rows)
    return arrays


def _tables(archive: Archive, shapes: list[tuple[int, ...]], kinds: list[int]) -> list[Array]:
    """Return each factor's table as a view into the array of its dtype.

    Parameters
    ----------
    archive
        The file.
    shapes
        Shape of each stored table.
    kinds
        Index into ``_DTYPES`` for each table.
    """
    counts = [math.prod(shape) for shape in shapes]
    flat = [archive.array(f"tables_{name}", np.dtype(name).newbyteorder("<").str) for name in _DTYPES]
    for k, name in enumerate(_DTYPES):
        needed = sum(count for count, kind in zip(counts, kinds, strict=True) if kind == k)
        if flat[k].size != needed:
            raise archive.fail(f"tables_{name}", f"has {flat[k].size} entries; the scopes need {needed}")
    if np.isnan(flat[2]).any() or np.isposinf(flat[2]).any():
        raise archive.fail("tables_float64", "contains NaN or +inf; utilities are finite or -inf")
    tables, entries_read = [], [0] * len(_DTYPES)
    for shape, count, k in zip(shapes, counts, kinds, strict=True):
        tables.append(flat[k][entries_read[k] : entries_read[k] + count].reshape(shape))
        entries_read[k] += count
    return tables


def _load_edges(archive: Archive) -> Problem:
    """Read the layout of binary benchmark problems: every factor has two variables, all tables are in one array.

    Tables hold utilities, factor after factor in the order of ``edges``. Variables are named ``x0``, ``x1``, ... and
    agents ``a0``, ``a1``, ...
    """
    owner, domains, edges = archive.array("agent", "iu"), archive.array("dom", "iu"), archive.array("edges", "iu", 2)
    n = len(domains)
    if domains.min(initial=1) < 1:
        raise archive.fail("dom", f"has the size {domains.min()}; each must be at least 1")
    if len(owner) != n:
        raise archive.fail("agent", f"has {len(owner)} entries for {n} variables")
    if n and (owner.min() < 0 or owner.max() >= n):
        raise archive.fail("agent", f"must hold agents 0..{n - 1}, not {owner.min()}..{owner.max()}")
    if edges.shape[1] != 2:
        raise archive.fail("edges", f"has shape {edges.shape}; (m, 2) is needed")
    if edges.size and (edges.min() < 0 or edges.max() >= n):
        raise archive.fail("edges", f"must hold variables 0..{n - 1}, not {edges.min()}..{edges.max()}")
    claim_structures(n, len(edges))
    stored, sizes = archive.array("tables", "iuf"), domains.tolist()
    scopes = [(u, v) for u, v in edges.tolist()]
    ends = list(accumulate((sizes[u] * sizes[v] for u, v in scopes), initial=0))
    if stored.size != ends[-1]:
        raise archive.fail("tables", f"has {stored.size} entries; the edges need {ends[-1]}")
    utilities = normalise(stored, where="array 'tables'")
    factors = []
    for (u, v), first, last in zip(scopes, ends, ends[1:], strict=False):
        table = utilities[first:last].reshape(sizes[u], sizes[v])
        # int32 is the narrowest dtype; a slice of a wider array may fit a narrower one.
        factors.append(Factor((u, v), table) if utilities.dtype == np.int32 else Factor.of((u, v), table))
    variables, agents = tuple(f"x{i}" for i in range(n)), tuple(f"a{i}" for i in range(int(owner.max(initial=-1)) + 1))
    return Problem(variables, domains, agents, owner, tuple(factors), name=_name(archive))


def _name(archive: Archive) -> str:
    """Return the name in ``meta``, or the file's stem if there is none."""
    if "meta" in archive.members:
        with contextlib.suppress(ValueError, RecursionError):
            meta = json.loads(str(archive.array("meta", "U", 0)))
            if isinstance(meta, dict) and isinstance(meta.get("name"), str):
                return str(meta["name"])
    return archive.path.stem
