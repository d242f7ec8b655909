"""Classes of global constraints by name: built-in ones, and those that other packages register.

``dmcmc.constraints`` is an entry-point group: a package that is installed with such an entry point, a subclass of
``GlobalConstraint``, adds a class.
"""

from dmcmc.inference.constraints.all_different import AllDifferentConstraint
from dmcmc.inference.constraints.count import CountConstraint
from dmcmc.inference.constraints.cumulative import BreaksConstraint, CumulativeConstraint
from dmcmc.inference.constraints.element import ElementConstraint
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.constraints.no_overlap import NoOverlapConstraint, PrecedenceConstraint
from dmcmc.inference.constraints.schedules import AdjacencyConstraint, IdleSlotConstraint, PlaceChangesConstraint
from dmcmc.inference.runtime.plugins import Plugins

_PLUGINS: Plugins[type[GlobalConstraint]] = Plugins(
    group="dmcmc.constraints",
    noun="constraint",
    built_in={
        kind.kind: kind
        for kind in (
            AllDifferentConstraint,
            BreaksConstraint,
            CountConstraint,
            CumulativeConstraint,
            ElementConstraint,
            NoOverlapConstraint,
            PrecedenceConstraint,
            AdjacencyConstraint,
            IdleSlotConstraint,
            PlaceChangesConstraint,
        )
    },
    accept=lambda loaded: loaded if isinstance(loaded, type) and issubclass(loaded, GlobalConstraint) else None,
    expected="is not a subclass of GlobalConstraint",
)
names = _PLUGINS.names
get = _PLUGINS.get
