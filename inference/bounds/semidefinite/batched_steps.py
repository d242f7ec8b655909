"""Steps of the descents of one or several agents, for any array library.

``descent_batch.DescentBatch`` lays out the agents' arrays and calls ``BatchedSteps``. All agents' arrays have the same
size: h hidden variables, n values (n = h·d on a library that pads each variable to d values), rank r (components of a
factor vector), o values of the boundary variables and k rows (assignments of the boundary variables). Padding changes
no sum: padded vector entries are zero and stay zero, padded values are forbidden, padded variables have no pairs, and
padded rows lie far below their cutoffs.

A schedule is an array (steps, agents, 4) float32 of the fields of ``descent.StepParameters``: inverse temperature,
inverse temperature of the maximum over rows, step size, and bias correction. The excess of a row is its bound minus its
cutoff, the utility that it has to exceed to matter; a descent minimises the largest excess of an agent's rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.bounds.semidefinite.descent import STEPS_PER_CHECK
from dmcmc.inference.runtime.types import Array

StepLaunch = Callable[[int], None]  # runs a kernel for the step with the given index in a schedule


class BatchArrays(Protocol):
    """An array library, and the two kernels that it does not provide.

    Attributes
    ----------
    module : module
        NumPy or CuPy.
    padded : bool
        Whether all variables have the same number of values, and the rank is a multiple of 8. Otherwise, a batch has a
        single agent.
    """

    module: Any
    padded: bool

    def put(self, array: Array) -> Any:
        """Return a NumPy array in the library's memory."""
        ...

    def get(self, array: Any) -> Array:
        """Return an array as a NumPy array, once all work queued before is complete."""
        ...

    def value_maxima(self, entries: Any, variables: int) -> Any:
        """Return the maximum of the entries of each variable's values, (agents, k, h), from entries (agents, k, n).

        ``variables`` is h.
        """
        ...

    def value_weights(self, entries: Any, best: Any, inverse_temperatures: Any, totals: Any) -> Any:
        """Return the softmax weights of each variable's values, (agents, k, n) float32.

        Parameters
        ----------
        entries : (agents, k, n) float32
            Unary tables; may be overwritten.
        best : (agents, k, h) float32
            Their maxima.
        inverse_temperatures : (agents,) float32
            Inverse temperature of each agent.
        totals : (agents, k, h) float32
            Sum of the weights of each variable's values.
        """
        ...

    def product(self, left: Any, right: Any, out: Any, transposed: bool = False, low_precision: bool = False) -> None:
        """Compute ``out = left @ right`` for stacks of matrices, (agents, rows, columns) each.

        Parameters
        ----------
        left, right, out : (agents, rows, columns) float32
            Row-major stacks of matrices.
        transposed : bool
            Whether the right matrices are transposed first.
        low_precision : bool
            Whether the inputs may be rounded to 11 bits (TF32, on tensor cores).
        """
        ...

    def smooth(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], shape: tuple[int, int, int]) -> StepLaunch:
        """Return a launch that computes the softmax weights, their marginals and the maxima of all pairwise tables.

        Parameters
        ----------
        inputs : tuple
            utilities and products (agents, n, n) float32, messages (agents, h, n) float32, sizes (agents, h) int32,
            schedule. Their meaning is that of ``pair_kernels.smooth_pairs``; sizes are the domain sizes, 0 for a padded
            variable.
        outputs : tuple
            weights (agents, n, n), marginals (agents, h, n) and maxima (agents, h, h), all float32.
        shape : tuple of int
            Number of agents, variables per agent, values per variable.
        """
        ...

    def adam(self, arrays: tuple[Any, ...], schedule: Any, agents: int) -> StepLaunch:
        """Return a launch that makes an Adam step with an array.

        Parameters
        ----------
        arrays : tuple
            Four float32 arrays of one size, agents first: variables, gradient, first moment, second moment.
        schedule : (steps, agents, 4) float32
            Parameters of the steps.
        agents : int
            Number of agents.
        """
        ...


