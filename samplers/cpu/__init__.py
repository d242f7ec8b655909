"""Chains on CPU threads."""
