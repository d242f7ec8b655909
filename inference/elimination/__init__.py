"""Exact bucket elimination: plans, the join that never writes the joined table, reading an assignment back."""
