"""Schedules of descents: numbers of steps, temperatures and step sizes."""

from typing import NamedTuple

from dmcmc.inference.bounds.semidefinite.node_steps import NodeStep
from dmcmc.inference.bounds.tuning.semidefinite import (
    BRANCH_STEP_SIZE,
    BRANCH_STEPS,
    FINAL_STEP_SIZE,
    FINAL_TEMPERATURE,
    INITIAL_TEMPERATURE,
    MOMENTUM,
    ROOT_STEP_SIZE,
    ROOT_STEPS,
    SECOND_MOMENT_DECAY,
    STEP_SIZE_EXPONENT,
    TEMPERATURE_EXPONENT,
    WARM_UP_SHARE,
)


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
