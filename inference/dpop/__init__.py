"""Agents: who owns what, the pseudo-tree over them, and the steps that make UTIL and VALUE messages."""
