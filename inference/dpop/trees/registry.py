"""Pseudo-tree heuristics by name: the built-in ones, and those of other packages, registered under ``dmcmc.trees``.

``names()`` returns the summary of each heuristic by name. ``get(name)`` returns a heuristic, or raises an error with
the valid names.
"""

from dmcmc.inference.dpop.trees.breadth_first import BREADTH_FIRST
from dmcmc.inference.dpop.trees.contract import TreeHeuristic
from dmcmc.inference.dpop.trees.depth_first import MAX_CARDINALITY, MAX_DEGREE
from dmcmc.inference.dpop.trees.elimination_trees import MIN_FILL
from dmcmc.inference.dpop.trees.min_depth import MIN_DEPTH
from dmcmc.inference.runtime.plugins import Plugins

GROUP = "dmcmc.trees"
AUTO = "auto"  # the cheapest tree of a portfolio (``dmcmc.inference.dpop.pseudotree``)
DISTRIBUTED = "depth-first"  # the tree that agents find by messages (``dmcmc.mpi.distributed_dfs``)
BUILT_IN = (MAX_DEGREE, MAX_CARDINALITY, BREADTH_FIRST, MIN_DEPTH, MIN_FILL)


def _accept(loaded: object) -> TreeHeuristic | None:
    """Return a plug-in if it is a pseudo-tree heuristic, else None."""
    return loaded if isinstance(loaded, TreeHeuristic) else None


_PLUGINS: Plugins[TreeHeuristic] = Plugins(
    group=GROUP,
    noun="tree heuristic",
    built_in={heuristic.name: heuristic for heuristic in BUILT_IN},
    accept=_accept,
    expected="is not a TreeHeuristic",
    other_names=(AUTO, DISTRIBUTED),
)
names = _PLUGINS.names
get = _PLUGINS.get
