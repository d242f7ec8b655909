"""Local search over the whole assignment on an NVIDIA GPU: many chains that cool at once, a block of threads each."""
