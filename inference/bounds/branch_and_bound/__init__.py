"""Branch and bound over an agent's boundary assignments (rows), with a dual bound at each node.

A node is a row together with the values that each hidden variable of the agent may still take. Its upper bound comes
from dual ascent on reparametrised tables, which a child node inherits from its parent. Values that a branch excludes
become forbidden entries of these tables.

``row_search`` runs the searches of several agents, ``frontier`` holds the open nodes, ``node_buffers`` defines the
stored tables and the records that are exchanged with the kernels, ``node_kernels`` processes a node, and ``engine``
runs batches of nodes on threads or on a GPU.
"""
