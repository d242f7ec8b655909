"""Semidefinite relaxations on a GPU.

``node_kernels`` holds the kernels of a step for a batch of nodes. ``node_arrays`` launches them, next to cuBLAS
products of matrices (``device_arrays``, via CuPy). ``certificate_kernels`` computes exact maxima, and
``batched_relaxation`` runs the relaxations of several agents.
"""
