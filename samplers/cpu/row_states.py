"""The best state of every row of an agent that chains have found, before and after the current round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.evaluation import chain_utilities

Rows = slice | NDArray[np.int64]

NO_UTILITY = np.iinfo(np.int64).min  # the utility of a row that has no state yet


class RowStates:
    """The best state of every row, before and after the current round.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    model : ChainModel
        The agent's columns.

    Attributes
    ----------
    before, after : ((rows,) int64, (rows, hidden) uint8 or int32)
        Best utility, in chain units, and best state of each row, before and after the current round.
    drawn : (rows,) int64
        Samples of each row, without those of repair rounds.
    """

    def __init__(self, local: LocalProblem, model: ChainModel) -> None:
        self._model, self._interface_shape = model, local.interface_shape
        dtype = np.uint8 if model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        # Per row, about: two utilities, ``drawn`` and the table entry, 8 bytes each; three states (one of candidates).
        MEMORY_ACCOUNT.claim(local.rows * (32 + 3 * dtype().itemsize * len(local.hidden)), "rows of the samplers")
        self.before, self.after = (
            (np.full(local.rows, NO_UTILITY, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self.drawn = np.zeros(local.rows, dtype=np.int64)

    def start_from(self, candidates: Sequence[NDArray[Any]]) -> None:
        """Set each row to the best of some candidates for its state, each (rows, hidden)."""
        rows = np.arange(self.drawn.size)
        for candidate in candidates:
            states = candidate.astype(self.after[1].dtype)
            utility = chain_utilities(self._model, self._interface_shape, rows, states)
            better = utility > self.after[0]
            self.after[0][better], self.after[1][better] = utility[better], states[better]
        if candidates:
            self.keep_all()

    def begin_round(self, is_first: bool, keep: bool) -> None:
        """Make the states after a round those before the next one.

        Parameters
        ----------
        is_first : bool
            Whether there has been no round yet.
        keep : bool
            Whether rows that the round does not reach keep their states; otherwise it has to sample all rows.
        """
        if not is_first:
            self.before, self.after = self.after, self.before
        if keep:
            for source, target in zip(self.before, self.after, strict=True):
                target[:] = source

    def keep_all(self) -> None:
        """Make the states after the round those before it, too."""
        for source, target in zip(self.after, self.before, strict=True):
            target[:] = source

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the states of some rows where the given ones are better; return whether any are."""
        candidates = self.after[1].copy()
        candidates[rows] = states
        before, now = (
            chain_utilities(self._model, self._interface_shape, rows, source) for source in (self.after[1], candidates)
        )
        better = now > before
        self.after[0][rows[better]], self.after[1][rows[better]] = now[better], candidates[rows[better]]
        return bool(better.any())

    def of_rows(self, rows: Rows) -> list[Array]:
        """Return samples, utilities and states of some rows."""
        return [self.drawn[rows], self.after[0][rows], self.after[1][rows]]

    def set_rows(self, rows: Rows, part: Sequence[Array]) -> None:
        """Set samples, utilities and states of some rows."""
        self.drawn[rows], self.after[0][rows], self.after[1][rows] = part
