"""Choose where eliminations run: on the CPU only, or divided between CPU and GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dmcmc.inference.elimination.eliminate import Elimination, eliminate, merge_plans_cached, separated
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.execution import cost_model, gpu_eliminations
from dmcmc.inference.minibuckets.moment_matching import MatchedElimination, eliminate_matched
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_has_failed, gpu_problem, is_gpu_in_use, resolve_device, shared_device
from dmcmc.inference.tuning import MIN_PARALLEL_CELLS


@dataclass(frozen=True)
class Backend:
    """The processors that eliminations may use.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
        ``auto`` opens a GPU, if there is one, at the first elimination that is large enough.
    threads : int
        Number of CPU threads.
    processes_per_gpu : int
        Number of processes that share the GPU: each uses its part of the memory.
    stop : Deadline
        The deadline of eliminations, sampling and bounds.
    """

    device: str = "cpu"
    threads: int = 1
    processes_per_gpu: int = 1
    stop: Deadline = field(default=NO_DEADLINE, compare=False)

    @classmethod
    def of(cls, device: str, threads: int, sharers: int = 1) -> "Backend":
        """Return the backend for ``auto``, ``cpu`` or ``cuda``.

        Raises
        ------
        Unavailable
            If ``cuda`` is requested and there is no GPU.
        """
        if device == "cuda":
            resolve_device(device)
        return cls(device, threads, sharers)

    def eliminate(
        self,
        tables: Sequence[EncodedTable] | FlatTables,
        plan: EliminationPlan,
        arithmetic: Arithmetic,
        semiring: Semiring = MAX_PLUS,
    ) -> Elimination:
        """Run a plan, each bucket where it is faster; for integers the tables do not depend on where it runs.

        Tables that exceed the device's memory are streamed through it in chunks. If the device still runs out of
        memory, because other processes use it too, the CPU does the work.

        Parameters
        ----------
        tables
            Encoded tables, one for each input of the plan.
        plan
            The plan.
        arithmetic
            The arithmetic of the tables.
        semiring
            The semiring.

        Raises
        ------
        OutOfTime
            If the deadline :attr:`stop` passes.
        """
        threshold = self._gpu_threshold(plan)
        if threshold is not None:
            found = gpu_eliminations.eliminate_on_gpu(self, tables, plan, threshold, arithmetic, semiring)
            if found is not None:
                return found
        return eliminate(tables, plan, arithmetic, self.threads, semiring, self.stop)

    def eliminate_matched(
        self,
        tables: Sequence[EncodedTable] | FlatTables,
        plan: EliminationPlan,
        arithmetic: Arithmetic,
        magnitude_limit: int | float | None = None,
    ) -> MatchedElimination:
        """Run a mini-bucket plan with moment matching; integer results do not depend on where it runs.

        See :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`. A plan that exceeds the device's
        memory runs on the CPU.
        """
        threshold = self._gpu_threshold(plan)
        if threshold is not None:
            found = gpu_eliminations.eliminate_matched_on_gpu(
                self, tables, plan, threshold, arithmetic, magnitude_limit
            )
            if found is not None:
                return found
        return eliminate_matched(tables, plan, arithmetic, self.threads, magnitude_limit, self.stop)

    def eliminate_all(
        self, flat: FlatTables, plans: Sequence[EliminationPlan], arithmetic: Arithmetic, semiring: Semiring = MAX_PLUS
    ) -> Iterator[list[Elimination]]:
        """Run plans in their order, and yield those that were run together.

        A GPU runs as many together as fit its memory; the CPU runs all together if they are small.

        Parameters
        ----------
        flat
            Encoded tables: those of the first plan, then those of the second, ...
        plans
            The plans.
        arithmetic
            The arithmetic of the tables.
        semiring
            The semiring.
        """
        n_inputs = [plan.tables - plan.buckets for plan in plans]
        all_small = sum(plan.cells + plan.entries for plan in plans) < MIN_PARALLEL_CELLS
        merged = merge_plans_cached(plans) if len(plans) > 1 and (all_small or self.device != "cpu") else None
        if merged is not None:
            threshold = self._gpu_threshold(merged.plan)
            if threshold is not None:
                found = gpu_eliminations.eliminate_batch_on_gpu(
                    self, flat, plans, merged, threshold, arithmetic, semiring
                )
                if found is not None:
                    yield found
                    return
                n_first = len(plans) // 2
                cut = sum(n_inputs[:n_first])
                yield from self.eliminate_all(flat.table_range(0, cut), plans[:n_first], arithmetic, semiring)
                yield from self.eliminate_all(flat.table_range(cut, flat.tables), plans[n_first:], arithmetic, semiring)
                return
            if all_small:
                done = eliminate(flat, merged.contiguous_plan(plans), arithmetic, 1, semiring, self.stop)
                yield separated(done, merged, plans)
                return
        start = 0
        for plan, n_tables in zip(plans, n_inputs, strict=True):
            yield [self.eliminate(flat.table_range(start, start + n_tables), plan, arithmetic, semiring)]
            start += n_tables

    @property
    def may_use_gpu(self) -> bool:
        """Whether work may go to a GPU: one is allowed, and it has not failed."""
        return self.device != "cpu" and not gpu_has_failed()

    def samples_on_gpu(self, updates: int) -> bool:
        """Return whether this number of draws takes the CPU longer than a round trip to the GPU."""
        costs = cost_model.COSTS
        seconds = updates * costs.seconds_per_draw / self.threads
        return self._is_longer(seconds, costs.gpu_start, costs.gpu_round_trip)

    def bounds_on_gpu(self, seconds: float) -> bool:
        """Return whether bounds that take one core this many seconds should be computed on the GPU."""
        costs = cost_model.COSTS
        start = costs.min_bound_starts * costs.gpu_start * self.threads
        return self._is_longer(seconds, start, costs.min_bound_round_trips * costs.gpu_round_trip)

    def _is_longer(self, seconds: float, start: float, trip: float) -> bool:
        """Return whether work takes longer than a trip to the GPU, or than its start where it is not in use."""
        if self.device == "auto" and not is_gpu_in_use():
            return self.may_use_gpu and seconds > start and gpu_problem() is None
        return self.may_use_gpu and seconds > trip

    def eliminates_on_gpu_together(self, plans: Sequence[EliminationPlan]) -> bool:
        """Return whether :meth:`eliminate_all` would run these plans together on the GPU."""
        merged = None if len(plans) < 2 or self.device == "cpu" else merge_plans_cached(plans)
        return merged is not None and self._gpu_threshold(merged.plan) is not None

    def resident_bytes(self, plan: EliminationPlan) -> float:
        """Return the bytes of tables up to which a plan is not streamed through a GPU; infinite on the CPU."""
        return float("inf") if self._gpu_threshold(plan) is None else self.limit()

    def limit(self) -> int:
        """Return the device memory that this process may use, in bytes."""
        return shared_device().limit // self.processes_per_gpu

    def _gpu_threshold(self, plan: EliminationPlan) -> int | None:
        """Return the joined cells from which buckets should run on the GPU; None if the CPU alone is faster."""
        cpu_seconds = float(plan.cells) * cost_model.COSTS.seconds_per_cell
        if not self.worth_gpu(cpu_seconds):
            return None
        threshold, hybrid_seconds = cost_model.best_division(plan)
        return threshold if self.worth_gpu(cpu_seconds - hybrid_seconds) else None

    def worth_gpu(self, seconds: float) -> bool:
        """Return whether work that takes one core this many seconds should run on the GPU."""
        trip = cost_model.COSTS.gpu_round_trip
        return self._is_longer(seconds, max(trip, cost_model.COSTS.gpu_start * self.threads), trip)


CPU = Backend()
