"""Branch and bound over rows on a GPU, with one thread block per group of jobs and the CPU's bounds."""
