"""Local search over complete assignments on an NVIDIA GPU: many annealed chains at once, one thread block per chain."""
