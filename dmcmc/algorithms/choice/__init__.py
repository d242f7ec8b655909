"""Run any algorithm: dmcmc's own, or one of :mod:`dmcmc.algorithms`, with the same kind of result."""
