"""Semidefinite relaxations on a GPU.

``node_kernels`` holds the kernels of a step for a batch of nodes. ``node_arrays`` launches them, next to cuBLAS
products of matrices (via CuPy); ``device_arrays`` says whether CuPy works. ``batched_relaxation`` runs the relaxations
of several agents.
"""
