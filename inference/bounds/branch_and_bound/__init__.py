"""Best-first branch and bound over an agent's boundary assignments (rows), with any bounder.

A node is a row together with the values that each hidden variable of the agent may still take. ``bounder`` defines the
protocol of bounders, ``frontier`` holds the open nodes, and ``row_search`` runs the searches of several agents.

``dual_bounder`` bounds nodes by dual ascent on reparametrised tables, which a branch inherits from its parent. Values
that a branch excludes become forbidden entries of these tables. ``node_buffers`` defines the stored tables, and
``node_kernels`` processes a node. ``semidefinite.per_row`` has a bounder with semidefinite bounds.
"""
