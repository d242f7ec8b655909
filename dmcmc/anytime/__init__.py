"""Solve with a clock: improvers raise the objective or lower the bound, chosen by a scheduler, until the time is up."""
