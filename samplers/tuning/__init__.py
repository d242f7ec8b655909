"""Constants that steer the samplers and search engines, one file per group of packages: unit, reason, benchmark.

A constant stands here if another number would make answers slower, faster, better or worse, but not wrong. Numbers that
are a part of a layout, a number type, a file format or the hardware stand at their use, and so do constants that
kernels are compiled with. ``common.py`` has what several packages, also those of ``dmcmc``, agree on.
"""
