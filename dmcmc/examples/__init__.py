"""Commented examples that ``dmcmc init`` writes: a calendar and a configuration."""
