"""Agents on MPI ranks: launchers, placement, messages, simulated clocks, and a common end when a rank fails."""
