"""NCBB, no-commitment branch and bound: different subtrees of an agent search for different values of it.

Source: Chechetka, Sycara: No-commitment branch and bound search for distributed constraint optimization, AAMAS 2006.
"""

from dmcmc.algorithms.pt_fb import TreeSearch


class NCBB(TreeSearch):
    """Give each child that has nothing to do the value with the least lower bound that it has not searched for.

    A child begins once the agents of its subtree have answered with bounds, if these are not too high.
    """

    name = "ncbb"
    summary = "branch and bound on a pseudo-tree, in which subtrees search for different values at the same time"
    paper = "Chechetka, Sycara: No-commitment branch and bound search for distributed constraint optimization, 2006"

    def bounded(self, child: int, value: int, missing: int) -> None:
        """Let the child search once all bounds are there."""
        if not missing:
            if self.total(value) < self.upper:
                self.search_below(child)
            else:
                del self.attempts[child]

    def choose(self) -> None:
        """Choose values for all children that have nothing to do."""
        for child in self.children:
            values = [d for d in self.open[child] if self.total(d) < self.upper]
            if values and child not in self.attempts:
                self.try_value(child, min(values, key=lambda value: (self.total(value), value)))
                if not self.asked[child][1]:
                    self.search_below(child)
        if not self.attempts:
            self.answer()
