"""Run the descents of agents as one batch: lay out their arrays for ``batched_steps`` and take back the results.

The letters of array sizes are those of ``batched_steps.BatchShape``: h hidden variables, n values, rank r, o values of
the boundary variables, and k rows (assignments of the boundary variables).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.semidefinite.batched_steps import BatchArrays, BatchedSteps, BatchInputs, BatchShape
from dmcmc.inference.bounds.semidefinite.descent import (
    FORBIDDEN_UTILITY,
    Descent,
    DescentPoint,
    Target,
    step_parameters,
)
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.runtime.types import Array, Ints

# first steps of a descent whose products may be rounded to 11 bits (TF32); later, the rounding costs progress
LOW_PRECISION_STEPS = 1000
_EXCLUDED_ROW_CUTOFF = 1e15  # units: puts padding rows far below their cutoffs
_RANK_MULTIPLE = 8  # the rank is padded to a multiple of this, for the tensor cores


def batch_shape(descents: Sequence[Descent], rows: int, padded: bool = True) -> BatchShape:
    """Return the array sizes for the given descents with at most ``rows`` rows each; see ``BatchArrays.padded``."""
    matrices = [descent.matrix for descent in descents]
    largest_rank = max(descent.point.vectors.shape[1] for descent in descents)
    h = max(matrix.starts.size - 1 for matrix in matrices)
    d = max(int(np.diff(matrix.starts).max()) for matrix in matrices)
    return BatchShape(
        len(descents),
        h,
        d,
        h * d if padded else matrices[0].variable_of.size,
        -(-largest_rank // _RANK_MULTIPLE) * _RANK_MULTIPLE if padded else largest_rank,
        max(1, *(sum(matrix.shape) for matrix in matrices)),
        rows,
    )


class DescentBatch:
    """Descents that make their steps together.

    Parameters
    ----------
    descents : sequence of Descent
        They continue from their current points.
    targets : sequence of Target
        One per descent.
    arrays : BatchArrays
        The array library.
    low_precision_steps : int
        Number of first steps of a descent whose products may be rounded to 11 bits.
    rows : int
        Minimum number of rows to lay out: array libraries compile kernels for each size of a sum.

    Attributes
    ----------
    descents : sequence of Descent
        The descents; ``run`` updates them.
    shape : BatchShape
        Sizes of the arrays.
    steps : BatchedSteps
        The arrays, and the steps on them.
    """

    def __init__(
        self,
        descents: Sequence[Descent],
        targets: Sequence[Target],
        arrays: BatchArrays,
        low_precision_steps: int = LOW_PRECISION_STEPS,
        rows: int = 0,
    ) -> None:
        self.descents, self._arrays, self._low_precision_steps = descents, arrays, low_precision_steps
        self.shape = batch_shape(descents, max(rows, *(target.cutoffs.size for target in targets)), arrays.padded)
        shape, put = self.shape, arrays.put
        agents, h, d, n = shape.agents, shape.h, shape.d, shape.n
        if arrays.padded:
            self._columns = [value_columns(descent.matrix, d) for descent in descents]
            variable_of = np.repeat(np.arange(h), d)
        else:
            self._columns, variable_of = [np.arange(n)], descents[0].matrix.variable_of
        states = zip(
            *((descent.point, descent.first_moment, descent.second_moment) for descent in descents), strict=True
        )
        points = [self._pad(state) for state in states]
        utilities = np.zeros((agents, n, n), dtype=np.float32)
        for b, (descent, columns) in enumerate(zip(descents, self._columns, strict=True)):
            utilities[b][np.ix_(columns, columns)] = descent.in_units(descent.matrix.pairs)
        sizes = domain_sizes([descent.matrix for descent in descents], h)
        exists = sizes > 0
        # messages between two existing variables
        message_mask = put(distinct_pairs(exists)[:, :, variable_of].astype(np.float32))
        variable_mask = put(exists.astype(np.float32)[:, None, :])
        given = BatchInputs(put(utilities), put(sizes), variable_mask, message_mask, *self._row_inputs(targets))
        self.steps = BatchedSteps(shape, given, points, arrays)

    def run(self, steps_to_make: Callable[[int], int]) -> list[DescentPoint]:
        """Make steps; return each descent's best point on the way.

        Parameters
        ----------
        steps_to_make : callable
            Receives the number of steps made, all of which are complete, and returns how many to make before it is
            called again; 0 ends the run.
        """
        steps_made = 0
        while (count := steps_to_make(steps_made)) > 0:
            # a run stops at the steps where a trial is recorded
            count = min(
                [count, *(x.next_trial_check - x.steps for x in self.descents if x.next_trial_check is not None)]
            )
            self._run_steps(steps_made, count)
            steps_made += count
            self._record_trials(steps_made)
        self._run_steps(steps_made, 0)
        self._write_back()
        best = [self._arrays.get(part) for part in self.steps.best]
        return [self._unpad(b, best) for b in range(self.shape.agents)]

    def _run_steps(self, steps_made: int, count: int) -> None:
        """Make ``count`` steps; with 0, only check whether the current point is the best so far."""
        steps = [[step_parameters(descent.steps + i) for descent in self.descents] for i in range(max(1, count))]
        parameters, low_precision = (
            np.array(steps, dtype=np.float32),
            all(descent.steps < self._low_precision_steps for descent in self.descents),
        )
        if count:
            self.steps.advance(parameters, steps_made, low_precision)
        else:
            self.steps.finish(parameters, low_precision)
        for descent in self.descents:
            descent.steps += count

    def _row_inputs(self, targets: Sequence[Target]) -> tuple[Any, Any, Any]:
        """Lay out the rows of all agents: one-hot boundary values, unary utilities, and constants minus cutoffs."""
        agents, k, n = self.shape.agents, self.shape.k, self.shape.n
        interface_one_hot = np.zeros((agents, k, self.shape.o), dtype=np.float32)
        row_values = np.full((agents, k, n), FORBIDDEN_UTILITY, dtype=np.float32)
        constants = np.full((agents, k), -_EXCLUDED_ROW_CUTOFF)
        for b, (descent, target) in enumerate(zip(self.descents, targets, strict=True)):
            matrix, n_rows = descent.matrix, target.cutoffs.size
            row_values[b, :n_rows, self._columns[b]] = descent.in_units(matrix.value_utilities(target.digits)).T
            constants[b, :n_rows] = (matrix.interface_utilities(target.digits) - target.cutoffs) / descent.unit
            for row, column in np.ndindex(*target.digits.shape):
                interface_one_hot[b, row, sum(matrix.shape[:column]) + target.digits[row, column]] = 1
        put = self._arrays.put
        return put(interface_one_hot), put(row_values), put(constants)

    def _record_trials(self, steps_made: int) -> None:
        """Wait for the steps; record the excess of the descents that have reached a trial check."""
        if any(descent.steps == descent.next_trial_check for descent in self.descents):
            self._run_steps(steps_made, 0)
        least = self._arrays.get(self.steps.least_excess)
        for descent, excess in zip(self.descents, least.tolist(), strict=True):
            if descent.steps == descent.next_trial_check:
                descent.trial.append(excess * descent.unit)

    def _pad(self, points: Sequence[DescentPoint]) -> list[Any]:
        """Return the padded arrays of points: vectors of the hidden and of the boundary values, and messages."""
        agents, h, n, r, o = self.shape.agents, self.shape.h, self.shape.n, self.shape.r, self.shape.o
        sizes = (agents, n, r), (agents, o, r), (agents, h, n)
        parts = [np.zeros(shape, dtype=np.float32) for shape in sizes]
        for b, (point, columns) in enumerate(zip(points, self._columns, strict=True)):
            n_values, rank = columns.size, point.vectors.shape[1]
            parts[0][b, columns, :rank] = point.vectors[:n_values]
            parts[1][b, : len(point.vectors) - n_values, :rank] = point.vectors[n_values:]
            parts[2][b][: len(point.messages), columns] = point.messages
        return [self._arrays.put(part) for part in parts]

    def _unpad(self, b: int, parts: Sequence[Array]) -> DescentPoint:
        """Return one agent's point from padded arrays."""
        columns, (vectors, messages) = self._columns[b], self.descents[b].point
        rank, n_interface = vectors.shape[1], len(vectors) - columns.size
        padded = np.concatenate([parts[0][b, columns, :rank], parts[1][b, :n_interface, :rank]])
        return DescentPoint(padded, np.ascontiguousarray(parts[2][b][: len(messages), columns]))

    def _write_back(self) -> None:
        """Copy the current points and moments back to the descents."""
        points = [[self._arrays.get(part) for part in point] for point in self.steps.iterates]
        for b, descent in enumerate(self.descents):
            descent.point, descent.first_moment, descent.second_moment = (self._unpad(b, parts) for parts in points)


def domain_sizes(matrices: Sequence[UtilityMatrix], h: int) -> NDArray[np.int32]:
    """Return the domain sizes of the agents' hidden variables, (agents, h) int32; 0 for a padded variable."""
    padded = np.zeros((len(matrices), h), dtype=np.int32)
    for sizes, matrix in zip(padded, matrices, strict=True):
        sizes[: matrix.starts.size - 1] = np.diff(matrix.starts)
    return padded


def distinct_pairs(exists: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pairs consist of two different existing variables, (agents, h, h), given which variables exist."""
    are_distinct: NDArray[np.bool_] = exists[:, :, None] & exists[:, None, :] & ~np.eye(exists.shape[1], dtype=bool)
    return are_distinct


def value_columns(matrix: UtilityMatrix, d: int) -> Ints:
    """Return the positions of an agent's values in padded arrays with d values per variable, (n,) int64."""
    columns: Ints = matrix.variable_of * d + np.arange(matrix.variable_of.size) - matrix.starts[matrix.variable_of]
    return columns
