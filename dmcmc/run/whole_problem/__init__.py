"""Tasks on a whole problem, whoever owns its variables: mini-buckets, marginals, partition function, counting."""
