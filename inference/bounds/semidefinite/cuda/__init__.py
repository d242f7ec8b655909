"""Semidefinite lifts on a GPU: passes of a step over all agents' pairs and vectors, and what carries them.

:mod:`.step_kernels` has the passes, :mod:`.arrays` launches them beside cuBLAS's products of matrices (by CuPy).
"""
