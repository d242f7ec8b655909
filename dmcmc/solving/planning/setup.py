"""The plan of a run (``Setup``): the divided problem, the agents' pseudo-tree, methods and ranks.

``dmcmc.solving.planning.plan`` makes it; everything that runs afterwards reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from msgspec.structs import replace as replace_settings

from dmcmc.config.settings import Cooling
from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.pseudotree import PseudoTree, TreeSize, tree_size
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.compact_sequences import RepeatedRecords
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.choose import AgentChoice, ResourceLimits, exact_option, exceeded_limit, sampled_choice
from dmcmc.samplers.auto.rates import Rates
from dmcmc.samplers.auto.survey import SAMPLER, AgentWorkCounts, weights_of
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.model.schedule import Temperature
from dmcmc.solving.planning.combination_plan import may_split_buckets
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.tuning import MAX_FILTERED_CELLS, NEVER_GIVEN_UP_PART


@dataclass(frozen=True)
class Setup(DividedProblem):
    """The plan of a run, which is the same on every rank, except for the number of threads in the backend.

    Attributes
    ----------
    tree : PseudoTree
        The agents' pseudo-tree.
    surveys : sequence of AgentWorkCounts
        The counted work of each agent: rows, cells, table sizes.
    choices : sequence of AgentChoice
        The chosen method of each agent.
    limits : ResourceLimits
        Time and memory by which the choices were made.
    rates : Rates
        The machine's speed by which the choices were made.
    step_bytes : int
        Bytes that an agent's UTIL step may take.
    owner : tuple of int
        The rank of each agent.
    backend : Backend
        Devices, threads and deadline.
    slicing : Slicing or None
        How UTIL steps are sliced; None for whole tables.
    one_rank_combines : bool
        Whether one rank of each node combines the tables of all of the node's agents.
    tree_messages : dict of SentMessages
        The messages that each agent has sent to build the pseudo-tree.
    helpers : tuple of tuple of int
        For each agent, the ranks that help with its rows because they own no agent.
    facts : DerivedFacts
        Cache of what follows from the plan without the tables' entries.
    """

    tree: PseudoTree
    surveys: Sequence[AgentWorkCounts]
    choices: Sequence[AgentChoice]
    limits: ResourceLimits
    rates: Rates
    step_bytes: int
    owner: tuple[int, ...]
    backend: Backend
    slicing: Slicing | None = None
    one_rank_combines: bool = False
    tree_messages: Mapping[int, SentMessages] = field(default_factory=dict)
    helpers: tuple[tuple[int, ...], ...] = ()
    facts: DerivedFacts = field(default_factory=DerivedFacts, compare=False, repr=False)

    def without_gpu(self, error: Exception, world: World) -> "Setup":
        """Return this plan for the CPU alone after the GPU of a rank has failed, on all ranks.

        What earlier runs of a session have kept may be in the memory of the GPU, and is dropped.

        Raises
        ------
        Exception
            The error itself, if it is not a failure of a GPU, if the plan uses none, or if other ranks continue.
        """
        if self.backend.device == "cpu" or gpu_fault(error) is None or not world.is_agreed(error):
            raise error
        if self.retained is not None:
            self.retained.forget_all()
        return self.on_cpu()

    def on_cpu(self) -> "Setup":
        """Return this plan for the CPU alone."""
        choices = [choice._replace(device="cpu") for choice in self.choices]
        config = replace_settings(self.config, device="cpu")
        backend = replace(self.backend, device="cpu")
        return replace(self, config=config, choices=choices, backend=backend, facts=DerivedFacts())

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The local solver of each agent."""
        return tuple(choice.method for choice in self.choices)

    @cached_property
    def listed_rows(self) -> tuple[int, ...]:
        """Number of listed rows of each sampled agent's table; 0 for all rows."""
        return tuple(choice.listed for choice in self.choices)

    @cached_property
    def weights(self) -> list[float]:
        """An estimate of each agent's optimality gap, relative to the others; right for agents that this rank knows."""
        weights: list[float] = weights_of(self.division.locals).tolist()
        return weights

    @property
    def will_prove(self) -> bool:
        """Whether the tables prove the optimum, given time: all are exact, and no bucket may be split."""

        def proven() -> bool:
            return all(choice.method == "exact" for choice in self.choices) and not may_split_buckets(self)

        return self.facts.get_or_compute("proven", proven)

    @property
    def tree_size(self) -> TreeSize:
        """Depth, induced width and table sizes of the pseudo-tree."""
        return self.facts.get_or_compute("tree", lambda: tree_size(self.problem, self.division, self.tree))

    def exact_seconds(self, agent: int) -> float | None:
        """Return the estimated seconds of a sampled agent's exact elimination; None if it is not allowed."""
        if self.methods[agent] == "exact" or self.config.local.method not in ("auto", "exact"):
            return None
        work = self.surveys[agent]
        return None if exceeded_limit(work, self.limits) else exact_option(work, self.limits, self.rates).seconds

    @property
    def never_given_up(self) -> bool:
        """Whether exact agents stay exact however long they take; no other methods are compiled for them then."""
        budget = self.config.budget.time
        exact = sum(choice.seconds for choice in self.choices if choice.method == "exact")
        return budget is None or exact <= NEVER_GIVEN_UP_PART * budget

    def possible_choices(self, agents: Iterable[int]) -> list[tuple[int, AgentChoice]]:
        """Return the choices of some agents, and the fallback choices of exact agents that may be given up."""
        choices = [(agent, self.choices[agent]) for agent in agents]
        if self.never_given_up:
            return choices
        may_fail = [agent for agent, choice in choices if choice.method == "exact" and not self.surveys[agent].obstacle]
        return choices + [
            (agent, sampled_choice(self.surveys[agent], SAMPLER, "", self.limits, self.rates)) for agent in may_fail
        ]

    def may_filter(self, agent: int) -> bool:
        """Return whether function filtering may be used for a sampled agent."""
        local, choice = self.division.locals[agent], self.choices[agent]
        suitable = bool(local.hidden) and not local.interface and self.surveys[agent].cells <= MAX_FILTERED_CELLS
        return suitable and choice.method != "exact" and choice.bound != "none" and self.config.local.method == "auto"

    def agents_of_rank(self, rank: int) -> list[int]:
        """Return the agents that a rank owns."""
        return [agent for agent, owner in enumerate(self.owner) if owner == rank]

    def agent_helped_by(self, rank: int) -> int | None:
        """Return the agent with whose rows a rank without own agents helps; None if there is none."""
        return next((agent for agent, ranks in enumerate(self.helpers) if rank in ranks), None)

    def with_stop(self, stop: Deadline) -> "Setup":
        """Return the same plan with a deadline."""
        return self if stop is self.backend.stop else replace(self, backend=replace(self.backend, stop=stop))

    def with_choices(self, choices: Mapping[int, AgentChoice]) -> "Setup":
        """Return the same plan with other choices for some agents; the same object if there are none."""
        if not choices:
            return self
        changed = RepeatedRecords.of(choices.get(a, choice) for a, choice in enumerate(self.choices))
        return replace(self, choices=changed, facts=DerivedFacts())

    def sampling_settings(self) -> Sampling:
        """Return the settings of the local solvers."""
        options = self.config.local
        return Sampling(
            arithmetic=self.arithmetic,
            seed=self.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=temperature_of(options.temperature),
            backend=self.backend,
            starts=options.starts,
            memory=self.limits.memory,
            diagnose=(options.diagnose or options.guarantee is not None) and not self.timed,
        )


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configured temperature in the form that samplers take."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))
