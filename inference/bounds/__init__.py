"""Upper bounds W_i(b) ≥ U_i(b) on what an agent's hidden variables can add to each interface assignment b (a row).

A provider of bounds is a plug-in, as a sampler is: :mod:`dmcmc.inference.bounds.protocol` says what it does,
:mod:`dmcmc.inference.bounds.registry` finds it by name.
"""
