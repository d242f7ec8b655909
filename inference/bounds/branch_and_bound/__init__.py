"""Search in rows: nodes are rows with some hidden values removed, each with a dual ascent of its own.

A node inherits its parent's shares; what is left out of a branch is dead in them. :mod:`.search` is what a bound's user
calls, :mod:`.tree` has the open nodes, :mod:`.pool` their tables, :mod:`.node_kernels` what happens at a node.
"""
