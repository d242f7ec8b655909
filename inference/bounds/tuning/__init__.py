"""Constants that steer the bounds of rows, one file per method: unit, reason, and the benchmark that set each one.

What only lays out memory, numbers or kernels (field numbers, sentinels, lanes, blocks) stands where it is used.
``benchmarks/notebook/`` has the measurements: ``dual-ascent.md``, ``branch-and-bound.md`` and ``semidefinite.md``.
"""
