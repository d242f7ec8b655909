"""The kernels of a run on a GPU: which of them its agents need, and when they are loaded."""
