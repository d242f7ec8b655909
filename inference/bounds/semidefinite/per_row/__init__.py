"""Semidefinite bounds of single rows and of the nodes of a branch and bound in them.

They follow the descent whose term all rows of an agent share. Each node is a row with the values that each hidden
variable may take, and has its own positive semidefinite term L Lᵀ. ``bounder`` bounds the nodes of a search
(``branch_and_bound``), ``bound_single_rows`` runs the searches of several agents. ``nodes`` defines the schedules,
``device_buffers`` lays out the agents once, ``node_steps`` defines the descent steps, ``node_batch`` makes them for
many nodes at once, ``certificates`` bounds the nodes exactly on the device.
"""
