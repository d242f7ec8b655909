"""Solve a problem with a fixed amount of work: plan, local tables, UTIL and VALUE messages, answer and bound."""
