"""Upper bounds W_i(b) ≥ U_i(b) on what an agent's hidden variables can add to each interface assignment b (a row).

`registry` knows the providers; `contract/` says what one is.
"""
