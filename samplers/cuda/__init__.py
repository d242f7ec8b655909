"""Chains on an NVIDIA GPU: a thread a chain, or several.

The states of ``gibbs`` and ``annealing`` are the CPU's, to the bit. Other samplers decide by ``math.log`` and the like:
their chains may part where a decision hangs on the last bit.
"""
