"""Agents on MPI ranks: what launchers say, placement, messages, clocks, one end for all when one fails."""
