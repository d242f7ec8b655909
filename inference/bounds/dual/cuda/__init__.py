"""Dual ascent on an NVIDIA GPU, one thread block per graph or row; unsmoothed bounds equal the CPU's to the bit."""
