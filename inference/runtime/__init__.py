"""The ground floor: errors, plug-ins, threads, deadlines, caches, memory, the GPU. Knows nothing of problems."""
