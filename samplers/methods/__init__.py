"""The local solvers, one a file. A sampler is two plain functions, `init` and `step`, that the framework compiles."""
