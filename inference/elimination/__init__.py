"""Exact bucket elimination: plans, the fused join and projection of a bucket, and reading an assignment back."""
