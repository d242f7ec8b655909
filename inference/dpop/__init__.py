"""DPOP's building blocks: division into agents, pseudo-tree over agents, computation of UTIL and VALUE messages."""
