"""Agents on MPI ranks: placement, messages, clocks, failure."""
