"""Pseudo-tree heuristics: rules that arrange agents in a tree, one per file, and those of other distributions.

``combine.tree`` names the heuristic. Other distributions add heuristics through the entry-point group ``dmcmc.trees``
(see :mod:`dmcmc.inference.dpop.trees.registry`).
"""
