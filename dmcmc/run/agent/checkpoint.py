"""Finished tables of agents on disk, so that a run that was ended goes on from them.

A file an agent, ``agent-N.npz``, whole or not at all: its tables from below and above, what it keeps for VALUE, and two
digests: of what it was made from, and of what it holds. A file that belongs to something else, or is damaged, is named
and left out: the table is made again.
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

from dmcmc.files.write import writing
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.errors import CheckpointWarning
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import witness_anew

_VERSION = 1
_BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def _warn(what: str) -> None:
    warnings.warn(what, CheckpointWarning, stacklevel=3)


class Checkpoint:
    """The tables of one rank's agents on disk.

    Parameters
    ----------
    folder
        Made where it is missing.
    arithmetic, backend
        What tables are encoded in, and what makes anew what is not kept.
    settings
        All that tables depend on beside the agent's own problem and its method.
    """

    def __init__(self, folder: str, arithmetic: Arithmetic, backend: Backend, settings: bytes) -> None:
        self.folder, self.arithmetic, self.backend, self.settings = Path(folder), arithmetic, backend, settings

    def find(self, local: LocalProblem, method: str, bound: str) -> SampledTable | None:
        """Return an agent's table; None where there is none that fits."""
        path = self._path(local)
        try:
            with np.load(path, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
            if _digest(found) != found["digest"].tobytes():
                raise ValueError("damaged")
        except FileNotFoundError:
            return None
        except _BROKEN:
            _warn(f"{path}: is damaged; the agent's table is made again")
            return None
        if found["made_from"].tobytes() != self._made_from(local, method, bound):
            _warn(f"{path}: is of another problem or configuration; the agent's table is made again")
            return None
        return self._table(local, method, found)

    def keep(self, bound: str, local: LocalProblem, table: SampledTable) -> None:
        """Write an agent's table, all of it or nothing.

        Raises
        ------
        FileError
            If that is not possible.
        """
        arrays: dict[str, Array] = {
            "made_from": np.frombuffer(self._made_from(local, table.method, bound), dtype=np.uint8),
            "counts": np.array([table.cells, table.updates, table.drawn, table.exact], dtype=np.int64),
            **_packed("lower", table.lower),
        }
        if table.upper is not None and not table.exact:
            arrays |= _packed("upper", table.upper)
        if not table.exact:
            arrays["states"] = _states(local, table)
        arrays["digest"] = np.frombuffer(_digest(arrays), dtype=np.uint8)
        with writing(self._path(local)) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type,unused-ignore]

    def _path(self, local: LocalProblem) -> Path:
        return self.folder / f"agent-{local.agent}.npz"

    def _made_from(self, local: LocalProblem, method: str, bound: str) -> bytes:
        """Return a digest of all that a table depends on."""
        known = hashlib.sha256(repr((_VERSION, local.agent, method, local.interface, local.hidden)).encode())
        known.update(repr((self.arithmetic.dtype.str, self.arithmetic.lowest, self.arithmetic.total)).encode())
        if method != "exact":
            known.update(bound.encode() + b" " + self.settings)
        for factor in local.factors:
            known.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
            known.update(np.ascontiguousarray(factor.table).data)
        return known.digest()

    def _table(self, local: LocalProblem, method: str, found: Mapping[str, Array]) -> SampledTable:
        cells, updates, drawn, exact = found["counts"].tolist()
        lower = _unpacked("lower", found)
        witness: Callable[[Mapping[int, int]], dict[int, int]]
        if exact:
            witness = partial(witness_anew, local, self.arithmetic, self.backend)
        else:
            witness = partial(_witness, local, found["states"])
        upper = lower if exact else _unpacked("upper", found) if "upper" in found else None
        return SampledTable(lower, upper, witness, method, 0.0, cells, updates, drawn)


def _packed(side: str, tables: Sequence[Table]) -> dict[str, Array]:
    """Return tables as arrays by name."""
    packed: dict[str, Array] = {side: np.array([len(tables)], dtype=np.int64)}
    for number, (scope, values) in enumerate(tables):
        packed[f"{side}_{number}_scope"] = np.array(scope, dtype=np.int64)
        packed[f"{side}_{number}"] = values
    return packed


def _unpacked(side: str, found: Mapping[str, Array]) -> tuple[Table, ...]:
    count = int(found[side][0])
    return tuple(Table(tuple(found[f"{side}_{n}_scope"].tolist()), found[f"{side}_{n}"]) for n in range(count))


def _digest(arrays: Mapping[str, Array]) -> bytes:
    """Return a digest of arrays with their names, dtypes and shapes."""
    whole = hashlib.sha256()
    for name in sorted(arrays):
        if name != "digest":
            whole.update(repr((name, arrays[name].dtype.str, arrays[name].shape)).encode())
            whole.update(np.ascontiguousarray(arrays[name]).data)
    return whole.digest()


def _states(local: LocalProblem, table: SampledTable) -> NDArray[np.int32]:
    """Return the hidden values that a table keeps for each row, (rows, hidden)."""
    states = np.zeros((local.rows, len(local.hidden)), dtype=np.int32)
    for row, values in enumerate(np.ndindex(*local.interface_shape)):
        kept = table.witness(dict(zip(local.interface, values, strict=True)))
        states[row] = [kept[v] for v in local.hidden]
    return states


def _witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
