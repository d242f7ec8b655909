"""Semidefinite bounds of an agent's rows.

A row is an assignment of the agent's boundary variables (its interface). The bound adds the square of a linear function
of the assignment to the utilities. A square is never negative, so no utility falls and the bound stays valid. The
function is chosen such that the sum of the maxima of the new tables becomes small. This is the dual of a semidefinite
relaxation in low-rank (Burer-Monteiro) form.

``utility_matrix`` holds an agent's factors as one matrix. ``shared_term`` is the square that all rows of an agent
share, ``initial_factors`` the start of its descent, and ``certificate`` bounds rows exactly with it. ``relaxation``
does all of that for the rows of a ``DualState``.

A *node* is a row, or the agent with its boundary variables hidden, with the values that each hidden variable may take.
``schedules`` defines them, ``agent_buffers`` lays out the agents once, and ``node_steps`` defines the steps of a
descent. ``node_batch`` makes them for many nodes at once, on the CPU by ``cpu_arrays``. ``node_certificates`` bounds
the nodes exactly. ``bounder`` bounds the nodes of a branch and bound in rows.
"""
