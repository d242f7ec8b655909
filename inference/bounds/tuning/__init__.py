"""Constants that steer the bounds of rows, one file per method: unit, reason, and the benchmark that set each one.

Constants that only lay out memory, numbers or kernels (field numbers, sentinels, lanes, blocks) stand at their use.
``benchmarks/notebook/`` has the measurements: ``dual-ascent.md``, ``branch-and-bound.md`` and ``semidefinite.md``.
"""
