"""Semidefinite bounds of single rows, by a best-first branch and bound per row.

It follows the descent whose term all rows of an agent share. Each node is a row with some hidden variables fixed, and
possibly the domain of the next one restricted, and has a positive semidefinite term L Lᵀ. ``nodes`` defines the
nodes, ``device_buffers`` lays out the agents once, ``node_steps`` defines the descent steps, ``node_batch`` makes them
for many nodes at once, ``certificates`` bounds the nodes exactly on the device. ``node_queue`` chooses the next nodes,
and ``bound_rows`` runs the batches and lowers the rows' bounds.
"""
