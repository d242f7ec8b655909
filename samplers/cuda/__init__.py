"""Markov chains on an NVIDIA GPU: one or several threads per chain.

The states of ``gibbs`` and ``annealing`` are bitwise those of the CPU. Other samplers use ``math.log`` and similar
functions, so their chains may diverge where a decision depends on the last bit.
"""
