"""Basic services: errors, plug-ins, threads, deadlines, caches, memory and the GPU; independent of the model."""
