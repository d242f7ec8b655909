"""Store finished tables of agents on disk, so that an interrupted run can continue with them.

There is one file per agent, ``agent-N.npz``, which is written atomically. It holds the lower and upper tables, the
hidden values for the VALUE phase, and two digests: of the inputs of the table, and of the file's own contents. A file
with other inputs or damaged contents is reported and ignored: the table is computed again. All arrays are checked
against the agent's problem before they are used, because a digest proves only that a file is complete.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.archive import Archive, open_archive
from dmcmc.files.write import open_packed_atomically
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import recompute_witness

_VERSION = 2  # version of the file format; a file of another version is ignored, because its inputs' digest differs
_REMEDY = "the agent's table is computed again"
_TABLES_PER_SIDE = 1 << 20  # limit for the number of tables; more are a damaged file


def _warn(message: str) -> None:
    """Warn that a checkpoint file is ignored."""
    warnings.warn(message, CheckpointWarning, stacklevel=3)


class Checkpoint:
    """The stored tables of one rank's agents.

    Parameters
    ----------
    folder
        Created if it is missing.
    arithmetic, backend
        Encoding of the tables, and the devices that recompute the hidden values of exact tables, which are not stored.
    settings
        Everything that tables depend on besides the agent's own problem and its method.
    """

    def __init__(self, folder: str, arithmetic: Arithmetic, backend: Backend, settings: bytes) -> None:
        self.folder, self.arithmetic, self.backend, self.settings = Path(folder), arithmetic, backend, settings

    def load(self, local: LocalProblem, method: str, bound: str) -> SampledTable | None:
        """Return an agent's stored table; None if there is no file with the same inputs."""
        path = self._path(local)
        try:
            with open_archive(path) as archive:
                arrays = _read_arrays(archive)
            if arrays["made_from"].tobytes() != self._input_digest(local, method, bound):
                _warn(f"{path}: the file belongs to another problem or configuration; {_REMEDY}")
                return None
            self._check(local, arrays, path)
        except FileNotFoundError:
            return None
        except FileError as error:
            _warn(f"{path}: the file is damaged; {_REMEDY} ({_reason(error, path)})")
            return None
        return self._read_table(local, method, arrays)

    def save(self, bound: str, local: LocalProblem, table: SampledTable) -> None:
        """Write an agent's table atomically.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        arrays: dict[str, Array] = {
            "made_from": np.frombuffer(self._input_digest(local, table.method, bound), dtype=np.uint8),
            # joined cells, single-variable draws or proposals, least samples per row, and whether it is exact
            "counts": np.array([table.cells, table.updates, table.drawn, table.exact], dtype=np.int64),
            **_pack("lower", table.lower),
        }
        if table.upper is not None and not table.exact:
            arrays |= _pack("upper", table.upper)
        if not table.exact:
            arrays["states"] = _hidden_values(local, table)
        arrays["digest"] = np.frombuffer(_digest(arrays), dtype=np.uint8)
        with open_packed_atomically(self._path(local)) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type,unused-ignore]

    def _path(self, local: LocalProblem) -> Path:
        """Return the file of an agent."""
        return self.folder / f"agent-{local.agent}.npz"

    def _input_digest(self, local: LocalProblem, method: str, bound: str) -> bytes:
        """Return a digest of everything that a table depends on.

        An exact table depends on the agent's own factors only, not on the limit of sums of the whole problem.
        """
        digest = hashlib.sha256(repr((_VERSION, local.agent, method, local.interface, local.hidden)).encode())
        digest.update(repr((self.arithmetic.dtype.str, self.arithmetic.lowest)).encode())
        if method != "exact":
            digest.update(bound.encode() + b" " + self.settings + repr(self.arithmetic.total).encode())
        for factor in local.factors:
            digest.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
            digest.update(np.ascontiguousarray(factor.table).data)
        return digest.digest()

    def _check(self, local: LocalProblem, arrays: Mapping[str, Array], path: Path) -> None:
        """Raise ``FileError`` if the stored numbers cannot be those of a table of this agent."""
        counts = arrays["counts"]
        if counts.shape != (4,) or counts.min() < 0 or counts[3] > 1:
            raise FileError(f"{path}: array 'counts': must hold three counts and whether the table is exact")
        # Upper tables of an agent with listed rows are over the whole interface, lower ones over an index of the rows.
        known = {"lower": local.interface, "upper": range(len(local.domains))}
        for side in known:
            for number, (scope, values) in enumerate(_unpack(side, arrays) if side in arrays else ()):
                if len({*scope}) < len(scope) or not {*scope} <= {*known[side]}:
                    raise FileError(f"{path}: array '{side}_{number}_scope': must hold variables of the agent")
                if values.shape != tuple(local.domains[list(scope)].tolist()):
                    raise FileError(f"{path}: array '{side}_{number}': has the shape {values.shape}")
                self._check_utilities(values, f"{path}: array '{side}_{number}'")
        if counts[3]:
            return
        states, hidden = arrays.get("states"), local.domains[list(local.hidden)]
        if states is None or states.shape != (local.rows, len(local.hidden)):
            raise FileError(f"{path}: array 'states': must have one row per row of the table")
        if ((states < 0) | (states >= hidden)).any():
            raise FileError(f"{path}: array 'states': has a value outside its domain")

    def _check_utilities(self, values: Array, where: str) -> None:
        """Raise ``FileError`` if encoded utilities have another dtype, or are outside the range of finite sums and −∞.

        The limit −``lowest`` on integers leaves a margin for bounds; adding tables cannot wrap then.
        """
        if values.dtype != self.arithmetic.dtype:
            raise FileError(f"{where}: has the dtype {values.dtype}, not {self.arithmetic.dtype}")
        if self.arithmetic.exact:
            fits = values.min(initial=0) >= self.arithmetic.lowest and values.max(initial=0) <= -self.arithmetic.lowest
        else:
            fits = not np.isnan(values).any()
        if not fits:
            raise FileError(f"{where}: has a value outside the range of utilities")

    def _read_table(self, local: LocalProblem, method: str, arrays: Mapping[str, Array]) -> SampledTable:
        """Return the table that the file's arrays hold."""
        cells, updates, drawn, exact = arrays["counts"].tolist()
        lower = _unpack("lower", arrays)
        witness: Callable[[Mapping[int, int]], dict[int, int]]
        if exact:
            witness = partial(recompute_witness, local, self.arithmetic, self.backend)
        else:
            witness = partial(_stored_witness, local, arrays["states"])
        upper = lower if exact else _unpack("upper", arrays) if "upper" in arrays else None
        return SampledTable(lower, upper, witness, method, 0.0, cells, updates, drawn)


