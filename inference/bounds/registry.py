"""Providers of bounds by name: ours, and those that other distributions register under ``dmcmc.bounds``."""

from dmcmc.inference.bounds import calibration, mini_bucket
from dmcmc.inference.bounds.contract.protocol import BoundProvider
from dmcmc.inference.bounds.dual import provider as dual
from dmcmc.inference.bounds.semidefinite import provider as semidefinite
from dmcmc.inference.runtime.plugins import Plugins


def _accept(loaded: object) -> BoundProvider | None:
    """Take anything with a BoundProvider's name, summary and start."""
    return loaded if isinstance(loaded, BoundProvider) else None


_PLUGINS: Plugins[BoundProvider] = Plugins(
    group="dmcmc.bounds",
    what="provider of bounds",
    ours={
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
    expected="is no BoundProvider",
    also=("auto", "none"),
)
names = _PLUGINS.names
get = _PLUGINS.get
