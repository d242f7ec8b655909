"""Semidefinite relaxations on a GPU.

``step_kernels`` and ``node_kernels`` hold the kernels of a step for a batch of agents or nodes. ``device_arrays`` and
``node_arrays`` launch them, next to cuBLAS products of matrices (via CuPy). ``certificate_kernels`` computes exact
maxima, and ``batched_relaxation`` runs the relaxations of several agents.
"""
