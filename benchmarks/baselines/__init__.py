"""Local searches of the field, as :func:`dmcmc.solve`'s peers: multistart coordinate ascent, DSA, MGM2.

They share no code with the solver but the problem itself. `layout` is what they read, `search_kernels` what they do,
`search` runs one of them for some seconds on all cores.
"""
