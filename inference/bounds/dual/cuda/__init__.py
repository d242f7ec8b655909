"""Dual ascent on an NVIDIA GPU: a block a graph or row, the same bounds as on the CPU, to the bit."""
