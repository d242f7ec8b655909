"""Example files of ``dmcmc init``: a calendar and a configuration, with comments."""
