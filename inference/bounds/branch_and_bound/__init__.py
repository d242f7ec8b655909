"""Branch and bound over an agent's boundary assignments (rows), with a dual bound at each node.

A node is a row with some hidden values removed. It inherits the reparametrised tables of its parent; the values that a
branch excludes are forbidden in them. ``row_search`` runs the search of one or several agents, ``frontier`` holds the
open nodes, ``node_buffers`` their tables and the records exchanged with the kernels, ``node_kernels`` processes
a node, and ``engine`` runs batches of nodes on threads or on a GPU.
"""
