"""What every rank knows before the work starts: the divided problem, the agents' tree, methods, places."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dmcmc.config.settings import Cooling
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.compact_sequences import Repeated
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.memo import Known
from dmcmc.mpi.message_contents import Sent
from dmcmc.run.planning.combination_plan import joins
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.samplers.auto.choose import Choice, Limits, exact_option, sampled_choice, too_much
from dmcmc.samplers.auto.rates import Rates
from dmcmc.samplers.auto.survey import SAMPLER, Survey, Surveys
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.model.schedule import Temperature

_SERIOUS = 0.05  # of the time budget: exact agents that take less will not be given up
_FEW, _KEPT = 1 << 10, 1 << 16  # factors between agents, and entries of all of them, that are kept encoded
_FILTERED = 1e19  # joined cells beyond which no incumbent leaves few enough: 10^16 take half a minute


@dataclass(frozen=True)
class Setup(Divided):
    """What every rank knows before the work starts.

    All of it is the same on every rank, but for the backend: the numbers of threads may differ.

    Attributes
    ----------
    surveys, choices : sequence
        Each agent's work, counted, and what it does.
    limits, rates
        What the choices were made by.
    room : int
        Bytes that an agent's UTIL step may take.
    owner : tuple of int
        The rank of each agent.
    slicing : Slicing or None
        Which variables UTIL steps work off value by value; None where tables are joined as they are.
    one_core : bool
        Whether one rank of each node combines for all of its agents.
    told : dict
        What agents have sent to find their tree.
    helpers : tuple of tuple of int
        Of each agent the ranks that work on its rows beside its own: those that own no agent.
    facts : Known
        What follows from all of it but the tables' entries.
    """

    tree: PseudoTree
    surveys: Sequence[Survey]
    choices: Sequence[Choice]
    limits: Limits
    rates: Rates
    room: int
    owner: tuple[int, ...]
    backend: Backend
    slicing: Slicing | None = None
    one_core: bool = False
    told: Mapping[int, Sent] = field(default_factory=dict)
    helpers: tuple[tuple[int, ...], ...] = ()
    facts: Known = field(default_factory=Known, compare=False, repr=False)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The local solver of each agent."""
        return tuple(choice.method for choice in self.choices)

    @cached_property
    def listed(self) -> tuple[int, ...]:
        """How many rows a sampled agent's table has where that is not all of them; 0 for all."""
        return tuple(choice.listed for choice in self.choices)

    @cached_property
    def weights(self) -> list[float]:
        """What each agent's gap may be, beside other agents'."""
        return Surveys.weights_in(self.surveys)

    @cached_property
    def crossing(self) -> Sequence[Table]:
        """All factors between agents, encoded, once a problem; nothing where they are many or large.

        Other ranks may know some of them alone.
        """
        factors = self.division.crossing
        if not isinstance(factors, tuple) or len(factors) > _FEW:
            return ()

        def encoded() -> Sequence[Table]:
            small = sum([factor.table.size for factor in factors]) <= _KEPT
            return [self.arithmetic.encode(factor) for factor in factors] if small else ()

        return self.problem.known.once(("crossing", self.arithmetic), encoded)

    @property
    def largest_join(self) -> float:
        """The entries of the largest table that combining can take, if all an agent meets was one table."""
        return self.facts.once("join", lambda: max(joins(self.problem, self.division, self.tree), default=1.0))

    def exact_price(self, agent: int) -> float | None:
        """Return about what the exact elimination of an agent that is sampled takes; None where that is not allowed."""
        work, asked = self.surveys[agent], self.config.local.method
        if self.methods[agent] == "exact" or asked not in ("auto", "exact") or too_much(work, self.limits):
            return None
        return exact_option(work, self.limits, self.rates).seconds

    @property
    def never_given_up(self) -> bool:
        """Whether exact agents stay exact whatever the clock says: nothing else is compiled for them."""
        budget = self.config.budget.time
        exact = sum(choice.seconds for choice in self.choices if choice.method == "exact")
        return budget is None or exact <= _SERIOUS * budget

    def possible(self, agents: Iterable[int]) -> list[tuple[int, Choice]]:
        """Return what agents do; of exact ones that may be given up, what they do then, too."""
        found = [(agent, self.choices[agent]) for agent in agents]
        if self.never_given_up:
            return found
        doubtful = [agent for agent, choice in found if choice.method == "exact" and not self.surveys[agent].obstacle]
        return found + [
            (agent, sampled_choice(self.surveys[agent], SAMPLER, "", self.limits, self.rates)) for agent in doubtful
        ]

    def filters(self, agent: int) -> bool:
        """Return whether an agent that is sampled may be eliminated without what cannot beat the incumbent."""
        local, choice = self.division.locals[agent], self.choices[agent]
        alone = bool(local.hidden) and not local.interface and self.surveys[agent].cells <= _FILTERED
        return alone and choice.method != "exact" and choice.bound != "none" and self.config.local.method == "auto"

    def of_rank(self, rank: int) -> list[int]:
        """Return the agents that a rank works for."""
        return [agent for agent, owner in enumerate(self.owner) if owner == rank]

    def helped_by(self, rank: int) -> int | None:
        """Return the agent whose rows a rank without an agent of its own works on."""
        return next((agent for agent, ranks in enumerate(self.helpers) if rank in ranks), None)

    def ending(self, stop: Stop) -> "Setup":
        """Return the same for work that has to end."""
        return self if stop is self.backend.stop else replace(self, backend=replace(self.backend, stop=stop))

    def changed(self, choices: Mapping[int, Choice]) -> "Setup":
        """Return the same with other choices of some agents; the same object if there are none."""
        if not choices:
            return self
        changed = Repeated.of(choices.get(a, choice) for a, choice in enumerate(self.choices))
        return replace(self, choices=changed, facts=Known())

    def sampling(self) -> Sampling:
        """Return what local solvers are told."""
        options = self.config.local
        return Sampling(
            arithmetic=self.arithmetic,
            seed=self.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=temperature_of(options.temperature),
            backend=self.backend,
            starts=options.starts,
        )


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configuration's temperature as samplers take it."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))
