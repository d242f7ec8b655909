"""Bound providers by name: those of this package, and those that other packages register under ``dmcmc.bounds``.

``names()`` lists the names, and ``get(name)`` returns a provider. ``dmcmc.bounds`` is an entry-point group: a package
that is installed with such an entry point adds a provider.
"""

from dmcmc.inference.bounds import calibration, mini_bucket
from dmcmc.inference.bounds.contract.protocol import BoundProvider
from dmcmc.inference.bounds.dual import provider as dual
from dmcmc.inference.bounds.semidefinite import provider as semidefinite
from dmcmc.inference.runtime.plugins import Plugins


def _accept(loaded: object) -> BoundProvider | None:
    """Return the object if it has the members of a ``BoundProvider``, else None."""
    return loaded if isinstance(loaded, BoundProvider) else None


_PLUGINS: Plugins[BoundProvider] = Plugins(
    group="dmcmc.bounds",
    noun="bound provider",
    built_in={
        p.name: p
        for p in (
            dual.DUAL,
            dual.TRIANGLES,
            mini_bucket.PROVIDER,
            calibration.PAIRS,
            calibration.TRIANGLES,
            semidefinite.PROVIDER,
        )
    },
    accept=_accept,
    expected="is not a BoundProvider",
    other_names=("auto", "none"),
)
names = _PLUGINS.names
get = _PLUGINS.get
