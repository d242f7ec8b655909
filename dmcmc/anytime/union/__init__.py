"""Bound and search the union of all agents, the problem as one agent, where combined tables alone prove little."""