def _pack(side: str, tables: Sequence[EncodedTable]) -> dict[str, Array]:
    """Return tables as named arrays.

    For side ``lower``: ``lower`` holds the number of tables; ``lower_0_scope`` the variables of the first one, and
    ``lower_0`` its values.
    """
    arrays: dict[str, Array] = {side: np.array([len(tables)], dtype=np.int64)}
    for number, (scope, values) in enumerate(tables):
        arrays[f"{side}_{number}_scope"] = np.array(scope, dtype=np.int64)
        arrays[f"{side}_{number}"] = values
    return arrays


def _unpack(side: str, arrays: Mapping[str, Array]) -> tuple[EncodedTable, ...]:
    """Return the tables of one side (``lower`` or ``upper``) from named arrays."""
    count = int(arrays[side][0])
    return tuple(EncodedTable(tuple(arrays[f"{side}_{n}_scope"].tolist()), arrays[f"{side}_{n}"]) for n in range(count))


def _read_arrays(archive: Archive) -> dict[str, Array]:
    """Return the arrays of a checkpoint file after a check of their names, dtypes and digest.

    Raises
    ------
    FileError
        If an array is missing or has another dtype or number of axes, or the digest differs.
    """
    arrays = {"made_from": archive.array("made_from", "|u1"), "counts": archive.array("counts", "<i8")}
    for side in ("lower", "upper") if "upper" in archive.members else ("lower",):
        arrays[side] = archive.array(side, "<i8")
        if arrays[side].shape != (1,) or not 0 <= arrays[side][0] <= _TABLES_PER_SIDE:
            raise archive.fail(side, "must hold the number of tables")
        for number in range(int(arrays[side][0])):
            scope = archive.array(f"{side}_{number}_scope", "<i8")
            arrays[f"{side}_{number}_scope"] = scope
            arrays[f"{side}_{number}"] = archive.array(f"{side}_{number}", "if", len(scope))
    if "states" in archive.members:
        arrays["states"] = archive.array("states", "<i4", 2)
    if _digest(arrays) != archive.array("digest", "|u1").tobytes():
        raise archive.fail("digest", "differs from the digest of the other arrays")
    for array in arrays.values():
        array.flags.writeable = True  # kernels are compiled for writable arrays
    return arrays


def _reason(error: FileError, path: Path) -> str:
    """Return the message of an error without the name of the file."""
    return str(error).removeprefix(f"{path}: ")


def _digest(arrays: Mapping[str, Array]) -> bytes:
    """Return a digest of arrays with their names, dtypes and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        if name != "digest":
            digest.update(repr((name, arrays[name].dtype.str, arrays[name].shape)).encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.digest()


def _hidden_values(local: LocalProblem, table: SampledTable) -> NDArray[np.int32]:
    """Return the hidden values that a table stores for each row, (rows, hidden) int32."""
    states = np.zeros((local.rows, len(local.hidden)), dtype=np.int32)
    for row, values in enumerate(np.ndindex(*local.interface_shape)):
        values_by_variable = table.witness(dict(zip(local.interface, values, strict=True)))
        states[row] = [values_by_variable[v] for v in local.hidden]
    return states


def _stored_witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values that are stored for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
