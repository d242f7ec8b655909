"""Bound and search the whole problem as one agent, where combined tables alone prove little."""
