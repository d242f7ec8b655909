"""Semidefinite lifts on a GPU: passes of a step over all agents' or cases' pairs and vectors, and what carries them.

:mod:`.step_kernels` and :mod:`.case_kernels` have the passes, :mod:`.arrays` and :mod:`.case_arrays` launch them beside
cuBLAS's products of matrices (by CuPy).
"""
