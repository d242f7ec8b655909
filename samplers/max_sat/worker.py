"""The functions of the MaxSAT engine's process (``dmcmc.samplers.external.worker``): encode a problem, and search it.

The search is RC2 (Ignatiev, Morgado and Marques-Silva, JSAT 11, 2019), which raises a lower bound by unsatisfiable
cores until a model attains it. Soft clauses with large weights come first (stratification). The process prints
``solution`` and the values of all variables, ``bound`` and a lower bound on the cost, and ``complete`` when the search
has proven its result.
"""

import threading
from typing import Any

from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import Arrays
from dmcmc.samplers.max_sat.formula import EncodedVariables
from dmcmc.samplers.max_sat.tables import LoadConstraints, add_cost_functions

_SOLVER = "g4"  # Glucose 4.1, which can be interrupted


def prepare() -> None:
    """Import python-sat."""
    import pysat.card
    import pysat.examples.rc2  # noqa: F401


def search(job: dict[str, Any], arrays: Arrays) -> None:
    """Search one problem and print what is found.

    Parameters
    ----------
    job : dict
        ``top``: the cost to beat; ``seconds``: the time limit.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    from pysat.formula import WCNF

    encoded, formula = EncodedVariables(arrays), WCNF()
    add_cost_functions(encoded, arrays)
    LoadConstraints(encoded, problem_arrays.constraints(arrays)).add()
    arrays.clear()
    soft, constant = encoded.formula.soft(), encoded.formula.constant
    formula.extend(encoded.formula.clauses)
    formula.extend([[literal] for literal, _ in soft], [weight for _, weight in soft])
    encoded.formula.clauses.clear()
    search = _search_of(formula, encoded, constant, job["top"])
    timer = threading.Timer(job["seconds"], search.end)
    timer.start()
    try:
        if search.run():
            print("complete")
    finally:
        timer.cancel()
        search.delete()


class _Beaten(Exception):
    """Raised if no assignment is better than the known one."""


def _search_of(formula: Any, encoded: EncodedVariables, constant: int, top: int) -> Any:
    """Return RC2 on a formula, which prints its bounds and models."""
    from pysat.examples.rc2 import RC2Stratified

    class Search(RC2Stratified):  # type: ignore[misc]
        """RC2 with stratification that prints its bounds and models."""

        ended = False

        def end(self) -> None:
            """Stop the search; called in another thread."""
            self.ended = True
            self.interrupt()

        def run(self) -> bool:
            """Search; return whether the result is proven."""
            satisfiable = self._call_oracle(expect_interrupt=True)
            if self.ended or not satisfiable:
                return satisfiable is False and not self.ended
            self._print_model()
            if not formula.soft:
                return True
            try:
                self._print_bound()
                self.compute(expect_interrupt=True)
            except _Beaten:
                return True
            if self.ended:
                return False
            self._print_model()
            return True

        def process_core(self) -> None:
            """Take a core, which raises the bound."""
            super().process_core()
            if not self.ended:
                self._print_bound()

        def finish_level(self) -> None:
            """Finish an optimisation level, which has a model."""
            self._print_model()
            super().finish_level()

        def _print_bound(self) -> None:
            """Print the lower bound on the cost."""
            if constant + self.cost >= top:
                raise _Beaten
            print("bound", constant + self.cost, flush=True)

        def _print_model(self) -> None:
            """Print the values of the variables in the last model."""
            known = self.vmap.i2e
            true = {known[abs(x)] if x > 0 else -known[abs(x)] for x in self.oracle.get_model() if abs(x) in known}
            print("solution", *encoded.values(true), flush=True)

    return Search(formula, solver=_SOLVER, adapt=True, exhaust=True, minz=True)
