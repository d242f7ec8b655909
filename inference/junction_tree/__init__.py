"""Junction trees: max-marginals and marginal probabilities of all variables by messages up and down a clique tree."""
