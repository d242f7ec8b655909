"""The steps of the relaxation at a node, and when they end.

Descent steps of many nodes at once.

A node has one row, so the row's factor vector is one more row of the node's matrix of vectors. The Gram matrix of all
vectors then holds the products of pairs, of each value with the row, and of the row with itself. The weight matrix
holds the softmax weights of the pairs, and in the extra row and column those of the values. Its product with the
vectors is the gradient. A step therefore consists of two matrix products and these passes: the max-marginals of the
pairwise tables and the message update, twice each; the weights of the pairs; and the Adam step. All messages of a
variable are updated at once such that the max-marginals of its tables become equal. Both variables of a pair do so
simultaneously; the second update corrects the error of the first one. The CPU works in single precision; a GPU
multiplies in half precision (11 bits) and adds in single precision.

All nodes have arrays of the same size: h variables of d values each, n = h·d values and m > n vectors of r components,
of which number n is the row's. Unused vectors and weights are zero and stay zero; a fixed or padded variable has domain
size 0.

The step is Adam's (Kingma and Ba, 2015), except that all components of a vector share one second moment. That reads and
writes less, and bounds are as low or lower.

Schedules of descents: numbers of steps, temperatures and step sizes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.bounds.contract.tuning import (
    BRANCH_STEP_SIZE,
    BRANCH_STEPS,
    FINAL_STEP_SIZE,
    FINAL_TEMPERATURE,
    INITIAL_TEMPERATURE,
    MESSAGE_SWEEPS,
    MOMENTUM,
    ROOT_STEP_SIZE,
    ROOT_STEPS,
    SECOND_MOMENT_DECAY,
    STEP_SIZE_EXPONENT,
    STEPS_PER_CHECK,
    TEMPERATURE_EXPONENT,
    WARM_UP_SHARE,
)
from dmcmc.inference.runtime.types import Array

POWER = 32  # exponent of the softmax weight max(0, 1 + x / POWER)^POWER, which approximates exp(x)
RANK_MULTIPLE = 8  # the rank is padded to a multiple of this, for the tensor cores

PassLaunch = Callable[[int], None]  # runs a pass for the step with the given index in a schedule


class NodeStep(NamedTuple):
    """Parameters of a step.

    Attributes
    ----------
    inverse_temperature : float
        Inverse temperature of the maxima, per unit.
    step_size : float
        Step size in units, with Adam's bias correction of the first moment.
    bias_correction : float
        Factor for the root of the second moment, which starts at zero.
    """

    inverse_temperature: float
    step_size: float
    bias_correction: float


class NodeShape(NamedTuple):
    """Sizes of the arrays of a batch.

    Attributes
    ----------
    nodes : int
        Nodes of the batch.
    h : int
        Hidden variables per node.
    d : int
        Values per variable.
    r : int
        Rank: components of a factor vector.
    """

    nodes: int
    h: int
    d: int
    r: int

    @property
    def n(self) -> int:
        """Hidden values per node."""
        return self.h * self.d

    @property
    def m(self) -> int:
        """Vectors per node: values, the row, and padding to a multiple of 8 for the tensor cores."""
        return -(-(self.n + 1) // 8) * 8

    @property
    def bytes(self) -> int:
        """Estimated bytes of a batch.

        Per node: two float16 arrays (m, m), the vectors with gradient, moments, best point and temporary arrays, the
        messages with max-marginals and best point, and small arrays.
        """
        bytes_per_node = 4 * self.m**2 + 20 * self.m * self.r + 12 * self.h * self.n + 16 * self.n
        return self.nodes * bytes_per_node


class NodeInputs(NamedTuple):
    """Arrays that stay constant during the steps; utilities are in units.

    Attributes
    ----------
    utilities : (agents, n, n) float32
        Pairwise utilities; padded values are forbidden.
    agents : (nodes,) int32
        Agent of each node.
    sizes : (nodes, h) int32
        Domain sizes; 0 for a fixed or padded variable.
    table_counts : (nodes,) float32
        Number of tables over each variable of a node: one per pair and the unary one.
    values : (nodes, n) float32
        Unary utilities.
    constants : (nodes,) float64
        Utility of the node without free variables.
    """

    utilities: Any
    agents: Any
    sizes: Any
    table_counts: Any
    values: Any
    constants: Any


class NodeWorkspace(NamedTuple):
    """Arrays that the steps change.

    Attributes
    ----------
    vectors : (nodes, m, r) float32
        Factor vectors.
    half_vectors : (nodes, m, r) half
        The vectors in the type of ``NodeArrays.half``; the same array if that is float32.
    gradients, first_moment : (nodes, m, r) half
        Gradients, and their running means (Adam's m).
    second_moment : (nodes, m) float32
        Running means of the squared gradient of each vector (Adam's v).
    products : (nodes, m, m) half
        Gram matrices of the vectors.
    weights : (nodes, m, m) half
        Softmax weights of pairs (values, values), of values (diagonal, row n, column n) and of the row, which is 1.
    messages : (nodes, h, n) float32
        Messages, laid out as in ``node_kernels``.
    value_maxima : (nodes, h, n) float32
        Smoothed max-marginals of the pairwise tables, laid out as the messages.
    best : (nodes, h) float32
        Maximum of each variable's unary table.
    maxima : (nodes, h, h) float32
        Maximum of each pairwise table, stored for both orders of the pair.
    """

    vectors: Any
    half_vectors: Any
    gradients: Any
    first_moment: Any
    second_moment: Any
    products: Any
    weights: Any
    messages: Any
    value_maxima: Any
    best: Any
    maxima: Any


class StepPasses(NamedTuple):
    """Launches of the passes of a step, in order.

    Attributes
    ----------
    multiply : PassLaunch
        Gram matrices of the vectors.
    value_maxima : PassLaunch
        Smoothed max-marginals of the pairwise tables.
    update_messages : PassLaunch
        Message update, and the weights and maxima of the unary tables.
    pair_weights : PassLaunch
        Weights and maxima of the pairwise tables.
    gradient : PassLaunch
        Product of weights and vectors.
    adam_step : PassLaunch
        Step of the vectors.
    """

    multiply: PassLaunch
    value_maxima: PassLaunch
    update_messages: PassLaunch
    pair_weights: PassLaunch
    gradient: PassLaunch
    adam_step: PassLaunch


class NodeArrays(Protocol):
    """An array library with the passes of a step.

    Attributes
    ----------
    module : module
        NumPy or CuPy.
    half : dtype
        Type of products, weights and gradients: float16 or float32.
    """

    module: Any
    half: Any

    def put(self, array: Array) -> Any:
        """Return a copy of a NumPy array in the library's memory."""
        ...

    def get(self, array: Any) -> Array:
        """Return a NumPy copy of an array, once all work queued before is complete."""
        ...

    def passes(self, given: NodeInputs, work: NodeWorkspace, schedule: Any, shape: NodeShape) -> StepPasses:
        """Return the passes for the steps of a schedule, (steps, 3) float32 with the fields of ``NodeStep``."""
        ...


class NodeDescent:
    """Makes descent steps for a batch of nodes.

    Call ``passes`` once per schedule, then ``advance`` for consecutive ranges of steps, then ``finish``; ``best`` is
    valid after that.

    Parameters
    ----------
    shape : NodeShape
        Sizes of the arrays.
    given : NodeInputs
        Constant arrays.
    vectors : (nodes, m, r) float32
        Initial factor vectors, in the array library's memory.
    messages : (nodes, h, n) float32
        Initial messages, in the array library's memory.
    arrays : NodeArrays
        The array library.

    Attributes
    ----------
    shape : NodeShape
        Sizes of the arrays.
    workspace : NodeWorkspace
        Current state.
    best : tuple of arrays
        Factor vectors and messages with the smallest bound of all checks; the initial ones before the first check.
    least_bound : (nodes,) float64
        That bound, in units; infinity before the first check.
    """

    def __init__(self, shape: NodeShape, given: NodeInputs, vectors: Any, messages: Any, arrays: NodeArrays) -> None:
        self.shape, self._given, self._arrays, xp = shape, given, arrays, arrays.module
        n_nodes, h, n, m = shape.nodes, shape.h, shape.n, shape.m

        def empty(*sizes: int, dtype: Any = np.float32) -> Any:
            return xp.zeros((n_nodes, *sizes), dtype=dtype)

        half, half_vectors = arrays.half, vectors.astype(arrays.half, copy=False)
        self.workspace = NodeWorkspace(
            vectors, half_vectors, xp.zeros_like(half_vectors), xp.zeros_like(half_vectors), empty(m),
            empty(m, m, dtype=half), empty(m, m, dtype=half), messages, empty(h, n), empty(h), empty(h, h),
        )  # fmt: skip
        self.workspace.weights[:, n, n] = 1
        self.best = vectors.copy(), messages.copy()
        self.least_bound = xp.full(n_nodes, np.inf)

    def passes(self, schedule: Array) -> StepPasses:
        """Return the passes for the steps of a schedule, (steps, 3) float32 with the fields of ``NodeStep``."""
        return self._arrays.passes(self._given, self.workspace, self._arrays.put(schedule), self.shape)

    def advance(self, passes: StepPasses, first: int, last: int, steps: int) -> None:
        """Make the steps ``first`` to ``last - 1`` of a schedule of ``steps`` steps.

        In the second half of the schedule, check for the best point every ``STEPS_PER_CHECK`` steps.
        """
        for step in range(first, last):
            self._evaluate(passes, step)
            if step % STEPS_PER_CHECK == 0 and 2 * step >= steps:
                self._update_best()
            passes.gradient(step)
            passes.adam_step(step)

    def finish(self, passes: StepPasses, step: int) -> None:
        """Check whether the current point is the best, with the parameters of a step."""
        self._evaluate(passes, step)
        self._update_best()

    def _evaluate(self, passes: StepPasses, step: int) -> None:
        """Update the messages, and compute the weights at the current vectors."""
        passes.multiply(step)
        for _ in range(MESSAGE_SWEEPS):
            passes.value_maxima(step)
            passes.update_messages(step)
        passes.pair_weights(step)

    def _update_best(self) -> None:
        """Copy the current points of the nodes whose bound is smaller than before."""
        xp, n, work = self._arrays.module, self.shape.n, self.workspace
        bounds = self._given.constants + work.products[:, n, n].astype(np.float64)
        # half: each pair occurs in both orders
        bounds += work.best.sum(axis=1, dtype=np.float64) + work.maxima.sum(axis=(1, 2), dtype=np.float64) / 2
        improved = bounds < self.least_bound
        self.least_bound = xp.where(improved, bounds, self.least_bound)
        for best, current in zip(self.best, (work.vectors, work.messages), strict=True):
            xp.copyto(best, current, where=improved[:, None, None])


class NodeSchedule(NamedTuple):
    """Number of steps of a node's descent, with temperatures and step sizes, in units.

    A unit is half the root mean variance of the agent's pairwise tables. With the share p of steps made, the
    temperature is T₀ (T₁ / T₀)^(p^3.7) and the step size s₀ (s₁ / s₀)^(p²), times a linear warm-up over the first fifth
    of the steps. Both decrease late: the steps with a high temperature and a large step size gain most.

    Attributes
    ----------
    steps : int
        Number of steps.
    initial_temperature, final_temperature : float
        Temperatures of the first and last step.
    initial_step_size, final_step_size : float
        Step sizes of the first (after the warm-up) and last step, without Adam's bias correction.
    """

    steps: int
    initial_temperature: float
    final_temperature: float
    initial_step_size: float
    final_step_size: float

    def at(self, step: int) -> NodeStep:
        """Return the parameters of a step, numbered from 0."""
        progress = step / max(1, self.steps - 1)
        inverse_temperature = 1 / (
            self.initial_temperature
            * (self.final_temperature / self.initial_temperature) ** progress**TEMPERATURE_EXPONENT
        )
        step_size = (
            self.initial_step_size
            * (self.final_step_size / self.initial_step_size) ** progress**STEP_SIZE_EXPONENT
            * min(1.0, (progress + 1 / self.steps) / WARM_UP_SHARE)
        )
        return NodeStep(
            inverse_temperature,
            step_size / (1 - MOMENTUM ** (step + 1)),
            (1 - SECOND_MOMENT_DECAY ** (step + 1)) ** -0.5,
        )


ROOT_SCHEDULE = NodeSchedule(ROOT_STEPS, INITIAL_TEMPERATURE, FINAL_TEMPERATURE, ROOT_STEP_SIZE, FINAL_STEP_SIZE)
BRANCH_SCHEDULE = NodeSchedule(BRANCH_STEPS, INITIAL_TEMPERATURE, FINAL_TEMPERATURE, BRANCH_STEP_SIZE, FINAL_STEP_SIZE)
