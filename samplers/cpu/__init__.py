"""Markov chains on CPU threads."""
