"""Constants that steer runs, one file per group of packages: unit, reason, benchmark.

The scheduler's are in ``dmcmc/anytime/scheduler/tuning.py``, those of samplers in ``samplers/contract/tuning.py``.
Limits of accepted input, sizes of pages and terminals, and what launchers prescribe stand at their use.
"""
