"""What is kept of an agent: finished tables in a checkpoint, bounds and samples for the next run of a session.

In a checkpoint there is one file per agent, ``agent-N.npz``, which is written atomically. It holds the lower and upper
tables, the hidden values for the VALUE phase, and two digests: of the inputs of the table, and of the file's own
contents. A file with other inputs or damaged contents is reported and ignored: the table is computed again. All arrays
are checked against the agent's problem before they are used, because a digest proves only that a file is complete.

The next run of a session continues from the bounds and the sampled values of the last one. Tables of agents that are
eliminated exactly are kept as they are (:class:`dmcmc.solving.warm_start.retained_work.RetainedWork`).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Archive, load_saved
from dmcmc.files.write import open_packed_atomically
from dmcmc.inference.bounds.branch_and_bound.row_search import SearchedPart
from dmcmc.inference.bounds.continued_bound import continue_bound, has_same_variables
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import recompute_witness
from dmcmc.solving.warm_start.retained_work import RetainedBound, RetainedWork

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent


_VERSION = 2  # version of the file format; a file of another version is ignored, because its inputs' digest differs
_TABLES_PER_SIDE = 1 << 20  # limit for the number of tables; more are a damaged file


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
        path, made_from = self._path(local), np.frombuffer(self._input_digest(local, method, bound), dtype=np.uint8)

        def read(archive: Archive) -> SampledTable:
            arrays = _read_arrays(archive)
            self._check(local, arrays, path)
            return self._read_table(local, method, arrays)

        return load_saved(path, made_from, read, ("problem or configuration", "the agent's table is computed again"))

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


UNION_NAME = "(all agents)"  # in place of the name of an agent: the union of all agents


def resume_bound(agent: "Agent", provider: str, retained: RetainedWork | None, name: str) -> bool:
    """Continue the bound that an agent had in the last run, if its local problem is the same; return whether it is.

    The parameters are those of :func:`start_bound`.
    """
    kept = None if retained is None else retained.bounds.get(name)
    if kept is None or retained is None or kept.provider != provider:
        return False
    if not has_same_variables(kept.local, agent.local) or kept.local.factors != agent.local.factors:
        return False
    agent.upper.retained_search = kept.search
    agent.continue_bound(kept.state)
    retained.bounds_reused += 1
    return True


def start_bound(agent: "Agent", provider: str, retained: RetainedWork | None, name: str) -> None:
    """Start the bound of an agent, with what the bound of the last run has proven if there was one.

    Parameters
    ----------
    agent
        The agent.
    provider
        Name of the bound provider.
    retained
        Work of earlier runs; None if nothing is kept.
    name
        Name of the agent.
    """
    kept = None if retained is None else retained.bounds.get(name)
    agent.start_bound(provider)
    if kept is None or retained is None or kept.dual is None or agent.upper.dual is None:
        return
    if continue_bound(agent.upper.dual, kept.dual):
        agent.update_bound()
        retained.bounds_reused += 1


def continue_sampling(agent: "Agent", retained: RetainedWork | None, name: str) -> None:
    """Give the rows of an agent the values that they had at the end of the last run, where these are better."""
    kept, chains = None if retained is None else retained.bounds.get(name), agent.lower.chains
    if kept is None or kept.states is None or chains is None or agent.lower.local is not agent.local:
        return
    if agent.team.size > 1:  # the values of the rows are divided over the ranks of the team
        return
    if has_same_variables(kept.local, agent.local):
        chains.take_better(np.arange(agent.local.rows), kept.states)
        table = chains.table()
        agent.table = table if agent.table.upper is None else agent.table


def keep_agent(agent: "Agent", provider: str, retained: RetainedWork, name: str) -> None:
    """Keep the bound and the rows' values of an agent for the next run; of an exact agent, its table.

    A table that function filtering has made is exact only for rows that may improve the incumbent, so it is not kept.
    """
    upper, chains, states = agent.upper, agent.lower.chains, None
    if agent.table.exact and agent.filtered is None:
        retained.keep_table(name, agent.local, agent.context.arithmetic, agent.table)
    if upper.state is None:
        return
    alone = agent.lower.local is agent.local and agent.team.size == 1
    if chains is not None and alone and chains.states.shape == (agent.local.rows, len(agent.local.hidden)):
        states = chains.states.copy()
    search = upper.boundary_search or upper.retained_search
    on_gpu = upper.dual is not None and upper.dual.remote is not None
    if on_gpu and upper.dual is not None:
        upper.dual.fetch_potentials()
    if on_gpu or upper.searched_part != SearchedPart.ALL or (search is not None and search.exhausted):
        search = None
    retained.bounds[name] = RetainedBound(agent.local, provider, upper.state, search, states)
