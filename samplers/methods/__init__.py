"""The local solvers, one per file. A sampler is two plain functions, `init` and `step`, that the framework compiles."""
