"""Chains on an NVIDIA GPU: a thread a chain, the same states as on the CPU."""
