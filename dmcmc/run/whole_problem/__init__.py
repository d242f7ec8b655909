"""A problem as one, whoever owns its variables: mini-buckets of all of it, sums over it, its solutions counted."""
