"""Agents for semidefinite relaxations, and NumPy references for the GPU kernels."""