class BatchShape(NamedTuple):
    """Sizes of the padded arrays.

    Attributes
    ----------
    agents : int
        Number of agents.
    h : int
        Hidden variables per agent.
    d : int
        Values of the hidden variable with the most values.
    n : int
        Hidden values per agent, with padding.
    r : int
        Rank: components of a factor vector.
    o : int
        Values of the boundary variables, all variables together.
    k : int
        Rows per agent.
    """

    agents: int
    h: int
    d: int
    n: int
    r: int
    o: int
    k: int

    @property
    def bytes(self) -> int:
        """Estimated bytes of a batch.

        Per agent: three float32 arrays (n, n), eight arrays of the size of the factor vectors and eight of that of the
        messages (values, moments, gradients, best point, temporary arrays), and the arrays of the rows.
        """
        per_agent = (
            3 * self.n**2 + 8 * (self.n + self.o) * self.r + 8 * self.h * self.n + 8 * self.k * (self.n + self.r)
        )
        return 4 * self.agents * per_agent


class BatchInputs(NamedTuple):
    """Arrays that stay constant during the steps, in the array library's memory; all in units of the agents' descents.

    Attributes
    ----------
    utilities : (agents, n, n) float32
        Pairwise utilities.
    sizes : (agents, h) int32
        Domain sizes; 0 for a padded variable.
    variable_mask : (agents, 1, h) float32
        1 for an existing variable, 0 for a padded one.
    message_mask : (agents, h, n) float32
        1 for a message between two different existing variables, otherwise 0.
    interface_one_hot : (agents, k, o) float32
        1 for the values of the boundary variables that a row has.
    values : (agents, k, n) float32
        Unary utilities in each row.
    constants : (agents, k) float64
        Utility of each row without hidden variables, minus its cutoff.
    """

    utilities: Any
    sizes: Any
    variable_mask: Any
    message_mask: Any
    interface_one_hot: Any
    values: Any
    constants: Any


