"""What ``budget.memory: auto`` is where several ranks share a machine."""

import msgspec

from dmcmc.config.settings import Settings, automatic_memory
from dmcmc.mpi.world import World


def sharing_memory(settings: Settings, world: World, most: int = 8 << 30) -> Settings:
    """Return settings in which ``budget.memory`` is a number: the same on all ranks, what the narrowest machine allows.

    Parameters
    ----------
    most
        The bytes that ``auto`` is at most.
    """
    if settings.budget.memory != "auto":
        return settings
    least = min(world.allgather(automatic_memory(world.local_size, most)))
    return msgspec.structs.replace(settings, budget=settings.budget.shared(least))
