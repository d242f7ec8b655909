"""Helpers of several tests: naive twins, random problems, real instances, files of other programs."""