class BatchedSteps:
    """Makes descent steps for several agents.

    Parameters
    ----------
    shape : BatchShape
        Sizes of the arrays.
    given : BatchInputs
        Constant arrays.
    points : sequence of three lists
        The iterates, and Adam's first and second moments. Each is a list of the factor vectors of the hidden values
        (agents, n, r), those of the boundary values (agents, o, r), and the messages (agents, h, n), all float32.
    arrays : BatchArrays
        The array library.

    Attributes
    ----------
    shape : BatchShape
        Sizes of the arrays.
    iterates : sequence of three lists
        The arrays given as ``points``, updated in place.
    best : list of arrays
        Vectors and messages of the check with the smallest excess, laid out as ``points[0]``.
    least_excess : (agents,) float64
        The smallest excess of each agent, in units.
    """

    def __init__(
        self, shape: BatchShape, given: BatchInputs, points: Sequence[Sequence[Any]], arrays: BatchArrays
    ) -> None:
        self.shape, self.iterates, self._given, self._arrays = shape, points, given, arrays
        xp, agents, h, n, k = arrays.module, shape.agents, shape.h, shape.n, shape.k
        self._gradients = [xp.zeros_like(array) for array in points[0]]
        self.best = [array.copy() for array in points[0]]
        self.least_excess = xp.full(agents, np.inf)
        self._products, self._weights = xp.zeros_like(given.utilities), xp.zeros_like(given.utilities)
        self._marginals = xp.zeros((agents, h, n), dtype=np.float32)
        self._maxima = xp.zeros((agents, h, h), dtype=np.float32)
        self._entries = xp.zeros((agents, k, n), dtype=np.float32)
        self._row_products = xp.zeros((agents, k, k), dtype=np.float32)

    def advance(self, schedule: Array, steps_made: int, low_precision: bool) -> None:
        """Make the steps of a schedule, and check for the best point every ``STEPS_PER_CHECK`` steps.

        Parameters
        ----------
        schedule : (steps, agents, 4) float32
            Parameters of the steps.
        steps_made : int
            Number of steps made before.
        low_precision : bool
            Whether products may be rounded.
        """
        parameters = self._arrays.put(schedule)
        smooth, updates = self._launches(parameters)
        for step in range(len(schedule)):
            excess = self._evaluate(smooth, parameters, step, low_precision)
            if (steps_made + step) % STEPS_PER_CHECK == 0:
                self._update_best(excess)
            for update in updates:
                update(step)

    def finish(self, schedule: Array, low_precision: bool) -> None:
        """Check whether the current point is the best, with the parameters of the next step, (1, agents, 4) float32."""
        parameters = self._arrays.put(schedule)
        self._update_best(self._evaluate(self._launches(parameters)[0], parameters, 0, low_precision))

    def _update_best(self, excess: Any) -> None:
        """Store the current points of the agents whose excess is the smallest so far."""
        xp, improved = self._arrays.module, excess < self.least_excess
        self.least_excess = xp.where(improved, excess, self.least_excess)
        for best, current in zip(self.best, self.iterates[0], strict=True):
            xp.copyto(best, current, where=improved[:, None, None])

    def _launches(self, parameters: Any) -> tuple[StepLaunch, list[StepLaunch]]:
        """Return the launches for the steps of a schedule: one for the pairs, and one Adam step per array."""
        agents, h, d = self.shape[:3]
        given = self._given.utilities, self._products, self.iterates[0][2], self._given.sizes, parameters
        smooth = self._arrays.smooth(given, (self._weights, self._marginals, self._maxima), (agents, h, d))
        parts = zip(self.iterates[0], self._gradients, *self.iterates[1:], strict=True)
        return smooth, [self._arrays.adam(array, parameters, agents) for array in parts]

    def _evaluate(self, smooth: StepLaunch, parameters: Any, step: int, low_precision: bool) -> Any:
        """Compute the gradients at the current points; return each agent's approximate largest excess, (agents,).

        The softmax over rows weights the rows of an agent, and the softmax over a variable's values weights its values
        in each row. The gradients are products of these weights and the factor vectors. A slice ``[:, :: n + 1]`` of
        flattened (n, n) matrices is their diagonal.
        """
        xp, shape, given = self._arrays.module, self.shape, self._given
        hidden, interface, messages = self.iterates[0]
        gradient_hidden, gradient_interface, gradient_messages = self._gradients
        agents, k = shape.agents, shape.k
        product = partial(self._arrays.product, low_precision=low_precision)
        product(hidden, hidden, self._products, transposed=True)
        row_vectors = xp.matmul(given.interface_one_hot, interface)
        product(row_vectors, hidden, self._entries, transposed=True)
        smooth(step)
        unary_terms = self._products.reshape(agents, -1)[:, :: shape.n + 1] + messages.sum(axis=1)
        entries = 2 * self._entries
        entries += unary_terms[:, None, :]
        entries += given.values
        best = self._arrays.value_maxima(entries, shape.h)
        # each pair occurs in both orders
        pair_total = self._maxima.sum(axis=(1, 2), dtype=np.float64) / 2
        product(row_vectors, row_vectors, self._row_products, transposed=True)
        row_norms = self._row_products.reshape(agents, -1)[:, :: k + 1]
        excess = given.constants + row_norms + (best * given.variable_mask).sum(axis=2, dtype=np.float64)
        excess += pair_total[:, None]
        largest = excess.max(axis=1)

        # fields of a step: 0 is the inverse temperature, 1 that of the maximum over rows
        row_weights = xp.exp((excess - largest[:, None]) * parameters[step, :, 1, None]).astype(np.float32)
        row_weights /= row_weights.sum(axis=1, keepdims=True)
        totals = row_weights[:, :, None] * given.variable_mask
        value_weights = self._arrays.value_weights(entries, best, parameters[step, :, 0], totals)
        value_totals = value_weights.sum(axis=1)

        # the diagonal holds the weights of the values' squared norms
        self._weights.reshape(agents, -1)[:, :: shape.n + 1] = value_totals
        product(self._weights, hidden, gradient_hidden)
        gradient_hidden += xp.matmul(value_weights.transpose(0, 2, 1), row_vectors)
        row_gradient = xp.matmul(value_weights, hidden)
        row_gradient += row_weights[:, :, None] * row_vectors
        xp.matmul(given.interface_one_hot.transpose(0, 2, 1), row_gradient, out=gradient_interface)
        xp.subtract(value_totals[:, None, :], self._marginals, out=gradient_messages)
        gradient_messages *= given.message_mask
        return largest
