"""Store finished tables of agents on disk, so that an interrupted run can continue with them.

There is one file per agent, ``agent-N.npz``, which is written atomically. It holds the lower and upper tables, the
hidden values for the VALUE phase, and two digests: of the inputs of the table, and of the file's own contents. A file
with other inputs or damaged contents is reported and ignored: the table is computed again.
"""

import hashlib
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.write import open_packed_atomically
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import CheckpointWarning
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import recompute_witness

_VERSION = 1  # version of the file format; a file of another version is ignored, because its inputs' digest differs
_READ_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


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
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            if _digest(arrays) != arrays["digest"].tobytes():
                raise ValueError("damaged")
        except FileNotFoundError:
            return None
        except _READ_ERRORS:
            _warn(f"{path}: the file is damaged; the agent's table is computed again")
            return None
        if arrays["made_from"].tobytes() != self._input_digest(local, method, bound):
            _warn(f"{path}: the file belongs to another problem or configuration; the agent's table is computed again")
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
        """Return a digest of everything that a table depends on."""
        digest = hashlib.sha256(repr((_VERSION, local.agent, method, local.interface, local.hidden)).encode())
        digest.update(repr((self.arithmetic.dtype.str, self.arithmetic.lowest, self.arithmetic.total)).encode())
        if method != "exact":
            digest.update(bound.encode() + b" " + self.settings)
        for factor in local.factors:
            digest.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
            digest.update(np.ascontiguousarray(factor.table).data)
        return digest.digest()

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
