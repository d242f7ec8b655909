"""Semidefinite bounds of an agent's rows.

A row is an assignment of the agent's boundary variables (its interface). The bound adds the square of a linear function
of the assignment to the utilities. A square is never negative, so no utility falls and the bound stays valid. The
function is chosen such that the sum of the maxima of the new tables becomes small. This is the dual of a semidefinite
relaxation in low-rank (Burer-Monteiro) form.

``utility_matrix`` holds an agent's factors as one matrix. ``initial_factors`` and ``descent`` find the factor vectors
of the square in single precision. ``certificate`` rounds them to integers and bounds rows exactly. ``row_dual_ascent``
improves single rows by a dual ascent on the new tables. ``relaxation`` does all of that for the rows of a
``DualState``. ``per_row`` finds a square for one row at a time, and branches.
"""
